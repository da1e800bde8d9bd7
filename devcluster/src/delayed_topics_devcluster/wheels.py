"""The wheels that an image installs. The host builds or downloads them as requirements.lock says, so image builds need no network.

The packages that a member needs are read from the metadata of the environment this module runs in, which has the whole lock file
installed.
"""

import hashlib
import importlib.metadata
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.engine import engine_wheel
from delayed_topics_devcluster.errors import DevclusterError
from delayed_topics_devcluster.locks import made_once
from delayed_topics_devcluster.paths import ENGINE_SOURCE, REPOSITORY, cache_dir

__all__ = ["own_wheels", "third_party_wheels"]

LOCK = REPOSITORY / "requirements.lock"


def third_party_wheels(distribution: str) -> Path:
    """Returns a folder with the wheels of all third-party packages that a member needs, pinned by version and hash."""
    pins = _pins()
    needed = sorted(_needed_by(distribution) - _members().keys())
    missing = [name for name in needed if name not in pins]
    if missing:
        raise DevclusterError(
            f"requirements.lock has no {', '.join(missing)}, which {distribution} needs. Run `make lock`"
        )
    return _wheels("third-party", "".join(pins[name] for name in needed))


def own_wheels(distribution: str) -> Path:
    """Returns a folder with the wheels of a member and of the members that it needs, built from this work tree."""
    members = _members()
    needed = sorted(_needed_by(distribution) & members.keys())
    folders = [members[name] for name in needed if members[name] != ENGINE_SOURCE]
    engine = [engine_wheel()] if len(folders) < len(needed) else []
    sources = [file for folder in folders for file in (folder / "pyproject.toml", *_sources(folder))]
    digest = hashlib.sha256()
    for file in sources:
        digest.update(f"{file.relative_to(REPOSITORY)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    for wheel in engine:
        digest.update(hashlib.sha256(wheel.read_bytes()).digest())
    command = (*map(str, folders), "--no-build-isolation")
    return _cached("own", digest.hexdigest(), *command, built=engine)


def _wheels(kind: str, requirements: str) -> Path:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirements)
        file.flush()
        key = hashlib.sha256(requirements.encode()).hexdigest()
        return _cached(kind, key, "--require-hashes", "--requirement", file.name)


def _cached(kind: str, key: str, *what: str, built: Iterable[Path] = ()) -> Path:
    def make(folder: Path) -> None:
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, *what)
        for wheel in built:
            shutil.copy(wheel, folder)

    return made_once(cache_dir("wheels", kind) / key[:16], make)


def _members() -> dict[str, Path]:
    """The folders of the workspace's members, by distribution name."""
    workspace = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    members: dict[str, Path] = {}
    for folder in workspace["tool"]["uv"]["workspace"]["members"]:
        project = REPOSITORY / folder / "pyproject.toml"
        if project.exists():
            members[canonicalize_name(tomllib.loads(project.read_text())["project"]["name"])] = project.parent
    return members


def _needed_by(distribution: str) -> set[str]:
    """The names of a distribution and of all its direct and indirect dependencies."""
    found: set[str] = set()
    waiting: list[tuple[str, frozenset[str]]] = [(canonicalize_name(distribution), frozenset())]
    visited: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = current = waiting.pop()
        if current in visited:
            continue
        visited.add(current)
        found.add(name)
        for line in importlib.metadata.requires(name) or ():
            requirement = Requirement(line)
            if _applies(requirement, extras):
                waiting.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return found


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or ("",))


def _pins() -> dict[str, str]:
    """The entries of the lock file by name, each with its hashes, in the format of a requirements file."""
    entries = re.split(r"(?m)^(?=[A-Za-z0-9])", LOCK.read_text())
    return {canonicalize_name(entry.split("==")[0].split("[")[0]): entry for entry in entries if "==" in entry}


def _sources(folder: Path) -> list[Path]:
    files = (file for file in (folder / "src").rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return sorted(files)
