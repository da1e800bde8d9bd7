"""The generations of a delayed topic's consumer group, as its workers have reported them, and as Kafka has recorded them."""

import base64
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from delayed_topics_core.events import Event
from delayed_topics_core.rebalances import Rebalance, Rebalances
from delayed_topics_devcluster.kafka import compiled, java_tool, kafka_jars
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.events import EventFollower
from delayed_topics_kafka.groups import assigned_partitions

from delayed_topics_worker_testing.harness import DeclaredTopic
from delayed_topics_worker_testing.process import WorkerProcess

FORMATTER: Final = Path(__file__).with_name("ConsumerGroupFormatter.java")
Owners = dict[tuple[str, int], str]
ALIVE_SECONDS: Final = 5
"""A process that started at least so long before a generation is a member that learns of it."""
LEARNED_SECONDS: Final = 1
"""Each member that is alive learns of a generation that lasts at least so long."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A generation of a group, as Kafka has recorded it. `owners`: by partition, the client id of the member that has it. With protocol
    `consumer`, this is what one member gets in answer to a heartbeat, and an epoch has several of them."""

    number: int
    at_ms: int
    owners: Owners


def events_of(orders: DeclaredTopic) -> list[Event]:
    """Returns all events that workers have written about the delayed topic, oldest first."""
    found: list[Event] = []
    with EventFollower(orders.harness.connection) as follower:
        follower.catch_up(120, lambda event: found.append(event) if event.topic == orders.names.front else None)
    return found


def reported_rebalances(orders: DeclaredTopic) -> tuple[Rebalance, ...]:
    """Returns the rebalances that workers have reported, oldest first."""
    found = Rebalances(keep=100)
    for event in events_of(orders):
        found.add(event)
    return found.latest


def owners_now(orders: DeclaredTopic) -> Owners:
    group: Any = orders.harness.admin.describe_groups([orders.record.group])[orders.record.group]
    return {place: member.client_id for member in group.members for place in member.assignment}


def members_now(orders: DeclaredTopic) -> set[str]:
    """Returns the client ids of all members, including those that are gone and that the group still waits for."""
    group: Any = orders.harness.admin.describe_groups([orders.record.group])[orders.record.group]
    return {member.client_id for member in group.members}


def recorded_generations(orders: DeclaredTopic, protocol: str = "classic") -> list[Generation]:
    """Returns the generations in `__consumer_offsets`, for a group that has had members. Reads again if there are none, because on a busy
    machine the formatter may end before it has read anything."""
    recorded: list[Generation] = []

    def is_recorded() -> bool:
        recorded[:] = _recorded_of_classic(orders) if protocol == "classic" else _recorded_of_consumer(orders)
        return bool(recorded)

    wait_until(is_recorded, what=f"Kafka's notes of {orders.record.group} are read")
    return recorded


def _recorded_of_classic(orders: DeclaredTopic) -> list[Generation]:
    recorded: dict[int, Generation] = {}
    for record in _group_records(orders, "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter"):
        if record["key"]["data"]["group"] == orders.record.group and (record["value"] or {}).get("data"):
            value = record["value"]["data"]
            owners = {
                place: member["clientId"] for member in value["members"] for place in _assigned(member["assignment"])
            }
            number = value["generation"]
            recorded[number] = Generation(number=number, at_ms=value["currentStateTimestamp"], owners=owners)
    return [recorded[number] for number in sorted(recorded)]


def _recorded_of_consumer(orders: DeclaredTopic) -> list[Generation]:
    topics = {topic_id: name for name, topic_id in orders.topics.ids.items()}
    client_ids: dict[str, str] = {}
    had: dict[str, set[tuple[str, int]]] = {}
    recorded: list[Generation] = []
    for record in _group_records(orders, FORMATTER.stem, class_path=compiled("groups", [FORMATTER], jars=kafka_jars())):
        member, value = record["key"]["memberId"], record.get("value")
        if record["key"]["groupId"] != orders.record.group or value is None:
            continue
        if "clientId" in value:
            client_ids[member] = value["clientId"]
            continue
        has = {(topics[t["topicId"]], n) for t in value["assignedPartitions"] for n in t["partitions"]}
        if gained := has - had.get(member, set()):
            owners = dict.fromkeys(gained, client_ids[member])
            recorded.append(Generation(number=value["memberEpoch"], at_ms=record["at_ms"], owners=owners))
        had[member] = has
    return recorded


def _group_records(orders: DeclaredTopic, formatter: str, *, class_path: str | None = None) -> Iterator[dict[str, Any]]:
    """Returns the records of all groups, oldest first, as the formatter prints them."""
    server = orders.harness.connection.bootstrap_servers
    printed = java_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", server, "--topic", "__consumer_offsets", "--from-beginning"),
        *("--formatter", formatter, "--timeout-ms", "5000"),
        class_path=class_path,
    )
    return json_of(printed)


def moves(
    generations: Sequence[Generation], heard: Callable[[int, str], bool] = lambda *_: True
) -> Iterator[tuple[int, int]]:
    """Returns the number of each generation with moved partitions, ascending, with the number of partitions that got another owner in it.
    `heard`: whether a member learned what a generation gave it; if not, it never had these partitions."""
    owners: Owners = {}
    moved: Counter[int] = Counter()
    for generation in generations:
        had = {place: owner for place, owner in generation.owners.items() if heard(generation.number, owner)}
        moved[generation.number] += len([place for place, owner in had.items() if owners.get(place) != owner])
        owners |= had
    return ((number, moved[number]) for number in sorted(+moved))


def must_have_learned(
    generations: Sequence[Generation], processes: Iterable[WorkerProcess], protocol: str
) -> set[tuple[int, str]]:
    """Returns generations, each with a member that must have learned what the generation gave it.

    With `classic`, Kafka also assigns partitions to a static member whose process has ended, and may start the next generation before
    anyone has learned of the last. With `consumer`, Kafka answers each member by itself, whatever epoch the group has reached meanwhile.
    """
    classic = protocol == "classic"
    next_ms = [*(generation.at_ms for generation in generations[1:]), math.inf]
    alive_ms = ALIVE_SECONDS * 1000 if classic else 0
    return {
        (generation.number, process.member)
        for generation, end_ms in zip(generations, next_ms, strict=True)
        for process in processes
        if process.member in generation.owners.values()
        and process.started_at_ms + alive_ms <= generation.at_ms
        and generation.at_ms + LEARNED_SECONDS * 1000
        <= min(end_ms if classic else math.inf, process.ended_at_ms or math.inf)
    }


def json_of(printed: str) -> Iterator[dict[str, Any]]:
    """Returns the records of a formatter's output, which has no line ends between them."""
    decoder, at = json.JSONDecoder(), printed.find("{")
    while at >= 0:
        record, end = decoder.raw_decode(printed, at)
        yield record
        at = printed.find("{", end)


def _assigned(assignment: str) -> Iterator[tuple[str, int]]:
    """Decodes an assignment as the formatter prints it."""
    return assigned_partitions(base64.b64decode(assignment))
