"""Each alert fires on the trouble that it is for, by Prometheus's own engine, and none fires on a healthy installation."""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import delayed_topics_operator.metrics  # noqa: F401  registers the operator's metrics
import pytest
import yaml
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_devcluster.packages import program_of
from delayed_topics_operator.delayed_topic.reconcile.alarms import HARMLESS
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.labels import NAME_LABEL, NAMESPACE_LABEL
from delayed_topics_operator.workers.reconcile.worker_sets import shared_labels
from delayed_topics_worker.metrics import Metrics
from prometheus_client import REGISTRY

pytestmark = pytest.mark.api

FILES = Path(__file__).resolve().parents[1] / "delayed-topics" / "files"
ALERTS = FILES / "alerts.yaml"
DEAD_LETTERS = 'delayedtopics_dead_lettered_total{topic="orders", reason="%s"}'
LATENESS = 'delayedtopics_lateness_seconds_bucket{topic="orders", le="%s"}'
NOT_READY = (
    'delayedtopics_operator_not_ready{resource_namespace="shop", resource_name="%s", reason="%s", served="true"}'
)
VIOLATED = 'delayedtopics_operator_delivery_violated{resource_namespace="shop", resource_name="%s"}'
AUDITED = 'delayedtopics_operator_audit_verdict{resource_namespace="shop", resource_name="orders", verdict="%s"}'
EXPECTED = 'delayedtopics_operator_audit_expected_timestamp_seconds{resource_namespace="shop", resource_name="orders"}'
RECONCILES = 'delayedtopics_operator_reconciles_total{kind="DelayedTopic", outcome="%s"}'
FULLNESS = 'delayedtopics_operator_registry_fullness_ratio{kind="ClusterKafkaConnection", resource_name="default"}'
HOLDS_LEASE = "delayedtopics_operator_holds_lease"
COUNTED = 'delayedtopics_operator_condition{kind="DelayedTopic", type="Ready", status="True", reason="AsDeclared"}'
OF_THE_OPERATOR = (HOLDS_LEASE, COUNTED)

HEALTHY = {
    'delayedtopics_alarms{topic="orders", reason="TopicMissing"}': "0x60",
    LATENESS % "0.01": "0+6000x60",
    LATENESS % "+Inf": "0+6000x60",
    DEAD_LETTERS % DeadLetterReason.RETRY_CAP_EXCEEDED: "7x60",
    DEAD_LETTERS % DeadLetterReason.CANCELLED: "7+1x60",
    NOT_READY % ("stopped", "ScaledToZero"): "1x60",
    NOT_READY % ("planned", "PlanOnly"): "1x60",
    NOT_READY % ("upgraded", "RolloutWaiting"): "1x49 stale",
    NOT_READY % ("upgraded", "WorkersStarting"): "_x50 1x10",
    # one of these is not Ready at any moment, but none of them for ten minutes
    **{NOT_READY % (f"edited-{n}", "WorkersStarting"): f"_x{8 * n} 1x8 stale" for n in range(1, 8)},
    RECONCILES % "failed": "4x60",
    RECONCILES % "refused": "0+2x60",
    "delayedtopics_events_failed_total": "3x60",
    FULLNESS: "0.6x60",
    HOLDS_LEASE: "1x60",
    COUNTED: "1x60",
    AUDITED % "Verified": "1x60",
    AUDITED % "Unknown": "0x60",
    EXPECTED: "600x20 3600x40",
}
"""Series of a healthy installation, each with an hour of values, one a minute."""
TROUBLE: dict[str, dict[str, str]] = {
    "DelayedTopicAlarm": {'delayedtopics_alarms{topic="orders", reason="TopicMissing"}': "1x60"},
    "DelayedTopicWarning": {'delayedtopics_alarms{topic="orders", reason="MisroutedRecords"}': "1x60"},
    "DelayedTopicLate": {LATENESS % "0.01": "0+10x60", LATENESS % "5.0": "0+6000x60"},
    "DelayedTopicDeadLetters": {DEAD_LETTERS % DeadLetterReason.RETRY_CAP_EXCEEDED: "7+1x60"},
    "DelayedTopicNotReady": {
        NOT_READY % ("orders", "KafkaUnreachable"): " ".join(["1x2 stale _x2"] * 12),
        NOT_READY % ("orders", "WorkersFailing"): " ".join(["stale _x2 1x2"] * 12),
    },
    "DelayedTopicNotServed": {NOT_READY.replace("true", "false") % ("orders", "NotAllowed"): "1x60"},
    "DelayedTopicDeliveryViolated": {VIOLATED % "orders": "1x60"},
    "DelayedTopicAuditUnknown": {AUDITED % "Verified": "0x60", AUDITED % "Unknown": "1x60"},
    "DelayedTopicAuditMissing": {EXPECTED: "600x60"},
    "DelayedTopicEventsLost": {"delayedtopics_events_failed_total": "3x30 5x30"},
    "DelayedTopicsRegistryNearlyFull": {FULLNESS: "0.75x60"},
    "DelayedTopicsOperatorFails": {RECONCILES % "failed": "4+1x60"},
    "DelayedTopicsOperatorDown": {HOLDS_LEASE: "0x60"},
}
STOPPED = NOT_READY % ("stopped", "ScaledToZero")
RULES = {*TROUBLE, "DelayedTopicScaledToZero"}


