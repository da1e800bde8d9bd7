"""A resource is deleted and applied again: with Retain it continues where it ended, with Delete it starts from scratch."""

import pytest
from delayed_topics_core import headers as own
from delayed_topics_e2e.tenant import Tenant
from delayed_topics_e2e.waiting import until

pytestmark = pytest.mark.cluster


def test_after_retain_the_same_resource_goes_on_with_what_was_pending(tenant: Tenant) -> None:
    orders = tenant.declare("orders", delaySeconds=[0, 5], deletionPolicy="Retain").apply().wait_ready()
    fast = [(b"k", b"fast %d" % i, ()) for i in range(100)]
    slow = [(b"k", b"slow %d" % i, ((own.DELAY_LEVEL, b"2"),)) for i in range(100)]
    with orders.checker() as checker:
        orders.kafka.produce(orders.topic, [*fast, *slow])
        until(
            checker.account,
            what="the records that are due at once are released",
            enough=lambda account: account.released >= len(fast),
        )
        ids = orders.kafka.topic_ids(*orders.names.topics)
        orders.delete()
        assert not orders.pods()
        assert any(e["reason"] == "Retained" for e in orders.events()), orders.events()
        assert orders.kafka.topic_ids(*orders.names.topics) == ids
        orders.kafka.produce(orders.topic, [(b"k", b"while nobody served %d" % i, ()) for i in range(50)])
        assert checker.account().lost > 0, "no record is pending"

        orders.apply().wait_ready()
        account = checker.settled(produced=250)
        assert account.clean, account
    assert orders.kafka.topic_ids(*orders.names.topics) == ids


def test_after_delete_nothing_is_left_and_applying_again_begins_anew(tenant: Tenant) -> None:
    orders = tenant.declare("orders", deletionPolicy="Delete").apply().wait_ready()
    ids = orders.kafka.topic_ids(*orders.names.topics)
    orders.kafka.produce(orders.topic, [(b"k", b"old %d" % i, ()) for i in range(20)])
    orders.delete()
    assert not orders.kafka.topics().keys() & set(orders.names.topics)
    assert orders.names.group not in orders.kafka.groups()

    orders.apply().wait_ready()
    assert not set(orders.kafka.topic_ids(*orders.names.topics).values()) & set(ids.values())
    with orders.checker() as checker:
        orders.kafka.produce(orders.topic, [(b"k", b"new %d" % i, ()) for i in range(20)])
        account = checker.settled(produced=20)
        assert account.clean, account
        assert all((r.value or b"").startswith(b"new") for r in checker.ready)


def test_a_claim_that_was_kept_is_not_taken_over_by_another_name(tenant: Tenant) -> None:
    orders = tenant.declare("orders", deletionPolicy="Retain").apply().wait_ready()
    orders.delete()
    heir = tenant.declare("heir", topic=orders.topic).apply()
    refused = heir.wait_condition("Claimed", "False", reason="ClaimedByOther")
    assert f"{orders.namespace}/orders" in refused["message"]
    heir.delete()
    orders.apply().wait_ready()
