"""The settings of topics, each of which has a known consequence if Kafka refuses it."""

from typing import get_args

import pytest
from delayed_topics_core.settings import DURABLE, LESSER, NEEDED, TopicRole, topic_settings


@pytest.mark.parametrize("role", get_args(TopicRole))
def test_what_follows_is_known_for_each_setting_that_kafka_may_refuse(role: TopicRole) -> None:
    enforced = topic_settings(
        role=role,
        delay_seconds=(0,),
        outage_budget_seconds=0,
        dead_letter_retention_seconds=0,
        replication_factor=3,
    )
    assert enforced.keys() <= {*NEEDED, *DURABLE, *LESSER}
    assert int(enforced.get("segment.bytes", 2**30)) >= int(enforced["max.message.bytes"])
