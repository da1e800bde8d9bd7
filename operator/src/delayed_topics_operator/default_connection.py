"""The ClusterKafkaConnection that comes with the chart. Helm can't make it: it looks up the kind before it makes the kind."""

import logging

from delayed_topics_operator.errors import KubeRefused, NotFound
from delayed_topics_operator.gateways.kube import Kube, Manifest
from delayed_topics_operator.installation import INSTALLATION, installation_of

log = logging.getLogger(__name__)

INVALID = (400, 422)
"""Answers that stay the same until somebody changes the chart's values, which starts the operator again."""


async def apply_default_connection(kube: Kube, manifest: Manifest, *, namespace: str) -> None:
    """Makes it what the chart's values say; fields that others added stay. One of another installation is left as it is, and
    said: taking it over would lead all resources that use it to another Kafka.

    `namespace`: of this installation. Raises KubeError, but not for a manifest that is invalid: that is said, since one who
    uses a connection of his own shall be served all the same.
    """
    name = manifest["metadata"]["name"]
    try:
        found: Manifest = await kube.get(manifest["kind"], None, name)
    except NotFound:
        found = {}
    owner = installation_of(found) if found else None
    if owner not in (None, namespace):
        log.warning(
            "%s %s belongs to the installation in namespace %s, so this one leaves it alone and serves only what refers to a connection "
            "of its own: give it one (chart value defaultConnection.name), or if the other is gone: "
            "kubectl annotate --overwrite %s %s %s=%s, and restart this operator",
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
        if e.status not in INVALID:
            raise
        log.error("%s. Correct the chart's value defaultConnection; until then only other connections are served", e)
