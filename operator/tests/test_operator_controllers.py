"""How controllers handle connections that may not be used, and writes that somebody undoes."""

import asyncio
import base64
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from delayed_topics_core.reasons import Reason
from delayed_topics_crds import DelayedTopicStatus, KafkaConnectionSpec
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import KafkaUnreachable, RegistryTooLarge
from delayed_topics_kafka.model import ClusterInfo
from delayed_topics_operator.audits.controller import _topic
from delayed_topics_operator.connection.controller import Connections, _Entry, _now
from delayed_topics_operator.connection.found import Found, same_cluster
from delayed_topics_operator.connection.reconcile.usable import Unusable, Usable
from delayed_topics_operator.connection.usage import Usage
from delayed_topics_operator.delayed_topic import controller as delayed_topic
from delayed_topics_operator.delayed_topic.controller import (
    SOON_SECONDS,
    UNDONE_SECONDS,
    WAITING_SECONDS,
    DelayedTopics,
)
from delayed_topics_operator.engine.execute import Owned
from delayed_topics_operator.engine.installation import INSTALLATION
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.errors import ConnectionUnusable, KubeRefused, NotFound, NotYet
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.gateways.leadership import Leadership
from delayed_topics_operator.gateways.recorder import Recorder
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.plan import ApplyChild, Plan
from delayed_topics_operator_testing.context import context
from delayed_topics_operator_testing.simulation import resource, usable
from pydantic import ValidationError

OURS = Key("KafkaConnection", "shop", "ours")


class Kubernetes:
    """Has the same Secret under every name, and accepts any status."""

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        return {"kind": kind, "data": {"ca.crt": base64.b64encode(b"garbage").decode()}}

    async def apply(self, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**body, "metadata": {**body["metadata"], "generation": 1}}

    async def create(self, body: dict[str, Any]) -> dict[str, Any]:
        return body


class WithoutSecrets(Kubernetes):
    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        raise NotFound(f"{kind} {name}", status=404)


def connections(store: Store, *, kube: Kubernetes | None = None, **settings: Any) -> Connections:
    given = context(kube or Kubernetes(), store, **settings)
    return Connections(
        given,
        usage=Usage(given, changed=lambda _: None),
        changed=lambda _: None,
        doubted=lambda _: None,
        news=lambda *_: None,
        leadership=Leadership.without_end(),
    )


def stored(**spec: Any) -> Store:
    store = Store()
    store.put(
        {
            "apiVersion": "delayedtopics.io/v1alpha1",
            "kind": "KafkaConnection",
            "metadata": {
                "name": "ours",
                "namespace": "shop",
                "uid": "u",
                "generation": 1,
                "annotations": {INSTALLATION: "system"},
            },
            "spec": {"bootstrapServers": ["127.0.0.1:1"], **spec},
        }
    )
    return store


def test_in_a_namespace_that_is_not_listed_the_operator_connects_nowhere() -> None:
    spec = KafkaConnectionSpec.model_validate({"bootstrapServers": ["10.0.0.1:22"]})
    with pytest.raises(ConnectionUnusable, match="list it in the chart value tenantNamespaces") as refused:
        asyncio.run(connections(Store())._connection(OURS, spec))
    assert refused.value.reason == Reason.NOT_ALLOWED


