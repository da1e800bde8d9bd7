"""Kafka hasn't the rebalance protocol that a resource asks for: its workers have the one that every Kafka has. Pure.

Whether Kafka has it no call of the client tells. A worker that tries ends, while those that it was to replace go on.
"""

from dataclasses import replace

from delayed_topics_crds import RefusedProtocol

from delayed_topics_operator.delayed_topic.reconcile.observation import Observation
from delayed_topics_operator.values.pods import protocol_refusal


def settled(o: Observation) -> Observation:
    """With the protocol that the workers shall have. It is tried again when the resource is edited."""
    refused = _refused(o)
    if refused is None:
        return o
    return replace(o, refused_protocol=refused, wanted=replace(o.wanted, protocol="Classic", assignor="Range"))


def _refused(o: Observation) -> RefusedProtocol | None:
    if o.wanted.protocol == "Classic":
        return None
    known = o.subject.status.rebalance.refused if o.subject.status.rebalance is not None else None
    if known is not None and known.generation == o.subject.generation:
        return known
    message = next((said for pod in o.worker_pods if (said := protocol_refusal(pod))), None)
    return RefusedProtocol(generation=o.subject.generation, message=message) if message else None
