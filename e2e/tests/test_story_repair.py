"""The operator repairs within a minute whatever is changed by hand in the objects that it manages, and reports it as an Event."""

import json
import time

import pytest
from delayed_topics_e2e.report import Report
from delayed_topics_e2e.tenant import Declared, Tenant
from delayed_topics_e2e.waiting import until

pytestmark = pytest.mark.cluster

REPAIRED_WITHIN_SECONDS = 60.0


def test_whatever_is_changed_by_hand_is_repaired_within_a_minute_and_told(tenant: Tenant, report: Report) -> None:
    orders = tenant.declare("orders", partitions=4).apply().wait_ready()
    kube, kafka = orders.kube, orders.kafka
    enforced = ("message.timestamp.type", "retention.ms", "min.insync.replicas", "cleanup.policy", "max.message.bytes")
    settings_before = {topic: pick(kafka.settings(topic), enforced) for topic in orders.names.topics}
    children_before = children(orders)

    started = time.monotonic()
    for topic in orders.names.topics:
        kafka.change(
            topic,
            retention_ms="3600000",
            message_timestamp_type="CreateTime",
            min_insync_replicas="2",
            cleanup_policy="compact",
            max_message_bytes="2000",
        )
    sts = orders.child("statefulsets")["metadata"]["name"]
    pod_spec = {"template": {"spec": {"containers": [{"name": "worker", "image": "somebody/elses:image"}]}}}
    kube.kubectl(
        "patch", "statefulset", sts, "-n", orders.workers_in, "--type=strategic", "-p", json.dumps({"spec": pod_spec})
    )
    kube.kubectl("scale", "statefulset", sts, "-n", orders.workers_in, "--replicas=3")
    config_map = orders.child("configmaps", suffix="-layout")["metadata"]["name"]
    kube.patch("configmap", config_map, {"data": {"layout.json": "{}"}}, namespace=orders.workers_in)
    kube.delete("pdb", orders.child("pdb")["metadata"]["name"], namespace=orders.workers_in)

    def repaired() -> list[str]:
        wrong = [t for t in orders.names.topics if pick(kafka.settings(t), enforced) != settings_before[t]]
        present = children(orders)
        return wrong + [kind for kind, before in children_before.items() if present.get(kind) != before]

    until(
        repaired,
        what="everything is as declared again",
        enough=lambda wrong: not wrong,
        timeout_seconds=REPAIRED_WITHIN_SECONDS,
        poll_seconds=1,
    )
    report.add("repair", f"settings of 4 topics and 4 objects repaired after {time.monotonic() - started:.0f} s")
    for topic in orders.names.topics:
        orders.wait_event(mentions=["SettingsRepaired", topic, "retention.ms"])
    orders.wait_event(mentions=["epair", sts])

    orders.wait_ready()
    with orders.checker() as checker:
        kafka.produce(orders.topic, [(b"k%d" % i, b"%d" % i, ()) for i in range(100)])
        account = checker.settled(produced=100)
        assert account.clean, account


def pick(settings: dict[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: settings[name] for name in names}


def children(orders: Declared) -> dict[str, object]:
    """The declared fields of the children that people can change."""
    seen: dict[str, object] = {}
    for sts in orders.kube.list("statefulsets", namespace=orders.workers_in, labels=orders.labels):
        spec = sts["spec"]
        seen["statefulset"] = (spec["replicas"], [c["image"] for c in spec["template"]["spec"]["containers"]])
    for config_map in orders.kube.list("configmaps", namespace=orders.workers_in, labels=orders.labels):
        seen[f"configmap {config_map['metadata']['name']}"] = config_map["data"]
    for pdb in orders.kube.list("pdb", namespace=orders.workers_in, labels=orders.labels):
        seen["pdb"] = pdb["spec"]
    return seen
