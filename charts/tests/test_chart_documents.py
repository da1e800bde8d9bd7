"""What the pages tell readers to install in a cluster of their own: the images that they have pushed, and a connection to their Kafka."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from delayed_topics_devcluster.context import Cluster
from delayed_topics_devcluster.images import image_name

from checks.documents import ROOT, blocks

pytestmark = pytest.mark.api

PUSHED = "operator", "worker", "audit"


@pytest.mark.parametrize("page", ["README.md", "docs/install.md"])
def test_the_chart_as_a_page_installs_it_takes_the_images_that_the_page_pushes_and_connects_to_kafka(
    helm: Cluster, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_page = blocks(ROOT / page)
    shell = "".join(block.text for block in on_page if block.language == "bash")
    (registry,) = set(re.findall(r"^make images CONTEXT=\S+ IMAGE_REGISTRY=(\S+)$", shell, re.M))
    monkeypatch.setenv("IMAGE_REGISTRY", registry)
    (command,) = re.findall(r"^helm upgrade --install (.*)$", shell.replace("\\\n", ""), re.M)
    (values,) = (block for block in on_page if block.file == "values.yaml")
    (tmp_path / "values.yaml").write_text(values.text)
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    paths = {"values.yaml", "charts/delayed-topics"}
    words = [str(tmp_path / word) if word in paths else word for word in shlex.split(command)]

    rendered = helm.helm("template", "--kube-version", "1.34", *words)

    objects = [document for document in yaml.safe_load_all(rendered) if document]
    (operator,) = (o for o in objects if o["kind"] == "Deployment")
    (container,) = operator["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image_name("operator")
    assert [name for name in PUSHED if image_name(name) not in rendered] == []
    texts = [text for o in objects if o["kind"] == "ConfigMap" for text in o["data"].values()]
    (connection,) = (yaml.safe_load(text) for text in texts if "kind: ClusterKafkaConnection\n" in text)
    wanted = yaml.safe_load(values.text)["defaultConnection"]
    assert connection["metadata"]["name"] == "default"
    assert connection["spec"]["bootstrapServers"] == wanted["bootstrapServers"]
    assert connection["spec"]["allow"] == wanted["allow"]
