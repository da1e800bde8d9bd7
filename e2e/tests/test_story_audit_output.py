"""A chain of audits with a PersistentVolumeClaim writes reports, tables and an index there, and does not read settled records again."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from delayed_topics_core import headers as own
from delayed_topics_e2e.report import Report
from delayed_topics_e2e.tenant import API_VERSION, Declared, Install, Tenant, Tenants, set_tenant_namespaces

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("own_cluster")]

RECORDS = 3_000
CLAIM = "accounts"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """The folder of the volume on the node, which is this machine. Pods that mount the claim write there."""
    made = tmp_path / "volume"
    made.mkdir()
    return made


@pytest.fixture
def owner(install: Install, start_tenant: Tenants, volume: Path) -> Iterator[Tenant]:
    """A tenant with a connection and a claim of its own, whose namespace admits restricted pods only."""
    tenant = start_tenant(**RESTRICTED)
    set_tenant_namespaces(install, [tenant.namespace])
    (node,) = install.kube.list("nodes")
    on_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node["metadata"]["name"]]}
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    of_claim = {"storageClassName": "", "accessModes": modes}
    install.kube.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": tenant.namespace},
            "spec": {
                **of_claim,
                "capacity": size,
                "local": {"path": str(volume)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": tenant.namespace},
            "spec": {**of_claim, "volumeName": tenant.namespace, "resources": {"requests": size}},
        },
        {
            "apiVersion": API_VERSION,
            "kind": "KafkaConnection",
            "metadata": {"name": "ours", "namespace": tenant.namespace},
            "spec": {"bootstrapServers": [f"{install.release}-kafka.{install.namespace}.svc:9092"]},
        },
    )
    yield tenant
    tenant.request_deletion()
    tenant.finish_deletion()
    install.kube.delete("persistentvolume", tenant.namespace)
    set_tenant_namespaces(install, [])


def test_what_a_chain_of_audits_writes_to_a_claim_is_there_and_not_read_again(
    owner: Tenant, volume: Path, report: Report
) -> None:
    connection = {"kind": "KafkaConnection", "name": "ours"}
    orders = owner.declare("orders", workers_in=owner.namespace, connectionRef=connection, delaySeconds=[0, 3600])
    orders.apply().wait_ready()
    first = link(orders, "first")
    second = link(orders, "second")

    for status in (first, second):
        claim, _, page = status["report"].partition(":")
        assert claim == CLAIM
        assert "<strong>Verified</strong>" in (volume / page).read_text()
        assert list((volume / page).parent.glob("places/*.parquet"))
    index = (volume / f"{orders.topic}.html").read_text()
    assert len(re.findall(r'<td class="Verified">', index)) == 2
    assert len(list((volume / "audits" / f"topic={orders.topic}").glob("*.parquet"))) == 2

    new = ends(orders, second) - ends(orders, first)
    whole = orders.audit("whole")
    assert second["account"]["offsetsRead"] == new < whole["account"]["offsetsRead"], (second, whole)
    assert (first["account"]["pending"], whole["account"]["pending"]) == (RECORDS // 2, RECORDS)
    report.add(
        "audit with an output", f"the second link read {new} offsets, {whole['account']['offsetsRead']} are there"
    )


def link(orders: Declared, name: str) -> dict[str, Any]:
    """Produces records, half of which wait for an hour, and then audits them as a link of the chain. Returns the audit's status."""
    levels = (((own.DELAY_LEVEL, b"%d" % (i % 2 + 1)),) for i in range(RECORDS))
    orders.kafka.produce(orders.topic, ((b"k%d" % i, b"v", headers) for i, headers in enumerate(levels)))
    orders.wait_front_settled()
    output = {"claimName": CLAIM, "parquet": True}
    status = orders.audit(name, window={"sinceLast": True}, output=output)
    assert status["verdict"] == "Verified", status
    return status


def ends(orders: Declared, status: dict[str, Any]) -> int:
    """The sum of the end offsets of all topics that the audit froze."""
    return sum(map(sum, orders.window(status).end_offsets.values()))
