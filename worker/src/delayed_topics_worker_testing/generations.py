"""The generations of a delayed topic's consumer group: as its workers told them, and as Kafka has noted them."""

import base64
import json
from collections.abc import Iterator
from typing import Any

from delayed_topics_core.rebalances import Rebalance, Rebalances
from delayed_topics_devcluster.kafka import java_tool
from delayed_topics_kafka.events import EventFollower
from delayed_topics_kafka.groups import assigned_partitions

from delayed_topics_worker_testing.world import Declared

Owners = dict[tuple[str, int], str]


def told(orders: Declared) -> tuple[Rebalance, ...]:
    """Oldest first."""
    found = Rebalances(keep=100)
    with EventFollower(orders.world.connection) as follower:
        follower.catch_up(120, lambda event: found.add(event) if event.topic == orders.names.front else None)
    return found.latest


def owners_now(orders: Declared) -> Owners:
    group: Any = orders.world.admin.describe_groups([orders.record.group])[orders.record.group]
    return {place: member.client_id for member in group.members for place in member.assignment}


def members_now(orders: Declared) -> set[str]:
    """The client ids of all members, also of those that have gone and are waited for."""
    group: Any = orders.world.admin.describe_groups([orders.record.group])[orders.record.group]
    return {member.client_id for member in group.members}


def noted_by_kafka(orders: Declared) -> Iterator[tuple[int, int]]:
    """Generation, and the number of partitions that have another owner than before. With the classic protocol, by Kafka's formatter of
    `__consumer_offsets`."""
    printed = java_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *(
            "--bootstrap-server",
            orders.world.connection.bootstrap_servers,
            "--topic",
            "__consumer_offsets",
            "--from-beginning",
        ),
        *("--formatter", "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter", "--timeout-ms", "5000"),
    )
    owners: Owners = {}
    noted: dict[int, Owners] = {}
    for record in json_of(printed):
        if record["key"]["data"]["group"] == orders.record.group and (record["value"] or {}).get("data"):
            value = record["value"]["data"]
            noted[value["generation"]] = {
                place: member["clientId"] for member in value["members"] for place in _assigned(member["assignment"])
            }
    for generation, of_it in sorted(noted.items()):
        if moved := len([place for place, owner in of_it.items() if owners.get(place) != owner]):
            yield generation, moved
        owners |= of_it


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
