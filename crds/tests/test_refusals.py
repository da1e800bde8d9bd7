"""The resources that a real API server refuses, and its messages. No test waits for an operator."""

import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from delayed_topics_crds import API_VERSION, GROUP, parse, to_dict
from delayed_topics_crds.delayed_topic import MAX_PARTITIONS, PRESETS, DelayedTopicSpec
from delayed_topics_devcluster.api_server import ApiServer
from delayed_topics_devcluster.errors import CommandFailedError
from delayed_topics_devcluster.paths import CRDS

pytestmark = pytest.mark.api


def manifest(kind: str, spec: dict[str, Any], name: str = "orders") -> dict[str, Any]:
    # an operator that runs in this cluster later ignores plan-only resources and those whose connection does not exist
    metadata = {"name": name, "annotations": {f"{GROUP}/plan-only": "true"}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def delayed_topic(name: str = "orders", **spec: Any) -> dict[str, Any]:
    reference = {"kind": "KafkaConnection", "name": "of-nobody"}
    return manifest("DelayedTopic", {"delaySeconds": [0, 10], "connectionRef": reference} | spec, name)


def connection(kind: str = "ClusterKafkaConnection", **spec: Any) -> dict[str, Any]:
    return manifest(kind, {"bootstrapServers": ["kafka:9092"]} | spec, f"test-{uuid4().hex[:8]}")


def lanes_of(preset: str, lanes: int) -> dict[str, Any]:
    return manifest("DelayedTopic", {"preset": preset, "lanesPerDelay": lanes})


MAX_LANES = {preset: (MAX_PARTITIONS - 1) // (len(set(delays)) - 1) for preset, delays in PRESETS.items()}
NIGHTLY: dict[str, Any] = {"schedule": "0 3 * * *"}
S3 = {"bucket": "accounts", "secretName": "accounts-s3"}


AUDIT = manifest("DelayedTopicAudit", {"delayedTopicRef": {"name": "orders"}})


class Tenant:
    """A user of kubectl in a namespace that only this test uses."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self._kubectl = server.kubectl
        self._namespace = namespace

    def run(self, *arguments: str, text_in: str | None = None) -> str:
        return self._kubectl(*arguments, f"--namespace={self._namespace}", text_in=text_in)

    def apply(self, document: dict[str, Any], *flags: str) -> str:
        return self.run("apply", "--filename=-", *flags, text_in=yaml.safe_dump(document))

    def dry_run(self, document: dict[str, Any]) -> dict[str, Any]:
        """Returns the resource as the API server would store it. Raises CommandFailedError with the output of kubectl on a refusal."""
        return dict(json.loads(self.apply(document, "--dry-run=server", "--output=json")))


@pytest.fixture(scope="module")
def tenant(api_server: ApiServer) -> Tenant:
    namespace = f"refusals-{uuid4().hex[:8]}"
    api_server.kubectl("create", "namespace", namespace)
    return Tenant(api_server, namespace)


SCRAM = {"mechanism": "SCRAM-SHA-512", "secretRef": {"name": "user"}}
WRONG_ASSIGNOR = (
    "assignor must be Range, RoundRobin or Sticky with protocol Classic, and Uniform or Range with protocol Consumer"
)
EVERYTHING = {
    "topic": "Orders_EU.v2",
    "delaySeconds": [0, 10, 60, 600],
    "partitions": 12,
    "lanesPerDelay": 2,
    "frontPartitions": 9,
    "ladder": {"maxSeconds": 3600, "base": 4},
    "maxDelaySeconds": 86_400,
    "ready": {"allowedTopics": ["Orders_EU.v2.late"]},
    "control": {},
    "audit": {"schedule": "0 3 * * *"},
    "replicationFactor": 3,
    "retryCap": 1000,
    "deadLetter": {"retentionSeconds": 86400},
    "outageBudgetSeconds": 86400,
    "workers": {
        "replicas": 3,
        "autoscale": {"min": 1, "max": 9},
        "measureDueLag": True,
        "template": {
            "labels": {"team": "shop", "shop.example.com/Team_1.a": "", "x" * 63: "Y.z_0-" * 10 + "abc"},
            "annotations": {"note": "any text, of some length\n" * 100},
            "resources": {"requests": {"cpu": 1, "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
            "affinity": {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 1,
                            "preference": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
                        }
                    ]
                }
            },
            "priorityClassName": "high",
        },
    },
    "rebalance": {"protocol": "Consumer", "assignor": "Range"},
    "compression": "zstd",
    "guarantee": "ExactlyOnce",
    "deletionPolicy": "Delete",
    "paused": True,
    "connectionRef": {"kind": "KafkaConnection", "name": "of-nobody"},
}

ACCEPTED = {
    "the least": delayed_topic(),
    "everything": manifest("DelayedTopic", EVERYTHING),
    "64 delays of up to 30 days": delayed_topic(delaySeconds=[0, *range(2_591_938, 2_592_001)]),
    "all delays equal": delayed_topic(delaySeconds=[10] * 64, lanesPerDelay=10_000),
    "10,000 partitions": delayed_topic(delaySeconds=[0, 1], lanesPerDelay=9999, partitions=10_000),
    **{f"preset {preset}": manifest("DelayedTopic", {"preset": preset}) for preset in PRESETS},
    **{f"the most lanes of {preset}": lanes_of(preset, most) for preset, most in MAX_LANES.items()},
    "the longest topic": delayed_topic(topic="a" * 241),
    "a reserved name with a topic of its own": delayed_topic("orders.ready", topic="orders"),
    "0 workers": delayed_topic(workers={"replicas": 0}),
    "as many workers at least as at most": delayed_topic(workers={"autoscale": {"min": 3, "max": 3}}),
    "TLS and SCRAM": connection(tls={"caSecretRef": {"name": "ca"}}, sasl=SCRAM),
    "Secrets of Strimzi's KafkaUser": connection(
        tls={
            "caSecretRef": {"name": "my-cluster-cluster-ca-cert", "key": "ca.crt"},
            "clientCertSecretRef": {"name": "shop", "certificateKey": "user.crt", "privateKeyKey": "user.key"},
        },
        sasl={"username": "CN=shop", "secretRef": {"name": "shop", "passwordKey": "password"}},
    ),
    "a user name by another key": connection(sasl={"secretRef": {"name": "shop", "usernameKey": "user"}}),
    "PLAIN over TLS": connection(tls={}, sasl={**SCRAM, "mechanism": "PLAIN"}),
    "IPv6": connection("KafkaConnection", bootstrapServers=["[fd00::1]:9092"]),
    "a grant": connection(
        allow=[
            {
                "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["shop"]}]},
                "topicPrefixes": ["shop."],
                "readyTopicPrefixes": ["shop.", ""],
                "maxPartitions": 100,
                "maxWorkers": 3,
                "quota": {"delayedTopics": 9, "partitions": 500, "workers": 0, "executors": 4},
                "adopt": True,
            }
        ]
    ),
    "audits on a schedule": delayed_topic(audit={"schedule": "*/15 6-18 * * MON-FRI", "historyLimit": 3}),
    "audits on a schedule that are kept": delayed_topic(audit=NIGHTLY | {"output": {"s3": S3}}),
}

REFUSED = {
    "no delay": (delayed_topic(delaySeconds=[]), "must list 1 to 64 delays"),
    "65 delays": (delayed_topic(delaySeconds=list(range(65))), "must list 1 to 64 delays"),
    "1000 delays": (delayed_topic(delaySeconds=list(range(1000))), "must have at most 128 items"),
    "a negative delay": (
        delayed_topic(delaySeconds=[0, -1]),
        'spec.delaySeconds[1]: Invalid value: "integer": must be between 0 and 2592000',
    ),
    "more than 30 days": (delayed_topic(delaySeconds=[2_592_001]), "must be between 0 and 2592000 seconds (30 days)"),
    "a delay beyond 64 bits": (delayed_topic(delaySeconds=[2**64]), "Invalid value"),
    "0 partitions": (
        delayed_topic(partitions=0),
        'spec.partitions: Invalid value: "integer": must be between 1 and 10000',
    ),
    "-1 partitions": (delayed_topic(partitions=-1), "must be between 1 and 10000 partitions"),
    "10,001 partitions": (delayed_topic(partitions=10_001), "must be between 1 and 10000 partitions"),
    "10,001 partitions by lanes": (
        delayed_topic(delaySeconds=[0, 1, 1], lanesPerDelay=10_000),
        "must be at most 10000 partitions",
    ),
    "10,006 partitions by lanes": (
        delayed_topic(delaySeconds=[0, 1, 2, 3, 4, 5], lanesPerDelay=2001),
        "must be at most 10000 partitions",
    ),
    **{
        f"too many lanes of {preset}": (lanes_of(preset, most + 1), "must be at most 10000 partitions")
        for preset, most in MAX_LANES.items()
    },
    "lanes of neither delays nor a preset": (
        manifest("DelayedTopic", {"lanesPerDelay": 2}),
        "must have one of delaySeconds and preset, and not both",
    ),
    "neither delays nor a preset": (
        manifest("DelayedTopic", {}),
        "must have one of delaySeconds and preset, and not both",
    ),
    "delays and a preset": (
        delayed_topic(preset="RocketMQ18"),
        "must have one of delaySeconds and preset, and not both",
    ),
    "an unknown preset": (
        manifest("DelayedTopic", {"preset": "RocketMQ"}),
        "supported values: " + ", ".join(f'"{preset}"' for preset in PRESETS),
    ),
    "0 lanes": (delayed_topic(lanesPerDelay=0), "must be between 1 and 10000 partitions"),
    "a cap of -1": (delayed_topic(retryCap=-1), "must be between 0 and 1000 retries"),
    "a cap of 1,001": (delayed_topic(retryCap=1001), "must be between 0 and 1000 retries"),
    "-1 workers": (delayed_topic(workers={"replicas": -1}), "must be between 0 and 1000 workers"),
    "more workers at least than at most": (
        delayed_topic(workers={"autoscale": {"min": 4, "max": 3}}),
        "min must not be above max",
    ),
    "no worker at least": (
        delayed_topic(workers={"autoscale": {"min": 0, "max": 3}}),
        "must be between 1 and 1000 workers",
    ),
    "1,001 workers at most": (
        delayed_topic(workers={"autoscale": {"max": 1001}}),
        "must be between 1 and 1000 workers",
    ),
    "1,001 workers": (delayed_topic(workers={"replicas": 1001}), "must be between 0 and 1000 workers"),
    "0 replicas": (delayed_topic(replicationFactor=0), "must be between 1 and 100 replicas"),
    "no outage budget": (delayed_topic(outageBudgetSeconds=0), "must be between 60 and 31536000 seconds"),
    "an illegal topic": (delayed_topic(topic="orders/eu"), "must be a Kafka topic name"),
    "a topic in Arabic digits": (delayed_topic(topic="orders٣"), "must be a Kafka topic name"),
    "an empty topic": (delayed_topic(topic=""), "must be a Kafka topic name"),
    "a topic with a line break": (delayed_topic(topic="orders\n"), "must be a Kafka topic name"),
    "topic .": (delayed_topic(topic="."), "must not be '.' or '..'"),
    "topic ..": (delayed_topic(topic=".."), "must not be '.' or '..'"),
    "a topic of 242": (delayed_topic(topic="a" * 242), "must have at most 241 characters"),
    "a topic of 1,500": (delayed_topic(topic="a" * 1500), "must have at most 241 characters"),
    "a name of 242 as topic": (delayed_topic("a" * 242), "is the front topic here and must have at most 241"),
    "topic __consumer_offsets": (delayed_topic(topic="__consumer_offsets"), "must not start with '__'"),
    "the registry": (delayed_topic(topic="delayedtopics.registry"), "must not start with '__', 'delayedtopics.'"),
    "the registry as metric": (
        delayed_topic(topic="delayedtopics_registry"),
        "must not start with '__', 'delayedtopics.'",
    ),
    "the registry by name": (delayed_topic("delayedtopics.registry"), "must not start with '__', 'delayedtopics.'"),
    "somebody's delays": (delayed_topic(topic="orders.delays"), "must not end with '.delays'"),
    "somebody's ready": (delayed_topic(topic="orders.ready"), "must not end with '.delays'"),
    "somebody's dead letters by name": (delayed_topic("orders.dead"), "must not end with '.delays'"),
    "somebody's control topic by name": (delayed_topic("orders.control"), "must not end with '.delays'"),
    "another namespace's connection": (
        delayed_topic(connectionRef={"kind": "KafkaConnection", "name": "theirs", "namespace": "other"}),
        'unknown field "spec.connectionRef.namespace"',
    ),
    "another namespace's DelayedTopic": (
        manifest("DelayedTopicAudit", {"delayedTopicRef": {"name": "theirs", "namespace": "other"}}),
        'unknown field "spec.delayedTopicRef.namespace"',
    ),
    "another namespace's Secret": (
        connection("KafkaConnection", tls={"caSecretRef": {"name": "theirs", "namespace": "other"}}),
        'unknown field "spec.tls.caSecretRef.namespace"',
    ),
    "a control topic of two": (delayed_topic(control={"partitions": 2}), 'unknown field "spec.control.partitions"'),
    "a connection's bad name": (
        delayed_topic(connectionRef={"name": "A B"}),
        "must be the name of a Kubernetes object",
    ),
    "a misspelt field": (delayed_topic(delaysSeconds=[1]), 'unknown field "spec.delaysSeconds"'),
    "a misspelt field of a template": (
        delayed_topic(workers={"template": {"affinity": {"podAfinity": {}}}}),
        'unknown field "spec.workers.template.affinity.podAfinity"',
    ),
    **{
        f"a key of {field} with a space": (
            delayed_topic(workers={"template": {field: {"bad key!": "x"}}}),
            f'spec.workers.template.{field}: Invalid value: "object": must have keys of at most 63 letters',
        )
        for field in ("labels", "annotations", "nodeSelector")
    },
    "a label's key of 64": (
        delayed_topic(workers={"template": {"labels": {"x" * 64: "v"}}}),
        "must have keys of at most 63",
    ),
    "a label's key with an upper-case prefix": (
        delayed_topic(workers={"template": {"labels": {"Example.com/team": "v"}}}),
        "A DNS name and '/' may come first",
    ),
    "65 labels": (
        delayed_topic(workers={"template": {"labels": {f"l{n}": "" for n in range(65)}}}),
        "must have at most 64 labels",
    ),
    "a label's value with a space": (
        delayed_topic(workers={"template": {"labels": {"team": "a b"}}}),
        "must be the value of a label",
    ),
    "a label's value of 64": (
        delayed_topic(workers={"template": {"nodeSelector": {"team": "x" * 64}}}),
        "must have at most 63 characters",
    ),
    "an unknown codec": (delayed_topic(compression="brotli"), "supported values"),
    "an unknown guarantee": (delayed_topic(guarantee="AtMostOnce"), "supported values"),
    "unchecked certificates": (connection(tls={"insecureSkipVerify": True}), "unknown field"),
    "a grant of a namespaced connection": (connection("KafkaConnection", allow=[]), 'unknown field "spec.allow"'),
    "an audit of nothing": (manifest("DelayedTopicAudit", {}), "Required value"),
    "a schedule of four fields": (delayed_topic(audit={"schedule": "0 3 * *"}), "must be five cron fields"),
    "no finished audit kept": (delayed_topic(audit=NIGHTLY | {"historyLimit": 0}), "must be between 1 and 100"),
    "audits of a cluster connection that are kept": (
        delayed_topic(audit=NIGHTLY | {"output": {"claimName": "accounts"}}, connectionRef={}),
        "audit.output must come with a KafkaConnection",
    ),
    "an assignor of the newer protocol": (delayed_topic(rebalance={"assignor": "Uniform"}), WRONG_ASSIGNOR),
    "an assignor of the older protocol": (
        delayed_topic(rebalance={"protocol": "Consumer", "assignor": "Sticky"}),
        WRONG_ASSIGNOR,
    ),
}

EDITS = {
    "another topic": ({"topic": "orders"}, {"topic": "invoices"}, "topic must stay as it was created"),
    "a topic added": ({}, {"topic": "orders"}, "topic must stay as it was created"),
    "a topic removed": ({"topic": "orders"}, {}, "topic must stay as it was created"),
    "another connection": (
        {},
        {"connectionRef": {"kind": "KafkaConnection", "name": "b"}},
        "must stay as it was created",
    ),
    "another kind of connection": ({}, {"connectionRef": {"name": "of-nobody"}}, "must stay as it was created"),
    "a connection removed": ({}, {"connectionRef": None}, "must stay as it was created"),
}


@pytest.mark.parametrize("path", sorted(CRDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_rules_stay_within_the_budget_of_the_api_server(tenant: Tenant, path: Path) -> None:
    assert "serverside-applied" in tenant.run("apply", "--server-side", "--dry-run=server", f"--filename={path}")


@pytest.mark.parametrize("document", ACCEPTED.values(), ids=ACCEPTED)
def test_what_is_right_is_accepted_and_understood(tenant: Tenant, document: dict[str, Any]) -> None:
    accepted = tenant.dry_run(document)
    ours = to_dict(parse(document["kind"], document))
    assert to_dict(parse(document["kind"], accepted))["spec"] == ours["spec"]
    assert accepted["spec"] == {key: value for key, value in ours["spec"].items() if value != []}


def test_what_has_everything_has_every_field() -> None:
    fields = {field.alias or name for name, field in DelayedTopicSpec.model_fields.items()}
    assert fields - EVERYTHING.keys() == {"preset"}, "preset and delaySeconds exclude each other"


@pytest.mark.parametrize(("document", "says"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused_in_our_words(tenant: Tenant, document: dict[str, Any], says: str) -> None:
    with pytest.raises(CommandFailedError, match=re.escape(says)) as refused:
        tenant.dry_run(document)
    assert "evaluating rule" not in str(refused.value), "a rule fails because a field is absent"


@pytest.mark.parametrize(("before", "after", "says"), EDITS.values(), ids=EDITS)
def test_what_can_not_be_changed_stays(
    tenant: Tenant, before: dict[str, Any], after: dict[str, Any], says: str
) -> None:
    name = f"edit-{uuid4().hex[:8]}"
    tenant.apply(delayed_topic(name, **before))
    changed = delayed_topic(name, **after)
    changed["spec"] = {key: value for key, value in changed["spec"].items() if value is not None}
    with pytest.raises(CommandFailedError, match=re.escape(says)):
        tenant.dry_run(changed)
    tenant.dry_run(delayed_topic(name, **before, delaySeconds=[0, 99]))


def test_what_nobody_has_looked_at_says_so(tenant: Tenant) -> None:
    for document in (delayed_topic("fresh"), AUDIT, connection("KafkaConnection")):
        tenant.apply(document)
        name = f"{document['kind']}/{document['metadata']['name']}"
        assert tenant.run("get", name, "--output=jsonpath={.status}") == '{"observedGeneration":-1}'


def test_workers_are_scaled_by_the_usual_command_within_their_limits(tenant: Tenant) -> None:
    tenant.apply(delayed_topic("scaled"))
    tenant.run("scale", "dtopic/scaled", "--replicas=3")
    assert tenant.run("get", "dtopic/scaled", "--output=jsonpath={.spec.workers.replicas}") == "3"
    with pytest.raises(CommandFailedError, match="must be between 0 and 1000 workers"):
        tenant.run("scale", "dtopic/scaled", "--replicas=1001")


def test_short_names_and_category_find_the_resources(tenant: Tenant) -> None:
    tenant.apply(delayed_topic("found"))
    tenant.apply(AUDIT)
    assert "found" in tenant.run("get", "dtopic")
    everything = tenant.run("get", "delayed-topics", "--output=name")
    assert "delayedtopic.delayedtopics.io/found" in everything
    assert "delayedtopicaudit.delayedtopics.io/orders" in everything
    assert "found" in tenant.run("get", "delayedtopics", "found")
    header = tenant.run("get", "dtopic", "--output=wide").splitlines()[0].split()
    assert header == ["NAME", "TOPIC", "DELAYS", "WORKERS", "READY", "AGE", "PRODUCE-TO", "CONSUME-FROM", "VERDICT"]
    for short_name in ("ckconn", "kconn", "dtaudit"):
        tenant.run("get", short_name)
