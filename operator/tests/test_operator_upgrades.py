"""An upgrade gives all workers other pods, a few sets at a time. These tests say what becomes of a fleet if some of the pods don't run."""

from collections.abc import Callable
from typing import Any

import pytest
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.pod_spec import PodDefaults
from delayed_topics_operator_testing.fleet import ConnectionsWorkers, Fleet, OwnWorkers

LONG = 420
"""The seconds in which the operator gives up waiting for a rollout twice."""
EITHER = pytest.mark.parametrize("kind", [OwnWorkers, ConnectionsWorkers])
Kind = type[OwnWorkers | ConnectionsWorkers]


def image(template: Manifest) -> str:
    return str(template["spec"]["containers"][0]["image"])


def fleet(kind: Kind, *, sets: int = 8, replicas: int = 1, at_once: int = 5) -> Fleet:
    """Returns a fleet all of whose workers are ready."""
    made = Fleet(kind, sets=sets, at_once=at_once)
    for workers in made.workers:
        workers.replicas = replicas
    made.go_on(150)
    assert made.down() == set()
    return made


def with_a_stuck_image(kind: Kind) -> Fleet:
    """Returns a fleet of three sets, the first of which has got an image that fails. The two others wait."""
    made = fleet(kind, sets=3, at_once=1)
    made.cluster.runs = lambda _, template: image(template) != "worker:2"
    made.upgrade(worker_image="worker:2")
    made.go_on(LONG)
    assert made.images() == ["worker:2", "worker:1", "worker:1"]
    return made


FAILING: tuple[tuple[dict[str, Any], Callable[[str, Manifest], bool]], ...] = (
    ({"worker_image": "worker:2"}, lambda _, template: image(template) != "worker:2"),
    (
        {"pod_defaults": PodDefaults(node_selector={"disk": "fats"})},
        lambda _, template: "nodeSelector" not in template["spec"],
    ),
    (
        {"pod_defaults": PodDefaults(priority_class_name="misspelt")},
        lambda _, template: "priorityClassName" not in template["spec"],
    ),
    (
        {"pod_annotations": {"inject": "yes"}},
        lambda _, template: "inject" not in template["metadata"]["annotations"],
    ),
    ({"image_pull_policy": "Never"}, lambda _, t: t["spec"]["containers"][0]["imagePullPolicy"] != "Never"),
)


@pytest.mark.parametrize(
    ("kind", "values", "runs"),
    [(OwnWorkers, *FAILING[0]), *((ConnectionsWorkers, *failing) for failing in FAILING)],
    ids=("image-own", "image", "node-selector", "priority-class", "annotation", "pull-policy"),
)
def test_chart_values_with_which_no_worker_runs_take_down_five_sets_at_most(
    kind: Kind, values: dict[str, Any], runs: Callable[[str, Manifest], bool]
) -> None:
    """In the past, all but a bad image took down five more every three minutes."""
    upgraded = fleet(kind)
    upgraded.cluster.runs = runs
    upgraded.upgrade(**values)
    upgraded.go_on(LONG)
    assert len(upgraded.down()) == 5
    assert sum("waits until a worker with the image" in said for said in upgraded.said.values()) == 3
    upgraded.upgrade()
    upgraded.go_on(LONG)
    assert len(upgraded.down()) == 5, "another operator knows which sets have been tried"
    upgraded.cluster.runs = lambda *_: True
    upgraded.go_on(LONG)
    assert upgraded.down() == set()
    assert len(set(upgraded.images())) == 1


@EITHER
def test_workers_that_have_a_node_selector_of_their_own_do_not_show_that_the_one_of_the_chart_is_right(
    kind: Kind,
) -> None:
    upgraded = fleet(kind)
    upgraded.workers[0].node_selector = {"disk": "ssd"}
    upgraded.go_on(60)
    upgraded.cluster.runs = lambda _, template: template["spec"].get("nodeSelector") != {"disk": "fats"}
    upgraded.upgrade(pod_defaults=PodDefaults(node_selector={"disk": "fats"}))
    upgraded.go_on(LONG)
    assert upgraded.down() == set(range(1, 6))
    assert "waits" not in upgraded.said[0], "nothing of its pods changes"


