"""The ClusterKafkaConnection that comes with the chart. Helm can't make it: it looks up the kind before it makes the kind."""

import logging

from delayed_topics_operator.engine.installation import INSTALLATION, installation_of
from delayed_topics_operator.errors import KubeRefused, NotFound
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.values.manifest import Manifest

log = logging.getLogger(__name__)

TEMPORARY = (401, 404, 409)
"""Refusals that may be over soon: of a token that is renewed, of a kind that is not there yet, of a change that somebody else was faster
with. All others stay until somebody changes the chart's values, or what refuses them."""


async def apply_default_connection(kube: Kube, manifest: Manifest, *, namespace: str) -> None:
    """Applies what the chart's values say. Fields that others added stay. The connection of another installation is left as it is, and
    a warning is logged: a takeover would lead all resources that use it to another Kafka.

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
    if found:  # refused with Conflict if another operator has written itself there since
        metadata["resourceVersion"] = found["metadata"]["resourceVersion"]
    # A manager of this installation's own, without force where there was none: of two that make it at once one gets Conflict.
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