def assert_firing(expected: list[str], series: dict[str, str], directory: Path, *, after: str = "55m") -> None:
    """Asserts that exactly these alerts fire at the time `after` of these series; an alert that is listed twice fires twice."""
    test = {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": after,
                "exp_samples": [
                    {"labels": f'{{alertname="{alert}"}}', "value": count} for alert, count in Counter(expected).items()
                ],
            }
        ],
    }
    file = directory / "test.yaml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}))
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def promtool(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [program_of("prometheus", "promtool"), *words], capture_output=True, text=True, check=False, timeout=60
    )


def test_prometheus_takes_the_rules() -> None:
    done = promtool("check", "rules", str(ALERTS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


def test_nothing_fires_while_all_is_well(tmp_path: Path) -> None:
    waiting = labelled({HOLDS_LEASE: "0x60"}, pod="waiting", instance="10.0.0.2:8080")
    assert_firing([], HEALTHY | waiting, tmp_path)


@pytest.mark.parametrize("alert", TROUBLE)
def test_an_alert_fires_on_what_it_is_there_for_and_no_other_does(alert: str, tmp_path: Path) -> None:
    assert_firing([alert], HEALTHY | TROUBLE[alert], tmp_path)


def test_what_the_operator_calls_harmless_is_a_warning() -> None:
    found = re.findall(r'delayedtopics_alarms\{reason([!=])~"(.+?)"\}', ALERTS.read_text())
    assert [sign for sign, _ in found] == ["!", "="]
    assert [set(reasons.split("|")) for _, reasons in found] == [HARMLESS] * 2


def labelled(series: dict[str, str], **labels: str) -> dict[str, str]:
    """Returns the series with these labels added, as Prometheus adds those of a target."""
    added = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return {
        f"{one[:-1]}, {added}}}" if one.endswith("}") else f"{one}{{{added}}}": values for one, values in series.items()
    }


@pytest.mark.parametrize(
    ("alert", "label"),
    [
        *((alert, "namespace") for alert in TROUBLE),
        *((alert, "connection") for alert in TROUBLE if HOLDS_LEASE not in TROUBLE[alert]),
    ],
)
def test_the_same_trouble_of_two_installations_or_kafka_clusters_is_two_alerts(
    alert: str, label: str, tmp_path: Path
) -> None:
    series = HEALTHY | TROUBLE[alert]
    assert_firing([alert] * 2, labelled(series, **{label: "a"}) | labelled(series, **{label: "b"}), tmp_path)


@pytest.mark.parametrize("alert", TROUBLE)
def test_a_trouble_that_two_pods_tell_of_is_one_alert(alert: str, tmp_path: Path) -> None:
    series = HEALTHY | TROUBLE[alert]
    first, second = (labelled(series, namespace="a", pod=f"w-{n}", instance=f"10.0.0.{n}:8080") for n in range(2))
    assert_firing([alert], first | second, tmp_path)


def test_a_second_broken_promise_is_an_alert_of_its_own(tmp_path: Path) -> None:
    broken = {VIOLATED % "orders": "1x60", VIOLATED % "bills": "_x30 1x30"}
    assert_firing(["DelayedTopicDeliveryViolated"] * 2, HEALTHY | broken, tmp_path)


def test_a_defect_is_an_alert_beside_the_failures_that_there_are(tmp_path: Path) -> None:
    failing = {RECONCILES % outcome: "0+1x60" for outcome in ("failed", "crashed")}
    assert_firing(["DelayedTopicsOperatorFails"] * 2, HEALTHY | failing, tmp_path)


@pytest.mark.parametrize("other", ["0x60", "1x20 stale", "1x20 0x40"])
def test_an_operator_that_is_gone_is_an_alert_though_another_installation_has_one(other: str, tmp_path: Path) -> None:
    lease = labelled({HOLDS_LEASE: "1x60"}, namespace="a") | labelled({HOLDS_LEASE: other}, namespace="b")
    assert_firing(["DelayedTopicsOperatorDown"], HEALTHY | lease, tmp_path)


def test_no_operator_at_all_is_an_alert(tmp_path: Path) -> None:
    series = {one: values for one, values in HEALTHY.items() if one != HOLDS_LEASE}
    assert_firing(["DelayedTopicsOperatorDown"], series, tmp_path)


def test_an_operator_that_crashes_again_and_again_is_an_alert(tmp_path: Path) -> None:
    assert_firing(["DelayedTopicsOperatorDown"], dict.fromkeys(OF_THE_OPERATOR, crashing(1)), tmp_path)


@pytest.mark.parametrize(
    ("alert", "trouble"),
    [
        ("DelayedTopicNotReady", {NOT_READY % ("orders", "KafkaUnreachable"): "1"}),
        ("DelayedTopicAuditMissing", {EXPECTED: "600"}),
    ],
)
def test_an_operator_that_crashes_again_and_again_silences_no_alert(
    alert: str, trouble: dict[str, str], tmp_path: Path
) -> None:
    series = {one: crashing(int(value)) for one, value in {**dict.fromkeys(OF_THE_OPERATOR, "1"), **trouble}.items()}
    assert_firing(["DelayedTopicsOperatorDown", alert], series, tmp_path)


def crashing(value: int) -> str:
    """Returns what an operator tells two minutes of each seven: the kubelet waits five minutes before it starts it again."""
    return " ".join([f"{value}x1 stale _x4"] * 9)


@pytest.mark.parametrize("minutes", [1, 3])
def test_an_operator_that_is_replaced_is_no_alert_and_delays_none(minutes: int, tmp_path: Path) -> None:
    series = HEALTHY | dict.fromkeys(OF_THE_OPERATOR, gone_from_minute_25(minutes))
    for after in ("28m", "34m", "40m"):
        assert_firing([], series, tmp_path, after=after)
    trouble = {NOT_READY % ("orders", "KafkaUnreachable"): f"_x20 1x4 stale _x{minutes - 1} 1x30"}
    assert_firing([], series | trouble, tmp_path, after="29m")
    assert_firing(["DelayedTopicNotReady"], series | trouble, tmp_path, after="31m")


@pytest.mark.parametrize(("minutes", "expected"), [(8, []), (20, ["DelayedTopicsOperatorDown"])])
def test_an_operator_that_comes_back_on_another_node_before_ten_minutes_is_no_alert(
    minutes: int, expected: list[str], tmp_path: Path
) -> None:
    series = dict.fromkeys(OF_THE_OPERATOR, gone_from_minute_25(minutes))
    for after in ("35m", "39m"):
        assert_firing([], series, tmp_path, after=after)
    assert_firing(expected, series, tmp_path, after="45m")


def gone_from_minute_25(minutes: int) -> str:
    """Returns what an operator tells that is away for this long."""
    return f"1x24 stale _x{minutes - 1} 1x30"


@pytest.mark.parametrize("file", ["alerts.yaml", "dashboard.json"])
def test_nothing_is_summed_up_over_installations(file: str) -> None:
    found = " ".join(expressions(yaml.safe_load((FILES / file).read_text())))
    groupings = re.findall(r"\b(?:sum|max|min|avg|count)\b ?(by \(.*?\)|without \(.*?\)|)", found)
    assert groupings
    assert {one for one in groupings if not one.startswith("without (instance, pod")} <= {"by (cluster, namespace)"}


def test_targets_say_whose_workers_they_are(render: Any) -> None:
    (found,) = [o for o in render({"monitoring": {"podMonitor": {"enabled": True}}}) if o["kind"] == "PodMonitor"]
    (endpoint,) = found["spec"]["podMetricsEndpoints"]
    sources = {source for one in endpoint["relabelings"] for source in one["sourceLabels"]}
    ours = {NAMESPACE_LABEL, NAME_LABEL, *shared_labels(Key("KafkaConnection", "shop", "kafka"))}
    marks = {re.sub(r"[^a-z]", "_", label) for label in ours if label.startswith("delayedtopics.io/")}
    assert sources == {f"__meta_kubernetes_pod_label_{mark}" for mark in marks}


@pytest.mark.parametrize(("after", "expected"), [("23h", []), ("25h", ["DelayedTopicScaledToZero"])])
def test_what_has_no_workers_for_a_day_is_an_alert_though_the_operator_was_replaced_meanwhile(
    after: str, expected: list[str], tmp_path: Path
) -> None:
    series = {STOPPED: "1x600 stale _x9 1x900", HOLDS_LEASE: "1x1500"}
    assert_firing(expected, series, tmp_path, after=after)


@pytest.mark.parametrize("file", ["alerts.yaml", "dashboard.json"])
def test_only_metrics_that_there_are_are_named(file: str) -> None:
    named = set(re.findall(r"\bdelayed_?topics_\w+", " ".join(expressions(yaml.safe_load((FILES / file).read_text())))))
    assert named
    known = {
        name
        for registry in (Metrics().registry, REGISTRY)
        for family in registry.collect()
        for name in (family.name, *(f"{family.name}_{end}" for end in ("total", "bucket", "count", "sum")))
    }
    assert named <= known


def expressions(part: Any) -> list[str]:
    """Returns all strings under the keys `expr` and `query`, at any depth."""
    if isinstance(part, list):
        return [found for one in part for found in expressions(one)]
    if not isinstance(part, dict):
        return []
    own = [str(part[name]) for name in ("expr", "query") if isinstance(part.get(name), str)]
    return own + [found for one in part.values() for found in expressions(one)]
