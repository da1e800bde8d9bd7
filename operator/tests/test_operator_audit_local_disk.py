"""How much of its node's disk an audit's pod requests, and the volumes that it can have instead."""

import json
from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from delayed_topics_core.carried import Carried
from delayed_topics_crds import DelayedTopicAuditSpec, Grant, parse
from delayed_topics_operator.audits.reconcile.access import AuditSite, most_local_disk_mebibytes, refused
from delayed_topics_operator.audits.reconcile.executors import LOCAL_DISK
from delayed_topics_operator.values.key import Key
from delayed_topics_operator_testing.audit_simulation import AUDIT_NAMESPACE, WINDOW, AuditSimulation, audit_resource

DISK = "ephemeral-storage"
LARGE = replace(WINDOW, end_offsets={"orders": (10**9,)})
CARRIED = Carried(folder="orders-audit-0a1b2c3d", sha256="ab")
GIVEN_MIB = 76_294
"""80 bytes for each of 10^9 offsets."""
EVERY_TOPIC = {"namespaceSelector": {}, "topicPrefixes": [""]}
SITE = AuditSite(
    namespace="shop",
    namespace_labels={},
    home=AUDIT_NAMESPACE,
    executors=True,
    spark_applications=False,
    topic="orders",
    connection=Key("ClusterKafkaConnection", "", "default"),
    grants=None,
)


