"""Where things are: this repository, and everything that is made from it, outside of it."""

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
    """A folder of the user's cache, made if it is missing. XDG_CACHE_HOME is honoured."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home.joinpath("delayed-topics", *names)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def is_built_program(path: str) -> bool:
    """Whether it is one of the programs that `binaries` has built, in anybody's cache: …/delayed-topics/bin/KEY/NAME."""
    return Path(path).parts[-4:-2] == ("delayed-topics", "bin")


def cluster_of(program: Path) -> Path:
    """The folder of the cluster that runs such a program."""
    return program.parents[2] / "cluster"
