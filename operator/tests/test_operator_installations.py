"""Two installations in one cluster: each serves the resources that use its own connections, and leaves those of the other alone."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.errors import CommandFailedError
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_operator.audits.reconcile.manifests import child_names
from delayed_topics_operator.engine.installation import INSTALLATION, connection_of, serves
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.audits import apply_audit, status, wait_for_job
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import AUDIT_NAMESPACE, SYSTEM_NAMESPACE, OperatorProcess
from delayed_topics_operator_testing.rights import give_the_rights_of_the_chart, take_the_rights_of_the_chart

OTHER_NAMESPACE = "delayed-topics-second"


def connection(name: str, installation: str | None = None) -> Manifest:
    annotations = {INSTALLATION: installation} if installation else {}
    return {"kind": "ClusterKafkaConnection", "metadata": {"name": name, "annotations": annotations}, "spec": {}}


@pytest.mark.parametrize(
    ("connections", "served_by"),
    [
        ([], {"first", "second"}),
        ([connection("default")], {"first", "second"}),
        ([connection("default", "first")], {"first"}),
        ([connection("default", "first"), connection("theirs")], {"first"}),
        ([connection("default", "first"), connection("theirs", "second")], {"second"}),
        ([connection("theirs", "second")], {"second"}),
    ],
)
def test_the_annotation_of_a_connection_says_who_serves_it_else_that_of_the_default(
    connections: list[Manifest], served_by: set[str]
) -> None:
    store = Store()
    for made in connections:
        store.put(made)
    topic = {"metadata": {"namespace": "shop"}, "spec": {"connectionRef": {"name": "theirs"}}}
    assert connection_of(topic) == Key("ClusterKafkaConnection", "", "theirs")
    assert {name for name in ("first", "second") if serves(store, connection_of(topic), namespace=name)} == served_by


def elsewhere(harness: OperatorHarness, connection: str) -> str:
    """Returns the message of the connection's condition ServedElsewhere, or "" if it has none."""
    conditions = harness.connection_status(connection).get("conditions", ())
    return next((c["message"] for c in conditions if c["type"] == "ServedElsewhere"), "")


def of_the_other_installation(api: KubeApi, *arguments: str) -> OperatorProcess:
    """Returns an operator of the other installation, with the rights that the chart gives it there."""
    namespaces = (f"--namespace={OTHER_NAMESPACE}", f"--audit-namespace={OTHER_NAMESPACE}-audits")
    kubeconfig = give_the_rights_of_the_chart(api.server, namespace=OTHER_NAMESPACE)
    return OperatorProcess(api, "--resync-seconds=3", *namespaces, *arguments, kubeconfig=kubeconfig)


@pytest.fixture
def two(api: KubeApi, broker: Broker, tmp_path: Path) -> Iterator[tuple[OperatorHarness, OperatorProcess]]:
    """Yields a harness whose operator has a default connection, and an operator of another installation whose default leads nowhere.

    Neither operator runs yet.
    """
    made = OperatorHarness(api, broker, OperatorProcess(api))
    ours, theirs = tmp_path / "ours.yaml", tmp_path / "theirs.yaml"
    ours.write_text(yaml.safe_dump(made.cluster_connection()))
    theirs.write_text(yaml.safe_dump(made.cluster_connection(bootstrap="127.0.0.1:1")))
    made.operator = OperatorProcess(api, "--resync-seconds=3", f"--default-connection={ours}")
    for namespace in (made.namespace, OTHER_NAMESPACE):
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    second = of_the_other_installation(api, f"--default-connection={theirs}")
    try:
        yield made, second
    finally:
        second.close()
        made.close()
        take_the_rights_of_the_chart(api.server, namespace=OTHER_NAMESPACE)


@pytest.mark.api
def test_a_second_installation_leaves_the_first_ones_connection_and_resources_alone(
    two: tuple[OperatorHarness, OperatorProcess],
) -> None:
    harness, second = two
    harness.operator.start()
    harness.apply()
    harness.wait_until_served()
    harness.operator.stop()  # from here on, only the second operator writes
    before = harness.resource()

    second.start()
    harness.wait(lambda: elsewhere(harness, "default") != "", "the connection names its installation")
    assert f"served only by the installation in namespace {SYSTEM_NAMESPACE}." in elsewhere(harness, "default")
    harness.wait(
        lambda: second.counted("delayedtopics_operator_reconciles_total") > 0,
        "the second operator looks at the resource",
    )
    theirs = harness.cluster_connection("theirs")
    theirs["metadata"]["annotations"] = {INSTALLATION: OTHER_NAMESPACE}
    harness.api.apply(theirs)
    harness.wait(
        lambda: bool(harness.connection_status("theirs")), "the second operator serves a connection of its own"
    )
    counted = "delayedtopics_operator_condition"
    harness.wait(
        lambda: second.counted(counted, kind="ClusterKafkaConnection") > 0, "the second operator counts its connection"
    )
    assert second.counted(counted, kind="DelayedTopic") == 0
    assert second.counted("delayedtopics_operator_not_ready") == 0, "the first operator counts its own resources"

    found = harness.api.get("ClusterKafkaConnection", "default")
    assert found is not None
    assert found["metadata"]["annotations"][INSTALLATION] == SYSTEM_NAMESPACE
    assert found["spec"]["bootstrapServers"] == [harness.broker.bootstrap]
    assert harness.api.list_all("StatefulSet", OTHER_NAMESPACE) == []
    assert harness.resource() == before


