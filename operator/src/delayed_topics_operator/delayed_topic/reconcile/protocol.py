"""Replaces a rebalance protocol that Kafka does not support with Classic, which every Kafka supports. Pure.

No call of the client shows which protocols Kafka supports. A worker that tries an unsupported one exits, while the workers that it was to
replace continue.
"""

from dataclasses import replace

from delayed_topics_crds import RefusedProtocol

from delayed_topics_operator.delayed_topic.reconcile.observation import Observation
from delayed_topics_operator.values.pods import protocol_refusal


def settled(o: Observation) -> Observation:
    """Returns the observation with the protocol that the workers use. An edit of the resource has the declared protocol tried again."""
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
    message = next((refusal for pod in o.worker_pods if (refusal := protocol_refusal(pod))), None)
    return RefusedProtocol(generation=o.subject.generation, message=message) if message else None
