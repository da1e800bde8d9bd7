"""Counts the operator's calls to the API server and to Kafka: by its metrics, by the objects, and by the API server's audit log."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from delayed_topics_e2e.tenant import Install

__all__ = ["Calls", "OperatorCalls", "resource_versions", "writes_in_audit_log"]

READS = frozenset({"get", "list", "watch"})
WATCHED_KINDS = ("statefulsets", "services", "pdb", "configmaps", "secrets", "pods")


@dataclass(frozen=True, kw_only=True)
class Calls:
    """Counts since the operator started, or between two readings."""

    kube: float
    kube_writes: float
    kafka: float

    def __sub__(self, earlier: "Calls") -> "Calls":
        return Calls(
            kube=self.kube - earlier.kube,
            kube_writes=self.kube_writes - earlier.kube_writes,
            kafka=self.kafka - earlier.kafka,
        )

    def as_dict(self) -> Mapping[str, float]:
        return {"kube_calls": self.kube, "kube_writes": self.kube_writes, "kafka_calls": self.kafka}


@dataclass(frozen=True)
class OperatorCalls:
    """Reads the operator's /metrics."""

    install: Install

    def read(self) -> Calls:
        (pod,) = self.install.operator_pods()
        text = self.install.kube.pod_get(pod["metadata"]["name"], "metrics", namespace=self.install.namespace)
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
        kube = [
            s
            for s in samples
            if s.name == "delayedtopics_operator_kube_calls_total"
            and s.labels["kind"] != "Lease"  # renewed by the clock
        ]
        return Calls(
            kube=sum(s.value for s in kube),
            kube_writes=sum(s.value for s in kube if s.labels["verb"].lower() not in READS),
            kafka=sum(s.value for s in samples if s.name == "delayedtopics_operator_kafka_calls_total"),
        )


def resource_versions(install: Install, namespace: str) -> dict[str, str]:
    """The resourceVersions of the DelayedTopics and Events of a namespace, and of all objects that the operator manages for them."""
    found = {}
    objects = [*install.kube.list("delayedtopics", namespace=namespace), *install.kube.events(namespace)]
    for kind in WATCHED_KINDS:
        objects += install.kube.list(
            kind, namespace=install.namespace, labels={"delayedtopics.io/namespace": namespace}
        )
    for o in objects:
        found[f"{o['kind']} {o['metadata']['namespace']}/{o['metadata']['name']}"] = o["metadata"]["resourceVersion"]
    return found


def writes_in_audit_log(audit_log: Path, *, since: float, by: str) -> list[str]:
    """Requests other than reads by users whose name contains `by`, received after `since` (seconds since the epoch)."""
    writes = []
    for line in audit_log.read_text().splitlines():
        entry = json.loads(line)
        at = datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
        lease = entry.get("objectRef", {}).get("resource") == "leases"  # renewed every two seconds
        if at >= since and by in entry["user"]["username"] and entry["verb"] not in READS and not lease:
            writes.append(f"{entry['requestReceivedTimestamp']} {entry['verb']} {entry['requestURI']}")
    return writes
