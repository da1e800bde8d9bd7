"""One operator acts at a time: who holds the lease, what a former holder may do, and what is reported where another operator serves."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from delayed_topics_kafka.connection import Connection
from delayed_topics_operator.engine.installation import INSTALLATION, record, serves, transactional_id
from delayed_topics_operator.engine.lease import Candidate, Times
from delayed_topics_operator.engine.served_elsewhere import UNSERVED_SECONDS, ServedElsewhere
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.errors import Conflict, LeadershipLost, NotYet
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.gateways.leadership import Leadership
from delayed_topics_operator.values.field_managers import ELSEWHERE_FIELD_MANAGER, FIELD_MANAGER
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.context import context
from hypothesis import given
from hypothesis import strategies as st

AT = datetime(2026, 1, 1, tzinfo=UTC)
TIMES = Times()


def held_by(identity: str) -> dict[str, Any]:
    wanted = Candidate(identity, TIMES).wanted({}, now=0, at=AT)
    assert wanted is not None
    return wanted


@pytest.mark.parametrize("lease", [{}, {"holderIdentity": ""}, {"holderIdentity": None}])
def test_a_lease_that_nobody_holds_is_had_at_once(lease: dict[str, Any]) -> None:
    wanted = Candidate("ours", TIMES).wanted(lease, now=1000, at=AT)
    assert wanted is not None
    assert (wanted["holderIdentity"], wanted["leaseDurationSeconds"]) == ("ours", 15)
    assert wanted["acquireTime"] == wanted["renewTime"] == "2026-01-01T00:00:00.000000Z"


def test_the_holder_renews_and_keeps_the_time_since_when_it_holds() -> None:
    lease = held_by("ours")
    renewed = Candidate("ours", TIMES).wanted(lease, now=5, at=datetime(2026, 1, 2, tzinfo=UTC))
    assert renewed == {**lease, "renewTime": "2026-01-02T00:00:00.000000Z"}


def test_another_ones_lease_is_had_when_it_has_not_changed_for_as_long_as_it_says_itself() -> None:
    candidate, lease = Candidate("ours", TIMES), {**held_by("theirs"), "leaseDurationSeconds": 40}
    assert candidate.wanted(lease, now=100, at=AT) is None
    assert candidate.wanted(lease, now=139.9, at=AT) is None
    renewed = {**lease, "renewTime": "2025-01-01T00:00:00.000000Z"}  # written by a clock that is a year behind
    assert candidate.wanted(renewed, now=139.9, at=AT) is None
    assert candidate.wanted(renewed, now=179.8, at=AT) is None
    taken = candidate.wanted(renewed, now=179.9, at=AT)
    assert taken is not None
    assert (taken["holderIdentity"], taken["leaseTransitions"]) == ("ours", 1)


def test_a_released_lease_is_had_at_once_and_another_ones_is_not_released() -> None:
    lease = held_by("theirs")
    assert Candidate("ours", TIMES).released(lease, at=AT) is None
    released = Candidate("theirs", TIMES).released(lease, at=AT)
    assert released is not None
    assert Candidate("ours", TIMES).wanted(released, now=0, at=AT) is not None


@dataclass
class Machine:
    """A candidate for the lease, with a monotonic clock that began at another time."""

    candidate: Candidate
    offset: float
    acts_until: float = float("-inf")
    read: tuple[int, dict[str, Any]] | None = None
    asked_at: float = 0.0


@dataclass
class Cluster:
    """Keeps the lease and its resourceVersion as the API server does."""

    version: int = 0
    lease: dict[str, Any] = field(default_factory=dict)

    def step(self, machine: Machine, now: float) -> None:
        """Takes half of a renewal: the machine reads the lease, or writes what it decides by its last read, however long ago that was."""
        if machine.read is None:
            machine.read, machine.asked_at = (self.version, self.lease), now
            return
        (version, lease), machine.read = machine.read, None
        wanted = machine.candidate.wanted(lease, now=machine.asked_at + machine.offset, at=AT)
        if wanted is not None and version == self.version:
            # each write has a stamp of its own, as with the wall clock
            self.version, self.lease = version + 1, {**wanted, "renewTime": f"write {version}"}
            machine.acts_until = machine.asked_at + TIMES.renew_within_seconds


@given(
    offsets=st.tuples(*[st.floats(-1e6, 1e6)] * 3),
    steps=st.lists(st.tuples(st.integers(0, 2), st.floats(0, 25)), max_size=60),
)
def test_however_slow_or_frozen_they_are_never_do_two_act_at_once(
    offsets: tuple[float, ...], steps: list[tuple[int, float]]
) -> None:
    machines = [Machine(Candidate(f"m{n}", TIMES), offset) for n, offset in enumerate(offsets)]
    cluster, now = Cluster(), 0.0
    for which, after_seconds in steps:
        now += after_seconds
        cluster.step(machines[which], now)
        assert sum(now < machine.acts_until for machine in machines) <= 1


def test_a_process_that_was_frozen_past_its_tenure_calls_neither_kafka_nor_the_api_server() -> None:
    now = 0.0

    async def story() -> None:
        nonlocal now
        leadership = Leadership(lambda: now)
        kube = Kube(cast(Any, None), leadership.check)
        link = KafkaLink(
            Connection(bootstrap_servers="127.0.0.1:1", further={"log_level": 0}),
            timeout_seconds=1,
            threads=1,
            registry_bytes=1,
            woken=lambda _: None,
            transactional_id="operator",
            leadership=leadership,
        )
        leadership.extend(10)
        leadership.check()
        now = 10.0
        for call in (
            kube.create({"kind": "ConfigMap", "metadata": {"namespace": "shop"}}),
            kube.apply({"kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "orders"}}),
            kube.merge("DelayedTopic", "shop", "orders", {}),
            kube.delete("ConfigMap", "shop", "orders"),
            link.delete_topics(["orders"]),
            link.commit("group", {}),
            link.open(brokers=1, registry_id=None),
        ):
            with pytest.raises(LeadershipLost, match="not renewed in time"):
                await call
        await link.close(settle=True)

    asyncio.run(story())


def test_what_ended_a_tenure_is_said_and_nothing_brings_it_back() -> None:
    leadership = Leadership()
    leadership.end("the lease was lost")
    leadership.end("something else")
    leadership.extend(float("inf"))
    assert leadership.over.is_set()
    with pytest.raises(LeadershipLost, match="the lease was lost"):
        leadership.bound(lambda: None)()


class Answers:
    """An API server with one object, at resourceVersion 7. `applied`: field managers and the statuses that they applied, newest last."""

    def __init__(self) -> None:
        self.applied: list[tuple[str, Manifest]] = []

    async def merge(self, kind: str, namespace: str, name: str, patch: Manifest) -> Manifest:
        if patch["metadata"]["resourceVersion"] != "7":
            raise Conflict("changed", status=409)
        return {"kind": kind, "metadata": {"name": name, "uid": "u", **patch["metadata"], "resourceVersion": "8"}}

    async def apply(self, body: Manifest, *, subresource: str, field_manager: str) -> Manifest:
        self.applied.append((field_manager, body["status"]))
        return body


THEIRS = Key("ClusterKafkaConnection", "", "theirs")
ORDERS = Key("DelayedTopic", "shop", "orders")


def stored(version: str = "7", server: str | None = None, **status: Any) -> Store:
    """Returns a store with a connection, a DelayedTopic that names it, and the namespace of one installation."""
    store, group = Store(), {"apiVersion": "delayedtopics.io/v1alpha1", "status": status}
    fields: Manifest = {"f:status": {"f:conditions": {'k:{"type":"ServedElsewhere"}': {}}}}
    manager = {"manager": ELSEWHERE_FIELD_MANAGER, "subresource": "status", "fieldsV1": fields}
    managed = {"managedFields": [manager] if "conditions" in status else []}
    meta = {"name": "theirs", "uid": "u", "resourceVersion": version, "generation": 3, **managed}
    annotations = {INSTALLATION: server} if server else {}
    store.put({**group, "kind": THEIRS.kind, "metadata": {**meta, "annotations": annotations}, "spec": {}})
    topic = {"name": "orders", "namespace": "shop", "uid": "o", "resourceVersion": "7", "generation": 3, **managed}
    store.put({**group, "kind": ORDERS.kind, "metadata": topic, "spec": {"connectionRef": {"name": "theirs"}}})
    store.put({"kind": "Namespace", "metadata": {"name": "first", "uid": "n"}})
    return store


def test_of_two_installations_the_first_to_write_itself_on_a_connection_serves_it() -> None:
    kube, store, late = cast(Kube, Answers()), stored(), stored(version="6")
    asyncio.run(record(kube, store, store.get(*THEIRS) or {}, namespace="first"))
    assert serves(store, THEIRS, namespace="first")
    assert not serves(store, THEIRS, namespace="second")
    with pytest.raises(NotYet):
        asyncio.run(record(kube, late, late.get(*THEIRS) or {}, namespace="second"))


def test_a_transactional_id_is_of_one_connection_of_one_installation() -> None:
    other = Key("KafkaConnection", "shop", "theirs")
    ids = {
        transactional_id(cluster, namespace, key)
        for cluster in ("c1", "c2")
        for namespace in ("first", "second")
        for key in (THEIRS, other)
    }
    assert len(ids) == 8


def elsewhere(store: Store, kube: Answers, clock: Callable[[], float] = lambda: 0.0) -> ServedElsewhere:
    """Returns the ServedElsewhere of an operator in the namespace `second`."""
    return ServedElsewhere(context(kube, store, namespace="second"), clock=clock)


@pytest.mark.parametrize(
    ("server", "words"), [("first", "namespace first."), ("gone", "gone (this namespace does not exist)")]
)
def test_a_connection_of_another_installation_says_whose_it_is_and_how_to_change_that(server: str, words: str) -> None:
    kube, store = Answers(), stored(server=server)
    asyncio.run(elsewhere(store, kube).report(store.get(*THEIRS) or {}, THEIRS))
    ((manager, status),) = kube.applied
    assert manager != FIELD_MANAGER
    (condition,) = status["conditions"]
    assert (condition["type"], condition["reason"]) == ("ServedElsewhere", "OtherInstallation")
    assert words in condition["message"]
    assert f"annotate --overwrite clusterkafkaconnection theirs {INSTALLATION}=NAMESPACE" in condition["message"]

    written = stored(server=server, **status)
    asyncio.run(elsewhere(written, kube).report(written.get(*THEIRS) or {}, THEIRS))
    assert len(kube.applied) == 1  # the condition is there already, so nothing is written


def test_what_is_served_here_is_no_longer_said_to_be_served_elsewhere() -> None:
    kube, store = Answers(), stored(server="first")
    asyncio.run(elsewhere(store, kube).report(store.get(*THEIRS) or {}, THEIRS))
    ours = stored(server="second", **kube.applied[0][1])
    asyncio.run(elsewhere(ours, kube).withdraw(THEIRS))
    assert [status.get("conditions", []) for _, status in kube.applied[1:]] == [[]]
    other_says = stored(server="first", **kube.applied[0][1])
    asyncio.run(ServedElsewhere(context(kube, other_says, namespace="first")).withdraw(THEIRS))
    assert len(kube.applied) == 2  # the condition stays: an operator that does not serve the connection wrote it


def test_a_resource_that_its_installation_does_not_look_at_says_so_until_it_does() -> None:
    now = 0.0
    kube = Answers()
    served_elsewhere = elsewhere(stored(server="gone"), kube, lambda: now)

    def look(**status: Any) -> None:
        asyncio.run(served_elsewhere.say_if_unserved(stored(server="gone", **status).get(*ORDERS) or {}))

    look(observedGeneration=3)
    look(observedGeneration=2)
    now = UNSERVED_SECONDS - 1
    look(observedGeneration=2)
    assert kube.applied == []
    now = UNSERVED_SECONDS
    look(observedGeneration=2)
    ((_, status),) = kube.applied
    assert status["conditions"][0]["message"].startswith(
        "no operator has looked at this resource yet. ClusterKafkaConnection theirs is served only by"
    )
    look(observedGeneration=3, **status)
    assert [status.get("conditions", []) for _, status in kube.applied[1:]] == [[]]
