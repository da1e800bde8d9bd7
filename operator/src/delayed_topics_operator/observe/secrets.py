"""The texts of a Secret that a connection names."""

import base64
import binascii

from delayed_topics_core.reasons import Reason

from delayed_topics_operator.errors import ConnectionUnusable, KubeRefused, NotFound
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.reconcile.failures import reason_of


async def secret_text(kube: Kube, namespace: str, name: str, **keys: str) -> dict[str, str]:
    """Text by field of a Connection. `keys`: which key of the Secret is which field. Raises ConnectionUnusable."""
    try:
        data = (await kube.get("Secret", namespace, name)).get("data") or {}
        return {field: base64.b64decode(data[key]).decode() for field, key in keys.items()}
    except NotFound as e:
        raise ConnectionUnusable(
            f"Secret {namespace}/{name} does not exist: make it, with the keys {', '.join(keys.values())}",
            reason=Reason.CREDENTIALS_MISSING,
        ) from e
    except KeyError as e:
        raise ConnectionUnusable(
            f"Secret {namespace}/{name} has no key {e}: add it", reason=Reason.CREDENTIALS_MISSING
        ) from e
    except (binascii.Error, UnicodeDecodeError) as e:
        raise ConnectionUnusable(
            f"Secret {namespace}/{name} holds something that is not text: {e}", reason=Reason.CREDENTIALS_MISSING
        ) from e
    except KubeRefused as e:
        raise ConnectionUnusable(str(e), reason=reason_of(e)) from e
