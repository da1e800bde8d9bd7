"""The NetworkPolicies select the pods of the installation, and allow the traffic that these need."""

from typing import Any

import pytest
import yaml
from delayed_topics_operator.audits.reconcile.executors import TEMPLATE_KEY
from delayed_topics_operator.values.labels import MANAGED_BY
from delayed_topics_operator_testing.audit_simulation import AuditSimulation, audit_resource
from delayed_topics_operator_testing.simulation import Simulation, resource

pytestmark = pytest.mark.api

Manifest = dict[str, Any]
ON = {"networkPolicies": {"enabled": True}, "evaluationKafka": {"enabled": True}, "tenantNamespaces": ["shop"]}


def policies(objects: list[Manifest], *namespaces: str) -> dict[str, Manifest]:
    """Returns the specs of the NetworkPolicies by name: those of `namespaces`, by default the release's and that of audits."""
    homes = namespaces or ("chart-test", "chart-test-audits")
    found = [o for o in objects if o["kind"] == "NetworkPolicy" and o["metadata"]["namespace"] in homes]
    return {policy["metadata"]["name"]: policy["spec"] for policy in found}


def ports(rules: list[Manifest], protocol: str = "TCP") -> set[Any]:
    return {port["port"] for rule in rules for port in rule.get("ports", ()) if port["protocol"] == protocol}


def selects(policy: Manifest, pod_labels: dict[str, str]) -> bool:
    selected: dict[str, str] = policy["podSelector"]["matchLabels"]
    return selected.items() <= pod_labels.items()


def test_there_is_none_unless_asked_for(render: Any) -> None:
    assert policies(render()) == {}


def test_each_pod_of_the_release_has_one_of_its_own(everything: list[list[Manifest]]) -> None:
    seen = 0
    for objects in everything:
        found = policies(objects)
        for owner in objects:
            if found and owner["kind"] in ("Deployment", "StatefulSet"):
                pod_labels = owner["spec"]["template"]["metadata"]["labels"]
                chosen = [name for name, policy in found.items() if selects(policy, pod_labels)]
                assert chosen == [owner["metadata"]["name"]]
                seen += 1
    assert seen > 16


def test_workers_and_audits_have_theirs_wherever_they_run(render: Any) -> None:
    audits = AuditSimulation(raw=audit_resource(spark={"executors": 2}))
    audits.settle()
    assert audits.job is not None
    assert audits.config_map is not None
    executor = yaml.safe_load(audits.config_map["data"][TEMPLATE_KEY])
    made = {
        "delayed-topics-worker": [worker_template()],
        "delayed-topics-audit": [audits.job["spec"]["template"], executor],
    }
    objects = render(ON)
    homes = {"delayed-topics-worker": ("chart-test", "shop"), "delayed-topics-audit": ("chart-test-audits", "shop")}
    for name, pods in made.items():
        for namespace in homes[name]:
            found = policies(objects, namespace)
            for pod in pods:
                assert [n for n, policy in found.items() if selects(policy, pod["metadata"]["labels"])] == [name]


def test_what_lets_workers_and_audits_reach_kafka_stays_when_the_chart_goes_as_they_do(render: Any) -> None:
    found = [o for o in render(ON) if o["kind"] == "NetworkPolicy"]
    kept = {
        (o["metadata"]["namespace"], o["metadata"]["name"])
        for o in found
        if o["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    }
    of_the_operators_pods = {
        (o["metadata"]["namespace"], o["metadata"]["name"])
        for o in found
        if o["spec"]["podSelector"]["matchLabels"].get("app.kubernetes.io/managed-by") == MANAGED_BY
    }
    assert kept == of_the_operators_pods
    assert len(kept) == 4


def test_every_pod_reaches_dns_and_all_but_the_evaluation_kafka_reach_kafka(render: Any) -> None:
    connection = {"bootstrapServers": ["kafka.example.com:19093", "[2001:db8::1]:9093"]}
    for name, policy in policies(render(ON, {"defaultConnection": connection})).items():
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        assert ports(policy["egress"], "UDP") == {53, 5353}
        assert (ports(policy["egress"]) >= {9092, 9093, 9094, 19093}) == (name != "delayed-topics-kafka")


def test_the_evaluation_kafka_is_reached_whatever_ports_another_has(render: Any) -> None:
    found = policies(render(ON, {"networkPolicies": {"kafkaPorts": [9098]}}))
    assert ports(found["delayed-topics-worker"]["egress"]) == {53, 5353, 9098, 9092, 9093}
    assert ports(found["delayed-topics-kafka"]["ingress"]) == {"kafka", "kafka-secure", "kafka-pod-ip"}


def test_who_talks_to_the_api_server_reaches_it_and_workers_do_not(render: Any) -> None:
    found = policies(render(ON, {"networkPolicies": {"apiServerPorts": [16443], "storagePorts": [9000]}}))
    reach = {name: {16443, 9000} & ports(policy["egress"]) for name, policy in found.items()}
    assert reach == {
        "delayed-topics-operator": {16443},
        "delayed-topics-worker": set(),
        "delayed-topics-audit": {16443, 9000},
        "delayed-topics-kafka": set(),
    }


def test_token_endpoints_are_reached_at_their_ports(render: Any) -> None:
    def reached(url: str, *ports_of_others: int) -> set[object]:
        oauth = {"tokenEndpointUrl": url, "secretRef": {"name": "client"}}
        connection = {"bootstrapServers": ["k:9093"], "tls": {}, "sasl": {"mechanism": "OAUTHBEARER", "oauth": oauth}}
        values = {"defaultConnection": connection, "networkPolicies": {"tokenEndpointPorts": list(ports_of_others)}}
        return set(ports(policies(render(ON, values))["delayed-topics-worker"]["egress"])) - {
            53,
            5353,
            9092,
            9093,
            9094,
        }

    assert reached("https://login.example.com/token") == {443}
    assert reached("https://login.example.com:8443/token", 9443) == {8443, 9443}
    assert reached("https://10.0.0.5/token") == {443}
    assert reached("https://login1/") == {443}
    assert reached("https://[::1]:8443/token") == {8443}
    assert reached("https://[2001:db8::1]/token") == {443}


def test_metrics_are_for_those_who_may_scrape_and_audits_talk_among_themselves(render: Any) -> None:
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    found = policies(render(ON, {"networkPolicies": {"scrapers": [monitoring]}}))
    for name in ("delayed-topics-operator", "delayed-topics-worker"):
        assert found[name]["ingress"] == [{"ports": [{"protocol": "TCP", "port": "http"}], "from": [monitoring]}]
    audits = found["delayed-topics-audit"]
    assert audits["ingress"] == [{"from": [{"podSelector": audits["podSelector"]}]}]
    assert {"to": [{"podSelector": audits["podSelector"]}]} in audits["egress"]
    assert policies(render(ON))["delayed-topics-worker"]["ingress"] == [
        {"ports": [{"protocol": "TCP", "port": "http"}]}
    ]


def test_the_port_for_metrics_has_the_name_that_policies_use(render: Any) -> None:
    (deployment,) = [o for o in render() if o["kind"] == "Deployment"]
    for template in (deployment["spec"]["template"], worker_template()):
        names = [port["name"] for container in template["spec"]["containers"] for port in container["ports"]]
        assert names == ["http"]


def worker_template() -> Manifest:
    simulation = Simulation(raw=resource())
    simulation.settle()
    (workers,) = [child for (kind, _), child in simulation.children.items() if kind == "StatefulSet"]
    template: Manifest = workers["spec"]["template"]
    return template
