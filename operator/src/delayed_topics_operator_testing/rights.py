"""The rights that the chart grants, on a real API server: all of them for operators as processes, and revoked one at a time."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import yaml
from delayed_topics_devcluster.api_server import ApiServer
from delayed_topics_devcluster.audit_log import Right
from delayed_topics_devcluster.paths import REPOSITORY
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_operator.engine.lease import LEASE
from delayed_topics_operator.values.manifest import Manifest

from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE

CHART = REPOSITORY / "charts" / "delayed-topics"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = {"ClusterRole": "clusterroles", "Role": "roles"}
RIGHTS = ("Namespace", "ServiceAccount", *ROLES, "ClusterRoleBinding", "RoleBinding")
OPERATOR = f"system:serviceaccount:{SYSTEM_NAMESPACE}:delayed-topics-operator"


class Grant(NamedTuple):
    """A verb of a rule of one of the chart's roles. `role`: its name, without what depends on the release."""

    role: str
    right: Right

    def __str__(self) -> str:
        return f"{self.role}: {self.right.verb} {self.right.resource}"


def rights_of_the_chart(
    server: ApiServer, *, namespace: str = SYSTEM_NAMESPACE, tenants: Sequence[str] = ()
) -> list[Manifest]:
    """Returns the objects that give rights to a release of the chart in `namespace`. `tenants`: namespaces that admit it."""
    file = server.folder / "values.json"
    audits = {"executors": {"enabled": True}, "sparkApplications": {"enabled": True}}
    values = {"tenantNamespaces": list(tenants), "crds": {"install": False}, "audits": audits}
    file.write_text(json.dumps(values))
    printed = server.helm("template", "delayed-topics", CHART, "--namespace", namespace, "--values", file)
    return [found for found in yaml.load_all(printed, Loader=yaml.CSafeLoader) if found and found["kind"] in RIGHTS]


def give_the_rights_of_the_chart(
    server: ApiServer, *, namespace: str = SYSTEM_NAMESPACE, tenants: Sequence[str] = ()
) -> Path:
    """Grants the rights, also to an operator that is running. Returns the kubeconfig of an operator in `namespace`, with no other
    rights."""
    objects = rights_of_the_chart(server, namespace=namespace, tenants=tenants)
    server.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text_in=yaml.safe_dump_all(objects))
    return server.kubeconfig_of(namespace, "delayed-topics-operator")


def take_the_rights_of_the_chart(server: ApiServer, *, namespace: str) -> None:
    """Revokes all rights of a release in `namespace`. Namespaces stay."""
    given = [found for found in rights_of_the_chart(server, namespace=namespace) if found["kind"] != "Namespace"]
    server.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", text_in=yaml.safe_dump_all(given))


def granted(roles: Sequence[Manifest]) -> set[Grant]:
    """Returns what all rules of these roles grant."""
    return {
        Grant(short_name(role["metadata"]["name"]), Right(group, resource, verb))
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def short_name(role: str) -> str:
    return role.rpartition(":")[2].removeprefix("delayed-topics-")


@contextmanager
def without(server: ApiServer, grant: Grant, *, user: str, namespace: str) -> Iterator[None]:
    """Revokes this verb of the role, so that `user` can't use it in `namespace`, and restores it afterwards."""
    roles = [found for found in rights_of_the_chart(server) if found["kind"] in ROLES]
    (role,) = (found for found in roles if short_name(found["metadata"]["name"]) == grant.role)
    _put(server, {**role, "rules": list(_rules_without(role, grant.right))})
    try:
        _wait_until_allowed(server, grant.right, user, namespace, allowed=False)
        yield
    finally:
        _put(server, role)
        _wait_until_allowed(server, grant.right, user, namespace, allowed=True)


def _rules_without(role: Manifest, taken: Right) -> Iterator[Manifest]:
    for rule in role["rules"]:
        for _, right in granted([{**role, "rules": [rule]}]):
            if right != taken:
                yield {**rule, "apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]}


def _put(server: ApiServer, role: Manifest) -> None:
    meta = role["metadata"]
    scope = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    path = f"{RBAC}{scope}/{ROLES[role['kind']]}/{meta['name']}?fieldManager=kubectl&force=true"
    server.call("PATCH", path, role, content_type="application/apply-patch+yaml")


def _wait_until_allowed(server: ApiServer, right: Right, user: str, namespace: str, *, allowed: bool) -> None:
    resource, _, subresource = right.resource.partition("/")
    asked = {
        "namespace": namespace, "verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource,
        "name": LEASE if resource == "leases" and right.verb != "create" else "",
    }  # fmt: skip
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": asked},
    }

    def answered() -> bool:
        answer = server.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"]) == allowed

    wait_until(answered, what=f"{user} may {right.verb} {right.resource} in {namespace}: {allowed}")
