"""The models that the operator reads have the limits and the defaults of the API server, and lose no field."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import yaml
from delayed_topics_core.names import MAX_FRONT_NAME_LENGTH
from delayed_topics_crds import Condition, DelayedTopic, RebalanceStatus, parse, to_dict
from delayed_topics_crds.delayed_topic import MAX_TOPIC_LENGTH
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

SIX_LINES = """
kind: DelayedTopic
apiVersion: delayedtopics.io/v1alpha1
metadata: {name: orders, namespace: shop}
spec:
  delaySeconds: [0, 10, 60, 600]
  partitions: 12
"""


def delayed_topic(**spec: Any) -> DelayedTopic:
    return parse("DelayedTopic", {"metadata": {"name": "orders"}, "spec": {"delaySeconds": [0, 10]} | spec})


def test_six_lines_are_a_whole_manifest() -> None:
    resource = parse("DelayedTopic", yaml.safe_load(SIX_LINES))
    assert (resource.metadata.namespace, resource.metadata.name) == ("shop", "orders")
    assert resource.spec.delay_seconds == (0, 10, 60, 600)
    assert resource.spec.partitions == 12
    assert resource.spec.topic is None
    assert resource.spec.retry_cap == 5
    assert resource.spec.workers is None, "the topic may use the shared workers of its connection"
    assert resource.spec.connection_ref.kind == "ClusterKafkaConnection"
    assert resource.spec.connection_ref.name == "default"
    assert resource.spec.deletion_policy == "Retain"
    assert resource.status.conditions == ()


def test_an_object_of_a_list_has_no_kind_of_its_own() -> None:
    assert delayed_topic().kind == "DelayedTopic"


def test_an_object_of_another_kind_is_refused() -> None:
    with pytest.raises(ValidationError, match="kind"):
        parse("KafkaConnection", yaml.safe_load(SIX_LINES))


@pytest.mark.parametrize(
    "spec",
    [
        {"delaySeconds": []},
        {"delaySeconds": [-1]},
        {"delaySeconds": [2_592_001]},
        {"delaySeconds": list(range(65))},
        {"delaySeconds": ["10"]},
        {"delaySeconds": [True]},
        {"partitions": 0},
        {"partitions": 10_001},
        {"retryCap": -1},
        {"retryCap": 1001},
        {"topic": "orders/eu"},
        {"topic": "orders\n"},
        {"topic": ""},
        {"topic": "a" * 242},
        {"control": {"partitions": 2}},
        {"workers": {"replicas": -1}},
        {"workers": {"replica": 1}},
        {"delaysSeconds": [1]},
        {"delay_seconds": [1]},
        {"paused": "yes"},
        {"compression": "brotli"},
        {"guarantee": "AtMostOnce"},
        {"preset": "RocketMQ"},
        {"connectionRef": {"kind": "Kafka"}},
    ],
    ids=str,
)
def test_what_the_api_server_refuses_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        delayed_topic(**spec)


def test_a_refusal_says_what_must_be() -> None:
    with pytest.raises(ValidationError, match=r"must be between 0 and 2592000 seconds \(30 days\)"):
        delayed_topic(delaySeconds=[2_592_001])


def test_status_of_a_newer_operator_is_understood() -> None:
    manifest = yaml.safe_load(SIX_LINES) | {"status": {"topic": "orders", "fromTheFuture": {"a": 1}}}
    assert parse("DelayedTopic", manifest).status.topic == "orders"


def test_the_longest_topic_leaves_room_for_what_is_appended() -> None:
    assert MAX_TOPIC_LENGTH == MAX_FRONT_NAME_LENGTH
    assert delayed_topic(topic="a" * MAX_TOPIC_LENGTH).spec.topic == "a" * MAX_TOPIC_LENGTH


def test_status_is_bounded() -> None:
    members = [{"name": f"orders-{n}", "partitions": ""} for n in range(51)]
    with pytest.raises(ValidationError, match="at most 50"):
        RebalanceStatus.model_validate({"state": "Stable", "members": members})


def test_times_are_written_as_kubernetes_writes_them() -> None:
    here = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=timezone(timedelta(hours=2)))
    condition = Condition(type="Ready", status="True", reason="Serving", message="", last_transition_time=here)
    assert to_dict(condition)["lastTransitionTime"] == "2026-01-02T01:04:05Z"
    assert condition.last_transition_time == datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)


def test_metadata_keeps_what_nobody_reads() -> None:
    manifest = yaml.safe_load(SIX_LINES)
    manifest["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    assert to_dict(parse("DelayedTopic", manifest))["metadata"]["managedFields"] == [{"manager": "kubectl"}]


def test_a_pod_template_comes_out_as_it_was_written() -> None:
    template = {
        "labels": {"team": "shop"},
        "resources": {"requests": {"cpu": 1, "memory": "256Mi"}},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
                    }
                ]
            }
        },
        "priorityClassName": "high",
    }
    workers = delayed_topic(workers={"template": template}).spec.workers
    assert workers is not None
    written = workers.template
    assert written is not None
    assert to_dict(written) == template


names = st.from_regex(r"\A[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?\Z")
delayed_topic_specs = st.fixed_dictionaries(
    {"delaySeconds": st.lists(st.integers(0, 2_592_000), min_size=1, max_size=64)},
    optional={
        "topic": st.from_regex(r"\A[a-zA-Z0-9._-]{1,241}\Z"),
        "partitions": st.integers(1, 10_000),
        "retryCap": st.integers(0, 1000),
        "lanesPerDelay": st.integers(1, 100),
        "frontPartitions": st.integers(1, 10_000),
        "replicationFactor": st.integers(1, 100),
        "deadLetter": st.fixed_dictionaries({}, optional={"retentionSeconds": st.integers(60, 10**8)}),
        "control": st.just({}),
        "workers": st.fixed_dictionaries(
            {},
            optional={
                "replicas": st.integers(0, 1000),
                "measureDueLag": st.booleans(),
                "autoscale": st.fixed_dictionaries({"max": st.integers(5, 1000)}, optional={"min": st.integers(1, 5)}),
            },
        ),
        "rebalance": st.fixed_dictionaries({}, optional={"protocol": st.sampled_from(["Classic", "Consumer"])}),
        "deletionPolicy": st.sampled_from(["Retain", "Delete"]),
        "paused": st.booleans(),
        "connectionRef": st.fixed_dictionaries({}, optional={"name": names}),
    },
)


@given(delayed_topic_specs)
def test_what_was_read_is_written_back(spec: dict[str, Any]) -> None:
    resource = delayed_topic(**spec)
    written = to_dict(resource)
    assert parse("DelayedTopic", written) == resource
    assert written["spec"].items() >= {key: value for key, value in spec.items() if not isinstance(value, dict)}.items()


@given(st.integers())
def test_every_number_is_understood_or_refused(number: int) -> None:
    try:
        assert delayed_topic(partitions=number).spec.partitions == number
        assert 1 <= number <= 10_000
    except ValidationError:
        assert not 1 <= number <= 10_000
