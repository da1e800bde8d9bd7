"""What the operator needs each right for: a story that comes to its end with the right, and not without it."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from delayed_topics_devcluster.audit_log import Right, used
from delayed_topics_operator.audits.reconcile.manifests import AUDIT_LABEL, SELECTOR_LABELS
from delayed_topics_operator.engine.lease import LEASE
from delayed_topics_operator.gateways.kube import APIS
from delayed_topics_operator.runtime import CLUSTER_WIDE
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.workers.observe import WATCHED

from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import AUDIT_NAMESPACE, SYSTEM_NAMESPACE
from delayed_topics_operator_testing.rights import OPERATOR, Grant

CHILDREN = (*WATCHED, "Secret")


class Act(NamedTuple):
    """`do`: the act that needs the right. `done`: whether the act has had its effect. `again`: whether to repeat `do` when the right is
    back, because the operator tries only once."""

    do: Callable[[], object]
    done: Callable[[], bool]
    again: bool = False


Story = Callable[[OperatorHarness, str], Act]
"""Prepares what the act needs, while the operator has all rights. No other story uses the name, or names that begin with it."""


def the_operator_starts(harness: OperatorHarness, name: str) -> Act:
    def start() -> None:
        harness.operator.kill()
        harness.operator.launch()

    return Act(start, harness.operator.ready)


def the_first_operator_starts(harness: OperatorHarness, name: str) -> Act:
    def start() -> None:
        harness.operator.kill()
        harness.api.delete("Lease", LEASE, SYSTEM_NAMESPACE)
        harness.operator.launch()

    return Act(start, harness.operator.ready)


def changes_are_followed_by_watches(harness: OperatorHarness, name: str) -> Act:
    """The operator follows changes by watches, and not only by a resync every few seconds."""
    watches = {right(kind, "watch") for kind in (*CLUSTER_WIDE, *WATCHED)}
    log = harness.api.server.audit_log
    begin = 0

    def start() -> None:
        nonlocal begin
        harness.operator.kill()
        begin = log.stat().st_size
        harness.operator.launch()

    return Act(start, lambda: watches <= set(used(log, OPERATOR, begin=begin)) and harness.operator.ready())


def a_default_connection_is_made(harness: OperatorHarness, name: str) -> Act:
    file = harness.api.server.folder / f"{name}.json"
    file.write_text(json.dumps(harness.cluster_connection(name)))

    def start() -> None:
        harness.operator.kill()
        harness.operator.launch(f"--default-connection={file}")

    return Act(start, lambda: harness.api.get("ClusterKafkaConnection", name) is not None and harness.operator.ready())


def a_cluster_connection_is_looked_at(harness: OperatorHarness, name: str) -> Act:
    made = harness.cluster_connection(name)
    return Act(lambda: harness.api.apply(made), lambda: bool(words(harness, "ClusterKafkaConnection", name)))


def a_connection_of_a_namespace_is_looked_at(harness: OperatorHarness, name: str) -> Act:
    made = own_connection(harness, name)
    return Act(lambda: harness.api.apply(made), lambda: bool(words(harness, "KafkaConnection", name)))


def a_cluster_connection_stays_while_it_is_used(harness: OperatorHarness, name: str) -> Act:
    harness.api.apply(harness.cluster_connection(name))
    topic = harness.delayed_topic(name, connectionRef={"name": name})
    return Act(lambda: harness.api.apply(topic), lambda: held(harness, "ClusterKafkaConnection", name))


def a_connection_of_a_namespace_stays_while_it_is_used(harness: OperatorHarness, name: str) -> Act:
    harness.api.apply(own_connection(harness, name))
    topic = harness.delayed_topic(name, connectionRef={"kind": "KafkaConnection", "name": name})
    return Act(lambda: harness.api.apply(topic), lambda: held(harness, "KafkaConnection", name, harness.namespace))


def a_resource_has_topics_and_workers(harness: OperatorHarness, name: str) -> Act:
    def served() -> bool:
        there = all(harness.made(kind, name) for kind in CHILDREN)
        return there and harness.condition("TopicsReady", name).get("status") == "True"

    return Act(lambda: harness.api.apply(harness.delayed_topic(name)), served)


def workers_of_a_deleted_resource_go(harness: OperatorHarness, name: str) -> Act:
    has_workers(harness, name)
    return Act(
        lambda: delete(harness, "DelayedTopic", name),
        lambda: harness.resource(name) is None and not any(harness.made(kind, name) for kind in CHILDREN),
    )


def why_a_worker_does_not_start_is_said(harness: OperatorHarness, name: str) -> Act:
    has_workers(harness, name)
    harness.wait(lambda: bool(harness.made("Pod", name)), "there is a pod")
    (pod,) = harness.made("Pod", name)
    return Act(
        lambda: image_is_missing(harness, pod), lambda: "ImagePullBackOff" in words(harness, "DelayedTopic", name)
    )


def what_events_say_of_a_worker_is_said(harness: OperatorHarness, name: str) -> Act:
    has_workers(harness, name)
    harness.wait(lambda: bool(harness.made("Pod", name)), "there is a pod")
    (pod,) = harness.made("Pod", name)
    return Act(lambda: sandbox_is_missing(harness, pod), lambda: "no sandbox" in words(harness, "DelayedTopic", name))


def what_happens_is_told_by_events(harness: OperatorHarness, name: str) -> Act:
    """The operator writes an Event only once, so `do` applies another resource when the right is back."""
    names = [f"{name}-{number}" for number in range(2)]

    def told() -> bool:
        return any(event["involvedObject"]["name"].startswith(name) for event in harness.events("Claimed"))

    return Act(lambda: harness.api.apply(harness.delayed_topic(names.pop())), told, again=True)


def audits_are_made_on_schedule(harness: OperatorHarness, name: str) -> Act:
    """The schedule counts from the creation of the resource. For a resource that is older than a minute, an audit is due at once."""
    has_workers(harness, name)
    every_minute = harness.delayed_topic(name, audit={"schedule": "* * * * *"})
    return Act(lambda: harness.api.apply(every_minute), lambda: bool(audits_of(harness, name)))


def the_oldest_audits_of_a_schedule_go(harness: OperatorHarness, name: str) -> Act:
    has_workers(harness, name)
    owner = {"apiVersion": "delayedtopics.io/v1alpha1", "kind": "DelayedTopic", "name": name}
    owner["uid"] = (harness.resource(name) or {})["metadata"]["uid"]
    names = [f"{name}-{number}" for number in range(2)]
    for each in names:
        made = audit(harness, name, each)
        made["metadata"]["ownerReferences"] = [owner]
        harness.api.apply(made)
        verdict = {key: made[key] for key in ("apiVersion", "kind")} | {"status": {"verdict": "Verified"}}
        harness.api.apply({**verdict, "metadata": {"name": each, "namespace": harness.namespace}}, subresource="status")
    asked = {"schedule": "0 0 1 1 *", "historyLimit": 1}
    return Act(
        lambda: harness.api.apply(harness.delayed_topic(name, audit=asked)), lambda: len(audits_of(harness, name)) == 1
    )


def an_audit_runs(harness: OperatorHarness, name: str, kind: str = "Job", says: str = "AuditRunning") -> Act:
    has_workers(harness, name)

    def runs() -> bool:
        there = all(audit_children(harness, child, name) for child in (kind, "Secret", "ConfigMap"))
        return there and says in words(harness, "DelayedTopicAudit", name)

    return Act(lambda: harness.api.apply(audit(harness, name, kind=kind)), runs)


def an_audit_is_a_spark_application(harness: OperatorHarness, name: str) -> Act:
    return an_audit_runs(harness, name, "SparkApplication", "Check that the Spark Operator runs")


def what_a_deleted_audit_had_goes(harness: OperatorHarness, name: str) -> Act:
    is_audited(harness, name)

    def gone() -> bool:
        left = any(audit_children(harness, child, name) for child in ("Job", "Secret", "ConfigMap"))
        return not left and harness.api.get("DelayedTopicAudit", name, harness.namespace) is None

    return Act(lambda: delete(harness, "DelayedTopicAudit", name), gone)


def why_an_audit_does_not_start_is_said(harness: OperatorHarness, name: str) -> Act:
    is_audited(harness, name)
    harness.wait(lambda: bool(audit_children(harness, "Pod", name)), "there is a pod")
    (pod,) = audit_children(harness, "Pod", name)
    return Act(
        lambda: image_is_missing(harness, pod), lambda: "ImagePullBackOff" in words(harness, "DelayedTopicAudit", name)
    )


def what_events_say_of_an_audit_is_said(harness: OperatorHarness, name: str) -> Act:
    is_audited(harness, name)
    harness.wait(lambda: bool(audit_children(harness, "Pod", name)), "there is a pod")
    (pod,) = audit_children(harness, "Pod", name)
    return Act(
        lambda: sandbox_is_missing(harness, pod), lambda: "no sandbox" in words(harness, "DelayedTopicAudit", name)
    )


def what_is_left_of_an_audit_goes(harness: OperatorHarness, name: str) -> Act:
    labels = dict(pair.split("=") for pair in SELECTOR_LABELS.split(",")) | {AUDIT_LABEL: name}
    window = {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}
    window["metadata"] = {"name": f"{name}-window", "namespace": AUDIT_NAMESPACE, "labels": labels}
    return Act(
        lambda: harness.api.apply(window),
        lambda: harness.api.get("ConfigMap", f"{name}-window", AUDIT_NAMESPACE) is None,
    )


def has_workers(harness: OperatorHarness, name: str) -> None:
    harness.api.apply(harness.delayed_topic(name))
    harness.wait_until_served(name)


def is_audited(harness: OperatorHarness, name: str) -> None:
    has_workers(harness, name)
    harness.api.apply(audit(harness, name))
    harness.wait(lambda: bool(audit_children(harness, "Job", name)), "the audit has a Job")


def own_connection(harness: OperatorHarness, name: str) -> Manifest:
    metadata = {"name": name, "namespace": harness.namespace}
    spec = {"bootstrapServers": [harness.broker.bootstrap]}
    return {**harness.cluster_connection(), "kind": "KafkaConnection", "metadata": metadata, "spec": spec}


def audit(harness: OperatorHarness, topic: str, name: str = "", *, kind: str = "Job") -> Manifest:
    """`kind`: Job or SparkApplication."""
    return {
        "apiVersion": "delayedtopics.io/v1alpha1",
        "kind": "DelayedTopicAudit",
        "metadata": {"name": name or topic, "namespace": harness.namespace},
        "spec": {"delayedTopicRef": {"name": topic}, "spark": {"mode": kind, "executors": int(kind != "Job")}},
    }


def audits_of(harness: OperatorHarness, topic: str) -> list[Manifest]:
    found = harness.api.list_all("DelayedTopicAudit", harness.namespace)
    return [a for a in found if a["spec"]["delayedTopicRef"]["name"] == topic and not leaving(a)]


def leaving(found: Manifest) -> bool:
    return "deletionTimestamp" in found["metadata"]


def audit_children(harness: OperatorHarness, kind: str, name: str) -> list[Manifest]:
    """Returns the objects of this audit in the namespace of audits."""
    labels = {"delayedtopics.io/namespace": harness.namespace, "delayedtopics.io/name": name}
    found = harness.api.list_all(kind, AUDIT_NAMESPACE)
    return [o for o in found if labels.items() <= o["metadata"].get("labels", {}).items()]


def held(harness: OperatorHarness, kind: str, name: str, namespace: str = "") -> bool:
    return bool((harness.api.get(kind, name, namespace) or {})["metadata"].get("finalizers"))


def words(harness: OperatorHarness, kind: str, name: str) -> str:
    """Returns the reasons and messages of all conditions."""
    status = (harness.api.get(kind, name, harness.namespace) or {}).get("status", {})
    return "\n".join(f"{condition['reason']}: {condition['message']}" for condition in status.get("conditions", ()))


def delete(harness: OperatorHarness, kind: str, name: str) -> None:
    harness.api.kubectl("delete", kind, name, f"--namespace={harness.namespace}", "--wait=false")


def image_is_missing(harness: OperatorHarness, pod: Manifest) -> None:
    (container,) = pod["spec"]["containers"]
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    known = {"name": container["name"], "image": "-", "imageID": "", "ready": False, "restartCount": 0}
    patch = json.dumps({"status": {"containerStatuses": [{**known, "state": waiting}]}})
    meta = pod["metadata"]
    where = (f"--namespace={meta['namespace']}", "--subresource=status", "--type=merge")
    harness.api.kubectl("patch", "pod", meta["name"], *where, "-p", patch)


def sandbox_is_missing(harness: OperatorHarness, pod: Manifest) -> None:
    about = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
    event: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": about["name"], "namespace": about["namespace"]},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **about},
        "type": "Warning",
        "reason": "FailedCreatePodSandBox",
        "message": "no sandbox",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    harness.api.apply(event)


LOOKED_AT: Mapping[str, Story] = {"list": the_operator_starts, "watch": changes_are_followed_by_watches}
WORKERS: Mapping[str, Story] = {
    **dict.fromkeys(("get", "create", "patch"), a_resource_has_topics_and_workers),
    "delete": workers_of_a_deleted_resource_go,
}
AUDITS: Mapping[str, Story] = {
    **dict.fromkeys(("get", "create", "patch"), an_audit_runs),
    "delete": what_a_deleted_audit_had_goes,
}
_BY_ROLE: Mapping[str, Mapping[str, Mapping[str, Story]]] = {
    "operator": {
        "DelayedTopic": {**LOOKED_AT, "patch": a_resource_has_topics_and_workers},
        "DelayedTopic/status": {"patch": a_resource_has_topics_and_workers},
        "DelayedTopicAudit": {
            **LOOKED_AT,
            **dict.fromkeys(("get", "create"), audits_are_made_on_schedule),
            "patch": an_audit_runs,
            "delete": the_oldest_audits_of_a_schedule_go,
        },
        "DelayedTopicAudit/status": {"patch": an_audit_runs},
        "ClusterKafkaConnection": {
            **LOOKED_AT,
            **dict.fromkeys(("get", "create"), a_default_connection_is_made),
            "patch": a_cluster_connection_stays_while_it_is_used,
        },
        "ClusterKafkaConnection/status": {"patch": a_cluster_connection_is_looked_at},
        "KafkaConnection": {**LOOKED_AT, "patch": a_connection_of_a_namespace_stays_while_it_is_used},
        "KafkaConnection/status": {"patch": a_connection_of_a_namespace_is_looked_at},
        "Namespace": {**LOOKED_AT, "get": the_operator_starts},
        "Event": {"create": what_happens_is_told_by_events},
    },
    "operator-lease": {
        "Lease": {**dict.fromkeys(("get", "patch"), the_operator_starts), "create": the_first_operator_starts},
    },
    "operator-namespace": {
        "Secret": WORKERS,
        **{kind: {**LOOKED_AT, **WORKERS} for kind in WATCHED},
        "Pod": {"list": why_a_worker_does_not_start_is_said},
        "Event": {"list": what_events_say_of_a_worker_is_said},
    },
    "audits": {"Job": AUDITS},
    "audits-spark-applications": {
        "SparkApplication": dict.fromkeys(("get", "create", "patch"), an_audit_is_a_spark_application)
    },
    "audits-namespace": {
        "Secret": AUDITS,
        "ConfigMap": {**AUDITS, "list": what_is_left_of_an_audit_goes},
        "Job": {"list": what_is_left_of_an_audit_goes},
        "Pod": {"list": why_an_audit_does_not_start_is_said},
        "Event": {"list": what_events_say_of_an_audit_is_said},
    },
}


def right(kind: str, verb: str) -> Right:
    """`kind` may have a subresource: `DelayedTopic/status`."""
    of, _, subresource = kind.partition("/")
    group = APIS[of].group_version.rpartition("/")[0]
    return Right(group, "/".join(part for part in (APIS[of].plural, subresource) if part), verb)


NEEDS: Mapping[Grant, Story] = {
    Grant(role, right(kind, verb)): story
    for role, kinds in _BY_ROLE.items()
    for kind, verbs in kinds.items()
    for verb, story in verbs.items()
}
"""The stories of all rights of the operator's roles."""
WHERE = dict.fromkeys(("audits", "audits-spark-applications", "audits-namespace"), AUDIT_NAMESPACE)
"""The namespace in which stories need the rights of these roles. For all other roles, it is that of the operator."""
_WRITE = ("create", "update", "patch", "delete", "deletecollection")
_DRIVES = ("create", "get", "list", "watch", "delete", "deletecollection")
PEOPLE = tuple(
    Grant(role, right(kind, verb))
    for role, kinds, verbs in (
        ("edit", ("DelayedTopic", "DelayedTopicAudit", "KafkaConnection"), _WRITE),
        ("edit", ("DelayedTopic/scale",), ("get", "update", "patch")),
        ("view", ("DelayedTopic", "DelayedTopicAudit", "KafkaConnection"), ("get", "list", "watch")),
    )
    for kind in kinds
    for verb in verbs
)
"""The rights that the chart adds to the usual roles, edit and view."""
DRIVER = tuple(Grant("audit-driver", right("Pod", verb)) for verb in _DRIVES)
"""The rights of the Job of an audit with executors."""
EVERY = (*NEEDS, *PEOPLE, *DRIVER)
