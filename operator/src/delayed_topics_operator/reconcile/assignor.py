"""Workers get another assignor: may they be replaced one by one, or must all stop first?

Members of a group must have an assignor in common, and Kafka's client takes `cooperative-sticky` with no other. A worker that comes with
another one is refused for as long as one is there that has it, so replacing one by one would never end.
"""

from delayed_topics_core.reasons import Condition, Reason

from delayed_topics_operator.observation import Manifest, Observation
from delayed_topics_operator.plan import ConditionState, Finding, ScaleWorkers

WAKE_SECONDS = 2.0
STICKY = "cooperative-sticky"


def mixes(o: Observation) -> bool:
    """Whether workers as declared may be in one group with those that are in it."""
    assert o.kafka is not None, "access is checked first"
    group, before = o.kafka.group, o.subject.status.rebalance
    # while members join, Kafka doesn't tell which assignor it will be
    running = group.assignor or (before.assignor if before is not None and group.members else None)
    return running is None or (running == STICKY) == (o.wanted.assignor == "Sticky")


def stop_first(o: Observation, live: Manifest) -> Finding | None:
    """What is to be done before workers are made as declared; None: nothing, or it has to wait its turn as any other change of pods.
    A worker that stopped is a member until its session is over."""
    assert o.kafka is not None
    replicas, pods = live["spec"]["replicas"], (live.get("status") or {}).get("replicas", 0)
    if (replicas and not o.may_roll) or not (replicas or pods or o.kafka.group.members):
        return None
    meta = live["metadata"]
    scale = ScaleWorkers(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"], present=replicas, replicas=0)
    message = (
        f"all workers of {o.wanted.names.front} stop before they start again with the assignor {o.wanted.assignor}: those of "
        "assignor Sticky can't be in one group with others. Records wait meanwhile"
    )
    said = ConditionState(status="False", reason=Reason.WORKERS_STARTING, message=message)
    return Finding(
        actions=(scale,) if replicas else (), conditions={Condition.WORKERS_READY: said}, wake_seconds=WAKE_SECONDS
    )
