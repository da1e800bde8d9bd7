"""A real API server accepts every object that any combination of flags renders, and admits every pod as a restricted one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from delayed_topics_devcluster.api_server import ApiServer

pytestmark = pytest.mark.api

Manifest = dict[str, Any]
CHART = Path(__file__).resolve().parents[1] / "delayed-topics"
NAMESPACES = ("chart-test", "chart-test-tenant", "chart-test-audits")


@pytest.fixture(scope="module")
def namespaces(api_server: ApiServer) -> None:
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    for name in NAMESPACES:
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": enforced}}
        api_server.kubectl("apply", "--filename=-", text_in=json.dumps(manifest))
        # without it, the API server refuses every pod
        api_server.kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={name}", "--timeout=60s")


def test_the_api_server_takes_every_object(
    api_server: ApiServer, namespaces: None, everything: list[list[Manifest]]
) -> None:
    found = unique(everything)
    printed = dry_run(api_server, found)
    assert printed.count("(server dry run)") == len(found)


def test_the_api_server_takes_every_pod_as_restricted(
    api_server: ApiServer, namespaces: None, everything: list[list[Manifest]]
) -> None:
    # Pods themselves, because for a Deployment with an unrestricted pod the API server only warns.
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number}", "namespace": NAMESPACES[0]},
            "spec": spec,
        }
        for number, spec in enumerate(pod_specs(everything))
    ]
    assert len(pods) > 4
    assert dry_run(api_server, pods).count("(server dry run)") == len(pods)


@pytest.mark.slow
def test_workers_reach_kafka_after_an_uninstall_and_a_new_release_takes_over_what_was_kept(
    api_server: ApiServer, tmp_path: Path
) -> None:
    file = tmp_path / "values.json"
    off = {"crds": {"install": False}, "defaultConnection": {"enabled": False}}
    file.write_text(json.dumps({**off, "networkPolicies": {"enabled": True}}))
    release = ("delayed-topics", "--namespace=chart-kept")
    install = ("install", *release, CHART, "--create-namespace", "--values", file)
    try:
        api_server.helm(*install)
        api_server.helm("uninstall", *release)
        kept = {kind: named(api_server, kind) for kind in ("networkpolicy", "deployment")}
        assert kept == {"networkpolicy": ["delayed-topics-worker"], "deployment": []}
        api_server.helm(*install)
        assert named(api_server, "networkpolicy") == ["delayed-topics-operator", "delayed-topics-worker"]
    finally:
        api_server.helm("uninstall", *release, "--ignore-not-found")
        api_server.kubectl("delete", "namespace", "chart-kept", "chart-kept-audits", "--ignore-not-found")


def named(api_server: ApiServer, kind: str) -> list[str]:
    names = "--output=jsonpath={.items[*].metadata.name}"
    return sorted(api_server.kubectl("get", kind, "--namespace=chart-kept", names).split())


def dry_run(api_server: ApiServer, objects: list[Manifest]) -> str:
    text = yaml.safe_dump_all(objects)
    return api_server.kubectl("create", "--dry-run=server", "--validate=strict", "--filename=-", text_in=text)


def unique(everything: list[list[Manifest]]) -> list[Manifest]:
    """Returns each distinct object once, with a unique name, so that it is new to the API server."""
    contents = {
        json.dumps(comparable(part), sort_keys=True): part
        for objects in everything
        for part in with_connection(objects)
    }
    found = []
    for number, part in enumerate(contents.values()):
        if part["kind"] == "CustomResourceDefinition":
            continue  # the name of a CRD can't be changed, and the CRDs are installed already
        if part["apiVersion"].startswith("monitoring.coreos.com/"):
            continue  # needs the CRDs of the Prometheus Operator; see test_chart_alerts.py
        found.append({**part, "metadata": {**part["metadata"], "name": f"{part['metadata']['name']}-{number}"}})
    return found


def with_connection(objects: list[Manifest]) -> Iterator[Manifest]:
    for part in objects:
        yield part
        if part["kind"] == "ConfigMap" and "connection.yaml" in part["data"]:
            yield yaml.safe_load(part["data"]["connection.yaml"])


def comparable(part: Manifest) -> Manifest:
    """Returns the object without data that each rendering generates at random."""
    return {**part, "data": sorted(part["data"])} if part["kind"] == "Secret" else part


def pod_specs(everything: list[list[Manifest]]) -> list[Manifest]:
    specs = [
        part["spec"]["template"]["spec"] | {"serviceAccountName": "default", "priorityClassName": ""}
        for objects in everything
        for part in objects
        if part["kind"] in ("Deployment", "StatefulSet")
    ]
    for spec in specs:
        names = {mount["name"] for container in spec["containers"] for mount in container["volumeMounts"]}
        volumes = {volume["name"] for volume in spec["volumes"]}
        spec["volumes"] += [
            {"name": name, "emptyDir": {}} for name in sorted(names - volumes)
        ]  # in place of volume claims
    return [json.loads(text) for text in sorted({json.dumps(spec, sort_keys=True) for spec in specs})]
