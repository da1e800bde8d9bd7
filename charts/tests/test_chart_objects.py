"""The objects that are installed, over all combinations of flags: rights, pods, and the default connection."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from delayed_topics_crds import parse
from delayed_topics_devcluster.errors import CommandFailedError
from delayed_topics_operator.cli import main

pytestmark = pytest.mark.api

Manifest = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
PRODUCTION_SERVERS = ["kafka-0.example.com:9093", "[2001:db8::1]:9093"]


def of_kind(objects: list[Manifest], kind: str) -> list[Manifest]:
    return [found for found in objects if found["kind"] == kind]


def default_connection(objects: list[Manifest]) -> Manifest | None:
    for found in of_kind(objects, "ConfigMap"):
        if "connection.yaml" in found["data"]:
            connection: Manifest = yaml.safe_load(found["data"]["connection.yaml"])
            return connection
    return None


def operator_arguments(objects: list[Manifest]) -> list[str]:
    (deployment,) = of_kind(objects, "Deployment")
    arguments: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return arguments


def pod_specs(objects: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    for found in objects:
        if found["kind"] in ("Deployment", "StatefulSet"):
            yield found["metadata"]["name"], found["spec"]["template"]["spec"]


def rules_bound_everywhere(objects: list[Manifest]) -> list[Manifest]:
    names = {binding["roleRef"]["name"] for binding in of_kind(objects, "ClusterRoleBinding")}
    return [
        rule for role in of_kind(objects, "ClusterRole") if role["metadata"]["name"] in names for rule in role["rules"]
    ]


def test_no_right_is_a_wildcard_or_a_way_to_more(everything: list[list[Manifest]]) -> None:
    for objects in everything:
        for role in (*of_kind(objects, "ClusterRole"), *of_kind(objects, "Role")):
            for rule in role["rules"]:
                assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
                assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
                assert not {"pods/exec", "serviceaccounts/token", "roles", "clusterroles"} & set(rule["resources"])


def test_secrets_and_pods_are_out_of_reach_but_where_workers_are(everything: list[list[Manifest]]) -> None:
    for objects in everything:
        reach = {resource for rule in rules_bound_everywhere(objects) for resource in rule["resources"]}
        assert "delayedtopics/status" in reach
        assert not {"secrets", "configmaps", "pods", "statefulsets", "services", "jobs"} & reach


def test_secrets_are_read_by_name_only(everything: list[list[Manifest]]) -> None:
    for objects in everything:
        rules = [rule for role in of_kind(objects, "ClusterRole") for rule in role["rules"]]
        verbs = [set(rule["verbs"]) for rule in rules if "secrets" in rule["resources"]]
        assert verbs == [{"get", "create", "patch", "delete"}] * 2


def test_the_operator_may_work_in_its_namespace_and_in_the_tenants(render: Any) -> None:
    bound = bound_to(render({"tenantNamespaces": ["shop", "bank"]}), "chart-test:delayed-topics-operator-namespace")
    assert bound == {"chart-test": "chart-test", "shop": "chart-test", "bank": "chart-test"}


def test_what_the_chart_makes_in_a_tenants_namespace_can_be_had_without_the_rest(render: Any) -> None:
    flags = {"audits": {"executors": {"enabled": True}}, "networkPolicies": {"enabled": True}}
    every = render({"tenantNamespaces": ["shop"]}, flags)
    alone = render({"tenantNamespaces": ["shop"]}, flags, only="tenant-namespaces.yaml")
    assert alone == [found for found in every if found["metadata"].get("namespace") == "shop"]
    assert len(alone) == 7
    known_by_label = {"tenantNamespaceSelector": {"matchLabels": {"delayed-topics": "own"}}}
    without = render(known_by_label, flags)
    assert {found["metadata"].get("namespace") for found in without} == {None, "chart-test", "chart-test-audits"}
    assert '--tenant-selector={"matchLabels":{"delayed-topics":"own"}}' in operator_arguments(without)
    assert not any(argument.startswith("--tenant-selector") for argument in operator_arguments(render()))


def test_jobs_and_pods_are_where_audits_are_and_not_beside_the_operators_secrets(render: Any) -> None:
    objects = render({"tenantNamespaces": ["shop"], "audits": {"executors": {"enabled": True}}})
    bound = bound_to(objects, "chart-test:delayed-topics-audits")
    assert bound == {"chart-test-audits": "chart-test", "shop": "chart-test"}
    (namespace,) = of_kind(objects, "Namespace")
    assert namespace["metadata"]["name"] == "chart-test-audits"
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert "--audit-namespace=chart-test-audits" in operator_arguments(objects)
    elsewhere = render({"audits": {"namespace": "accounts", "createNamespace": False}})
    assert set(bound_to(elsewhere, "chart-test:delayed-topics-audits")) == {"accounts"}
    assert of_kind(elsewhere, "Namespace") == []
    for taken in ("chart-test", "shop"):
        with pytest.raises(CommandFailedError, match=r"audits\.namespace must be a namespace of its own"):
            render({"tenantNamespaces": ["shop"], "audits": {"namespace": taken}})


def test_whoever_may_make_pods_may_do_nothing_else_and_is_only_there_when_asked_for(render: Any) -> None:
    tenants = {"tenantNamespaces": ["shop", "bank"]}
    assert makers_of_pods(render(tenants)) == set()
    objects = render(tenants, {"audits": {"executors": {"enabled": True}}})
    makers = {
        f"system:serviceaccount:{home}:delayed-topics-audit-driver" for home in ("chart-test-audits", "shop", "bank")
    }
    assert makers_of_pods(objects) == makers
    drivers = [role for role in of_kind(objects, "Role") if role["metadata"]["name"] == "delayed-topics-audit-driver"]
    assert len(drivers) == len(makers)
    for role in drivers:
        (rule,) = role["rules"]
        assert (rule["apiGroups"], rule["resources"]) == ([""], ["pods"])
        assert set(rule["verbs"]) == {"create", "get", "list", "watch", "delete", "deletecollection"}


def bound_to(objects: list[Manifest], cluster_role: str) -> dict[str, str]:
    """Returns the namespaces in which the ClusterRole is bound, each with the namespace of the account that it is bound to."""
    return {
        binding["metadata"]["namespace"]: binding["subjects"][0]["namespace"]
        for binding in of_kind(objects, "RoleBinding")
        if binding["roleRef"] == {**binding["roleRef"], "kind": "ClusterRole", "name": cluster_role}
    }


def makers_of_pods(objects: list[Manifest]) -> set[str]:
    """Returns the service accounts to which any binding gives the right to create pods."""
    roles = {
        (role["kind"], role["metadata"].get("namespace"), role["metadata"]["name"])
        for role in (*of_kind(objects, "Role"), *of_kind(objects, "ClusterRole"))
        for rule in role["rules"]
        if "pods" in rule["resources"] and "create" in rule["verbs"]
    }
    makers = set()
    for binding in (*of_kind(objects, "RoleBinding"), *of_kind(objects, "ClusterRoleBinding")):
        reference = binding["roleRef"]
        home = binding["metadata"].get("namespace") if reference["kind"] == "Role" else None
        if (reference["kind"], home, reference["name"]) in roles:
            makers |= {f"system:serviceaccount:{s['namespace']}:{s['name']}" for s in binding["subjects"]}
    return makers


def test_people_with_the_usual_roles_may_edit_and_see_resources(render: Any) -> None:
    roles = {role["metadata"]["name"]: role for role in of_kind(render(), "ClusterRole")}
    aggregation = "rbac.authorization.k8s.io/aggregate-to-"
    assert roles["chart-test:delayed-topics-edit"]["metadata"]["labels"][aggregation + "edit"] == "true"
    assert roles["chart-test:delayed-topics-view"]["metadata"]["labels"][aggregation + "view"] == "true"
    for role in ("chart-test:delayed-topics-edit", "chart-test:delayed-topics-view"):
        reach = {resource for rule in roles[role]["rules"] for resource in rule["resources"]}
        assert not {"clusterkafkaconnections", "secrets"} & reach
    editable = [rule for rule in roles["chart-test:delayed-topics-edit"]["rules"] if "create" in rule["verbs"]]
    assert not any("status" in resource for rule in editable for resource in rule["resources"])


def test_every_pod_is_restricted_and_writes_only_to_volumes(everything: list[list[Manifest]]) -> None:
    for objects in everything:
        for name, pod in pod_specs(objects):
            assert pod["securityContext"]["runAsNonRoot"] is True, name
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
            assert not any("hostPath" in volume for volume in pod["volumes"]), name
            for container in pod["containers"]:
                context = container["securityContext"]
                assert context["allowPrivilegeEscalation"] is False, name
                assert context["readOnlyRootFilesystem"] is True, name
                assert context["capabilities"] == {"drop": ["ALL"]}, name
                assert container["resources"]["limits"]["memory"], name
                assert container["resources"]["requests"]["cpu"], name


def test_no_pod_asks_for_a_user_or_group_where_the_cluster_chooses_them(everything: list[list[Manifest]]) -> None:
    chosen = set()
    for objects in everything:
        given = [a for a in operator_arguments(objects) if a.startswith("--audit-fs-group=")]
        for name, pod in pod_specs(objects):
            context = pod["securityContext"]
            assert not {"runAsUser", "runAsGroup", "supplementalGroups"} & context.keys(), name
            assert not any("runAsUser" in container["securityContext"] for container in pod["containers"]), name
            assert given or "fsGroup" not in context, name
        chosen.add(tuple(given))
    assert chosen == {(), ("--audit-fs-group=10001",)}


def test_the_volume_of_the_evaluation_kafka_belongs_to_its_group(render: Any) -> None:
    persistent = {"enabled": True, "persistence": {"enabled": True}}
    for group, expected in (({}, 10001), ({"fsGroup": 2000}, 2000), ({"fsGroup": None}, None)):
        pods = dict(pod_specs(render({"evaluationKafka": persistent}, group)))
        assert pods["delayed-topics-kafka"]["securityContext"].get("fsGroup") == expected


@pytest.mark.parametrize("image", ["operator", "worker", "audit", "kafka"])
def test_an_image_runs_as_a_user_by_number_who_is_not_root(image: str) -> None:
    # The pods don't set runAsUser, and with runAsNonRoot a kubelet refuses an image whose user is a name.
    users = re.findall(r"^USER (.+)$", (ROOT / "images" / image / "Dockerfile").read_text(), re.MULTILINE)
    assert users == ["10001:10001"]


def test_service_accounts_are_annotated_as_told(render: Any) -> None:
    parts = ("operator", "worker", "audit")
    values = {"serviceAccounts": {part: {"annotations": {"cloud/role": f"{part}s"}} for part in parts}}
    executors = {"audits": {"executors": {"enabled": True}}, "tenantNamespaces": ["shop"]}
    accounts = of_kind(render(values, executors), "ServiceAccount")
    found = {(a["metadata"]["namespace"], a["metadata"]["name"]): a["metadata"]["annotations"] for a in accounts}
    assert found == {
        ("chart-test", "delayed-topics-operator"): {"cloud/role": "operators"},
        ("chart-test", "delayed-topics-worker"): {"helm.sh/resource-policy": "keep", "cloud/role": "workers"},
        ("chart-test-audits", "delayed-topics-audit"): {"cloud/role": "audits"},
        ("chart-test-audits", "delayed-topics-audit-driver"): {"cloud/role": "audits"},
        ("shop", "delayed-topics-audit-driver"): {"cloud/role": "audits"},
    }


def test_what_the_operator_logs_how_often_it_compares_and_how_much_it_holds_is_by_value(render: Any) -> None:
    by_default = {"--log-level=INFO", "--resync-seconds=30", "--registry-mebibytes=8"}
    assert by_default <= set(operator_arguments(render()))
    objects = render({"operator": {"logLevel": "DEBUG", "resyncSeconds": 3600, "registryMebibytes": 64}})
    assert {"--log-level=DEBUG", "--resync-seconds=3600", "--registry-mebibytes=64"} <= set(operator_arguments(objects))


def test_the_operator_is_told_what_every_pod_that_it_makes_has(render: Any) -> None:
    objects = render({"pods": {"labels": {"team": "a"}, "annotations": {"x/y": '{"a": "b=c"}', "z": ""}}})
    arguments = operator_arguments(objects)
    assert [a for a in arguments if a.startswith("--pod-")] == [
        "--pod-label=team=a",
        '--pod-annotation=x/y={"a": "b=c"}',
        "--pod-annotation=z=",
        '--pod-defaults={"nodeSelector":{},"tolerations":[]}',
    ]


def test_the_operator_knows_every_argument(everything: list[list[Manifest]]) -> None:
    known = {option for parameter in main.commands["run"].params for option in parameter.opts}
    for objects in everything:
        assert {argument.partition("=")[0] for argument in operator_arguments(objects)[1:]} <= known


def test_only_the_operator_has_a_token(everything: list[list[Manifest]]) -> None:
    for objects in everything:
        tokens = {name: pod["automountServiceAccountToken"] for name, pod in pod_specs(objects)}
        assert tokens.pop("delayed-topics-operator") is True
        assert not any(tokens.values())
        assert {account["automountServiceAccountToken"] for account in of_kind(objects, "ServiceAccount")} == {False}


def test_no_secret_is_in_an_environment_or_an_argument(everything: list[list[Manifest]]) -> None:
    for objects in everything:
        elsewhere = json.dumps([found for found in objects if found["kind"] != "Secret"])
        assert "secretKeyRef" not in elsewhere
        assert "envFrom" not in elsewhere
        for secret in of_kind(objects, "Secret"):
            for key in ("password", "tls.key"):
                if key in secret["data"]:
                    assert secret["data"][key] not in elsewhere


def test_images_are_by_value_with_the_chart_version_as_default(render: Any) -> None:
    images = {
        name: {"repository": f"registry.example.com/{name}", "tag": f"v-{name}"}
        for name in ("operator", "worker", "audit", "kafka")
    }
    objects = render({"images": images | {"pullPolicy": "Never"}, "evaluationKafka": {"enabled": True}})
    used = {name: pod["containers"][0]["image"] for name, pod in pod_specs(objects)}
    assert used == {
        "delayed-topics-operator": "registry.example.com/operator:v-operator",
        "delayed-topics-kafka": "registry.example.com/kafka:v-kafka",
    }
    assert {pod["containers"][0]["imagePullPolicy"] for _, pod in pod_specs(objects)} == {"Never"}
    arguments = operator_arguments(objects)
    assert "--worker-image=registry.example.com/worker:v-worker" in arguments
    assert "--audit-image=registry.example.com/audit:v-audit" in arguments
    assert "--image-pull-policy=Never" in arguments
    assert "--worker-image=delayed-topics/worker:0.1.0" in operator_arguments(render())


def test_an_image_is_pulled_by_its_digest_where_there_is_one(render: Any) -> None:
    digests = {name: {"digest": f"sha256:{number:064x}"} for number, name in enumerate(("operator", "audit"))}
    objects = render({"images": digests})
    used = {name: pod["containers"][0]["image"] for name, pod in pod_specs(objects)}
    assert used["delayed-topics-operator"] == f"delayed-topics/operator:0.1.0@sha256:{0:064x}"
    arguments = operator_arguments(objects)
    assert f"--audit-image=delayed-topics/audit:0.1.0@sha256:{1:064x}" in arguments
    assert "--worker-image=delayed-topics/worker:0.1.0" in arguments


def test_definitions_come_on_demand_and_stay_when_the_chart_goes(render: Any) -> None:
    definitions = of_kind(render(), "CustomResourceDefinition")
    assert len(definitions) == 4
    for definition in definitions:
        assert definition["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert of_kind(render({"crds": {"install": False}}), "CustomResourceDefinition") == []


def test_the_default_connection_is_one_whenever_it_is_known_where_kafka_is(everything: list[list[Manifest]]) -> None:
    connected = 0
    for objects in everything:
        connection = default_connection(objects)
        arguments = operator_arguments(objects)
        assert ("--default-connection=/etc/delayed-topics/connection.yaml" in arguments) == (connection is not None)
        if connection is not None:
            connected += 1
            parse("ClusterKafkaConnection", connection)
    # It is enabled in half of the combinations; a quarter of these have neither the evaluation Kafka nor another one.
    assert connected == len(everything) // 2 * 3 // 4


def test_with_the_evaluation_kafka_everybody_may_use_it(render: Any) -> None:
    connection = default_connection(render({"evaluationKafka": {"enabled": True}}))
    assert connection is not None
    assert connection["spec"] == {
        "bootstrapServers": ["delayed-topics-kafka.chart-test.svc:9092"],
        "allow": [{"namespaceSelector": {}, "topicPrefixes": [""], "readyTopicPrefixes": [""]}],
    }


def test_the_default_connection_can_take_the_secure_way(render: Any) -> None:
    listener = {"enabled": True, "forDefaultConnection": True, "users": ["delays", "shop"]}
    objects = render({"evaluationKafka": {"enabled": True, "secureListener": listener}})
    connection = default_connection(objects)
    assert connection is not None
    assert connection["spec"]["bootstrapServers"] == ["delayed-topics-kafka.chart-test.svc:9093"]
    assert connection["spec"]["tls"] == {"caSecretRef": {"name": "delayed-topics-kafka-tls"}}
    assert connection["spec"]["sasl"] == {"secretRef": {"name": "delayed-topics-kafka-user-delays"}}
    secrets = {secret["metadata"]["name"]: set(secret["data"]) for secret in of_kind(objects, "Secret")}
    assert secrets == {
        "delayed-topics-kafka-tls": {"ca.crt", "tls.crt", "tls.key"},
        "delayed-topics-kafka-user-delays": {"ca.crt", "username", "password"},
        "delayed-topics-kafka-user-shop": {"ca.crt", "username", "password"},
    }


@pytest.mark.parametrize("persistent", [False, True])
def test_passwords_outlive_the_release_if_the_storage_that_knows_them_does(render: Any, persistent: bool) -> None:
    kafka = {"enabled": True, "persistence": {"enabled": persistent}, "secureListener": {"enabled": True}}
    secrets = of_kind(render({"evaluationKafka": kafka}), "Secret")
    kept = [s["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep" for s in secrets]
    assert kept == [persistent] * 2


@pytest.mark.parametrize("evaluation", [False, True])
def test_an_own_kafka_is_used_as_given_and_by_nobody_unless_allowed(render: Any, evaluation: bool) -> None:
    own = {"bootstrapServers": PRODUCTION_SERVERS, "tls": {}, "brokerSkewMs": 0, "sharedWorkers": {}}
    connection = default_connection(render({"defaultConnection": own, "evaluationKafka": {"enabled": evaluation}}))
    assert connection is not None
    assert connection["spec"] == own


def test_a_changed_connection_is_a_new_start_of_the_operator(render: Any) -> None:
    def annotations(skew: int) -> Manifest:
        own = {"bootstrapServers": PRODUCTION_SERVERS, "brokerSkewMs": skew}
        (deployment,) = of_kind(render({"defaultConnection": own}), "Deployment")
        found: Manifest = deployment["spec"]["template"]["metadata"]["annotations"]
        return found

    assert annotations(1) == annotations(1)
    assert annotations(1) != annotations(2)


def test_selectors_never_change_with_a_version(everything: list[list[Manifest]]) -> None:
    for objects in everything:
        for found in (*of_kind(objects, "Deployment"), *of_kind(objects, "StatefulSet")):
            selected = found["spec"]["selector"]["matchLabels"]
            assert set(selected) == {
                "app.kubernetes.io/name",
                "app.kubernetes.io/instance",
                "app.kubernetes.io/component",
            }
            assert selected.items() <= found["spec"]["template"]["metadata"]["labels"].items()
            assert "helm.sh/chart" not in found["spec"]["template"]["metadata"]["labels"]


def test_a_release_by_another_name_keeps_apart(render: Any) -> None:
    objects = render({"evaluationKafka": {"enabled": True}, "crds": {"install": False}}, release="dt")
    names = {found["metadata"]["name"].removeprefix("chart-test:") for found in objects}
    assert {name for name in names if not name.startswith("dt-delayed-topics")} == {
        "delayed-topics-worker",
        "delayed-topics-audit",
        "chart-test-audits",
    }
    connection = default_connection(objects)
    assert connection is not None
    assert connection["spec"]["bootstrapServers"] == ["dt-delayed-topics-kafka.chart-test.svc:9092"]


def test_releases_in_two_namespaces_share_nothing_but_the_definitions(render: Any) -> None:
    for found in render({"crds": {"install": False}}):
        metadata = found["metadata"]
        namespace = metadata["name"] if found["kind"] == "Namespace" else metadata.get("namespace")
        of_this = namespace in ("chart-test", "chart-test-audits") or metadata["name"].startswith("chart-test:")
        assert of_this, metadata["name"]
