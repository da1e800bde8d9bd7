"""Fixtures that render the chart with Helm, with every flag on and off."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from delayed_topics_devcluster.context import Cluster, current_cluster

CHART = Path(__file__).resolve().parents[1] / "delayed-topics"
NAMESPACE = "chart-test"
TENANT = "chart-test-tenant"
AUDITS = "chart-test-audits"
PRODUCTION = {
    "bootstrapServers": ["kafka-0.example.com:9093", "[2001:db8::1]:9093"],
    "tls": {
        "caSecretRef": {"name": "kafka-ca"},
        "clientCertSecretRef": {"name": "delays", "certificateKey": "user.crt", "privateKeyKey": "user.key"},
    },
    "sasl": {"mechanism": "SCRAM-SHA-512", "username": "delays", "secretRef": {"name": "delays"}},
    "brokerSkewMs": 0,
    "allow": [
        {"namespaceSelector": {"matchLabels": {"team": "shop"}}, "topicPrefixes": ["shop."], "maxPartitions": 64},
        {"namespaceSelector": {}, "topicPrefixes": [""], "template": {"labels": ["team"], "maxMemory": "4Gi"}},
    ],
}
# Flags about the address of Kafka, which depend on each other; each entry has the values that turn one on.
KAFKA_FLAGS: tuple[dict[str, Any], ...] = (
    {"evaluationKafka": {"enabled": True}},
    {"evaluationKafka": {"secureListener": {"enabled": True, "users": ["operator", "shop"]}}},
    {"evaluationKafka": {"secureListener": {"forDefaultConnection": True}}},
    {"defaultConnection": PRODUCTION},
    {"defaultConnection": {"enabled": False}},
)
# Flags that are independent of each other.
OTHER_FLAGS: tuple[dict[str, Any], ...] = (
    {"evaluationKafka": {"persistence": {"enabled": True, "storageClassName": "fast"}}},
    {"crds": {"install": False}},
    {"networkPolicies": {"enabled": True, "scrapers": [{"namespaceSelector": {}}], "kafkaPorts": [9098]}},
    {"tenantNamespaces": [TENANT], "tenantNamespaceSelector": {"matchLabels": {"team": "shop"}}},
    {"audits": {"executors": {"enabled": True}}},
    {"audits": {"executors": {"enabled": True}, "sparkApplications": {"enabled": True}}},
    {"monitoring": {part: {"enabled": True, "labels": {"team": "a"}} for part in ("podMonitor", "rules", "dashboard")}},
    {"images": {"pullPolicy": "Always", "pullSecrets": [{"name": "registry"}]}},
    {"serviceAccounts": {part: {"annotations": {"cloud/role": part}} for part in ("operator", "worker", "audit")}},
    {"pods": {"labels": {"team": "platform"}, "annotations": {"sidecar.istio.io/inject": "false"}}},
    {"pods": {"nodeSelector": {"pool": "kafka"}, "tolerations": [{"key": "pool"}], "priorityClassName": "high"}},
    {"fsGroup": None, "evaluationKafka": {"podLabels": {"team": "a"}, "podAnnotations": {"sidecar": "none"}}},
    {
        "operator": {
            "logLevel": "WARNING",
            "resyncSeconds": 300,
            "registryMebibytes": 32,
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "system-cluster-critical",
            "podLabels": {"team": "platform"},
            "podAnnotations": {"prometheus.io/port": "8080"},
        },
    },
)

Manifest = dict[str, Any]
Render = Callable[..., list[Manifest]]


@pytest.fixture(scope="session")
def helm() -> Cluster:
    """The cluster, for calls of Helm that need none: it need not be up."""
    return current_cluster()


@pytest.fixture(scope="session")
def render(helm: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Render:
    """`render(values…)` returns the objects that the chart renders with these values; `only`: those of this template. Raises
    CommandFailedError if Helm refuses the values."""
    file = tmp_path_factory.mktemp("chart") / "values.json"

    def rendered(*values: dict[str, Any], release: str = "delayed-topics", only: str = "") -> list[Manifest]:
        file.write_text(json.dumps(merged(*values)))
        shown = ("--show-only", f"templates/{only}") if only else ()
        printed = helm.helm(
            *("template", release, CHART, "--namespace", NAMESPACE, "--kube-version", "1.34", "--values", file, *shown)
        )
        return [document for document in yaml.load_all(printed, Loader=yaml.CSafeLoader) if document]

    return rendered


@pytest.fixture(scope="session")
def everything(render: Render) -> list[list[Manifest]]:
    """The rendered objects of every combination of flags."""
    return [render(*values) for values in combinations()]


def combinations() -> Iterator[list[dict[str, Any]]]:
    """Yields every combination of the flags about Kafka, with all other flags off and with all of them on."""
    for others in ((), OTHER_FLAGS):
        for switches in itertools.product((False, True), repeat=len(KAFKA_FLAGS)):
            yield [*others, *(flag for flag, on in zip(KAFKA_FLAGS, switches, strict=True) if on)]


def merged(*values: dict[str, Any]) -> dict[str, Any]:
    """Merges values, as Helm merges several values files."""
    result: dict[str, Any] = {}
    for part in values:
        for key, value in part.items():
            old = result.get(key)
            result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result