@EITHER
def test_workers_with_node_selectors_of_their_own_show_each_other_that_the_image_runs(kind: Kind) -> None:
    upgraded = fleet(kind, sets=4, at_once=1)
    for workers in upgraded.workers:
        workers.node_selector = {"disk": "ssd"}
    upgraded.upgrade(pod_defaults=PodDefaults(node_selector={"disk": "any"}))
    upgraded.go_on(LONG)
    assert upgraded.down() == set()
    broken = upgraded.workers[1].name
    upgraded.cluster.runs = lambda name, template: name != broken or image(template) == "worker:1"
    upgraded.upgrade(worker_image="worker:2", pod_defaults=PodDefaults(node_selector={"disk": "any"}))
    upgraded.go_on(LONG)
    assert set(upgraded.images()) == {"worker:2"}
    assert upgraded.down() == {1}


@EITHER
def test_workers_that_never_ran_keep_no_one_from_a_new_image(kind: Kind) -> None:
    """In the past, the operator took them for evidence against the image, and nothing was upgraded any more."""
    upgraded = fleet(kind)
    broken = {workers.name for workers in upgraded.workers[:5]}
    upgraded.cluster.runs = lambda name, _: name not in broken
    upgraded.go_on()
    upgraded.upgrade(worker_image="worker:2")
    upgraded.go_on(30)
    upgraded.upgrade()
    upgraded.go_on(LONG)
    assert set(upgraded.images()) == {"worker:2"}
    assert upgraded.down() == set(range(5))


@EITHER
def test_after_an_image_that_failed_the_next_one_that_fails_takes_down_no_further_workers(kind: Kind) -> None:
    upgraded = fleet(kind)
    upgraded.cluster.runs = lambda _, template: image(template) == "worker:1"
    for number in (2, 3):
        upgraded.upgrade(worker_image=f"worker:{number}")
        upgraded.go_on(LONG)
        assert upgraded.down() == set(range(5))
        assert upgraded.images() == [f"worker:{number}"] * 5 + ["worker:1"] * 3
    upgraded.upgrade(worker_image="worker:1")
    upgraded.go_on(LONG)
    assert upgraded.down() == set()


@EITHER
def test_one_ready_worker_of_three_shows_that_the_image_runs(kind: Kind) -> None:
    upgraded = fleet(kind, replicas=3)
    upgraded.cluster.runs = lambda _, template: image(template) == "worker:1"
    upgraded.upgrade(worker_image="worker:2")
    upgraded.go_on(LONG)
    assert upgraded.down() == set(range(5))
    assert sum(upgraded.cluster.ready(workers.name) for workers in upgraded.workers) == 5 * 2 + 3 * 3
    first = upgraded.workers[0].name
    ran = 0

    def runs(name: str, template: Manifest) -> bool:
        """Only the first new worker of the first set runs."""
        nonlocal ran
        ran += name == first and image(template) == "worker:2"
        return image(template) == "worker:1" or (name == first and ran == 1)

    upgraded.cluster.runs = runs
    upgraded.go_on(LONG)
    assert upgraded.images() == ["worker:2"] * 8


@EITHER
def test_a_new_password_reaches_workers_that_wait_for_an_image_which_fails(kind: Kind) -> None:
    """In the past, their workers went on with a password that had expired."""
    waiting = with_a_stuck_image(kind)
    for workers in waiting.workers:
        workers.password = "second"
    waiting.go_on(120)
    hashes = {
        waiting.cluster.stateful_set(workers.name)["spec"]["template"]["metadata"]["annotations"][
            "delayedtopics.io/connection-hash"
        ]
        for workers in waiting.workers
    }
    assert len(hashes) == 1
    assert waiting.images() == ["worker:2", "worker:1", "worker:1"]
    assert waiting.down() == {0}
    assert waiting.lowest[1] == waiting.lowest[2] == 0, "their pods were replaced"


@EITHER
def test_workers_that_wait_for_an_image_which_fails_are_scaled(kind: Kind) -> None:
    waiting = with_a_stuck_image(kind)
    for workers in waiting.workers[1:]:
        workers.replicas = 3
    waiting.go_on(60)
    assert waiting.down() == {0}
    assert waiting.images() == ["worker:2", "worker:1", "worker:1"]
