"""The chart for people who write values: descriptions, refusals, and the notes after an installation."""

import copy
import json
import re
import shlex
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from delayed_topics_crds import API_VERSION, KINDS, parse, to_dict
from delayed_topics_crds.schema import structural
from delayed_topics_devcluster.api_server import ApiServer
from delayed_topics_devcluster.context import Cluster
from delayed_topics_devcluster.errors import CommandFailedError
from delayed_topics_operator.values.pod_spec import PodDefaults

CHART = Path(__file__).resolve().parents[1] / "delayed-topics"
ROOT = CHART.parents[1]
NOW = "2026-01-01T00:00:00Z"
VALUES = CHART / "values.yaml"
# Maps whose keys the user chooses.
FREE = (
    {("operator", name) for name in ("nodeSelector", "affinity", "podLabels", "podAnnotations")}
    | {("pods", name) for name in ("labels", "annotations", "nodeSelector")}
    | {("evaluationKafka", name) for name in ("nodeSelector", "podLabels", "podAnnotations")}
    | {("serviceAccounts", part, "annotations") for part in ("operator", "worker", "audit")}
    | {("monitoring", part, "labels") for part in ("podMonitor", "rules", "dashboard")}
    | {(part, "resources", amounts) for part in ("operator", "evaluationKafka") for amounts in ("requests", "limits")}
)


@pytest.mark.api
def test_lint_finds_nothing(helm: Cluster) -> None:
    assert "0 chart(s) failed" in helm.helm("lint", "--strict", CHART)


def test_every_value_is_described_where_its_default_is() -> None:
    lines = VALUES.read_text().splitlines()
    document = yaml.compose("\n".join(lines))
    assert document is not None
    assert [path for path in undescribed(document, lines) if path not in FREE] == []


@pytest.mark.check
def test_the_default_connection_has_the_fields_of_the_resource() -> None:
    spec = structural(KINDS["ClusterKafkaConnection"].model)["properties"]["spec"]
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = schema["properties"]["defaultConnection"]
    ours = {"enabled", "name"}
    # the API server checks the fields of the pods' template, which are a whole page of Kubernetes' own fields
    named = {field for field in fields(spec, {}) if not field.startswith("sharedWorkers.template.")}
    assert set(fields(values, schema["$defs"])) - ours == named


@pytest.mark.check
def test_documents_upgrade_without_losing_new_values_and_name_one_version_of_helm() -> None:
    documents = [ROOT / "README.md", CHART / "README.md", *(ROOT / "docs").glob("*.md")]
    texts = [document.read_text() for document in documents]
    # With --reuse-values, a value that is new in the new chart is missing altogether.
    assert not [text for text in texts if "--reuse-values" in text]
    assert {version for text in texts for version in re.findall(r"Helm (?:\| )?(\d+\.\d+) or", text)} == {"3.17"}


@pytest.mark.api
def test_a_misspelt_value_is_refused_wherever_it_is(helm: Cluster, tmp_path: Path) -> None:
    defaults = yaml.safe_load(VALUES.read_text())
    places = [path for path in maps(defaults) if path not in FREE]
    assert len(places) > 12
    for place in places:
        values = copy.deepcopy(defaults)
        at(values, place)["misspelt"] = True
        assert "'misspelt' not allowed" in refusal(helm, tmp_path, values), place


@pytest.mark.parametrize(
    "values",
    [
        {"images": {"pullPolicy": "Sometimes"}},
        {"images": {"operator": {"repository": ""}}},
        {"images": {"worker": {"digest": "sha256:cafe"}}},
        {"crds": {"install": "no"}},
        {"tenantNamespaces": ["Shop"]},
        {"tenantNamespaces": ["shop", "shop"]},
        {"defaultConnection": {"bootstrapServers": ["kafka://kafka:9092"]}},
        {"defaultConnection": {"bootstrapServers": "kafka:9092"}},
        {"defaultConnection": {"brokerSkewMs": -1}},
        {"defaultConnection": {"sharedWorkers": {"replica": 2}}},
        {"defaultConnection": {"sasl": {"mechanism": "GSSAPI", "secretRef": {"name": "kafka"}}}},
        {"defaultConnection": {"sasl": {"mechanism": "PLAIN"}}},
        {"defaultConnection": {"sasl": {"oauth": {"tokenEndpointUrl": "http://login", "secretRef": {"name": "c"}}}}},
        {"defaultConnection": {"tls": {"caSecretRef": {"key": "ca.crt"}}}},
        {"defaultConnection": {"allow": [{"namespaceSelector": {}}]}},
        {"defaultConnection": {"allow": [{"topicPrefixes": [""]}]}},
        {"defaultConnection": {"allow": [{"namespaceSelector": {"labels": {}}, "topicPrefixes": [""]}]}},
        {"evaluationKafka": {"heap": "much"}},
        {"evaluationKafka": {"secureListener": {"users": []}}},
        {"evaluationKafka": {"resources": {"limits": {"memory": "2 GB"}}}},
        {"operator": {"podLabels": {"team": 7}}},
        {"pods": {"nodeSelector": {"pool": 7}}},
        {"pods": {"tolerations": ["pool"]}},
        {"operator": {"logLevel": "info"}},
        {"operator": {"resyncSeconds": 0}},
        {"operator": {"registryMebibytes": 0}},
        {"fsGroup": 0},
        {"networkPolicies": {"kafkaPorts": ["kafka"]}},
        {"networkPolicies": {"scrapers": ["monitoring"]}},
        {"serviceAccounts": {"worker": {"annotations": {"role": 7}}}},
        {"defaultConnection": {"sasl": {"username": "", "secretRef": {"name": "kafka"}}}},
        {"monitoring": {"podMonitor": {"interval": "often"}}},
    ],
    ids=str,
)
@pytest.mark.api
def test_a_value_that_cannot_work_is_refused(helm: Cluster, tmp_path: Path, values: dict[str, Any]) -> None:
    assert "values don't meet the specifications of the schema" in refusal(helm, tmp_path, values)


