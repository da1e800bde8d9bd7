"""Our finalizer on a resource: put on before anything is made for it, taken off when all of that is gone."""

from delayed_topics_operator.errors import Conflict, NotFound, NotYet
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.queue import Key
from delayed_topics_operator.store import Store
from delayed_topics_operator.translate import FINALIZER


async def set_finalizer(kube: Kube, store: Store, key: Key, *, present: bool) -> None:
    """Raises KubeError, NotYet if somebody else changed the resource meanwhile: the watch tells how it is now."""
    resource = store.get(*key)
    if resource is None:
        return
    meta = resource["metadata"]
    others = [name for name in meta.get("finalizers", ()) if name != FINALIZER]
    patch = {
        "metadata": {
            "finalizers": [*others, FINALIZER] if present else others,
            "resourceVersion": meta["resourceVersion"],
        }
    }
    try:
        store.put(await kube.merge(*key, patch))
    except Conflict as e:
        raise NotYet(f"{key} was changed meanwhile") from e
    except NotFound:
        store.gone(resource)
