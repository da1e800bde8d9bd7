"""What Kafka says against serving a partition: its own topic, or one that its records go to, is missing or another one."""

from delayed_topics_core.reasons import Reason
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_worker.assigned import AssignedPartition, Stop
from delayed_topics_worker.topic_watch import TopicsSnapshot


def stop_for(owned: AssignedPartition, snapshot: TopicsSnapshot, retry_at: float) -> Stop | None:
    """Returns why this partition can't be served: its own topic, or one that its records go to, is missing or another one."""
    names = owned.served.names
    refused, target = (owned.stop.refused, owned.stop.target) if owned.stop else (None, None)
    for topic in dict.fromkeys((owned.topic, names.ready, names.delays, target)):
        if topic is None or topic not in snapshot.topics:
            continue
        info = snapshot.topics[topic]
        if info is None:
            reason = Reason.TOPIC_MISSING if topic == owned.topic else Reason.TARGET_UNAVAILABLE
            message = (
                f"{owned} can't be served, because topic {topic} does not exist. The operator creates it again if it is allowed to. See "
                "the conditions of the DelayedTopic for what to do"
            )
            gone = topic == owned.topic
            return Stop(
                reason=reason, message=message, retry_at=retry_at, topic_gone=gone, refused=refused, target=target
            )
        noted = owned.served.noted_id(topic)
        if isinstance(info, TopicInfo) and noted is not None and info.id != noted:
            message = (
                f"{owned} can't be served, because topic {topic} was deleted and created again, so it is not the topic that was served. "
                f"Its id is {info.id}, but the registry has {noted}. See the conditions of the DelayedTopic for what to do"
            )
            gone = topic == owned.topic
            return Stop(reason=Reason.TOPIC_RECREATED, message=message, retry_at=retry_at, topic_gone=gone)
    return None
