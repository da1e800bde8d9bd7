"""Control topics on a real API server and a real broker."""

import pytest
from delayed_topics_core.names import TopicNames
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_operator_testing.scene import Scene

pytestmark = pytest.mark.api


def is_read(scene: Scene) -> bool:
    """Whether workers are told to read the control topic."""
    layout = scene.registry().layouts[scene.topic]
    return layout.state == "serving" and layout.control


def without_control(scene: Scene) -> None:
    scene.patch("DelayedTopic", scene.topic, {"spec": {"control": None}}, namespace=scene.namespace)


def test_a_live_resource_gets_a_control_topic_keeps_it_and_takes_it_along(scene: Scene) -> None:
    control = TopicNames.of(scene.topic).control
    scene.apply(deletionPolicy="Delete")
    scene.wait_until_served()
    assert control not in scene.topics()
    layout = scene.registry().layouts[scene.topic].layout

    scene.apply(deletionPolicy="Delete", control={})
    scene.wait(lambda: is_read(scene), "workers are told of the control topic")
    assert scene.topics()[control] == 1
    assert scene.registry().topics[scene.topic].ids[control] == scene.topic_ids()[control]
    assert scene.registry().layouts[scene.topic].layout == layout
    settings = scene.settings(control)
    assert settings["cleanup.policy"] == "compact,delete"
    assert settings["retention.ms"] == scene.settings(scene.topic)["retention.ms"]
    scene.wait_event("TopicsCreated", control)
    where = f"--namespace={scene.namespace}"
    assert control in scene.api.kubectl("describe", "delayedtopic", scene.topic, where)

    scene.kafka.alter_topic_configs({control: {"cleanup.policy": "compact"}})
    scene.wait(lambda: scene.settings(control) == settings, "it is repaired", seen=lambda: scene.settings(control))

    ids = scene.topic_ids()
    without_control(scene)
    scene.wait(lambda: not is_read(scene), "workers are told to read it no more")
    assert (scene.topic_ids(), scene.settings(control)) == (ids, settings)
    scene.delete()
    assert scene.topics() == {}


def test_somebody_elses_control_topic_is_not_read_changed_or_deleted(scene: Scene) -> None:
    control = TopicNames.of(scene.topic).control
    scene.kafka.create_topics([NewTopicSpec(name=control, partitions=3, replication_factor=1)])
    theirs, settings = scene.topic_ids()[control], scene.settings(control)
    scene.apply(deletionPolicy="Delete")
    scene.wait_until_served()

    scene.apply(deletionPolicy="Delete", control={})
    scene.wait_for("TopicsReady", "False", "TopicForeign")
    assert control in scene.condition("TopicsReady")["message"]
    assert not is_read(scene)
    without_control(scene)
    scene.wait_for("TopicsReady", "True")
    scene.delete()
    assert (scene.topic_ids(), scene.settings(control)) == ({control: theirs}, settings)


def test_a_control_topic_is_kept_with_the_others_and_used_again(scene: Scene) -> None:
    scene.apply(control={})
    scene.wait_until_served()
    ids = scene.topic_ids()
    assert len(ids) == 5
    scene.delete()
    scene.wait_event("Retained", TopicNames.of(scene.topic).control)
    assert scene.topic_ids() == ids
    scene.apply(control={})
    scene.wait_until_served()
    assert (scene.topic_ids(), is_read(scene)) == (ids, True)
