"""Control topics on a real API server and a real broker."""

import pytest
from delayed_topics_core.names import TopicNames
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_operator_testing.operator_harness import OperatorHarness

pytestmark = pytest.mark.api


def is_read(harness: OperatorHarness) -> bool:
    """Returns whether the registry tells workers to read the control topic."""
    layout = harness.registry().layouts[harness.topic]
    return layout.state == "serving" and layout.control


def without_control(harness: OperatorHarness) -> None:
    harness.patch("DelayedTopic", harness.topic, {"spec": {"control": None}}, namespace=harness.namespace)


def test_a_live_resource_gets_a_control_topic_keeps_it_and_takes_it_along(harness: OperatorHarness) -> None:
    control = TopicNames.of(harness.topic).control
    harness.apply(deletionPolicy="Delete")
    harness.wait_until_served()
    assert control not in harness.topics()
    layout = harness.registry().layouts[harness.topic].layout

    harness.apply(deletionPolicy="Delete", control={})
    harness.wait(lambda: is_read(harness), "workers are told to read the control topic")
    assert harness.topics()[control] == 1
    assert harness.registry().topics[harness.topic].ids[control] == harness.topic_ids()[control]
    assert harness.registry().layouts[harness.topic].layout == layout
    settings = harness.settings(control)
    assert settings["cleanup.policy"] == "compact,delete"
    assert settings["retention.ms"] == harness.settings(harness.topic)["retention.ms"]
    harness.wait_event("TopicsCreated", control)
    where = f"--namespace={harness.namespace}"
    assert control in harness.api.kubectl("describe", "delayedtopic", harness.topic, where)

    harness.kafka.alter_topic_configs({control: {"cleanup.policy": "compact"}})
    harness.wait(
        lambda: harness.settings(control) == settings,
        "the settings are repaired",
        seen=lambda: harness.settings(control),
    )

    ids = harness.topic_ids()
    without_control(harness)
    harness.wait(lambda: not is_read(harness), "workers are told to stop reading it")
    assert (harness.topic_ids(), harness.settings(control)) == (ids, settings)
    harness.delete()
    assert harness.topics() == {}


def test_somebody_elses_control_topic_is_not_read_changed_or_deleted(harness: OperatorHarness) -> None:
    control = TopicNames.of(harness.topic).control
    harness.kafka.create_topics([NewTopicSpec(name=control, partitions=3, replication_factor=1)])
    theirs, settings = harness.topic_ids()[control], harness.settings(control)
    harness.apply(deletionPolicy="Delete")
    harness.wait_until_served()

    harness.apply(deletionPolicy="Delete", control={})
    harness.wait_for("TopicsReady", "False", "TopicForeign")
    assert control in harness.condition("TopicsReady")["message"]
    assert not is_read(harness)
    without_control(harness)
    harness.wait_for("TopicsReady", "True")
    harness.delete()
    assert (harness.topic_ids(), harness.settings(control)) == ({control: theirs}, settings)


def test_a_control_topic_is_kept_with_the_others_and_used_again(harness: OperatorHarness) -> None:
    harness.apply(control={})
    harness.wait_until_served()
    ids = harness.topic_ids()
    assert len(ids) == 5
    harness.delete()
    harness.wait_event("Retained", TopicNames.of(harness.topic).control)
    assert harness.topic_ids() == ids
    harness.apply(control={})
    harness.wait_until_served()
    assert (harness.topic_ids(), is_read(harness)) == (ids, True)
