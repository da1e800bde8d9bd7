"""The operator parses and follows any manifest that the API server accepts, and then has nothing left to do."""

from typing import Any

from delayed_topics_core.reasons import Condition
from delayed_topics_crds import parse
from delayed_topics_crds.delayed_topic import DelayedTopicSpec
from delayed_topics_operator.delayed_topic.reconcile import reconcile
from delayed_topics_operator.values.partitions import partitions_of
from delayed_topics_operator_testing.simulation import Simulation, resource
from hypothesis import given, settings
from hypothesis import strategies as st

DELAYS = st.lists(st.integers(0, 2_592_000), min_size=1, max_size=8)
LABELS = st.dictionaries(
    st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.from_regex(r"[a-z0-9]{0,8}", fullmatch=True), max_size=3
)
QUANTITIES = st.one_of(st.integers(1, 9), st.from_regex(r"[1-9][0-9]{0,2}(m|Mi|Gi|k|)", fullmatch=True))
TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {"operator": st.sampled_from(["Exists", "Equal"])}, optional={"key": st.just("k"), "value": st.just("v")}
    ),
    max_size=2,
)
AFFINITIES = st.sampled_from(
    [
        {},
        {"nodeAffinity": {}},
        {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", "namespaceSelector": {}}]
            }
        },
    ]
)
TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "labels": LABELS,
        "annotations": LABELS,
        "nodeSelector": LABELS,
        "tolerations": TOLERATIONS,
        "affinity": AFFINITIES,
        "resources": st.fixed_dictionaries(
            {}, optional={"limits": st.dictionaries(st.sampled_from(["cpu", "memory"]), QUANTITIES, max_size=2)}
        ),
        "priorityClassName": st.just("high"),
    },
)
FIELDS = {
    "partitions": st.integers(1, 40),
    "lanesPerDelay": st.integers(1, 5),
    "ladder": st.fixed_dictionaries({}, optional={"maxSeconds": st.integers(1, 2_592_000), "base": st.integers(2, 60)}),
    "maxDelaySeconds": st.integers(1, 315_360_000),
    "frontPartitions": st.integers(1, 20),
    "replicationFactor": st.integers(1, 5),
    "retryCap": st.integers(0, 1000),
    "ready": st.just({"allowedTopics": ["orders.late"]}),
    "control": st.just({}),
    "deadLetter": st.fixed_dictionaries({"retentionSeconds": st.integers(60, 315_360_000)}),
    "outageBudgetSeconds": st.integers(60, 31_536_000),
    "workers": st.fixed_dictionaries(
        {"replicas": st.integers(0, 1000)},
        optional={
            "template": TEMPLATES,
            "autoscale": st.just({"min": 2, "max": 40}),
            "measureDueLag": st.booleans(),
        },
    ),
    "rebalance": st.fixed_dictionaries({"protocol": st.sampled_from(["Classic", "Consumer"])}),
    "compression": st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    "guarantee": st.sampled_from(["AtLeastOnce", "ExactlyOnce"]),
    "deletionPolicy": st.sampled_from(["Retain", "Delete"]),
    "paused": st.booleans(),
}
SPECS = st.fixed_dictionaries({"delaySeconds": DELAYS}, optional=FIELDS)


def settled(simulation: Simulation) -> None:
    simulation.serve()
    assert reconcile(simulation.observe()).actions == ()
    parse("DelayedTopic", simulation.raw)
    assert simulation.condition(Condition.TOPICS_READY).status == "True"
    registry = simulation.kafka.registry
    present = sum(topic.partitions for topic in simulation.kafka.topics.values())
    assert present <= partitions_of(registry.layouts["orders"], registry.topics["orders"]), (
        "the quota counts all partitions that exist"
    )


def test_manifests_may_have_any_field_that_changes_what_the_operator_makes() -> None:
    fields = {field.alias or name for name, field in DelayedTopicSpec.model_fields.items()}
    assert fields - FIELDS.keys() == {"delaySeconds", "topic", "connectionRef", "preset", "audit"}


@settings(max_examples=150, deadline=None)
@given(specs=st.lists(SPECS, min_size=1, max_size=4))
def test_any_manifest_and_any_series_of_edits_is_followed_to_its_end(specs: list[dict[str, Any]]) -> None:
    simulation = Simulation(resource(**specs[0]))
    settled(simulation)
    former: dict[int, int] = {}
    for spec in specs[1:]:
        simulation.raw["spec"] = {}
        simulation.edit(**spec)
        settled(simulation)
        now = dict(enumerate(simulation.kafka.registry.layouts["orders"].layout.partition_delays))
        assert former.items() <= now.items(), "a partition's delay never changes"
        former = now
        record = simulation.kafka.registry.layouts["orders"]
        assert record.ready_partitions >= record.front_partitions == simulation.kafka.topics["orders"].partitions
        assert simulation.kafka.topics["orders.delays"].partitions == record.layout.partition_count
    simulation.delete()
    simulation.settle()
    assert simulation.gone
