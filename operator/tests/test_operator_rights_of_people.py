"""The usual roles edit and view of a namespace give people the rights that commands of kubectl need, and no others."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from delayed_topics_devcluster.errors import CommandFailedError
from delayed_topics_operator.gateways.kube import APIS
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.needs import PEOPLE
from delayed_topics_operator_testing.rights import Grant, without

pytestmark = [pytest.mark.api, pytest.mark.slow]

NAMESPACE = "people"
SPECS: Mapping[str, dict[str, Any]] = {
    "DelayedTopic": {"delaySeconds": [0, 10], "workers": {"replicas": 1}},
    "DelayedTopicAudit": {"delayedTopicRef": {"name": "orders"}},
    "KafkaConnection": {"bootstrapServers": ["127.0.0.1:1"]},
}


@pytest.fixture(scope="module")
def kubeconfigs(api: KubeApi) -> Mapping[str, Path]:
    """Returns the kubeconfigs of a developer with the role edit and of one with the role view."""
    api.kubectl("create", "namespace", NAMESPACE)
    for role in ("edit", "view"):
        api.kubectl("create", "serviceaccount", role, f"--namespace={NAMESPACE}")
        account = f"--serviceaccount={NAMESPACE}:{role}"
        api.kubectl("create", "rolebinding", role, f"--clusterrole={role}", account, f"--namespace={NAMESPACE}")
    return {role: api.server.kubeconfig_of(NAMESPACE, role) for role in ("edit", "view")}


def command(right: str, plural: str, name: str, file: Path) -> tuple[str | Path, ...]:
    """Returns a command of kubectl that needs this right."""
    kind = next(kind for kind, api in APIS.items() if api.plural == plural)
    match right:
        case "get":
            return "get", plural, name
        case "list":
            return "get", plural
        case "watch":
            return "get", "--raw", f"{APIS[kind].path(NAMESPACE)}?watch=true&timeoutSeconds=1"
        case "create":
            return "create", "-f", file
        case "update":
            return "replace", "-f", file
        case "patch":
            return "annotate", plural, name, "reviewed-by=me"
        case "delete":
            return "delete", plural, name, "--wait=false"
        case "deletecollection":
            return "delete", "--raw", APIS[kind].path(NAMESPACE)
        case "get scale":
            return "get", plural, name, "--subresource=scale"
        case "patch scale":
            return "scale", plural, name, "--replicas=2"
        case "update scale":
            return "scale", plural, name, "--current-replicas=1", "--replicas=2"
    raise AssertionError(f"nobody has said what people need the right to {right} for")


@pytest.mark.parametrize("grant", [pytest.param(grant, id=str(grant)) for grant in PEOPLE])
def test_a_right_of_people_is_missed_when_it_is_taken_away(
    api: KubeApi, kubeconfigs: Mapping[str, Path], grant: Grant, tmp_path: Path
) -> None:
    right = grant.right
    plural, _, subresource = right.resource.partition("/")
    kind = next(kind for kind, found in APIS.items() if found.plural == plural)
    name = f"{grant.role}-{plural}-{right.verb}"
    manifest = {"apiVersion": "delayedtopics.io/v1alpha1", "kind": kind, "spec": SPECS[kind]}
    manifest["metadata"] = {"name": name, "namespace": NAMESPACE}
    (file := tmp_path / "manifest.json").write_text(json.dumps(manifest))
    if right.verb != "create":
        api.apply(manifest)
    asked = command(" ".join(part for part in (right.verb, subresource) if part), plural, name, file)
    kubectl = ("--kubeconfig", kubeconfigs[grant.role], "--namespace", NAMESPACE, *asked)

    user = f"system:serviceaccount:{NAMESPACE}:{grant.role}"
    refusal = f'cannot {right.verb} resource "{right.resource}"'
    with without(api.server, grant, user=user, namespace=NAMESPACE), pytest.raises(CommandFailedError, match=refusal):
        api.server.kubectl(*kubectl)
    api.server.kubectl(*kubectl)
