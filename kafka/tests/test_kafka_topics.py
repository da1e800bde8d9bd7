import time
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_devcluster.broker import Broker, Brokers
from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.kafka import java_command
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline, until_true
from delayed_topics_kafka.errors import KafkaRefused, KafkaUnreachable, TopicExists, TopicMissing
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from delayed_topics_kafka_testing.slow_wire import Api, slow_broker

pytestmark = pytest.mark.broker
Fresh = Callable[[str], str]


def spec(name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> NewTopicSpec:
    return NewTopicSpec(name=name, partitions=partitions, replication_factor=1, config=config or {})


def produce(connection: Connection, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = Producer(connection.client_config())
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(120) == 0


def test_the_cluster_is_described(admin: KafkaAdmin) -> None:
    cluster = admin.describe_cluster()
    assert cluster.brokers == (1,)
    assert cluster.cluster_id


def test_topics_are_usable_when_create_returns(admin: KafkaAdmin, connection: Connection, fresh: Fresh) -> None:
    names = [fresh("usable") for _ in range(20)]
    created = admin.create_topics([spec(name, partitions=8) for name in names])
    assert [(t.partitions, t.leaders_known) for t in created.values() if isinstance(t, TopicInfo)] == [(8, True)] * 20
    ends = admin.list_offsets([(name, p) for name in names for p in range(8)], "latest")
    assert set(ends.values()) == {0}


def test_a_topic_id_is_spelled_as_kafkas_own_tools_spell_it(admin: KafkaAdmin, broker: Broker, fresh: Fresh) -> None:
    # an id has 22 characters of base64, so it is almost certain that one of 40 ids has a - or _
    names = [fresh("id") for _ in range(40)]
    ids = {n: t.id for n, t in admin.create_topics([spec(n) for n in names]).items() if isinstance(t, TopicInfo)}
    assert any("-" in topic_id or "_" in topic_id for topic_id in ids.values())
    described = run(
        *java_command("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.bootstrap, "--describe")
    )
    assert all(f"Topic: {name}\tTopicId: {topic_id}" in described for name, topic_id in ids.items())


def test_one_refused_topic_hides_no_other(admin: KafkaAdmin, fresh: Fresh) -> None:
    good, there, illegal, huge = fresh("good"), fresh("there"), "not legal", fresh("huge")
    admin.create_topics([spec(there)])
    created = admin.create_topics(
        [
            spec(illegal),
            spec(there),
            NewTopicSpec(name=huge, partitions=1, replication_factor=5),
            spec(good, config={"retention.ms": "60000"}),
        ]
    )
    assert isinstance(created[good], TopicInfo)
    assert isinstance(created[there], TopicExists)
    refused = created[huge]
    assert isinstance(refused, KafkaRefused)
    assert refused.code == "INVALID_REPLICATION_FACTOR"
    assert f"creating topic {huge} failed because Kafka at " in str(refused)
    described = admin.describe_topics([good, there, huge, illegal])
    assert isinstance(described[good], TopicInfo)
    assert described[huge] is None
    assert isinstance(described[illegal], KafkaRefused)
    assert [name for name, s in admin.topic_configs([good, huge]).items() if isinstance(s, TopicMissing)] == [huge]


def test_settings_are_changed_and_others_left_alone(admin: KafkaAdmin, fresh: Fresh) -> None:
    good, bad = fresh("settings"), fresh("settings")
    admin.create_topics([spec(good, config={"retention.ms": "60000"}), spec(bad)])
    outcomes = admin.alter_topic_configs(
        {good: {"message.timestamp.type": "LogAppendTime"}, bad: {"retention.ms": "long"}, "absent": {"x": "y"}}
    )
    assert outcomes[good] is None
    assert isinstance(outcomes[bad], KafkaRefused)
    assert isinstance(outcomes["absent"], KafkaRefused)

    def settings() -> tuple[str, str]:
        found = admin.topic_configs([good])[good]
        assert isinstance(found, dict)
        return found["retention.ms"], found["message.timestamp.type"]

    # the controller has answered, but a broker reports the new setting only when it has read the metadata log that far
    wait_until(lambda: settings() == ("60000", "LogAppendTime"), what="the broker reports the new setting")


def test_partitions_grow_and_are_usable(admin: KafkaAdmin, connection: Connection, fresh: Fresh) -> None:
    name = fresh("grow")
    admin.create_topics([spec(name)])
    grown = admin.create_partitions({name: 16, "absent": 3})
    assert isinstance(grown["absent"], TopicMissing)
    topic = grown[name]
    assert isinstance(topic, TopicInfo)
    assert topic.partitions == 16
    produce(connection, name, [b"x"], partition=15)
    assert isinstance(admin.create_partitions({name: 3})[name], KafkaRefused)


def test_a_topic_made_again_has_another_id(admin: KafkaAdmin, fresh: Fresh) -> None:
    name = fresh("again")
    first = admin.create_topics([spec(name)])[name]
    assert admin.delete_topics([name, "absent"]) == {name: None, "absent": None}
    assert admin.describe_topics([name]) == {name: None}
    second = admin.create_topics([spec(name)])[name]
    assert isinstance(first, TopicInfo)
    assert isinstance(second, TopicInfo)
    assert first.id != second.id


def test_offsets_first_last_stable_and_by_time(admin: KafkaAdmin, connection: Connection, fresh: Fresh) -> None:
    name = fresh("offsets")
    admin.create_topics([spec(name, 2, config={"message.timestamp.type": "LogAppendTime"})])
    produce(connection, name, [b"a", b"b", b"c"])
    between_ms = int(time.time() * 1000) + 1
    open_transaction = Producer({**connection.client_config(), "transactional.id": name})
    open_transaction.init_transactions(120)
    open_transaction.begin_transaction()
    while time.time() * 1000 <= between_ms + 1:
        pass
    open_transaction.produce(name, b"d", partition=0)
    open_transaction.flush(120)
    both = [(name, 0), (name, 1)]
    assert admin.list_offsets(both, "earliest") == {(name, 0): 0, (name, 1): 0}
    assert admin.list_offsets(both, "latest") == {(name, 0): 4, (name, 1): 0}
    assert admin.list_offsets(both, "latest", isolation="read_committed") == {(name, 0): 3, (name, 1): 0}
    open_transaction.abort_transaction(120)
    assert admin.offsets_for_times({(name, 0): between_ms, (name, 1): 0}) == {(name, 0): 3, (name, 1): None}
    some = admin.list_offsets([(name, 0), (name, 7), ("absent", 0)], "earliest")
    assert some[name, 0] == 0
    assert isinstance(some[name, 7], TopicMissing)
    assert isinstance(some["absent", 0], TopicMissing)


def test_the_newest_time_of_a_partition_is_that_of_its_latest_record(
    admin: KafkaAdmin, connection: Connection, fresh: Fresh
) -> None:
    name = fresh("newest")
    admin.create_topics([spec(name, 2, {"message.timestamp.type": "LogAppendTime"})])
    began_ms = int(time.time() * 1000)
    produce(connection, name, [b"a", b"b"])
    newest = admin.newest_times([(name, 0), (name, 1), ("absent", 0)])
    assert (newest[name, 1], isinstance(newest["absent", 0], TopicMissing)) == (None, True)
    at_ms = newest[name, 0]
    assert isinstance(at_ms, int)
    assert began_ms <= at_ms <= time.time() * 1000
    assert admin.offsets_for_times({(name, 0): at_ms + 1}) == {(name, 0): None}


def test_what_does_not_exist_is_said_soon_also_when_nothing_else_is_asked_for(admin: KafkaAdmin, fresh: Fresh) -> None:
    """The client library reports the same error as for a partition that has no leader for a moment."""
    name = fresh("alone")
    admin.create_topics([spec(name)])
    for place in ((name, 7), ("absent", 0)):
        began = time.monotonic()
        assert isinstance(admin.list_offsets([place], "latest")[place], TopicMissing)
        assert isinstance(admin.offsets_for_times({place: 0})[place], TopicMissing)
        assert time.monotonic() - began < 60, "a partition without a leader is tried until the call's 60 s are over"


def test_a_new_client_is_told_offsets_without_a_pause(connection: Connection, admin: KafkaAdmin, fresh: Fresh) -> None:
    """New clients that asked within some milliseconds had to wait until the client library asked again, after three seconds."""
    name = fresh("at-once")
    admin.create_topics([spec(name)])
    for n in range(50):
        new = KafkaAdmin(connection, timeout_seconds=2)
        time.sleep(n * 0.0001)  # this varies the moment of the request, and waits for nothing
        assert new.list_offsets([(name, 0)], "latest") == {(name, 0): 0}


@pytest.mark.slow
def test_a_partition_without_a_leader_is_asked_for_until_it_has_one_again() -> None:
    with Brokers() as brokers:
        connection = Connection(bootstrap_servers=brokers.bootstrap, further={"log_level": 0})
        admin, impatient = KafkaAdmin(connection, timeout_seconds=120), KafkaAdmin(connection, timeout_seconds=3)
        admin.create_topics([spec("held", partitions=3, config={"min.insync.replicas": "1"})])
        leaders = {
            p.id: p.leader
            for p in AdminClient(connection.client_config()).list_topics("held", 60).topics["held"].partitions.values()
        }
        leader = next(member for member in brokers.members if member.node_id == leaders[0])
        leader.kill()

        def leaderless() -> bool:
            held = impatient.describe_topics(["held"])["held"]
            return isinstance(held, TopicInfo) and not held.leaders_known

        wait_until(leaderless, what="a partition has no leader")
        assert isinstance(impatient.list_offsets([("held", 0)], "latest")["held", 0], KafkaUnreachable)
        assert isinstance(impatient.offsets_for_times({("held", 0): 0})["held", 0], KafkaUnreachable)
        all_three = impatient.list_offsets([("held", p) for p in range(3)], "latest")
        assert {place: end for place, end in all_three.items() if isinstance(end, int)} == {
            ("held", 1): 0,
            ("held", 2): 0,
        }
        assert isinstance(all_three["held", 0], KafkaUnreachable)
        assert isinstance(admin.list_offsets([("absent", 0)], "latest")["absent", 0], TopicMissing)

        leader.start()
        assert admin.list_offsets([("held", 0)], "latest") == {("held", 0): 0}


@pytest.mark.slow
def test_offsets_are_asked_for_again_when_the_connection_breaks_or_the_answer_is_late() -> None:
    """In this case the client library (2.16) answers with offset -1001, because it forgets the error of a request to one leader."""
    with slow_broker() as wire:
        connection = Connection(bootstrap_servers=wire.bootstrap, further={"log_level": 0})
        admin, impatient = KafkaAdmin(connection, timeout_seconds=120), KafkaAdmin(connection, timeout_seconds=0.5)
        admin.create_topics([spec("broken")])
        place, at_ms = ("broken", 0), time.time_ns() // 1_000_000
        producer = Producer(connection.client_config())
        producer.produce("broken", b"", partition=0, timestamp=at_ms)
        assert not producer.flush(120)
        calls: list[tuple[Callable[[KafkaAdmin], Mapping[TopicPartitionKey, object]], int | None]] = [
            (lambda by: by.list_offsets([place], "earliest"), 0),
            (lambda by: by.list_offsets([place], "latest"), 1),
            (lambda by: by.list_offsets([place], "latest", isolation="read_committed"), 1),
            (lambda by: by.offsets_for_times({place: at_ms}), 0),
            (lambda by: by.offsets_for_times({place: at_ms + 1}), None),
        ]
        for ask, there in calls:
            assert ask(admin) == {place: there}
            wire.break_at_requests(Api.LIST_OFFSETS, 3)
            assert ask(admin) == {place: there}
        wire.hold_back_requests(Api.LIST_OFFSETS, 60)
        for ask, _ in calls:
            assert isinstance(ask(impatient)[place], KafkaUnreachable)
        wire.hold_back_requests(Api.LIST_OFFSETS, 0)
        for ask, there in calls:
            assert ask(admin) == {place: there}


@pytest.mark.slow
def test_a_leader_that_was_fenced_for_a_moment_is_asked_with_its_new_epoch() -> None:
    with Broker(settings={"broker.session.timeout.ms": "3000"}) as broker:
        connection = Connection(bootstrap_servers=broker.bootstrap, further={"log_level": 0})
        admin = KafkaAdmin(connection, timeout_seconds=60)
        admin.create_topics([spec("fenced")])
        latest = {TopicPartition("fenced", 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]

        def refusal(library: AdminClient) -> int | None:
            """Returns the error code that the client library gets on its own: 0 without an error, None without an answer."""
            (future,) = library.list_offsets(latest).values()
            try:
                future.result(60)
            except KafkaException as e:
                return int(e.args[0].code())
            except TimeoutError:  # the client has lost the addresses of all brokers
                return None
            return 0

        def fenced_by_a_pause() -> bool:
            """Returns whether a pause fenced the leader. It may not, as the heartbeat may be read before the session's end is noticed."""
            library = AdminClient(connection.client_config())
            wait_until(lambda: refusal(library) == 0, what="Kafka answers with the topic's offset")
            admin.list_offsets([("fenced", 0)], "latest")  # so that this client also knows the former epoch
            broker.pause()
            time.sleep(5)
            broker.resume()
            return until_true(lambda: refusal(library) == KafkaError.FENCED_LEADER_EPOCH, Deadline(3))

        wait_until(fenced_by_a_pause, what="the client library asks with the former epoch", timeout_seconds=300)
        assert admin.list_offsets([("fenced", 0)], "latest") == {("fenced", 0): 0}


def test_nobody_there_is_said_in_time() -> None:
    nobody = KafkaAdmin(Connection(bootstrap_servers="127.0.0.1:1", further={"log_level": 0}), timeout_seconds=1)
    began = time.monotonic()
    with pytest.raises(
        KafkaUnreachable, match=r"describing the cluster failed because Kafka at 127\.0\.0\.1:1 did not answer in time"
    ):
        nobody.describe_cluster()
    assert isinstance(nobody.create_topics([spec("t")])["t"], KafkaUnreachable)
    assert isinstance(nobody.describe_topics(["t"])["t"], KafkaUnreachable)
    assert isinstance(nobody.list_offsets([("t", 0)], "latest")["t", 0], KafkaUnreachable)
    assert isinstance(nobody.describe_groups(["g"])["g"], KafkaUnreachable)
    assert isinstance(nobody.committed_of_groups({"g": None})["g"], KafkaUnreachable)
    assert time.monotonic() - began < 6 * 10, "each call ends after its own second, and not after the library's minute"


def test_nothing_asked_nothing_answered(admin: KafkaAdmin) -> None:
    assert admin.describe_topics([]) == {}
    assert admin.create_topics([]) == {}
    assert admin.list_offsets([], "latest") == {}
    assert admin.commit("g", {}) == {}
    assert admin.committed_of_groups({"g": []}) == {"g": {}}
