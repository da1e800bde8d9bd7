"""Decides whether workers that get another assignor can be replaced one by one, or have to stop all at once.

All members of a group must have an assignor in common, and Kafka's client does not combine `cooperative-sticky` with another one. Kafka
refuses a worker with another assignor while the group has a member with this one. Replacing the workers one by one would never end.
"""

from delayed_topics_core.reasons import Condition, Reason

from delayed_topics_operator.delayed_topic.reconcile.observation import Observation
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import ConditionState, Finding, ScaleWorkers

WAKE_SECONDS = 2.0
STICKY = "cooperative-sticky"


def mixes(o: Observation) -> bool:
    """Whether workers with the declared assignor can join the group while its present members are in it."""
    assert o.kafka is not None, "access is checked first"
    group, before = o.kafka.group, o.subject.status.rebalance
    # while members join, Kafka does not report which assignor the group will have
    running = group.assignor or (before.assignor if before is not None and group.members else None)
    return running is None or (running == STICKY) == (o.wanted.assignor == "Sticky")


def stop_first(o: Observation, live: Manifest) -> Finding | None:
    """Returns the step that must come before workers start with the declared assignor: all workers stop. Returns None if no step is needed,
    or if it has to wait like any other change of pods. A worker that has stopped stays a member of the group until its session ends."""
    assert o.kafka is not None
    replicas, pods = live["spec"]["replicas"], (live.get("status") or {}).get("replicas", 0)
    if (replicas and not o.rollout.all_may_change) or not (replicas or pods or o.kafka.group.members):
        return None
    meta = live["metadata"]
    scale = ScaleWorkers(
        namespace=meta["namespace"], name=meta["name"], uid=meta["uid"], present=replicas, replicas=0, rolls=True
    )
    message = (
        f"all workers of {o.wanted.names.front} stop before they start again with the assignor {o.wanted.assignor}. Workers with the "
        "assignor Sticky can't be in one consumer group with other workers. Records wait until the workers have started"
    )
    state = ConditionState(status="False", reason=Reason.WORKERS_STARTING, message=message)
    return Finding(
        actions=(scale,) if replicas else (), conditions={Condition.WORKERS_READY: state}, wake_seconds=WAKE_SECONDS
    )