@pytest.mark.api
def test_an_audit_whose_delayed_topic_is_gone_is_ended_only_by_the_installation_that_began_it(
    two: tuple[OperatorHarness, OperatorProcess],
) -> None:
    harness, second = two
    harness.operator.start()
    harness.apply()
    apply_audit(harness)
    wait_for_job(harness)
    job = status(harness)["jobName"].partition("/")[2]
    harness.operator.stop()  # from here on, only the second operator writes
    where = f"--namespace={harness.namespace}"
    harness.api.kubectl("delete", "dtopic", harness.topic, where, "--wait=false")
    harness.patch("DelayedTopic", harness.topic, {"metadata": {"finalizers": None}}, namespace=harness.namespace)
    harness.wait(lambda: harness.resource() is None, "the DelayedTopic is gone")
    before = audit(harness)

    second.start()
    wait_for_passes(harness, second)
    assert audit(harness) == before
    harness.api.kubectl("delete", "dtaudit", "first", where, "--wait=false")
    being_deleted = audit(harness)
    wait_for_passes(harness, second)
    assert audit(harness) == being_deleted
    assert being_deleted is not None

    harness.operator.start()
    harness.wait(lambda: audit(harness) is None, "the first operator has ended the audit")

    def left() -> list[str]:
        found = ((kind, name, harness.api.get(kind, name, AUDIT_NAMESPACE)) for kind, name in child_names(job))
        return [f"{kind} {name}" for kind, name, manifest in found if manifest is not None]

    harness.wait(lambda: not left(), "no object of the audit is left", seen=left)


@pytest.mark.api
def test_an_audit_is_ended_by_the_installation_that_has_its_job_whatever_a_tenant_says_of_it(
    harness: OperatorHarness,
) -> None:
    """Its finalizer would stay for ever, and its Job would run beside those of all audits that follow."""
    harness.apply()
    apply_audit(harness)
    wait_for_job(harness)
    named = {"metadata": {"annotations": {INSTALLATION: "default"}}}  # a namespace that exists
    harness.patch("DelayedTopicAudit", "first", named, namespace=harness.namespace)
    harness.api.kubectl("delete", "dtaudit", "first", f"--namespace={harness.namespace}", "--wait=false")
    harness.wait(lambda: audit(harness) is None, "the audit is gone")


def audit(harness: OperatorHarness) -> Manifest | None:
    return harness.api.get("DelayedTopicAudit", "first", harness.namespace)


def wait_for_passes(harness: OperatorHarness, operator: OperatorProcess) -> None:
    """Waits for two passes over the only audit. One is not enough, since it may have begun before the call."""

    def passes() -> float:
        return operator.counted("delayedtopics_operator_reconciles_total", kind="DelayedTopicAudit")

    before = passes()
    harness.wait(lambda: passes() >= before + 2, "the operator has looked at the audit twice")


@pytest.mark.slow
@pytest.mark.api
def test_of_two_installations_that_begin_at_once_one_has_the_default_connection_as_it_wants_it(
    two: tuple[OperatorHarness, OperatorProcess],
) -> None:
    harness, second = two
    with ThreadPoolExecutor() as at_once:
        for started in [at_once.submit(operator.start) for operator in (harness.operator, second)]:
            started.result()
    harness.wait(lambda: elsewhere(harness, "default") != "", "the other operator says whose connection it is")
    found = harness.api.get("ClusterKafkaConnection", "default")
    assert found is not None
    wanted = {SYSTEM_NAMESPACE: harness.broker.bootstrap, OTHER_NAMESPACE: "127.0.0.1:1"}
    server = found["metadata"]["annotations"][INSTALLATION]
    assert found["spec"]["bootstrapServers"] == [wanted[server]]
    assert f"served only by the installation in namespace {server}." in elsewhere(harness, "default")


