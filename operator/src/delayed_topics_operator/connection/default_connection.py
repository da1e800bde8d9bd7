"""The ClusterKafkaConnection from the chart's values. Helm can't create it, because Helm looks up the kind before it creates the CRD."""

import logging

from delayed_topics_operator.engine.installation import INSTALLATION, installation_of
from delayed_topics_operator.errors import KubeRefused, NotFound
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.values.manifest import Manifest

log = logging.getLogger(__name__)

TEMPORARY = (401, 404, 409)
"""HTTP statuses of refusals that may be over soon: a token is being renewed, the kind does not exist yet, or someone else was faster. All
others stay until someone changes the chart's values, or what refuses them."""


async def apply_default_connection(kube: Kube, manifest: Manifest, *, namespace: str) -> None:
    """Applies the connection from the chart's values. Fields that others added stay. The connection of another installation is left as it
    is, with a warning, because a takeover would lead all resources that use it to another Kafka.

    `namespace`: of this installation. Raises KubeError, but not if the manifest is refused for good. This is only logged, so that
    resources with another connection are served all the same.
    """
    name = manifest["metadata"]["name"]
    try:
        found: Manifest = await kube.get(manifest["kind"], None, name)
    except NotFound:
        found = {}
    owner = installation_of(found) if found else None
    if owner not in (None, namespace):
        log.warning(
            "%s %s belongs to the installation in namespace %s. This installation leaves it alone, and serves only resources that refer to "
            "a connection of its own. Give this installation a default connection of its own (chart value defaultConnection.name). If the "
            "other installation is gone, you can instead run this command and then restart this operator: "
            "kubectl annotate --overwrite %s %s %s=%s",
            *(manifest["kind"], name, owner, manifest["kind"].lower(), name, INSTALLATION, namespace),
        )
        return
    metadata = {**manifest["metadata"], "annotations": {INSTALLATION: namespace}}
    if found:  # the call fails with Conflict if another operator has recorded itself since
        metadata["resourceVersion"] = found["metadata"]["resourceVersion"]
    # Each installation has its own field manager, and creates without force. So if two create it at the same time, one gets Conflict.
    manager = f"delayed-topics-chart-{namespace}"
    try:
        await kube.apply({**manifest, "metadata": metadata}, field_manager=manager, force=bool(found))
    except KubeRefused as e:
        if e.status in TEMPORARY or e.status >= 500:
            raise
        log.error(
            "%s. Until this is corrected, only other connections are served. Correct the chart value defaultConnection. If a policy of the "
            "cluster refuses the connection, correct the policy and restart this operator",
            e,
        )
