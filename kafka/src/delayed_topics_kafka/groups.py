"""Admin calls that describe and delete consumer groups, and read and write their committed offsets."""

import struct
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, MemberAssignment, MemberDescription
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey

from delayed_topics_kafka.calls import AdminCalls, Wait, forgiving, nothing
from delayed_topics_kafka.errors import KafkaCallError
from delayed_topics_kafka.model import GroupInfo, GroupMember

Committed = dict[TopicPartitionKey, OffsetAndMetadata | KafkaCallError | None]


class GroupCalls(AdminCalls):
    """Admin calls about consumer groups."""

    def committed_of_groups(
        self, wanted: Mapping[str, Sequence[TopicPartitionKey] | None]
    ) -> dict[str, Committed | KafkaCallError]:
        """Returns the committed offsets by group and partition. For a group whose `wanted` is None, these are all partitions with a
        commit. For others, these are the partitions of `wanted`, and None means that a partition has no commit.

        Offsets of an open transaction are not included. The call does not wait for the end of the transaction either, because it
        may belong to a killed worker, and Kafka then aborts it only after its `transaction.timeout.ms`.
        """

        def send(pending: list[str], timeout_seconds: float) -> Mapping[str, Wait]:
            # librdkafka takes one group per call, so this sends all calls before it waits for any of them
            return {
                group: self._client.list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(group, _topic_partitions(wanted[group]))],
                    request_timeout=timeout_seconds,
                )[group].result
                for group in pending
            }

        def values(answer: ConsumerGroupTopicPartitions) -> Committed:
            return {
                (tp.topic, tp.partition): self._committed(answer.group_id, tp) for tp in answer.topic_partitions or ()
            }

        requested = [group for group, partitions in wanted.items() if partitions is None or partitions]
        found = self._many(requested, send, lambda group: f"reading the offsets of group {group}", values)
        return {group: found.get(group, {}) for group in wanted}

    def commit(
        self, group: str, offsets: Mapping[TopicPartitionKey, OffsetAndMetadata]
    ) -> dict[TopicPartitionKey, KafkaCallError | None]:
        """Commits offsets of a group without members, which need not exist yet. If it has members, each outcome is GroupActive, and nothing
        changes."""

        def send(pending: list[TopicPartitionKey], timeout_seconds: float) -> Mapping[TopicPartitionKey, Wait]:
            offered = [TopicPartition(*key, offsets[key].offset, offsets[key].metadata) for key in pending]
            future = self._client.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, offered)], request_timeout=timeout_seconds
            )[group]
            return {key: _one_of(future.result, key) for key in pending}

        def doing(key: TopicPartitionKey) -> str:
            return f"committing offsets of group {group} for {key[0]} [{key[1]}]"

        return self._many(list(offsets), send, doing, nothing)

    def describe_groups(self, groups: Sequence[str]) -> dict[str, GroupInfo | KafkaCallError]:
        """Returns the state and the members of each group. A group that doesn't exist has the state Dead."""

        def send(pending: list[str], timeout_seconds: float) -> Mapping[str, Wait]:
            futures = self._client.describe_consumer_groups(pending, request_timeout=timeout_seconds)
            return {group: future.result for group, future in futures.items()}

        return self._many(groups, send, lambda group: f"describing group {group}", _group_info)

    def describe_classic_group(self, group: str) -> GroupInfo | KafkaCallError:
        """As `describe_groups`, for one group with the classic protocol. A group with another protocol has the state Dead.

        This uses the older of the client library's two calls, which asks every broker and not the coordinator, and returns no instance
        ids. The newer call can abort the process if it gets no answer (https://github.com/confluentinc/librdkafka/issues/4605).
        """

        def send(pending: list[str], timeout_seconds: float) -> Mapping[str, Wait]:
            return dict.fromkeys(pending, lambda _: _listed(self._client, group, timeout_seconds))

        return self._many([group], send, lambda group: f"describing group {group}", lambda found: found)[group]

    def delete_groups(self, groups: Sequence[str]) -> dict[str, KafkaCallError | None]:
        """Deletes groups. A group that doesn't exist counts as deleted."""

        def send(pending: list[str], timeout_seconds: float) -> Mapping[str, Wait]:
            futures = self._client.delete_consumer_groups(pending, request_timeout=timeout_seconds)
            return {group: future.result for group, future in futures.items()}

        outcomes = self._many(groups, send, lambda group: f"deleting group {group}", nothing)
        return forgiving(outcomes, code=KafkaError.GROUP_ID_NOT_FOUND)

    def _committed(self, group: str, tp: TopicPartition) -> OffsetAndMetadata | KafkaCallError | None:
        if tp.error is not None:
            return self._error(tp.error, f"reading the offset of group {group} for {tp.topic} [{tp.partition}]")
        return OffsetAndMetadata(tp.offset, tp.metadata or "") if tp.offset >= 0 else None