@pytest.mark.slow
@pytest.mark.api
def test_a_connection_that_names_nobody_is_served_by_one_of_two_installations(api: KubeApi, broker: Broker) -> None:
    harness = OperatorHarness(api, broker, OperatorProcess(api, "--resync-seconds=3"))
    for namespace in (harness.namespace, OTHER_NAMESPACE):
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    second = of_the_other_installation(api)
    try:
        for operator in (harness.operator, second):
            operator.start()
        harness.api.apply(harness.cluster_connection())
        harness.apply()
        harness.wait_until_served()
        harness.wait(lambda: elsewhere(harness, "default") != "", "the other operator says whose connection it is")
        server = (harness.api.get("ClusterKafkaConnection", "default") or {})["metadata"]["annotations"][INSTALLATION]
        assert {found["metadata"]["namespace"] for found in harness.made("StatefulSet")} == {server}

        other = next(name for name in (SYSTEM_NAMESPACE, OTHER_NAMESPACE) if name != server)
        harness.patch("ClusterKafkaConnection", "default", {"metadata": {"annotations": {INSTALLATION: other}}})
        harness.wait(
            lambda: f"served only by the installation in namespace {other}." in elsewhere(harness, "default"),
            "the connection has changed hands",
        )
        (harness.operator if server == SYSTEM_NAMESPACE else second).stop()
        harness.patch("ClusterKafkaConnection", "default", {"metadata": {"annotations": {INSTALLATION: "nowhere"}}})
        harness.wait(
            lambda: "(this namespace does not exist)" in elsewhere(harness, "default"),
            "the connection says that no operator serves it",
        )
    finally:
        second.close()
        harness.close()
        take_the_rights_of_the_chart(api.server, namespace=OTHER_NAMESPACE)


@pytest.mark.api
def test_a_default_connection_that_is_refused_is_said_and_holds_up_no_other(
    api: KubeApi, broker: Broker, tmp_path: Path
) -> None:
    harness = OperatorHarness(api, broker, OperatorProcess(api))
    invalid = harness.cluster_connection("invalid")
    invalid["spec"]["bootstrapServers"] = []
    serves_another_connection(harness, invalid, tmp_path)


@pytest.mark.api
def test_a_default_connection_that_a_policy_forbids_is_said_and_holds_up_no_other(
    api: KubeApi, broker: Broker, tmp_path: Path
) -> None:
    harness = OperatorHarness(api, broker, OperatorProcess(api))
    with forbidden_by_policy(api, "forbidden"):
        serves_another_connection(harness, harness.cluster_connection("forbidden"), tmp_path)


def serves_another_connection(harness: OperatorHarness, refused: Manifest, folder: Path) -> None:
    file = folder / "refused.yaml"
    file.write_text(yaml.safe_dump(refused))
    harness.operator = OperatorProcess(harness.api, "--resync-seconds=3", f"--default-connection={file}")
    harness.api.kubectl("create", "namespace", harness.namespace)
    try:
        harness.operator.start()
        harness.api.apply(harness.cluster_connection("valid"))
        harness.wait(lambda: bool(harness.connection_status("valid")), "another connection is served")
        assert "Correct the chart value defaultConnection" in harness.operator.log.read_text()
    finally:
        harness.close()


@contextmanager
def forbidden_by_policy(api: KubeApi, name: str) -> Iterator[None]:
    """Forbids a ClusterKafkaConnection of this name by a policy of the cluster, until the context ends."""
    rule = {"apiGroups": ["delayedtopics.io"], "apiVersions": ["*"], "operations": ["CREATE"]}
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-connection"},
        "spec": {
            "matchConstraints": {"resourceRules": [{**rule, "resources": ["clusterkafkaconnections"]}]},
            "validations": [{"expression": f"object.metadata.name != '{name}'", "reason": "Forbidden"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-connection"},
        "spec": {"policyName": "no-connection", "validationActions": ["Deny"]},
    }
    connection = {
        "apiVersion": "delayedtopics.io/v1alpha1",
        "kind": "ClusterKafkaConnection",
        "metadata": {"name": name},
        "spec": {"bootstrapServers": ["127.0.0.1:1"]},
    }

    def in_force() -> bool:
        try:
            api.kubectl("create", "--dry-run=server", "-f", "-", text_in=json.dumps(connection))
        except CommandFailedError as e:
            return "no-connection" in e.message
        return False

    try:
        for made in (policy, binding):
            api.kubectl("apply", "-f", "-", text_in=json.dumps(made))
        wait_until(in_force, what="the policy is in force")
        yield
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            api.kubectl("delete", kind, "no-connection", "--ignore-not-found")
