"""The wheel of the relay's engine, built from worker/engine: once per content, then never again."""

import base64
import csv
import hashlib
import io
import os
import shutil
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
    """Of all that goes into the wheel; tests, examples and benchmarks don't."""
    names = ("Cargo.toml", "Cargo.lock", ".cargo/config.toml", "pyproject.toml", "delayed_topics_engine.pyi")
    sources = sorted(file for file in (ENGINE_SOURCE / "src").rglob("*") if file.is_file())
    digest = hashlib.sha256(sysconfig.get_platform().encode())
    for file in (*(ENGINE_SOURCE / name for name in names), *sources):
        digest.update(f"\0{file.relative_to(ENGINE_SOURCE)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _build(folder: Path) -> None:
    environment = engine_environment()
    maturin = Path(sys.executable).with_name("maturin")
    with step("building the relay's engine from source (half a minute the first time)"):
        run(
            *(maturin, "build", "--release", "--locked", "--interpreter", sys.executable, "--out", folder),
            cwd=ENGINE_SOURCE,
            environment=environment,
        )
        _take_symbols_out(next(folder.glob("*.whl")))


def _take_symbols_out(wheel: Path) -> None:
    """Puts them into a file beside the wheel. Names of functions stay, so that py-spy and perf can tell them."""
    with zipfile.ZipFile(wheel) as archive:
        contents = {entry: archive.read(entry) for entry in archive.infolist()}
    [library] = [entry for entry in contents if entry.filename.endswith(".so")]
    whole = wheel.with_name(Path(library.filename).name)
    symbols = whole.with_suffix(".so.debug")
    whole.write_bytes(contents[library])
    run("objcopy", "--only-keep-debug", whole, symbols)
    run("objcopy", "--strip-debug", f"--add-gnu-debuglink={symbols.name}", whole, cwd=whole.parent)
    contents[library] = whole.read_bytes()
    whole.unlink()
    [record] = [entry for entry in contents if entry.filename.endswith(".dist-info/RECORD")]
    contents[record] = _record(contents[record], library.filename, contents[library])
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, content in contents.items():
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)


def _record(former: bytes, name: str, content: bytes) -> bytes:
    """A wheel's table of files, with another content of one of them."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    for row in csv.reader(io.StringIO(former.decode())):
        table.writerow([name, f"sha256={digest}", len(content)] if row[0] == name else row)
    return written.getvalue().encode()
