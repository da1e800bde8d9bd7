"""Reads the statistics of a client (https://github.com/confluentinc/librdkafka/blob/master/STATISTICS.md)."""

import json
import re
from typing import Any, Final

_CONNECTED: Final = re.compile(r'"nodeid":(\d+), "nodename":"[^"]*", "source":"(?!logical)\w+", "state":"UP"')
"""A logical broker is the connection to the coordinator of a group. It has the id of that broker, too."""
_LEADER: Final = re.compile(r'"partition":\d+, "broker":(-?\d+)')


def topics_out_of_reach(statistics: str) -> set[str]:
    """Returns the topics with a partition that has no leader, or one to which the client is not connected."""
    connected = set(_CONNECTED.findall(statistics))
    if connected >= set(_LEADER.findall(statistics)):
        return set()  # without the 20 ms that JSON takes
    topics: dict[str, Any] = json.loads(statistics)["topics"]
    return {
        topic
        for topic, found in topics.items()
        if any(part["desired"] and str(part["broker"]) not in connected for part in found["partitions"].values())
    }
