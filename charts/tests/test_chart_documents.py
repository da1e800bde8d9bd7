"""The pages' commands for a reader's own cluster install the images that the reader has pushed, and a connection to the reader's
Kafka."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from delayed_topics_devcluster.context import Cluster
from delayed_topics_devcluster.images import chart_values

from checks.documents import ROOT, blocks

pytestmark = pytest.mark.api

PUSHED = "operator", "worker", "audit"


@pytest.mark.parametrize("page", ["README.md", "docs/install.md"])
def test_the_chart_as_a_page_installs_it_takes_the_images_that_the_page_pushes_and_connects_to_kafka(
    helm: Cluster, page: str, tmp_path: Path
) -> None:
    on_page = blocks(ROOT / page)
    shell = "".join(block.text for block in on_page if block.language == "bash")
    (registry,) = set(re.findall(r"^make images CONTEXT=\S+ IMAGE_REGISTRY=(\S+)$", shell, re.M))
    (command,) = re.findall(r"^helm upgrade --install (.*)$", shell.replace("\\\n", ""), re.M)
    (values,) = (block for block in on_page if block.file == "values.yaml")
    (tmp_path / "values.yaml").write_text(values.text)
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    (tmp_path / "build").mkdir()
    paths = {"build/images.yaml", "values.yaml", "charts/delayed-topics"}
    words = [str(tmp_path / word) if word in paths else word for word in shlex.split(command)]

    def installed(build: str) -> list[dict[str, Any]]:
        """Renders the chart with the values that `make images` writes after it has pushed this build."""
        names = {name: f"{registry}/{name}:{build}" for name in PUSHED}
        (tmp_path / "build" / "images.yaml").write_text(chart_values(names))
        rendered = helm.helm("template", "--kube-version", "1.34", *words)
        assert [name for name in names.values() if name not in rendered] == []
        return [document for document in yaml.safe_load_all(rendered) if document]

    def operator_pod(objects: list[dict[str, Any]]) -> dict[str, Any]:
        (operator,) = (o for o in objects if o["kind"] == "Deployment")
        pod: dict[str, Any] = operator["spec"]["template"]
        return pod

    objects = installed("1111")
    assert operator_pod(objects)["spec"]["containers"][0]["image"] == f"{registry}/operator:1111"
    assert operator_pod(installed("2222")) != operator_pod(objects)
    texts = [text for o in objects if o["kind"] == "ConfigMap" for text in o["data"].values()]
    (connection,) = (yaml.safe_load(text) for text in texts if "kind: ClusterKafkaConnection\n" in text)
    wanted = yaml.safe_load(values.text)["defaultConnection"]
    assert connection["metadata"]["name"] == "default"
    assert connection["spec"]["bootstrapServers"] == wanted["bootstrapServers"]
    assert connection["spec"]["allow"] == wanted["allow"]
