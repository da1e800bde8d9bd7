"""Where pods run: what the installation says for all of them, and what a resource says for its own."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from delayed_topics_crds import to_dict
from delayed_topics_operator.audits.reconcile import manifests as audit_manifests
from delayed_topics_operator.audits.reconcile.executors import TEMPLATE_KEY
from delayed_topics_operator.cli import main
from delayed_topics_operator.delayed_topic.reconcile import own_workers
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.pod_spec import PodDefaults
from delayed_topics_operator.workers.reconcile import manifests
from delayed_topics_operator.workers.reconcile.worker_sets import WorkerSet
from delayed_topics_operator_testing.audit_simulation import WINDOW, AuditSimulation, audit_resource
from delayed_topics_operator_testing.simulation import Simulation, resource

KAFKA = {"key": "pool", "value": "kafka", "effect": "NoSchedule"}
FAST = {"key": "disk", "operator": "Exists"}
OF_ALL = {"nodeSelector": {"pool": "kafka", "kubernetes.io/arch": "arm64"}, "tolerations": [KAFKA]}
DEFAULTS = PodDefaults.model_validate({**OF_ALL, "priorityClassName": "middle"})
PLACED = ("nodeSelector", "tolerations", "priorityClassName")


def workers(template: Manifest) -> WorkerSet:
    o = Simulation(resource(workers={"template": template})).observe()
    return own_workers.worker_set(subject=o.subject, wanted=o.wanted, pods=replace(o.pods, defaults=DEFAULTS), files={})


def stateful_set(template: Manifest) -> Manifest:
    return manifests.children(workers(template), {})[-1]


def placed(spec: Manifest) -> Manifest:
    return {field: spec[field] for field in PLACED if field in spec}


def test_workers_run_where_the_installation_says() -> None:
    assert placed(stateful_set({})["spec"]["template"]["spec"]) == {**OF_ALL, "priorityClassName": "middle"}


def test_what_a_resource_says_comes_first_and_the_rest_stays() -> None:
    asked = {"nodeSelector": {"kubernetes.io/arch": "amd64", "disk": "ssd"}, "tolerations": [FAST, KAFKA]}
    assert placed(stateful_set({**asked, "priorityClassName": "high"})["spec"]["template"]["spec"]) == {
        "nodeSelector": {"pool": "kafka", "kubernetes.io/arch": "amd64", "disk": "ssd"},
        "tolerations": [KAFKA, FAST],
        "priorityClassName": "high",
    }


@pytest.mark.parametrize(
    "template",
    [
        {},
        {"nodeSelector": {"kubernetes.io/arch": "amd64"}, "tolerations": [FAST], "priorityClassName": "high"},
        {"nodeSelector": {"pool": "kafka"}, "tolerations": [KAFKA], "priorityClassName": "middle"},
    ],
    ids=["nothing", "its-own", "the-same"],
)
def test_workers_that_stay_as_they_are_until_shared_ones_are_ready_are_not_replaced(template: Manifest) -> None:
    own, live = workers(template), stateful_set(template)
    kept = manifests.template_of(live, labels=own.labels, pods=own.pods)
    assert manifests.children(replace(own, template=kept), {})[-1]["spec"] == live["spec"]


def test_no_default_is_taken_for_what_the_resource_asks_for() -> None:
    own = workers({})
    kept = manifests.template_of(stateful_set({}), labels=own.labels, pods=own.pods)
    assert not any(to_dict(kept).get(field) for field in PLACED)


def test_workers_are_spread_over_nodes_and_zones() -> None:
    """A pod that has such rules of its own gets none of the cluster's defaults."""
    rules = stateful_set({})["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [(rule["topologyKey"], rule["whenUnsatisfiable"]) for rule in rules] == [
        ("kubernetes.io/hostname", "ScheduleAnyway"),
        ("topology.kubernetes.io/zone", "ScheduleAnyway"),
    ]


def test_audits_and_their_executors_run_there_too() -> None:
    spark = {"executors": 1, "nodeSelector": {"kubernetes.io/arch": "amd64"}, "tolerations": [FAST]}
    expected = {
        "nodeSelector": {"pool": "kafka", "kubernetes.io/arch": "amd64"},
        "tolerations": [KAFKA, FAST],
        "priorityClassName": "middle",
    }
    o = AuditSimulation(raw=audit_resource(spark=spark)).observe()
    marked = replace(o, job_settings=replace(o.job_settings, defaults=DEFAULTS))
    job = audit_manifests.runner(marked, WINDOW)["spec"]["template"]["spec"]
    executor = json.loads(audit_manifests.config_map(marked, WINDOW)["data"][TEMPLATE_KEY])["spec"]
    assert placed(job) == placed(executor) == expected


@pytest.mark.parametrize("given", ["{", '{"nodeSelectors": {}}', '{"tolerations": [{"effect": "Never"}]}'])
def test_defaults_that_are_none_are_refused_at_the_start(given: str) -> None:
    needed = ("--namespace=a", "--audit-namespace=b", "--worker-image=w", "--audit-image=a")
    result = CliRunner().invoke(main, ["run", *needed, f"--pod-defaults={given}"])
    assert result.exit_code == 2
    assert "'--pod-defaults': it must be a PodDefaults in JSON: " in " ".join(result.output.split())
