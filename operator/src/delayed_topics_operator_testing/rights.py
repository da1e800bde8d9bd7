"""An operator that has the rights that the chart gives it, and no others."""

import json
from collections.abc import Sequence

import yaml
from delayed_topics_devcluster.paths import REPOSITORY

from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE, OperatorProcess
from delayed_topics_operator_testing.scene import Scene

CHART = REPOSITORY / "charts" / "delayed-topics"
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def with_the_rights_of_the_chart(scene: Scene, tenants: Sequence[str] = (), *arguments: str) -> None:
    """The scene's operator is another from now on. `tenants`: namespaces that let it in."""
    give_the_rights_of_the_chart(scene, tenants)
    kubeconfig = scene.api.server.kubeconfig_of(SYSTEM_NAMESPACE, "delayed-topics-operator")
    flags = (f"--tenant-namespace={tenant}" for tenant in tenants)
    scene.operator.stop()
    scene.operator = OperatorProcess(scene.api, "--resync-seconds=3", *flags, *arguments, kubeconfig=kubeconfig)
    scene.operator.start()


def give_the_rights_of_the_chart(scene: Scene, tenants: Sequence[str]) -> None:
    """Also to an operator that runs already."""
    server = scene.api.server
    values = {"tenantNamespaces": list(tenants), "crds": {"install": False}, "audits": {"createNamespace": False}}
    file = server.folder / "values.json"
    file.write_text(json.dumps(values))
    printed = server.helm("template", "delayed-topics", CHART, "--namespace", SYSTEM_NAMESPACE, "--values", file)
    objects = [found for found in yaml.safe_load_all(printed) if found and found["kind"] in RIGHTS]
    server.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text_in=yaml.safe_dump_all(objects))
