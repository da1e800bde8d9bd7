"""How deployment tools see our resources: Argo CD by the health check of docs/gitops.md, Flux by the rules of kstatus."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from delayed_topics_core.reasons import Reason
from delayed_topics_crds import KINDS, to_dict
from delayed_topics_crds.connection import Grant
from delayed_topics_crds.pods import LabelSelector
from delayed_topics_crds.schema import structural
from delayed_topics_operator.connection.reconcile.usable import Unusable
from delayed_topics_operator.connection.status import connection_status
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.audit_simulation import AuditSimulation
from delayed_topics_operator_testing.simulation import BEGIN, Simulation, resource, usable
from lupa.lua51 import LuaRuntime

from checks.documents import blocks

GITOPS = Path(__file__).resolve().parents[2] / "docs" / "gitops.md"


def argo_cd(found: Manifest) -> str:
    """Returns the health by the check that docs/gitops.md puts into argocd-cm. It runs in the Lua that Argo CD has."""
    (block,) = [block for block in blocks(GITOPS) if block.file == "argocd-cm.yaml"]
    customizations = yaml.safe_load(yaml.safe_load(block.text)["data"]["resource.customizations"])
    lua = LuaRuntime()
    check = lua.eval(f"function(obj) {customizations['delayedtopics.io/*']['health.lua']} end")
    health = check(lua.table_from(found, recursive=True))
    assert health["message"]
    return str(health["status"])


def kstatus(found: Manifest) -> str:
    """Returns the status by the generic rules of sigs.k8s.io/cli-utils/pkg/kstatus, which apply to kinds that it does not know."""
    status = found.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions", ())}
    if "deletionTimestamp" in found["metadata"]:
        return "Terminating"
    if status.get("observedGeneration", found["metadata"]["generation"]) != found["metadata"]["generation"]:
        return "InProgress"
    if conditions.get("Reconciling") == "True":
        return "InProgress"
    if conditions.get("Stalled") == "True":
        return "Failed"
    return "Current" if conditions.get("Ready", "True") == "True" else "InProgress"


def fresh() -> Manifest:
    """Returns a new resource with the status that the API server fills in."""
    return {**resource(), "status": structural(KINDS["DelayedTopic"].model)["properties"]["status"]["default"]}


def starting(**spec: Any) -> Simulation:
    simulation = Simulation(raw=resource(**spec))
    simulation.settle()
    return simulation


def serving(**spec: Any) -> Simulation:
    simulation = starting(**spec)
    simulation.workers_come_up()
    simulation.settle()
    return simulation


def edited() -> Manifest:
    simulation = serving()
    simulation.edit(retryCap=7)
    return simulation.raw


def planned(simulation: Simulation, **spec: Any) -> Manifest:
    simulation.annotate(plan_only="true")
    simulation.edit(**spec)
    simulation.settle()
    return simulation.raw


def not_allowed() -> Manifest:
    grant = Grant(namespace_selector=LabelSelector(), topic_prefixes=("bank.",))
    simulation = Simulation(raw=resource(), connection=usable(grant))
    simulation.settle()
    return simulation.raw


def leaving() -> Manifest:
    simulation = serving()
    simulation.delete()
    return simulation.raw


def audit(*steps: Callable[[AuditSimulation], None]) -> Manifest:
    simulation = AuditSimulation()
    simulation.settle()
    for step in steps:
        step(simulation)
        simulation.settle()
    return simulation.raw


def waiting_audit() -> Manifest:
    simulation = AuditSimulation(ahead="the-one-before")
    simulation.settle()
    return simulation.raw


def connection(reason: Reason) -> Manifest:
    raw = {"kind": "KafkaConnection", "metadata": {"generation": 1}}
    unusable = Unusable(reason=reason, message="a sentence", since=BEGIN)
    return {**raw, "status": to_dict(connection_status(raw, unusable, found=None, users=[], namespaces=None))}


CASES: dict[str, tuple[Callable[[], Manifest], str, str]] = {
    "nobody has looked at it": (fresh, "Progressing", "InProgress"),
    "its workers start": (lambda: starting().raw, "Progressing", "InProgress"),
    "it serves": (lambda: serving().raw, "Healthy", "Current"),
    "it was edited since": (edited, "Progressing", "InProgress"),
    "it is paused": (lambda: serving(paused=True).raw, "Suspended", "Current"),
    "a plan for it is shown": (lambda: planned(Simulation(raw=resource())), "Suspended", "InProgress"),
    "it serves, and a plan is shown": (lambda: planned(serving(), partitions=9), "Healthy", "Current"),
    "it may not have its topic": (not_allowed, "Degraded", "InProgress"),
    "it is being deleted": (leaving, "Healthy", "Terminating"),
    "an audit waits its turn": (waiting_audit, "Progressing", "InProgress"),
    "an audit runs": (audit, "Progressing", "InProgress"),
    "an audit found everything": (lambda: audit(lambda w: w.job_reports("Verified")), "Healthy", "Current"),
    "an audit found a promise broken": (lambda: audit(lambda w: w.job_reports("Violated")), "Degraded", "Failed"),
    "an audit could not see everything": (lambda: audit(lambda w: w.job_reports("Unknown")), "Degraded", "Failed"),
    "an audit's Job failed": (lambda: audit(lambda w: w.job_ends("Failed", "evicted")), "Degraded", "Failed"),
    "a connection has no answer": (lambda: connection(Reason.KAFKA_UNREACHABLE), "Degraded", "InProgress"),
}


@pytest.mark.parametrize(("made", "argo", "flux"), CASES.values(), ids=CASES)
def test_argo_cd_and_flux_see_how_it_is(made: Callable[[], Manifest], argo: str, flux: str) -> None:
    found = made()
    assert (argo_cd(found), kstatus(found)) == (argo, flux)


def test_the_check_of_argo_cd_knows_only_reasons_that_there_are() -> None:
    (block,) = [block for block in blocks(GITOPS) if block.file == "argocd-cm.yaml"]
    named = {word.split()[0] for word in block.text.split("under_way = {")[1].split("}")[0].split(",") if word.strip()}
    assert named <= set(Reason)
    assert len(named) == 7


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_says_which_generation_was_looked_at(kind: str) -> None:
    status = structural(KINDS[kind].model)["properties"]["status"]
    assert status["default"] == {"observedGeneration": -1}
    assert {"observedGeneration", "conditions"} <= status["properties"].keys()