def _listed(client: AdminClient, group: str, timeout_seconds: float) -> GroupInfo:
    """Describes the group by the older call. Raises KafkaException."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found: list[Any] = client.list_groups(group=group, timeout=timeout_seconds)
    listed = next((one for one in found if one.id == group), None)
    if listed is None or listed.state == "Dead":
        return GroupInfo(group=group, state="Dead", protocol="classic", members=())
    members = tuple(
        GroupMember(
            client_id=member.client_id,
            assignment=tuple(sorted(assigned_partitions(member.assignment))),
            target=None,
        )
        for member in listed.members
    )
    return GroupInfo(group=group, state=listed.state, protocol="classic", members=members, assignor=listed.protocol)


def assigned_partitions(assignment: bytes) -> Iterator[TopicPartitionKey]:
    """Decodes Kafka's ConsumerProtocolAssignment, which is a version followed by topics with their partitions."""
    if not assignment:
        return
    (topics,) = struct.unpack_from(">i", assignment, 2)
    at = 6
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", assignment, at)
        topic = assignment[at + 2 : at + 2 + length].decode()
        (count,) = struct.unpack_from(">i", assignment, at + 2 + length)
        at += 6 + length
        yield from ((topic, partition) for partition in struct.unpack_from(f">{count}i", assignment, at))
        at += 4 * count


def _one_of(result: Wait, key: TopicPartitionKey) -> Wait:
    """Returns a function that waits for the answer to a whole request, and raises the error of one partition."""

    def wait(timeout_seconds: float) -> None:
        answer: ConsumerGroupTopicPartitions = result(timeout_seconds)
        for tp in answer.topic_partitions or ():
            if (tp.topic, tp.partition) == key and tp.error is not None:
                raise KafkaException(tp.error)

    return wait


def _topic_partitions(keys: Sequence[TopicPartitionKey] | None) -> list[TopicPartition] | None:
    return None if keys is None else [TopicPartition(*key) for key in keys]


def _group_info(described: ConsumerGroupDescription) -> GroupInfo:
    return GroupInfo(
        group=described.group_id,
        state=_camel(described.state.name),
        protocol=described.type.name.lower(),
        assignor=described.partition_assignor or "",
        members=tuple(_member(member) for member in described.members),
    )


def _member(described: MemberDescription) -> GroupMember:
    target = described.target_assignment
    return GroupMember(
        client_id=described.client_id,
        assignment=_keys(described.assignment),
        target=None if target is None else _keys(target),
    )


def _keys(assignment: MemberAssignment) -> tuple[TopicPartitionKey, ...]:
    return tuple(sorted((tp.topic, tp.partition) for tp in assignment.topic_partitions))


def _camel(name: str) -> str:
    """Turns a name of the client library, such as PREPARING_REBALANCING, into Kafka's, such as PreparingRebalance."""
    return "".join(word.capitalize() for word in name.replace("REBALANCING", "REBALANCE").split("_"))
