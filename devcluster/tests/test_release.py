"""A release is pushed by one command, pulled by digest, and says what is in it."""

import http.client
import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from delayed_topics_devcluster.binaries import binaries
from delayed_topics_devcluster.images import IMAGES
from delayed_topics_devcluster.packages import program_of
from delayed_topics_devcluster.paths import REPOSITORY
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_devcluster.processes import listens, start_detached
from delayed_topics_devcluster.release import chart_version, pack_chart
from delayed_topics_devcluster.waiting import wait_until

DIGESTS = {name: "sha256:" + f"{number:064x}" for number, name in enumerate(IMAGES)}


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """A registry process of this test's own, without TLS."""
    [port] = free_ports(1)
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    (tmp_path / "registry.yml").write_text(yaml.safe_dump(config))
    log = tmp_path / "registry.log"
    program = program_of("docker-registry", "docker-registry")
    process = start_detached([str(program), "serve", str(tmp_path / "registry.yml")], log=log)
    try:
        wait_until(
            lambda: listens(process, "127.0.0.1", port, name="the registry", log=log),
            what="the registry listens",
            timeout_seconds=60,
        )
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()


def fetch_json(registry: str, path: str) -> dict[str, Any]:
    host, port = registry.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    kinds = ("manifest", "index")
    connection.request(
        "GET", path, headers={"Accept": ",".join(f"application/vnd.oci.image.{k}.v1+json" for k in kinds)}
    )
    answer = connection.getresponse()
    content = answer.read()
    assert answer.status == 200, (path, content)
    found: dict[str, Any] = json.loads(content)
    return found


def test_the_released_chart_knows_its_images_by_digest_and_is_the_same_bits_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMAGE_REGISTRY", "registry.example.com/team/")
    packed = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        pack_chart(folder, DIGESTS)
        packed.append((folder / f"delayed-topics-{chart_version()}.tgz").read_bytes())
    assert packed[0] == packed[1]
    with tarfile.open(tmp_path / "one" / f"delayed-topics-{chart_version()}.tgz") as chart:
        content = chart.extractfile("delayed-topics/values.yaml")
        assert content is not None
        images = yaml.safe_load(content)["images"]
        assert "delayed-topics/LICENSE" in chart.getnames()
    assert {name: images[name]["digest"] for name in IMAGES} == DIGESTS
    assert {images[name]["repository"] for name in IMAGES} == {f"registry.example.com/team/{name}" for name in IMAGES}


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_one_command_pushes_all_to_a_registry_from_which_the_chart_is_installed_by_digest(
    registry: str, tmp_path: Path
) -> None:
    subprocess.run(["git", "clone", "--quiet", REPOSITORY, tmp_path / "clone"], check=True)
    where = (f"IMAGE_REGISTRY={registry}/team", "PLAIN_HTTP=1")
    subprocess.run(["make", "--directory", tmp_path / "clone", "publish", *where], check=True)

    chart = f"oci://{registry}/team/delayed-topics"
    rendered = subprocess.run(
        [binaries() / "helm", "template", "ours", chart, "--plain-http", "--set=evaluationKafka.enabled=true"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in IMAGES:
        [used] = {word for word in rendered.replace("=", " ").split() if f"/team/{name}:" in word}
        digest = used.strip('"').rpartition("@")[2]
        assert fetch_json(registry, f"/v2/team/{name}/manifests/{digest}")["layers"]
        attached = fetch_json(registry, f"/v2/team/{name}/manifests/{digest.replace(':', '-')}")["manifests"]
        kinds = {found["artifactType"]: found["digest"] for found in attached}
        assert set(kinds) == {"application/vnd.cyclonedx+json", "application/vnd.in-toto+json"}
        provenance = json.loads(content_of(registry, name, kinds["application/vnd.in-toto+json"]))
        assert digest.removeprefix("sha256:") in {subject["digest"]["sha256"] for subject in provenance["subject"]}
        sbom = json.loads(content_of(registry, name, kinds["application/vnd.cyclonedx+json"]))
        assert EXPECTED[name] <= {component["name"] for component in sbom["components"]}, name


EXPECTED = {
    "operator": {"openssl", "kopf", "pydantic"},
    "worker": {"openssl", "confluent-kafka", "pyo3"},
    "audit": {"openssl", "pyspark", "kafka-clients"},
    "kafka": {"openssl", "kafka-server", "openjdk-17-jre-headless"},
}
"""Some packages that each image is known to contain: Debian packages, wheels, a crate, jars."""


def content_of(registry: str, name: str, digest: str) -> bytes:
    [layer] = fetch_json(registry, f"/v2/team/{name}/manifests/{digest}")["layers"]
    host, port = registry.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request("GET", f"/v2/team/{name}/blobs/{layer['digest']}")
    return connection.getresponse().read()
