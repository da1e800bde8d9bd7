"""The generations of a delayed topic's consumer group: as its workers told them, and as Kafka has noted them."""

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delayed_topics_core.events import Event
from delayed_topics_core.rebalances import Rebalance, Rebalances
from delayed_topics_devcluster.kafka import java_tool
from delayed_topics_kafka.events import EventFollower
from delayed_topics_kafka.groups import assigned_partitions

from delayed_topics_worker_testing.harness import DeclaredTopic
from delayed_topics_worker_testing.process import WorkerProcess

Owners = dict[tuple[str, int], str]
ALIVE_SECONDS: Final = 5
"""A process that started so long before a generation is a member that hears of it."""
HEARD_SECONDS: Final = 1
"""A generation that lasts so long is heard of by each member that is alive."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """Of a group, as Kafka has noted it. `owners`: by partition, the client id of the member that has it."""

    number: int
    at_ms: int
    owners: Owners


def events_of(orders: DeclaredTopic) -> list[Event]:
    """All that workers have told of the delayed topic, oldest first."""
    found: list[Event] = []
    with EventFollower(orders.harness.connection) as follower:
        follower.catch_up(120, lambda event: found.append(event) if event.topic == orders.names.front else None)
    return found


def told(orders: DeclaredTopic) -> tuple[Rebalance, ...]:
    """Oldest first."""
    found = Rebalances(keep=100)
    for event in events_of(orders):
        found.add(event)
    return found.latest


def owners_now(orders: DeclaredTopic) -> Owners:
    group: Any = orders.harness.admin.describe_groups([orders.record.group])[orders.record.group]
    return {place: member.client_id for member in group.members for place in member.assignment}


def members_now(orders: DeclaredTopic) -> set[str]:
    """The client ids of all members, also of those that have gone and are waited for."""
    group: Any = orders.harness.admin.describe_groups([orders.record.group])[orders.record.group]
    return {member.client_id for member in group.members}


def noted_by_kafka(orders: DeclaredTopic) -> list[Generation]:
    """With the classic protocol, by Kafka's formatter of `__consumer_offsets`."""
    printed = java_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *(
            "--bootstrap-server",
            orders.harness.connection.bootstrap_servers,
            "--topic",
            "__consumer_offsets",
            "--from-beginning",
        ),
        *("--formatter", "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter", "--timeout-ms", "5000"),
    )
    noted: dict[int, Generation] = {}
    for record in json_of(printed):
        if record["key"]["data"]["group"] == orders.record.group and (record["value"] or {}).get("data"):
            value = record["value"]["data"]
            owners = {
                place: member["clientId"] for member in value["members"] for place in _assigned(member["assignment"])
            }
            number = value["generation"]
            noted[number] = Generation(number=number, at_ms=value["currentStateTimestamp"], owners=owners)
    return [noted[number] for number in sorted(noted)]


def moves(
    generations: Sequence[Generation], heard: Callable[[int, str], bool] = lambda *_: True
) -> Iterator[tuple[int, int]]:
    """Number of a generation, and of the partitions that got another owner in it. `heard`: whether a member heard of what a generation
    gave it; if not, it never had that."""
    owners: Owners = {}
    for generation in generations:
        had = {place: owner for place, owner in generation.owners.items() if heard(generation.number, owner)}
        if moved := len([place for place, owner in had.items() if owners.get(place) != owner]):
            yield generation.number, moved
        owners |= had


def must_have_heard(generations: Sequence[Generation], processes: Iterable[WorkerProcess]) -> set[tuple[int, str]]:
    """Generations, and the members that can't have missed what these gave them: Kafka also gives partitions to a static member
    whose process has ended, and starts the next generation before anybody was told of the last."""
    ends_ms = [*(generation.at_ms for generation in generations[1:]), math.inf]
    return {
        (generation.number, process.member)
        for generation, end_ms in zip(generations, ends_ms, strict=True)
        for process in processes
        if process.started_at_ms + ALIVE_SECONDS * 1000 <= generation.at_ms
        and generation.at_ms + HEARD_SECONDS * 1000 <= min(end_ms, process.ended_at_ms or math.inf)
    }


def json_of(printed: str) -> Iterator[dict[str, Any]]:
    """It prints one record after the other, without a line's end."""
    decoder, at = json.JSONDecoder(), printed.find("{")
    while at >= 0:
        record, end = decoder.raw_decode(printed, at)
        yield record
        at = printed.find("{", end)


def _assigned(assignment: str) -> Iterator[tuple[str, int]]:
    """As the formatter prints it."""
    return assigned_partitions(base64.b64decode(assignment))