@pytest.mark.api
def test_the_operator_takes_what_the_values_say_of_where_its_pods_run(render: Any) -> None:
    defaults = {
        "nodeSelector": {"kubernetes.io/arch": "arm64"},
        "tolerations": [{"key": "pool", "operator": "Equal", "value": "kafka", "tolerationSeconds": 3600}],
        "priorityClassName": "high",
    }
    (deployment,) = (found for found in render({"pods": defaults}) if found["kind"] == "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    (given,) = (one.removeprefix("--pod-defaults=") for one in arguments if one.startswith("--pod-defaults="))
    assert to_dict(PodDefaults.model_validate_json(given)) == defaults


@pytest.mark.api
def test_the_notes_tell_the_next_three_commands(api_server: ApiServer) -> None:
    notes = installed_notes(api_server, "--set=evaluationKafka.enabled=true")
    assert "kubectl wait --for=condition=Ready clusterkafkaconnection/default" in notes
    assert "kubectl apply -f -" in notes
    assert "kubectl get delayedtopic orders" in notes
    assert "notes-delayed-topics-kafka.chart-notes.svc:9092" in notes


@pytest.mark.api
def test_the_commands_in_the_notes_wait_for_a_connection_that_the_operator_has_not_made_yet(
    api_server: ApiServer,
) -> None:
    name = "made-later"
    notes = installed_notes(api_server, "--set=evaluationKafka.enabled=true", f"--set=defaultConnection.name={name}")
    waits = [
        shlex.split(line.replace("=2m", "=20s"))[1:] for line in notes.splitlines() if line.startswith("kubectl wait ")
    ]
    assert waits
    with ThreadPoolExecutor() as pool:
        operator = pool.submit(reach, api_server, name)
        try:
            for command in waits:
                api_server.kubectl(*command)
        finally:
            operator.result()
            api_server.kubectl("delete", "clusterkafkaconnection", name)


def reach(api_server: ApiServer, name: str) -> None:
    """Makes the connection and says that it is Ready, as an operator does that takes a moment to start."""
    time.sleep(2)
    kind = "ClusterKafkaConnection"
    manifest = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}}
    spec = {"bootstrapServers": ["kafka:9092"], "allow": []}
    api_server.kubectl("create", "--filename=-", text_in=json.dumps({**manifest, "spec": spec}))
    ready = {"type": "Ready", "status": "True", "reason": "AsDeclared", "message": "", "lastTransitionTime": NOW}
    status = json.dumps({"status": {"observedGeneration": 1, "conditions": [ready]}})
    api_server.kubectl("patch", kind, name, "--subresource=status", "--type=merge", f"--patch={status}")


@pytest.mark.api
def test_the_manifest_in_the_notes_is_one(api_server: ApiServer) -> None:
    notes = installed_notes(api_server)
    manifest = yaml.safe_load(notes.split("<<END\n")[1].split("\nEND\n")[0])
    assert parse("DelayedTopic", manifest).metadata.name == "orders"


@pytest.mark.api
def test_the_notes_say_what_is_missing_for_a_connection(api_server: ApiServer) -> None:
    assert "1. Say where Kafka is" in installed_notes(api_server)
    without_grant = installed_notes(api_server, "--set=defaultConnection.bootstrapServers={kafka:9092}")
    assert "No namespace may use the connection" in without_grant
    assert "1. See that Kafka is reached" in without_grant


def installed_notes(api_server: ApiServer, *flags: str) -> str:
    # A dry run checks whether its objects exist already, so the release has a name of its own.
    dry_run = ("install", "notes", CHART, "--dry-run=client", "--namespace", "chart-notes", "--set=crds.install=false")
    printed = api_server.helm(*dry_run, *flags)
    return printed.split("NOTES:\n")[1]


def refusal(helm: Cluster, folder: Path, values: dict[str, Any]) -> str:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    with pytest.raises(CommandFailedError) as refused:
        helm.helm("template", "delayed-topics", CHART, "--kube-version=1.34", "--values", file)
    return refused.value.message


def fields(schema: dict[str, Any], defs: dict[str, Any], at: str = "") -> Iterator[str]:
    """Yields the path of every field in a schema, such as allow.template.maxCpu."""
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    for inner in (schema, *schema.get("oneOf", ())):
        for name, field in inner.get("properties", {}).items():
            yield f"{at}{name}"
            yield from fields(field, defs, f"{at}{name}.")
    if "items" in schema:
        yield from fields(schema["items"], defs, at)


def undescribed(node: yaml.Node, lines: list[str], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields the paths of all values without a comment above them or above one of the maps that contain them."""
    if not isinstance(node, yaml.MappingNode) or not node.value:
        yield path
        return
    for key, value in node.value:
        above = lines[key.start_mark.line - 1].strip()
        if not above.startswith("#"):
            yield from undescribed(value, lines, (*path, key.value))


def maps(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for key, value in values.items():
        if isinstance(value, dict):
            yield from maps(value, (*path, key))


def at(values: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for key in path:
        values = values[key]
    return values


@pytest.mark.api
def test_the_evaluation_kafka_runs_where_its_values_say(render: Any) -> None:
    where = {"nodeSelector": {"pool": "kafka"}, "tolerations": [{"key": "pool", "operator": "Exists"}]}
    (kafka,) = (o for o in render({"evaluationKafka": {"enabled": True, **where}}) if o["kind"] == "StatefulSet")
    assert where.items() <= kafka["spec"]["template"]["spec"].items()
