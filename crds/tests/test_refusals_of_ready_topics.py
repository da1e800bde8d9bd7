"""The names in `spec.ready.allowedTopics` that a real API server refuses, and its messages."""

import re
from typing import Any
from uuid import uuid4

import pytest
from delayed_topics_crds import API_VERSION
from delayed_topics_devcluster.api_server import ApiServer
from delayed_topics_devcluster.errors import CommandFailedError

pytestmark = pytest.mark.api

REFUSED = {
    "51 topics": ([f"t{n}" for n in range(51)], "must list at most 50 topics"),
    "a delayed topic's own": (["billing.delays"], "must not end with '.delays', '.ready', '.dead' or '.control'"),
    "a delayed topic's control topic": (
        ["billing.control"],
        "must not end with '.delays', '.ready', '.dead' or '.control'",
    ),
    "one of the system's": (["delayedtopics.registry"], "must not start with '__', 'delayedtopics.'"),
    "one with a partition": (["billing:3"], "must be a Kafka topic name"),
    "a name that Kafka would refuse": (["a" * 250], "must have at most 249 characters"),
}


def with_ready_topics(topics: list[str]) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "DelayedTopic",
        "metadata": {"name": f"test-{uuid4().hex[:8]}", "namespace": "default"},
        "spec": {"delaySeconds": [0], "ready": {"allowedTopics": topics}},
    }


@pytest.mark.slow
def test_fifty_topics_of_any_length_that_kafka_takes_are_accepted(api_server: ApiServer) -> None:
    api_server.dry_run(with_ready_topics(["a" * 249, *(f"t{n}" for n in range(49))]))


@pytest.mark.parametrize(("topics", "says"), REFUSED.values(), ids=REFUSED)
def test_what_can_be_no_ready_topic_is_refused_in_our_words(
    api_server: ApiServer, topics: list[str], says: str
) -> None:
    with pytest.raises(CommandFailedError, match=re.escape(says)):
        api_server.dry_run(with_ready_topics(topics))
