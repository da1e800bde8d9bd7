"""The security settings of a connection, with the contents of the Secrets that it names."""

import base64
import binascii

from delayed_topics_core.reasons import Reason
from delayed_topics_crds import KafkaConnectionSpec
from delayed_topics_crds.connection import OAuth, Sasl, Tls

from delayed_topics_operator.errors import ConnectionUnusable, KubeRefused, NotFound, reason_of
from delayed_topics_operator.gateways.kube import Kube


async def security(kube: Kube, namespace: str, spec: KafkaConnectionSpec) -> dict[str, str]:
    """Returns the security fields of a Connection. `namespace`: of the Secrets. Raises ConnectionUnusable."""
    fields = {"security_protocol": f"{'SASL_' if spec.sasl else ''}{'SSL' if spec.tls else 'PLAINTEXT'}"}
    if spec.tls is not None:
        fields |= await _tls(kube, namespace, spec.tls)
    if spec.sasl is not None:
        fields |= {"sasl_mechanism": spec.sasl.mechanism}
        fields |= await (
            _oauth(kube, namespace, spec.sasl.oauth) if spec.sasl.oauth else _login(kube, namespace, spec.sasl)
        )
    return fields


async def _tls(kube: Kube, namespace: str, tls: Tls) -> dict[str, str]:
    found: dict[str, str] = {}
    if ca := tls.ca_secret_ref:
        found |= await _secret_text(kube, namespace, ca.name, ca_pem=ca.key)
    if pair := tls.client_cert_secret_ref:
        keys = {"certificate_pem": pair.certificate_key, "key_pem": pair.private_key_key}
        found |= await _secret_text(kube, namespace, pair.name, **keys)
    return found


async def _login(kube: Kube, namespace: str, sasl: Sasl) -> dict[str, str]:
    if sasl.secret_ref is None:  # the API server checks it, unless a CRD of another version is installed
        raise ConnectionUnusable(
            f"spec.sasl.mechanism {sasl.mechanism} needs spec.sasl.secretRef. Add it", reason=Reason.SPEC_INVALID
        )
    ref = sasl.secret_ref
    named = {} if sasl.username else {"username": ref.username_key or "username"}
    found = await _secret_text(kube, namespace, ref.name, password=ref.password_key, **named)
    return found | ({"username": sasl.username} if sasl.username else {})


async def _oauth(kube: Kube, namespace: str, oauth: OAuth) -> dict[str, str]:
    ref = oauth.secret_ref
    named = {} if oauth.client_id else {"oauth_client_id": ref.client_id_key or "client-id"}
    found = await _secret_text(kube, namespace, ref.name, oauth_client_secret=ref.client_secret_key, **named)
    if ca := oauth.ca_secret_ref:
        found |= await _secret_text(kube, namespace, ca.name, token_endpoint_ca_pem=ca.key)
    plain = {
        "token_endpoint_url": oauth.token_endpoint_url,
        "oauth_client_id": oauth.client_id,
        "oauth_scope": oauth.scope,
        "oauth_extensions": ",".join(f"{name}={value}" for name, value in (oauth.extensions or {}).items()),
    }
    return found | {field: text for field, text in plain.items() if text}


async def _secret_text(kube: Kube, namespace: str, name: str, **keys: str) -> dict[str, str]:
    """Returns the text for each field of a Connection. `keys`: the key of the Secret for each field. Raises ConnectionUnusable."""
    try:
        data = (await kube.get("Secret", namespace, name)).get("data") or {}
        return {field: base64.b64decode(data[key]).decode() for field, key in keys.items()}
    except NotFound as e:
        raise ConnectionUnusable(
            f"Secret {namespace}/{name} does not exist. Create it with these keys: {', '.join(keys.values())}",
            reason=Reason.CREDENTIALS_MISSING,
        ) from e
    except KeyError as e:
        raise ConnectionUnusable(
            f"Secret {namespace}/{name} has no key {e}. Add it", reason=Reason.CREDENTIALS_MISSING
        ) from e
    except (binascii.Error, UnicodeDecodeError) as e:
        raise ConnectionUnusable(
            f"Secret {namespace}/{name} has a value that is not UTF-8 text in base64. Correct it",
            reason=Reason.CREDENTIALS_MISSING,
        ) from e
    except KubeRefused as e:
        raise ConnectionUnusable(str(e), reason=reason_of(e)) from e
