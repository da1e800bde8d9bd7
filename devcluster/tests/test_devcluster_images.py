"""Images contain what their member needs and no more, and are built again only if one of their inputs has changed."""

from pathlib import Path

import pytest
from delayed_topics_devcluster.errors import DevclusterError
from delayed_topics_devcluster.images import image_name
from delayed_topics_devcluster.wheels import own_wheels, third_party_wheels

pytestmark = pytest.mark.process


def distributions(folder: Path) -> set[str]:
    return {wheel.name.split("-")[0].lower() for wheel in folder.iterdir()}


def test_the_worker_brings_its_members_and_nobody_elses() -> None:
    assert distributions(own_wheels("delayed-topics-worker")) == {
        "delayed_topics_core",
        "delayed_topics_engine",
        "delayed_topics_kafka",
        "delayed_topics_worker",
    }
    found = distributions(third_party_wheels("delayed-topics-worker"))
    assert {"confluent_kafka", "prometheus_client", "click", "tenacity"} <= found
    assert not {"pyspark", "kopf", "pytest"} & found


def test_unchanged_wheels_are_not_built_again() -> None:
    first = own_wheels("delayed-topics-core")
    built_at = first.stat().st_mtime_ns
    assert own_wheels("delayed-topics-core") == first
    assert first.stat().st_mtime_ns == built_at


def test_images_are_named_for_the_registry_that_they_go_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IMAGE_REGISTRY", raising=False)
    assert image_name("worker") == "delayed-topics/worker:dev"
    monkeypatch.setenv("IMAGE_REGISTRY", "registry.example.com/team/")
    assert image_name("worker") == "registry.example.com/team/worker:dev"


def test_an_unknown_image_says_which_there_are() -> None:
    with pytest.raises(DevclusterError, match=r"no image 'wroker'\. The images are operator, worker, audit, kafka"):
        image_name("wroker")
