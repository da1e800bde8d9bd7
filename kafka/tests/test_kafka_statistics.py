"""What the statistics of a client say of the brokers that it can't reach."""

import json
from typing import Any

from delayed_topics_kafka.statistics import topics_out_of_reach

UP, DOWN = "UP", "TRY_CONNECT"


def broker(node_id: int, state: str, *, source: str = "learned") -> dict[str, Any]:
    name = "GroupCoordinator" if source == "logical" else f"k:9092/{node_id}"
    return {name: {"name": name, "nodeid": node_id, "nodename": "k:9092", "source": source, "state": state}}


def partition(number: int, leader: int, *, desired: bool = True) -> dict[str, Any]:
    return {str(number): {"partition": number, "broker": leader, "leader": leader, "desired": desired}}


def statistics(*brokers: dict[str, Any], **topics: dict[str, Any]) -> str:
    """Returns the text as the client library (2.16) writes it, with a space after each comma but not after a colon."""
    found = {name: {"topic": name, "partitions": partitions} for name, partitions in topics.items()}
    whole = {"brokers": {k: v for one in brokers for k, v in one.items()}, "topics": found}
    return json.dumps(whole, separators=(", ", ":"))


def test_a_topic_is_out_of_reach_if_a_partition_has_no_leader_or_one_without_a_connection() -> None:
    brokers = (broker(-1, UP, source="configured"), broker(1, UP), broker(2, DOWN))
    text = statistics(
        *brokers,
        fine=partition(0, 1),
        away=partition(0, 2),
        leaderless=partition(0, -1),
        unread=partition(0, 2, desired=False),
    )
    assert topics_out_of_reach(text) == {"away", "leaderless"}
    assert topics_out_of_reach(statistics(*brokers, fine=partition(0, 1))) == set()


def test_the_connection_to_a_coordinator_is_not_one_to_a_leader() -> None:
    brokers = (broker(1, UP), broker(2, DOWN), broker(2, UP, source="logical"))
    assert topics_out_of_reach(statistics(*brokers, away=partition(0, 2))) == {"away"}
