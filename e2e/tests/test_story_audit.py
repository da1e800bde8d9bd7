"""An audit verifies a clean run, and finds one removed and one doubled record among ten thousand."""

import pytest
from delayed_topics_core import headers as own
from delayed_topics_e2e.by_hand import move_offset, stopped
from delayed_topics_e2e.report import Report
from delayed_topics_e2e.tenant import Declared, Tenant
from delayed_topics_e2e.waiting import until

pytestmark = pytest.mark.cluster

RECORDS = 10_000


def test_a_clean_run_is_verified_then_one_record_removed_and_one_doubled_are_found(
    tenant: Tenant, report: Report
) -> None:
    orders = tenant.declare("orders", delaySeconds=[0, 1, 2], partitions=4).apply().wait_ready()
    with orders.checker() as checker:
        produce(orders, RECORDS)
        account = checker.settled(produced=RECORDS)
        assert account.clean, account
        clean = orders.audit("clean")
        assert clean["verdict"] == "Verified", clean
        assert (clean["account"]["lost"], clean["account"]["early"], clean["account"]["doubled"]) == (0, 0, 0)
        assert clean["account"]["released"] == RECORDS
        orders.wait_condition("DeliveryVerified", "True")
        assert orders.status["lastAudit"]["name"] == "clean"

        remove_one_record(orders)
        orders.kafka.copy(checker.ready[RECORDS // 2], to=orders.names.ready)
        until(
            checker.account,
            what="all records but the removed one have come out",
            enough=lambda a: a.produced == 2 * RECORDS and a.lost == 1,
        )
    found = orders.audit("tampered")
    assert found["verdict"] == "Violated", found
    assert (found["account"]["lost"], found["account"]["early"], found["account"]["doubled"]) == (1, 0, 1), found
    orders.wait_condition("DeliveryVerified", "False")
    columns = orders.kube.kubectl("get", "dtaudit", "-n", orders.namespace)
    assert "Verified" in columns, columns
    assert "Violated" in columns, columns
    report.add("audit", f"clean: {clean['message']}")
    report.add("audit", f"tampered: {found['message']}")


def produce(orders: Declared, count: int) -> None:
    orders.kafka.produce(
        orders.topic,
        ((b"k%d" % (i % 97), b"%d" % i, ((own.DELAY_LEVEL, b"%d" % (i % 3 + 1)),)) for i in range(count)),
    )


def remove_one_record(orders: Declared) -> None:
    """Skips a record, as a mistaken `kafka-consumer-groups --reset-offsets --shift-by 1` would while the workers are stopped."""
    with stopped(orders):
        position = orders.kafka.committed(orders.names.group)[orders.topic, 0].offset
        produce(orders, RECORDS)
        move_offset(orders, 0, position + 1)
