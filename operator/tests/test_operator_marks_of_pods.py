"""Labels and annotations that an installation wants on every pod that the operator makes."""

import json
from dataclasses import replace
from typing import Any

from click.testing import CliRunner
from delayed_topics_operator.audits.reconcile import manifests as audit_manifests
from delayed_topics_operator.audits.reconcile.executors import TEMPLATE_KEY
from delayed_topics_operator.cli import main
from delayed_topics_operator.delayed_topic.reconcile import own_workers
from delayed_topics_operator.workers.reconcile import manifests
from delayed_topics_operator_testing.audit_simulation import WINDOW, AuditSimulation, audit_resource
from delayed_topics_operator_testing.simulation import Simulation, resource

LABELS = {"team": "platform", "app.kubernetes.io/name": "stolen"}
ANNOTATIONS = {"sidecar.istio.io/inject": "false", manifests.WORKER_CONFIG: "stolen"}


def workers(**of_the_installation: Any) -> dict[str, Any]:
    template = {"labels": {"team": "shop", "shift": "night"}, "annotations": {"sidecar.istio.io/inject": "true"}}
    simulation = Simulation(resource(workers={"template": template}))
    o = simulation.observe()
    pods = replace(o.pods, **of_the_installation)
    own = own_workers.worker_set(subject=o.subject, wanted=o.wanted, pods=pods, files={})
    return dict(manifests.children(own, {})[-1]["spec"]["template"]["metadata"])


def test_workers_have_them_and_a_template_does_not_undo_them() -> None:
    plain, marked = workers(), workers(labels=LABELS, annotations=ANNOTATIONS)
    assert marked["labels"] == {**plain["labels"], "team": "platform"}
    assert marked["labels"]["shift"] == "night"
    assert marked["annotations"] == {**plain["annotations"], "sidecar.istio.io/inject": "false"}


def test_audits_and_their_executors_have_them() -> None:
    o = AuditSimulation(raw=audit_resource(spark={"executors": 1})).observe()
    marked = replace(o, job_settings=replace(o.job_settings, labels=LABELS, annotations={"a": "b"}))
    job = audit_manifests.runner(marked, WINDOW)["spec"]["template"]["metadata"]
    executor = json.loads(audit_manifests.config_map(marked, WINDOW)["data"][TEMPLATE_KEY])["metadata"]
    assert job == executor
    assert job["labels"] == {
        **audit_manifests.runner(o, WINDOW)["spec"]["template"]["metadata"]["labels"],
        "team": "platform",
    }
    assert job["annotations"] == {"a": "b"}


def test_a_pod_label_that_is_no_pair_is_refused_at_the_start() -> None:
    arguments = ["run", "--namespace=a", "--worker-image=w", "--audit-image=a", "--pod-label=team"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "'team' must be KEY=VALUE" in result.output
