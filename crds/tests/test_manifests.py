"""The generated files are complete and up to date. Their schemas are structural and have the defaults of the models."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from delayed_topics_crds import KINDS, parse, to_dict
from delayed_topics_crds.__main__ import CHART_TEMPLATES, MANIFESTS, REFERENCE, drifted, generated, main
from delayed_topics_crds.base import RULES
from delayed_topics_crds.manifests import definition
from delayed_topics_crds.schema import structural
from pydantic import BaseModel

ROOT = Path(__file__).parents[2]
SCHEMAS = {name: structural(kind.model) for name, kind in KINDS.items()}
MINIMAL_SPECS: dict[str, dict[str, Any]] = {
    "DelayedTopic": {"delaySeconds": [0, 10]},
    "ClusterKafkaConnection": {
        "bootstrapServers": ["kafka:9092"],
        "tls": {"caSecretRef": {"name": "ca"}},
        "sasl": {"secretRef": {"name": "user"}},
        "allow": [{"namespaceSelector": {}, "topicPrefixes": [""]}],
    },
    "KafkaConnection": {"bootstrapServers": ["kafka:9092"]},
    "DelayedTopicAudit": {"delayedTopicRef": {"name": "orders"}},
}

# Short names from `kubectl api-resources` and from the CRDs of Strimzi. New versions of both can add more.
OF_KUBERNETES = "cj cm cr crd crds crs cs csr cvp deploy ds ep ev hpa ing limits netpol no ns pc pdb po pv pvc quota rc rs sa sc sts svc"
OF_STRIMZI = "k kb kc kctr kmm kmm2 knp kr kt ku sps"


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, value in schema.get("properties", {}).items():
        yield from nodes(value, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            yield from nodes(schema[inner], f"{path}[]")


ALL_NODES = {f"{kind}{path}": node for kind, schema in SCHEMAS.items() for path, node in nodes(schema)}
RULED_NODES = {path: node for path, node in ALL_NODES.items() if RULES in node}


def with_defaults(schema: dict[str, Any], value: Any) -> Any:
    """Returns the value with the defaults that the API server would fill in."""
    if isinstance(value, list):
        return [with_defaults(schema["items"], entry) for entry in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    filled = {name: field["default"] for name, field in properties.items() if "default" in field} | value
    return {
        name: with_defaults(properties[name], entry) if name in properties else entry for name, entry in filled.items()
    }


def without_empty(value: Any) -> Any:
    """Removes empty lists, which mean the same as absent ones."""
    if isinstance(value, dict):
        return {key: without_empty(inner) for key, inner in value.items() if inner != []}
    return [without_empty(inner) for inner in value] if isinstance(value, list) else value


def test_the_generated_files_in_the_repository_are_up_to_date() -> None:
    assert drifted(ROOT) == []


def test_a_short_name_is_nobody_elses() -> None:
    ours = [kind.short_name for kind in KINDS.values()]
    assert len(set(ours)) == len(ours)
    assert set(ours) & {*OF_KUBERNETES.split(), *OF_STRIMZI.split()} == set()


def test_check_names_what_is_changed_missing_or_left_over(tmp_path: Path) -> None:
    for path in generated():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    command = CliRunner()
    assert command.invoke(main, ["check", "--root", str(tmp_path)]).exit_code == 0

    changed = tmp_path / MANIFESTS / "delayedtopics.io_delayedtopics.yaml"
    changed.write_text(changed.read_text().replace("maximum", "minimum") + "\n")
    (tmp_path / REFERENCE).unlink()
    (tmp_path / CHART_TEMPLATES / "forgotten.yaml").write_text("kind: Forgotten\n")
    refused = command.invoke(main, ["check", "--root", str(tmp_path)])
    assert refused.exit_code == 1
    for name in ("delayedtopics.io_delayedtopics.yaml", "reference.md", "forgotten.yaml"):
        assert name in refused.output

    assert command.invoke(main, ["generate", "--root", str(tmp_path)]).exit_code == 0
    assert command.invoke(main, ["check", "--root", str(tmp_path)]).exit_code == 0


def test_every_node_of_the_schemas_is_structural() -> None:
    for path, node in ALL_NODES.items():
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path
        assert not node.keys() & {"$ref", "$defs", "anyOf", "allOf", "oneOf", "title", "const", "nullable"}, path
        assert node.get("additionalProperties") not in (True, False), path
        assert "items" in node or node.get("type") != "array", path


def test_every_field_is_described() -> None:
    for path, node in ALL_NODES.items():
        known_to_kubernetes = path.count(".") == 1 and path.endswith((".apiVersion", ".kind", ".metadata"))
        assert known_to_kubernetes or path.endswith("[]") or node["description"].endswith("."), path


def test_every_rule_tells_the_user_what_must_be_in_one_line() -> None:
    messages = {rule["message"] for node in RULED_NODES.values() for rule in node[RULES]}
    assert {message for message in messages if "must" not in message or "\n" in message} == set()


def test_what_a_rule_walks_has_a_maximum() -> None:
    maximum = {"string": "maxLength", "array": "maxItems"}
    for path, node in RULED_NODES.items():
        assert node["type"] not in maximum or maximum[node["type"]] in node, path


@pytest.mark.parametrize("kind", KINDS)
def test_the_api_server_fills_in_what_the_model_fills_in(kind: str) -> None:
    spec = MINIMAL_SPECS[kind]
    defaulted = with_defaults(SCHEMAS[kind]["properties"]["spec"], spec)
    model = parse_spec(kind, spec)
    assert without_empty(to_dict(model)) == without_empty(defaulted)
    assert parse_spec(kind, defaulted) == model


def parse_spec(kind: str, spec: dict[str, Any]) -> BaseModel:
    resource = parse(kind, {"metadata": {"name": "orders"}, "spec": spec})  # type: ignore[call-overload]
    assert isinstance(resource.spec, BaseModel)
    return resource.spec


def test_the_scale_subresource_finds_its_fields_where_a_resource_has_workers_of_its_own() -> None:
    crd = definition(KINDS["DelayedTopic"])
    assert crd["spec"]["versions"][0]["subresources"]["scale"]["specReplicasPath"] == ".spec.workers.replicas"
    spec = SCHEMAS["DelayedTopic"]["properties"]["spec"]
    assert "workers" not in with_defaults(spec, {"delaySeconds": [0]})
    assert with_defaults(spec, {"delaySeconds": [0], "workers": {"template": {}}})["workers"]["replicas"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_columns_point_at_fields_that_exist(kind: str) -> None:
    paths = {path.replace("[]", "") for path, _ in nodes(SCHEMAS[kind])}
    for column in KINDS[kind].columns:
        path = column.path.partition("[")[0]
        assert path in paths or path == ".metadata.creationTimestamp"


@pytest.mark.parametrize("kind", KINDS)
def test_the_chart_installs_the_same_definition_and_keeps_it(kind: str) -> None:
    template = (ROOT / CHART_TEMPLATES / f"{KINDS[kind].plural}.yaml").read_text()
    assert "{{- if .Values.crds.install }}" in template
    crd = yaml.safe_load("\n".join(line for line in template.splitlines() if not line.startswith("{{-")))
    assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert crd == yaml.safe_load((ROOT / MANIFESTS / f"delayedtopics.io_{KINDS[kind].plural}.yaml").read_text())


def test_the_reference_has_every_field_of_every_kind() -> None:
    page = (ROOT / REFERENCE).read_text()
    for kind in KINDS:
        assert f"## {kind}\n" in page
    for field in ("delaySeconds", "workers.template.resources", "allow[].namespaceSelector", "account.doubled"):
        assert f"| `{field}` |" in page


def test_everything_that_a_user_writes_has_a_maximum() -> None:
    maxima = {"string": ("maxLength", "enum", "format"), "array": ("maxItems",)}
    specs = {path: node for path, node in ALL_NODES.items() if ".spec" in path}
    unbounded = [path for path, node in specs.items() if not set(maxima.get(node.get("type", ""), node)) & node.keys()]
    maps = [path for path, node in specs.items() if "additionalProperties" in node and "maxProperties" not in node]
    assert unbounded + maps == []