def pods(spark: dict[str, Any], *, most: int | None = None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Returns the spec of the Job's pod, and of an executor's pod if the audit has executors."""
    simulation = AuditSimulation(
        raw=audit_resource(spark=spark), frozen=LARGE, most_local_disk_mebibytes=most, fs_group=7
    )
    simulation.settle()
    assert simulation.job is not None
    assert simulation.config_map is not None
    executor = simulation.config_map["data"].get("executor.json")
    return simulation.job["spec"]["template"]["spec"], json.loads(executor)["spec"] if executor else None


def disk(pod: dict[str, Any] | None) -> tuple[dict[str, Any], str | None, str | None]:
    """Returns the volume, and the request and the limit that the container has for the node's disk."""
    assert pod is not None
    (found,) = (known for known in pod["volumes"] if known["name"] == LOCAL_DISK)
    (container,) = pod["containers"]
    assert {"name": LOCAL_DISK, "mountPath": "/tmp"} in container["volumeMounts"]
    resources = container["resources"]
    kind = {key: value for key, value in found.items() if key != "name"}
    return kind, resources["requests"].get(DISK), resources["limits"].get(DISK)


def test_a_pod_asks_for_what_the_window_needs() -> None:
    assert disk(pods({})[0]) == ({"emptyDir": {}}, f"{GIVEN_MIB}Mi", None)
    small = AuditSimulation(raw=audit_resource())
    small.settle()
    assert small.job is not None
    assert disk(small.job["spec"]["template"]["spec"])[1] == "1024Mi"


def test_a_sample_needs_as_much_less_as_it_looks_at() -> None:
    simulation = AuditSimulation(raw=audit_resource(sample={"oneIn": 10}), frozen=replace(LARGE, sample_one_in=10))
    simulation.settle()
    assert simulation.job is not None
    assert disk(simulation.job["spec"]["template"]["spec"])[1] == "7630Mi"


@pytest.mark.parametrize(
    ("output", "carried", "bytes_each"),
    [
        (None, CARRIED, 80),
        ({"claimName": "audits"}, None, 80 + 180),
        ({"claimName": "audits"}, CARRIED, 80 + 180 + 180),
    ],
    ids=["without an output", "first link", "next link"],
)
def test_a_link_of_a_chain_needs_room_for_its_tables(
    output: dict[str, Any] | None, carried: Carried | None, bytes_each: int
) -> None:
    further: dict[str, Any] = {} if output is None else {"output": output}
    raw = audit_resource(window={"sinceLast": True}, **further)
    simulation = AuditSimulation(raw=raw, frozen=replace(LARGE, carries=True, carried=carried))
    simulation.settle()
    assert simulation.job is not None
    asked = disk(simulation.job["spec"]["template"]["spec"])[1]
    assert asked == f"{ceil(bytes_each * 10**9 / 2**20)}Mi"


def test_executors_share_it_and_the_pod_that_leads_them_needs_none() -> None:
    driver, executor = pods({"executors": 4})
    assert disk(executor) == ({"emptyDir": {}}, "19074Mi", None)
    assert disk(driver) == ({"emptyDir": {}}, None, None)
    _, one_of_few = pods({"executors": 4, "minExecutors": 2})
    assert disk(one_of_few) == ({"emptyDir": {}}, "38147Mi", None)


def test_executors_keep_each_table_of_a_chain_twice() -> None:
    """An executor may go away, so Spark keeps two copies of what it cannot compute again."""
    raw = audit_resource(window={"sinceLast": True}, output={"claimName": "audits"}, spark={"executors": 4})
    simulation = AuditSimulation(raw=raw, frozen=replace(LARGE, carries=True, carried=CARRIED))
    simulation.settle()
    assert simulation.config_map is not None
    executor = json.loads(simulation.config_map["data"]["executor.json"])["spec"]
    assert disk(executor)[1] == f"{ceil((80 + 2 * (180 + 180)) * 10**9 / 4 / 2**20)}Mi"


def test_where_a_connection_limits_it_a_pod_that_writes_more_is_evicted() -> None:
    assert disk(pods({}, most=1000)[0]) == ({"emptyDir": {"sizeLimit": "1000Mi"}}, "1000Mi", "1000Mi")
    within = disk(pods({}, most=100_000)[0])
    assert within == ({"emptyDir": {"sizeLimit": "100000Mi"}}, f"{GIVEN_MIB}Mi", "100000Mi")


def test_a_size_that_is_asked_for_counts() -> None:
    expected = ({"emptyDir": {"sizeLimit": "7Gi"}}, "7Gi", "7Gi")
    assert disk(pods({"localDisk": {"size": "7Gi"}}, most=100_000)[0]) == expected


@pytest.mark.parametrize("spark", [{}, {"executors": 1}], ids=str)
def test_with_a_storage_class_each_pod_has_a_volume_of_its_own(spark: dict[str, Any]) -> None:
    driver, executor = pods({**spark, "localDisk": {"size": "1Ti", "storageClassName": "fast"}})
    pod = executor or driver
    made, request, limit = disk(pod)
    assert (request, limit, pod["securityContext"]["fsGroup"]) == (None, None, 7)
    assert made["ephemeral"]["volumeClaimTemplate"]["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "1Ti"}},
    }


def asking(**spark: Any) -> DelayedTopicAuditSpec:
    return parse("DelayedTopicAudit", audit_resource(spark=spark)).spec


def test_a_grant_bounds_size_and_storage_classes() -> None:
    granted = {**EVERY_TOPIC, "audits": {"maxLocalDisk": "1Ti", "storageClasses": ["a"]}}
    site = replace(SITE, grants=(Grant.model_validate(granted),))

    def refusal(**asked: str) -> str | None:
        return refused(asking(localDisk=asked), site)

    assert refusal(size="1024Gi", storageClassName="a") is None
    assert "spec.spark.localDisk.size (2Ti, at most 1Ti)" in (refusal(size="2Ti") or "")
    assert "spec.spark.localDisk.storageClassName (b)" in (refusal(size="1Gi", storageClassName="b") or "")
    assert most_local_disk_mebibytes(site, asking()) == 2**20
    assert most_local_disk_mebibytes(replace(site, grants=None), asking()) is None


def test_only_the_grant_by_which_an_audit_runs_says_how_much_disk_it_may_fill() -> None:
    """One grant allows twenty executors, another the large disk, and none allows both."""
    many = {**EVERY_TOPIC, "audits": {"maxExecutors": 20, "maxLocalDisk": "10Gi"}}
    large = {**EVERY_TOPIC, "audits": {"maxLocalDisk": "1Ti"}}
    site = replace(SITE, grants=(Grant.model_validate(many), Grant.model_validate(large)))
    assert most_local_disk_mebibytes(site, asking(executors=20)) == 10 * 2**10
    assert most_local_disk_mebibytes(site, asking()) == 2**20
