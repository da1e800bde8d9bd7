"""A release: images, chart, SBOMs and provenance in one folder, which `publish` pushes to a registry.

    images/NAME/                an OCI image layout
    NAME.cdx.json               the SBOM of that image, in the format CycloneDX
    delayed-topics-VERSION.tgz  the chart, which names the images by digest
    provenance.intoto.json      how all of these were built, and from what: SLSA provenance in an in-toto statement

Only the provenance contains what differs from build to build, such as times and paths.
"""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import yaml
from google.protobuf.json_format import MessageToDict, MessageToJson, ParseDict
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement

from delayed_topics_devcluster.binaries import binaries
from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.errors import DevclusterError
from delayed_topics_devcluster.go_tools import go_tool
from delayed_topics_devcluster.images import IMAGES, build_layout, image_registry
from delayed_topics_devcluster.paths import REPOSITORY
from delayed_topics_devcluster.progress import step

__all__ = ["publish", "release"]

CHART = REPOSITORY / "charts" / "delayed-topics"
PROVENANCE = "provenance.intoto.json"
SBOM_TYPE = "application/vnd.cyclonedx+json"
PROVENANCE_TYPE = "application/vnd.in-toto+json"
TOOLS = (("buildah", "--version"), ("mmdebstrap", "--version"), ("rustc", "--version"), ("python3", "--version"))


def release(folder: Path) -> None:
    """Makes a release in this folder from scratch. Raises DevclusterError if the work tree has uncommitted changes."""
    if differing := run("git", "-C", REPOSITORY, "status", "--porcelain").strip():
        raise DevclusterError(
            f"a release needs a work tree without changes, but this one differs from its commit:\n{differing}"
        )
    started = datetime.now(UTC)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "images").mkdir(parents=True)
    digests = {name: build_layout(name, folder / "images" / name, tag=chart_version()) for name in IMAGES}
    for name in IMAGES:
        write_sbom(folder, name)
    pack_chart(folder, digests)
    subjects = {f"{image_registry()}/{name}": digest.removeprefix("sha256:") for name, digest in digests.items()}
    files = sorted(file for file in folder.iterdir() if file.is_file())
    subjects.update((file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files)
    (folder / PROVENANCE).write_text(provenance(subjects, started=started, finished=datetime.now(UTC)))


def publish(folder: Path, *, plain_http: bool) -> str:
    """Pushes the images, each with its SBOM and the provenance attached, and the chart. Returns the chart's address.

    Raises DevclusterError if the release was made for another IMAGE_REGISTRY.
    """
    registry, version = image_registry(), chart_version()
    oras = go_tool("oras")
    subjects = json.loads((folder / PROVENANCE).read_text())["subject"]
    digests = {subject["name"]: f"sha256:{subject['digest']['sha256']}" for subject in subjects}
    plain, to_plain = (["--plain-http"], ["--to-plain-http"]) if plain_http else ([], [])
    for name in IMAGES:
        address = f"{registry}/{name}"
        if address not in digests:
            raise DevclusterError(
                f"{folder} was released for another IMAGE_REGISTRY than {registry}. Make the release again"
            )
        with step(f"pushing {address}:{version}"):
            layout = f"{folder / 'images' / name}:{version}"
            run(oras, "cp", *to_plain, "--from-oci-layout", layout, f"{address}:{version}")
            for kind, file in ((SBOM_TYPE, f"{name}.cdx.json"), (PROVENANCE_TYPE, PROVENANCE)):
                subject = f"{address}@{digests[address]}"
                run(oras, "attach", *plain, f"--artifact-type={kind}", subject, f"{file}:{kind}", cwd=folder)
    with step("pushing the chart"):
        run(binaries() / "helm", "push", *plain, folder / f"delayed-topics-{version}.tgz", f"oci://{registry}")
    return f"oci://{registry}/delayed-topics"


def chart_version() -> str:
    """The version of the chart, which is that of the whole release."""
    return str(yaml.safe_load((CHART / "Chart.yaml").read_text())["version"])


def write_sbom(folder: Path, name: str) -> None:
    """Writes the SBOM of an image, in which syft lists Debian packages, wheels with the contents of their own SBOMs, and jars. The time
    and the random serial number are left out."""
    file = folder / f"{name}.cdx.json"
    with step(f"writing {file.name}"):
        found = run(
            *(go_tool("syft"), "scan", "--quiet", f"oci-dir:{folder / 'images' / name}"),
            "--select-catalogers=+sbom-cataloger",
            *("--output=cyclonedx-json", f"--source-name=delayed-topics-{name}", f"--source-version={chart_version()}"),
            environment={"SYFT_CHECK_FOR_APP_UPDATE": "false", "SYFT_FILE_METADATA_SELECTION": "none"},
        )
    document = json.loads(found)
    del document["serialNumber"], document["metadata"]["timestamp"]
    file.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")


def pack_chart(folder: Path, digests: dict[str, str]) -> None:
    """Packs the chart, with the digests of the images and the registry they will be in among its values."""
    values = (CHART / "values.yaml").read_text()
    for name, digest in digests.items():
        ours = rf'(repository: )delayed-topics/{name}\n((?:.*\n){{1,4}}?\s*digest: )""'
        values, replaced = re.subn(ours, rf"\g<1>{image_registry()}/{name}\n\g<2>{digest}", values)
        if replaced != 1:
            raise DevclusterError(f"the chart's values have no place for the digest of {name}")
    contents = {file.relative_to(CHART): file.read_bytes() for file in CHART.rglob("*") if file.is_file()}
    contents |= {Path("values.yaml"): values.encode(), Path("LICENSE"): (REPOSITORY / "LICENSE").read_bytes()}
    archive = folder / f"delayed-topics-{chart_version()}.tgz"
    with gzip.GzipFile(archive, "w", mtime=0) as compressed, tarfile.open(fileobj=compressed, mode="w") as packed:
        for path, content in sorted(contents.items()):
            entry = tarfile.TarInfo(f"delayed-topics/{path}")  # by default without an owner, and with the time of 1970
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))


def provenance(subjects: dict[str, str], *, started: datetime, finished: datetime) -> str:
    """Returns the provenance of a release, see https://slsa.dev/spec/v1.0/provenance. `subjects`: SHA-256 by name."""
    facts = {
        "buildDefinition": {
            "buildType": "https://delayedtopics.io/make-release/v1",
            "externalParameters": {"command": "make release", "IMAGE_REGISTRY": image_registry()},
            "internalParameters": {"tools": {words[0]: run(*words).strip() for words in TOOLS}},
            "resolvedDependencies": [source()],
        },
        "runDetails": {
            "builder": {"id": "https://delayedtopics.io/make-release"},
            "metadata": {"startedOn": started.isoformat(), "finishedOn": finished.isoformat()},
        },
    }
    predicate = MessageToDict(ParseDict(facts, Provenance()))
    named = [ResourceDescriptor(name=name, digest={"sha256": digest}).pb for name, digest in subjects.items()]
    statement = Statement(named, "https://slsa.dev/provenance/v1", predicate)
    statement.validate()
    return str(MessageToJson(statement.pb)) + "\n"


def source() -> dict[str, object]:
    """The commit from which everything was built. RELEASE_SOURCE is the URL of its repository."""
    commit = run("git", "-C", REPOSITORY, "rev-parse", "HEAD").strip()
    where = {"uri": f"git+{os.environ['RELEASE_SOURCE']}"} if os.environ.get("RELEASE_SOURCE") else {}
    return {"name": "delayed-topics", "digest": {"gitCommit": commit}, **where}
