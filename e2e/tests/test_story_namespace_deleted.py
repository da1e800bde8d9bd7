"""A team deletes its whole namespace: the deletion does not hang, no worker is left, and each deletionPolicy is followed."""

import pytest
from delayed_topics_e2e.tenant import Tenant

pytestmark = pytest.mark.cluster


def test_a_deleted_namespace_goes_leaves_no_worker_and_keeps_the_policy(tenant: Tenant) -> None:
    kept = tenant.declare("kept", deletionPolicy="Retain").apply()
    deleted = tenant.declare("deleted", deletionPolicy="Delete").apply()
    both = (kept.wait_ready(), deleted.wait_ready())
    for orders in both:
        orders.kafka.produce(orders.topic, [(b"k", b"%d" % i, ()) for i in range(10)])
    kept.kube.delete("namespace", tenant.namespace)
    kept.kube.wait_gone("namespace", tenant.namespace, timeout_seconds=180)
    for orders in both:
        for kind in ("pods", "statefulsets", "services", "pdb", "configmaps", "secrets"):
            assert not orders.kube.list(kind, namespace=orders.workers_in, labels=orders.labels), kind
    topics = tenant.install.kafka.topics().keys()
    assert set(kept.names.topics) <= topics
    assert topics.isdisjoint(deleted.names.topics)
