"""The operator's finalizer on a resource: added before anything is made for the resource, and removed when all of that is gone."""

from delayed_topics_operator.engine.installation import INSTALLATION
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.errors import Conflict, NotFound, NotYet
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.values.annotations import FINALIZER
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.slim import TOO_LARGE


async def set_finalizer(
    kube: Kube, store: Store, key: Key, *, present: bool, uid: str | None = None, installation: str | None = None
) -> None:
    """Adds or removes the finalizer. `uid`: the UID of the resource; None: of whichever resource has this name. `installation`: recorded
    in the same call.

    Raises KubeError. Raises NotYet if someone else changed the resource in the meantime, which a watch is about to report. Raises NotYet
    also if the finalizer is to be added and the resource is gone, because nothing may be made for it.
    """
    resource = store.get(*key)
    gone = NotYet(f"{key} was deleted meanwhile")
    if resource is None or uid not in (None, resource["metadata"]["uid"]):
        if present:
            raise gone
        return
    meta = resource["metadata"]
    try:
        finalizers = meta.get("finalizers", ())
        if TOO_LARGE in finalizers:
            whole = await kube.list_one(*key, keep=lambda whole: whole)
            finalizers = whole["metadata"].get("finalizers", ()) if whole is not None else ()
        others = [name for name in finalizers if name != FINALIZER]
        patch = {
            "metadata": {
                "finalizers": [*others, FINALIZER] if present else others,
                "resourceVersion": meta["resourceVersion"],  # that of the other finalizers, or the patch is refused
                **({"annotations": {INSTALLATION: installation}} if installation is not None else {}),
            }
        }
        store.put(await kube.merge(*key, patch))
    except Conflict as e:
        raise NotYet(f"{key} was changed meanwhile") from e
    except NotFound as e:
        store.gone(resource)
        if present:
            raise gone from e


async def check_is_there(kube: Kube, store: Store, resource: Manifest) -> None:
    """Raises NotYet if the API server no longer has this resource, and KubeError. If it was created again, what its deletion would remove
    belongs to its successor, and the store may not know that yet."""
    kind, meta = resource["kind"], resource["metadata"]
    begun_at = store.clock()
    found = await kube.list_one(kind, meta["namespace"], meta["name"])
    if found is not None and found["metadata"]["uid"] == meta["uid"]:
        return
    store.gone(resource)
    if found is not None:
        store.put(found, begun_at=begun_at)
    raise NotYet(f"{kind} {meta['namespace']}/{meta['name']} was deleted meanwhile")
