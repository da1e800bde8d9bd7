"""The wheel of the relay's engine, built from worker/engine: once per content, then never again.

It is the same bits wherever it is built: no folder of this machine is in it.
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
"""How the end of its name is in a wheel of maturin. Tools look for CycloneDX's own, `.cdx.json`."""
KEPT = 8
"""Builds that stay in the cache, the last that were asked for: every edit makes one."""


def engine_wheel() -> Path:
    """The wheel. Beside it is a file with the debugging symbols that were taken out of it, which gdb and perf can be given.

    Takes half a minute the first time, 5 s after an edit. Raises PreconditionError without Rust.
    """
    builds = cache_dir("engine")
    folder = made_once(builds / _key(), _build)
    os.utime(folder)
    for older in sorted(builds.glob("*/"), key=lambda build: build.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(older, ignore_errors=True)
    return next(folder.glob("*.whl"))


def engine_environment() -> dict[str, str]:
    """For cargo, in `ENGINE_SOURCE`: what it builds is shared by all work trees of this user."""
    return {**rust_environment(), "CARGO_TARGET_DIR": str(cache_dir("engine-target"))}


def _key() -> str:
    """Of all that goes into the wheel, and how; tests, examples and benchmarks don't."""
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
    """For a build in which the compilers call this machine's folders by other names."""
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
    """Puts the debugging symbols into a file beside the wheel, and takes what differs from build to build out of its SBOM.

    Names of functions stay, so that py-spy and perf can tell them.
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
    """Of the first day that zip files can tell, readable by everybody."""
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFREG | (0o755 if name.endswith(".so") else 0o644)) << 16
    return entry


def _stripped(library: bytes, whole: Path) -> bytes:
    """The library without its debugging symbols, which stay in a file of that name with `.debug` behind it."""
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
    """A wheel's table of files: these, and itself."""
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        table.writerow([name, f"sha256={digest}", len(content)])
    table.writerow([own_name, "", ""])
    return written.getvalue().encode()
