"""The Python client of delayed topics, and the command `delayed-topics`. Applications send and handle records with them, and inspect them.

from delayed_topics import DelayedTopic, Reject

with DelayedTopic.connect("kafka:9092", "orders") as orders:
    orders.send(b"…", key=b"42", delay_level=2)
    orders.consume("shipping", ship)     # if ship raises Reject, the record is a dead letter; any other exception retries it

The work of the operator and of the workers does not belong here, and neither does anything that needs Kubernetes.
"""

from delayed_topics_core.errors import DelayedTopicsError

from delayed_topics.control import ChangeOutcome
from delayed_topics.declaration import DeclaredHandler, delayed_topic
from delayed_topics.errors import ClientForked, GroupInvalid, NotDelayedTopic, Reject, SendFailed
from delayed_topics.record import Record
from delayed_topics.records import Records
from delayed_topics.topic import Consumer, DelayedTopic

__all__ = [
    "ChangeOutcome",
    "ClientForked",
    "Consumer",
    "DeclaredHandler",
    "DelayedTopic",
    "DelayedTopicsError",
    "GroupInvalid",
    "NotDelayedTopic",
    "Record",
    "Records",
    "Reject",
    "SendFailed",
    "delayed_topic",
]