def test_a_connection_goes_on_with_what_it_was_opened_with_while_it_or_its_namespace_is_deleted() -> None:
    opened = Connection(bootstrap_servers="127.0.0.1:1")
    entry = _Entry(
        Unusable(reason=Reason.IN_PROGRESS, message="", since=_now()),
        link=SimpleNamespace(connection=opened),  # type: ignore[arg-type]
    )
    spec = KafkaConnectionSpec.model_validate(
        {"bootstrapServers": ["127.0.0.1:1"], "sasl": {"secretRef": {"name": "gone"}}}
    )
    store = stored()
    reconciler = connections(store, kube=WithoutSecrets(), tenant_namespaces=("shop",))

    def connected() -> Connection:
        return asyncio.run(reconciler._connected(OURS, store.get(*OURS) or {}, spec, entry))

    with pytest.raises(ConnectionUnusable, match="gone does not exist"):
        connected()
    store.put(
        {"kind": "Namespace", "metadata": {"name": "shop", "uid": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    )
    assert connected() is opened
    store.put({"kind": "Namespace", "metadata": {"name": "shop", "uid": "n2"}})
    store.put(
        {
            "kind": OURS.kind,
            "metadata": {"name": "ours", "namespace": "shop", "uid": "u2", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        }
    )
    assert connected() is opened


def test_a_certificate_that_is_none_is_a_condition_and_not_a_crash() -> None:
    reconciler = connections(stored(tls={"caSecretRef": {"name": "ca"}}), tenant_namespaces=("shop",))
    asyncio.run(reconciler.reconcile(OURS))
    state, link = reconciler.look(OURS)
    assert link is None
    assert isinstance(state, Unusable)
    assert state.reason == Reason.SPEC_INVALID
    assert "Correct its certificates" in state.message


class Forbidding(Kubernetes):
    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        raise KubeRefused(f"cannot get {kind}", status=403)

    find = get


def test_rights_that_are_missing_for_workers_that_nobody_asks_for_are_in_no_connections_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When a namespace is deleted, the rights go first. If each retry opened a new link to Kafka, links would pile up."""
    store = stored()
    as_it_is = store.get(*OURS) or {}
    reconciler = connections(store, kube=Forbidding(), tenant_namespaces=("shop",))
    opened: list[KafkaLink] = []

    async def reach(entry: _Entry, *_: object) -> Found:
        if entry.link is None:
            entry.link = SimpleNamespace()  # type: ignore[assignment]
            opened.append(entry.link)  # type: ignore[arg-type]
        return Found(ClusterInfo(cluster_id="c", brokers=(1,)), 1, 1, "registry")

    monkeypatch.setattr(reconciler, "_reach", reach)
    for _ in range(2):
        store.put(as_it_is)
        asyncio.run(reconciler.reconcile(OURS))
    state, link = reconciler.look(OURS)
    assert isinstance(state, Usable)
    assert opened == [link]


CLUSTER_CA = {"ca.crt": "ca", "ca.p12": "-", "ca.password": "-"}
TLS_USER = {"ca.crt": "clients' ca", "user.crt": "cert", "user.key": "key", "user.p12": "-", "user.password": "-"}
SCRAM_USER = {"password": "secret", "sasl.jaas.config": "-"}
LOGIN = {"username": "shop", "password": "secret", "user": "other", "pass": "word"}


class Secrets(Kubernetes):
    """Has Secrets as Strimzi writes them for a Kafka cluster `main`, and one that somebody wrote by hand."""

    def __init__(self) -> None:
        self._secrets = {"main-cluster-ca-cert": CLUSTER_CA, "cert": TLS_USER, "scram": SCRAM_USER, "login": LOGIN}

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        data = self._secrets[name].items()
        return {"kind": kind, "data": {key: base64.b64encode(value.encode()).decode() for key, value in data}}


def files(**spec: Any) -> dict[str, str]:
    """Returns the files of the connection that workers and audits are given."""
    reconciler = connections(Store(), kube=Secrets(), tenant_namespaces=("shop",))
    wanted = KafkaConnectionSpec.model_validate({"bootstrapServers": ["k:9093"], **spec})
    return asyncio.run(reconciler._connection(OURS, wanted)).to_files()


def test_the_secret_of_a_scram_user_of_strimzi_serves_as_it_is() -> None:
    ca = {"name": "main-cluster-ca-cert"}
    assert files(tls={"caSecretRef": ca}, sasl={"username": "scram", "secretRef": {"name": "scram"}}) == {
        "bootstrap-servers": "k:9093",
        "security-protocol": "SASL_SSL",
        "sasl-mechanism": "SCRAM-SHA-512",
        "username": "scram",
        "password": "secret",
        "ca.crt": "ca",
    }


def test_the_secret_of_a_tls_user_of_strimzi_serves_as_it_is() -> None:
    pair = {"name": "cert", "certificateKey": "user.crt", "privateKeyKey": "user.key"}
    assert files(tls={"caSecretRef": {"name": "main-cluster-ca-cert"}, "clientCertSecretRef": pair}) == {
        "bootstrap-servers": "k:9093",
        "security-protocol": "SSL",
        "ca.crt": "ca",
        "tls.crt": "cert",
        "tls.key": "key",
    }


@pytest.mark.parametrize(
    ("keys", "login"),
    [
        ({}, ("shop", "secret")),
        ({"usernameKey": "user", "passwordKey": "pass"}, ("other", "word")),
    ],
)
def test_user_name_and_password_are_by_the_keys_that_the_connection_names(
    keys: dict[str, str], login: tuple[str, str]
) -> None:
    told = files(sasl={"secretRef": {"name": "login", **keys}})
    assert (told["username"], told["password"], told["security-protocol"]) == (*login, "SASL_PLAINTEXT")


def test_a_secret_without_the_key_is_said_with_the_key() -> None:
    with pytest.raises(ConnectionUnusable, match=r"Secret shop/scram has no key 'username'\. Add it") as refused:
        files(sasl={"secretRef": {"name": "scram"}})
    assert refused.value.reason == Reason.CREDENTIALS_MISSING


def test_who_waits_for_a_connection_that_nobody_gets_to_look_at_waits_no_longer_than_for_kafka() -> None:
    with pytest.raises(NotYet):
        connections(stored(), gone_after_seconds=300).look(OURS)
    state, link = connections(stored(), gone_after_seconds=0).look(OURS)
    assert link is None
    assert isinstance(state, Unusable)


def test_one_call_without_an_answer_has_the_connection_looked_at_and_a_registry_that_is_lost_ends_its_use() -> None:
    reconciler = connections(stored(), tenant_namespaces=("shop",))
    told: list[str] = []
    reconciler._doubted, reconciler._changed = lambda _: told.append("look"), lambda _: told.append("changed")
    link = SimpleNamespace(registry_id="r", connection=Connection(bootstrap_servers="127.0.0.1:1"))
    state = usable()
    reconciler._entries[OURS] = _Entry(state, link=link, generation=1)  # type: ignore[arg-type]
    reconciler.doubt(OURS, KafkaUnreachable("no answer"))
    reconciler.doubt(OURS, KafkaUnreachable("no answer again"))
    assert reconciler.look(OURS)[0] is state
    assert told == ["look"]
    reconciler.doubt(OURS, RegistryTooLarge("too large", code="REGISTRY_TOO_LARGE"))
    state_now, link_now = reconciler.look(OURS)
    assert isinstance(state_now, Unusable)
    assert (state_now.reason, link_now) == (Reason.REGISTRY_TOO_LARGE, None)
    assert told == ["look", "look", "changed"]


def test_bootstrap_servers_that_lead_to_another_cluster_stop_the_connection() -> None:
    cluster = ClusterInfo(cluster_id="new", brokers=(1,))
    assert same_cluster(OURS, None, cluster) is same_cluster(OURS, "new", cluster) is cluster
    with pytest.raises(
        ConnectionUnusable, match="lead to the Kafka cluster new, but they led to old before"
    ) as refused:
        same_cluster(OURS, "old", cluster)
    assert refused.value.reason == Reason.CLUSTER_CHANGED


ORDERS = Key("DelayedTopic", "shop", "orders")


def controller(kind: type[DelayedTopics], kube: Any, recorder: Any = None) -> DelayedTopics:
    store = Store()
    store.put(resource())
    given = context(kube, store, recorder)
    return kind(given, connections=connections(store), usage=Usage(given, changed=lambda _: None))


def test_a_namespace_whose_labels_are_not_known_yet_is_waited_for() -> None:
    assert asyncio.run(controller(DelayedTopics, None).reconcile(ORDERS)) == SOON_SECONDS


def test_what_somebody_undoes_at_once_is_not_fought_over_in_a_loop() -> None:
    class Undone(DelayedTopics):
        async def _plan(self, key: Key, raw: dict[str, Any]) -> tuple[Plan, KafkaLink | None, Owned | None]:
            manifest = {"kind": "ConfigMap", "metadata": {"namespace": "system", "name": "x"}}
            return Plan(actions=(ApplyChild(manifest=manifest, change="changed"),)), None, None

    written = []

    class Counting(Kubernetes):
        async def apply(self, body: dict[str, Any], **_: Any) -> dict[str, Any]:
            written.append(body)
            return body

    assert asyncio.run(controller(Undone, Counting()).reconcile(ORDERS)) == UNDONE_SECONDS
    assert len(written) == 1


def test_what_an_action_waits_for_is_said_if_it_does_not_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = {"kind": "ConfigMap", "metadata": {"namespace": "system", "name": "x", "resourceVersion": "1"}}

    class Waits(DelayedTopics):
        async def _plan(self, key: Key, raw: dict[str, Any]) -> tuple[Plan, KafkaLink | None, Owned | None]:
            made = ApplyChild(manifest=manifest, change="created")
            return Plan(actions=(made,), status=DelayedTopicStatus(observed_generation=1)), None, None

    class Taken(Kubernetes):
        async def find(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
            return manifest

    now = _now()
    monkeypatch.setattr(delayed_topic, "_now", lambda: now)
    reconciler = controller(Waits, Taken(), Recorder(Taken()))  # type: ignore[arg-type]
    assert asyncio.run(reconciler.reconcile(ORDERS)) == SOON_SECONDS
    assert not (reconciler._context.store.get(*ORDERS) or {})["status"]
    now += timedelta(seconds=WAITING_SECONDS)
    assert asyncio.run(reconciler.reconcile(ORDERS)) == UNDONE_SECONDS
    status = (reconciler._context.store.get(*ORDERS) or {})["status"]
    assert status["observedGeneration"] == 1
    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "InProgress")
    assert "ConfigMap x already exists" in ready["message"]


def test_what_a_webhook_puts_back_is_applied_once_a_resync_and_no_event_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meta = {"namespace": "system", "name": "x", "uid": "x"}
    live = {"kind": "StatefulSet", "metadata": {**meta, "resourceVersion": "7"}, "spec": {"image": "mirror/w"}}
    declared = {"kind": "StatefulSet", "metadata": meta, "spec": {"image": "w"}}
    written: list[dict[str, Any]] = []
    told: list[object] = []

    class Mirrored(DelayedTopics):
        async def _plan(self, key: Key, raw: dict[str, Any]) -> tuple[Plan, KafkaLink | None, Owned | None]:
            return Plan(actions=(ApplyChild(manifest=declared, change="repaired", rolls=True),)), None, None

    class Webhook(Kubernetes):
        async def apply(self, body: dict[str, Any], **_: Any) -> dict[str, Any]:
            written.append(body)
            return live

    class Recorder:
        async def record(self, resource: dict[str, Any], notice: object) -> None:
            told.append(notice)

    now = _now()
    monkeypatch.setattr(delayed_topic, "_now", lambda: now)
    reconciler = controller(Mirrored, Webhook(), Recorder())
    reconciler._context.store.put(live)
    for _ in range(3):
        assert asyncio.run(reconciler.reconcile(ORDERS)) == reconciler._context.settings.resync_seconds
    assert (len(written), told) == (1, [])
    now += timedelta(seconds=reconciler._context.settings.resync_seconds)
    assert asyncio.run(reconciler.reconcile(ORDERS)) == reconciler._context.settings.resync_seconds
    assert len(written) == 2


def test_an_audit_that_is_deleted_does_not_wait_for_a_delayed_topic_that_can_not_be_read() -> None:
    unreadable = resource(delaySeconds="soon")
    assert _topic(unreadable, deleting=True) is None
    with pytest.raises(ValidationError):
        _topic(unreadable, deleting=False)
