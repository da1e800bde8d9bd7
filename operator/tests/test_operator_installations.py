"""Two installations in one cluster: each serves what uses its own connections, and neither touches the other's."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from delayed_topics_devcluster.broker import Broker
from delayed_topics_operator.installation import INSTALLATION, connection_of, serves
from delayed_topics_operator.queue import Key
from delayed_topics_operator.store import Store
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE, OperatorProcess
from delayed_topics_operator_testing.rights import give_the_rights_of_the_chart, take_the_rights_of_the_chart
from delayed_topics_operator_testing.scene import Manifest, Scene

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


def elsewhere(scene: Scene, connection: str) -> str:
    """What the connection says of who else serves it."""
    conditions = scene.connection_status(connection).get("conditions", ())
    return next((c["message"] for c in conditions if c["type"] == "ServedElsewhere"), "")


def of_the_other_installation(api: KubeApi, *arguments: str) -> OperatorProcess:
    """With the rights that the chart gives it there."""
    namespaces = (f"--namespace={OTHER_NAMESPACE}", f"--audit-namespace={OTHER_NAMESPACE}-audits")
    kubeconfig = give_the_rights_of_the_chart(api.server, namespace=OTHER_NAMESPACE)
    return OperatorProcess(api, "--resync-seconds=3", *namespaces, *arguments, kubeconfig=kubeconfig)


@pytest.fixture
def two(api: KubeApi, broker: Broker, tmp_path: Path) -> Iterator[tuple[Scene, OperatorProcess]]:
    """A scene whose operator comes with the default connection, and an operator of another installation with one to nowhere.

    Neither runs.
    """
    made = Scene(api, broker, OperatorProcess(api))
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
    two: tuple[Scene, OperatorProcess],
) -> None:
    scene, second = two
    scene.operator.start()
    scene.apply()
    scene.wait_until_served()
    scene.operator.stop()  # from here on whatever is written is written by the second
    before = scene.resource()

    second.start()
    scene.wait(lambda: elsewhere(scene, "default") != "", "the connection says whose it is")
    assert f"installation in namespace {SYSTEM_NAMESPACE}, and by no other" in elsewhere(scene, "default")
    scene.wait(lambda: second.counted("delayed_topics_operator_reconciles_total") > 0, "it looks at the resource")
    theirs = scene.cluster_connection("theirs")
    theirs["metadata"]["annotations"] = {INSTALLATION: OTHER_NAMESPACE}
    scene.api.apply(theirs)
    scene.wait(lambda: bool(scene.connection_status("theirs")), "the second operator serves a connection of its own")

    found = scene.api.get("ClusterKafkaConnection", "default")
    assert found is not None
    assert found["metadata"]["annotations"][INSTALLATION] == SYSTEM_NAMESPACE
    assert found["spec"]["bootstrapServers"] == [scene.broker.bootstrap]
    assert scene.api.list_all("StatefulSet", OTHER_NAMESPACE) == []
    assert scene.resource() == before


@pytest.mark.slow
@pytest.mark.api
def test_of_two_installations_that_begin_at_once_one_has_the_default_connection_as_it_wants_it(
    two: tuple[Scene, OperatorProcess],
) -> None:
    scene, second = two
    with ThreadPoolExecutor() as at_once:
        for started in [at_once.submit(operator.start) for operator in (scene.operator, second)]:
            started.result()
    scene.wait(lambda: elsewhere(scene, "default") != "", "the other one says whose it is")
    found = scene.api.get("ClusterKafkaConnection", "default")
    assert found is not None
    wanted = {SYSTEM_NAMESPACE: scene.broker.bootstrap, OTHER_NAMESPACE: "127.0.0.1:1"}
    server = found["metadata"]["annotations"][INSTALLATION]
    assert found["spec"]["bootstrapServers"] == [wanted[server]]
    assert f"installation in namespace {server}, and by no other" in elsewhere(scene, "default")


@pytest.mark.slow
@pytest.mark.api
def test_a_connection_that_names_nobody_is_served_by_one_of_two_installations(api: KubeApi, broker: Broker) -> None:
    scene = Scene(api, broker, OperatorProcess(api, "--resync-seconds=3"))
    for namespace in (scene.namespace, OTHER_NAMESPACE):
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    second = of_the_other_installation(api)
    try:
        for operator in (scene.operator, second):
            operator.start()
        scene.api.apply(scene.cluster_connection())
        scene.apply()
        scene.wait_until_served()
        scene.wait(lambda: elsewhere(scene, "default") != "", "the other one says whose it is")
        server = (scene.api.get("ClusterKafkaConnection", "default") or {})["metadata"]["annotations"][INSTALLATION]
        assert {found["metadata"]["namespace"] for found in scene.made("StatefulSet")} == {server}

        other = next(name for name in (SYSTEM_NAMESPACE, OTHER_NAMESPACE) if name != server)
        scene.patch("ClusterKafkaConnection", "default", {"metadata": {"annotations": {INSTALLATION: other}}})
        scene.wait(lambda: f"namespace {other}, and by no other" in elsewhere(scene, "default"), "it changed hands")
        (scene.operator if server == SYSTEM_NAMESPACE else second).stop()
        scene.patch("ClusterKafkaConnection", "default", {"metadata": {"annotations": {INSTALLATION: "nowhere"}}})
        scene.wait(
            lambda: "a namespace that does not exist" in elsewhere(scene, "default"), "nobody serves it, and it says so"
        )
    finally:
        second.close()
        scene.close()
        take_the_rights_of_the_chart(api.server, namespace=OTHER_NAMESPACE)


@pytest.mark.api
def test_a_default_connection_that_is_refused_is_said_and_holds_up_no_other(
    api: KubeApi, broker: Broker, tmp_path: Path
) -> None:
    scene = Scene(api, broker, OperatorProcess(api))
    invalid = scene.cluster_connection("invalid")
    invalid["spec"]["bootstrapServers"] = []
    file = tmp_path / "invalid.yaml"
    file.write_text(yaml.safe_dump(invalid))
    scene.operator = OperatorProcess(api, "--resync-seconds=3", f"--default-connection={file}")
    api.kubectl("create", "namespace", scene.namespace)
    try:
        scene.operator.start()
        scene.api.apply(scene.cluster_connection("valid"))
        scene.wait(lambda: bool(scene.connection_status("valid")), "another connection is served")
        assert "Correct the chart's value defaultConnection" in scene.operator.log.read_text()
    finally:
        scene.close()
