"""The Rust toolchain that builds the engine. It is installed if it is missing."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

from delayed_topics_devcluster.errors import CommandFailedError, PreconditionError
from delayed_topics_devcluster.packages import install_rust
from delayed_topics_devcluster.paths import ENGINE_SOURCE

__all__ = ["rust_environment"]

Version = tuple[int, int]


def rust_environment() -> dict[str, str]:
    """Returns environment variables with which `cargo` can build the engine.

    Installs Debian's packages if there is no toolchain, or only an older one. Raises PreconditionError if that is impossible.
    """
    wanted = _rust_version()
    folder = _toolchain(wanted)
    if folder is None:
        try:
            install_rust(wanted)
        except CommandFailedError as error:
            raise PreconditionError(_what_to_do(wanted, error.message.splitlines()[-1].strip())) from None
        folder = _toolchain(wanted)
    if folder is None:
        raise PreconditionError(_what_to_do(wanted, ", ".join(_in_path().values()) or "no cargo in PATH"))
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def _toolchain(wanted: Version) -> Path | None:
    """The first folder of PATH with a cargo and a rustc that are new enough."""
    return next((folder for folder, printed in _in_path().items() if _version(printed) >= wanted), None)


def _in_path() -> dict[Path, str]:
    """The folders of PATH that have both cargo and rustc, each with what `rustc --version` prints."""
    found = {}
    for folder in map(Path, filter(None, os.environ.get("PATH", "").split(":"))):
        if (folder / "cargo").is_file() and (folder / "rustc").is_file():
            command = (folder / "rustc", "--version")
            found[folder] = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return found


def _version(printed: str) -> Version:
    found = re.match(r"rustc (\d+)\.(\d+)", printed)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _rust_version() -> Version:
    manifest = tomllib.loads((ENGINE_SOURCE / "Cargo.toml").read_text())
    major, minor = manifest["package"]["rust-version"].split(".")
    return int(major), int(minor)


def _what_to_do(wanted: Version, why: str) -> str:
    return (
        f"Rust {wanted[0]}.{wanted[1]} or later is needed to build the relay's engine ({why}): install it, with rustup or as"
        " the packages cargo and rustc (cargo-web and rustc-web on Debian 12), and put cargo into PATH."
    )
