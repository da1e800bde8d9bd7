"""The folders of this repository, and of everything that is built from it, which is outside of it."""

import os
from pathlib import Path

__all__ = [
    "CRDS",
    "ENGINE_SOURCE",
    "IMAGE_SOURCES",
    "KAFKA_TOOLS",
    "KUBERNETES_SOURCE",
    "REPOSITORY",
    "cache_dir",
    "cluster_of",
    "is_built_program",
]

REPOSITORY = Path(__file__).resolve().parents[3]
CRDS = REPOSITORY / "crds" / "manifests"
ENGINE_SOURCE = REPOSITORY / "worker" / "engine"
IMAGE_SOURCES = REPOSITORY / "images"
KAFKA_TOOLS = REPOSITORY / "devcluster" / "kafka-tools"
KUBERNETES_SOURCE = REPOSITORY / "devcluster" / "kubernetes"


def cache_dir(*names: str) -> Path:
    """Returns a folder of the user's cache, and makes it if it is missing. Honours XDG_CACHE_HOME."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home.joinpath("delayed-topics", *names)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def is_built_program(path: str) -> bool:
    """Whether the path is that of a program built by `binaries`, in the cache of any user: …/delayed-topics/bin/KEY/NAME."""
    return Path(path).parts[-4:-2] == ("delayed-topics", "bin")


def cluster_of(program: Path) -> Path:
    """The folder of the cluster that runs this built program."""
    return program.parents[2] / "cluster"
