"""The wheel of the engine, built from worker/engine: once for each content.

The build is reproducible: the wheel contains no path of this machine.
"""

import base64
import csv
import hashlib
import io
import json
import os
import shutil
import stat
import sys
import sysconfig
import zipfile
from pathlib import Path

from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.locks import made_once
from delayed_topics_devcluster.paths import ENGINE_SOURCE, cache_dir
from delayed_topics_devcluster.progress import step
from delayed_topics_devcluster.rust import rust_environment

__all__ = ["engine_environment", "engine_wheel"]

SBOM = ".cyclonedx.json"
"""The suffix of the SBOM in a wheel of maturin. Tools look for the suffix that CycloneDX recommends, `.cdx.json`."""
KEPT = 8
"""How many builds stay in the cache, the most recently used ones: every edit makes one."""


def engine_wheel() -> Path:
    """Builds the wheel if need be and returns its path. A file beside it has its debugging symbols, for gdb and perf.

    Takes half a minute the first time, 5 s after an edit. Raises PreconditionError without Rust.
    """
    builds = cache_dir("engine")
    folder = made_once(builds / _key(), _build)
    os.utime(folder)
    for older in sorted(builds.glob("*/"), key=lambda build: build.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(older, ignore_errors=True)
    return next(folder.glob("*.whl"))


def engine_environment() -> dict[str, str]:
    """The environment for cargo in `ENGINE_SOURCE`. All work trees of this user share one target directory."""
    return {**rust_environment(), "CARGO_TARGET_DIR": str(cache_dir("engine-target"))}


def _key() -> str:
    """A digest of everything that goes into the wheel, and of how it is built; tests, examples and benchmarks are not part of it."""
    names = ("Cargo.toml", "Cargo.lock", ".cargo/config.toml", "pyproject.toml", "delayed_topics_engine.pyi")
    sources = sorted(file for file in (ENGINE_SOURCE / "src").rglob("*") if file.is_file())
    digest = hashlib.sha256(sysconfig.get_platform().encode())
    digest.update(Path(__file__).read_bytes())
    for file in (*(ENGINE_SOURCE / name for name in names), *sources):
        digest.update(f"\0{file.relative_to(ENGINE_SOURCE)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _build(folder: Path) -> None:
    environment = _without_folders(engine_environment())
    maturin = Path(sys.executable).with_name("maturin")
    with step("building the relay's engine from source (half a minute the first time)"):
        run(
            *(maturin, "build", "--release", "--locked", "--interpreter", sys.executable, "--out", folder),
            cwd=ENGINE_SOURCE,
            environment=environment,
        )
        _finish(next(folder.glob("*.whl")))


def _without_folders(environment: dict[str, str]) -> dict[str, str]:
    """Adds compiler flags that replace the paths of this machine in the build by fixed names."""
    run("cargo", "fetch", "--quiet", "--locked", cwd=ENGINE_SOURCE, environment=environment)
    registry = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo") / "registry" / "src"
    names = {str(ENGINE_SOURCE): "/engine", environment["CARGO_TARGET_DIR"]: "/target"}
    names.update((str(folder), "/crates") for folder in registry.iterdir())
    return {
        **environment,
        "CARGO_BUILD_RUSTFLAGS": " ".join(f"--remap-path-prefix={folder}={name}" for folder, name in names.items()),
        "CFLAGS": " ".join(f"-ffile-prefix-map={folder}={name}" for folder, name in names.items()),
    }


def _finish(wheel: Path) -> None:
    """Moves the debugging symbols into a file beside the wheel, and removes from the SBOM what differs from build to build.

    The names of functions stay in the wheel, so that py-spy and perf can show them.
    """
    with zipfile.ZipFile(wheel) as archive:
        contents = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    [library] = [name for name in contents if name.endswith(".so")]
    [sbom] = [name for name in contents if name.endswith(SBOM)]
    [record] = [name for name in contents if name.endswith(".dist-info/RECORD")]
    del contents[record]
    contents[library] = _stripped(contents[library], wheel.with_name(Path(library).name))
    contents[sbom.removesuffix(SBOM) + ".cdx.json"] = _repeatable(contents.pop(sbom))
    contents[record] = _record(record, contents)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(_entry(name), content, zipfile.ZIP_DEFLATED)


def _entry(name: str) -> zipfile.ZipInfo:
    """A zip entry with the earliest date that zip files can have, readable by every user."""
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFREG | (0o755 if name.endswith(".so") else 0o644)) << 16
    return entry


def _stripped(library: bytes, whole: Path) -> bytes:
    """Returns the library without its debugging symbols, and writes these to `whole` with the suffix `.debug`."""
    symbols = whole.with_suffix(".so.debug")
    whole.write_bytes(library)
    run("objcopy", "--only-keep-debug", whole, symbols)
    run("objcopy", "--strip-debug", f"--add-gnu-debuglink={symbols.name}", whole, cwd=whole.parent)
    stripped = whole.read_bytes()
    whole.unlink()
    return stripped


def _repeatable(sbom: bytes) -> bytes:
    document = json.loads(sbom.replace(f"file://{ENGINE_SOURCE}".encode(), b"file:///engine"))
    document.pop("serialNumber", None)
    document["metadata"].pop("timestamp", None)
    return json.dumps(document, indent=2).encode()


def _record(own_name: str, contents: dict[str, bytes]) -> bytes:
    """The RECORD of a wheel with these files; it lists itself too, without a digest."""
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        table.writerow([name, f"sha256={digest}", len(content)])
    table.writerow([own_name, "", ""])
    return written.getvalue().encode()
