"""Checks for what a machine must have because this project can't install it. The error of each check is one line that says what to do."""

import os
import platform
import re
import shutil
import subprocess
import sys

from delayed_topics_devcluster.errors import PreconditionError

__all__ = [
    "PYTHON_OF_IMAGES",
    "require_go",
    "require_java",
    "require_java_compiler",
    "require_maven",
    "require_python_of_images",
    "require_root",
]

GO_AT_LEAST = (1, 24)
JAVA_AT_LEAST = 17
PYTHON_OF_IMAGES = (3, 11)
GLIBC_OF_IMAGES = (2, 36)
"""The glibc of Debian 12, on which both `python:3.11-slim-bookworm` and the base built here are based."""


def require_root() -> None:
    """Network namespaces, mounts and cgroups need root."""
    if os.geteuid() != 0:
        raise PreconditionError(
            "The local cluster needs root: run as root, or set CONTEXT=name to use a cluster of your kubeconfig."
        )


def require_go() -> None:
    """Kubernetes is built from its modules."""
    found = _first_line("go", "env", "GOVERSION")
    version = re.match(r"go(\d+)\.(\d+)", found)
    if version is None or (int(version[1]), int(version[2])) < GO_AT_LEAST:
        raise PreconditionError(
            f"Go 1.24 or later is needed to build Kubernetes ({found or 'no go in PATH'}): install it and put it into"
            " PATH, or set CONTEXT=name to use a cluster of your kubeconfig."
        )


def require_python_of_images() -> None:
    """The wheels in an image are built on this machine. With BASE_IMAGE, the user has chosen a base with a fitting Python."""
    name, version = platform.libc_ver()
    glibc = tuple(map(int, version.split("."))) if name == "glibc" else None
    if glibc is not None and os.environ.get("BASE_IMAGE"):
        return
    if sys.version_info[:2] != PYTHON_OF_IMAGES or glibc is None or glibc > GLIBC_OF_IMAGES:
        raise PreconditionError(
            f"The images have Python 3.11 and glibc 2.36. Wheels of this machine, which has Python {platform.python_version()}"
            f" on {platform.system()} with {f'glibc {version}' if glibc else 'no glibc'}, do not fit: build the images on"
            " Debian 12 with its own Python, or on Linux for a base that fits, with BASE_IMAGE=name."
        )


def require_java() -> None:
    """Kafka runs on Java 17 or later."""
    found = _first_line("java", "-version")
    version = re.search(r'version "(\d+)', found)
    if version is None or int(version[1]) < JAVA_AT_LEAST:
        raise PreconditionError(
            f"Java 17 or later is needed to run Kafka ({found or 'no java in PATH'}):"
            " apt-get install openjdk-17-jre-headless"
        )


def require_java_compiler() -> None:
    """Tests and benchmarks compile Java programs of their own."""
    if shutil.which("javac") is None:
        raise PreconditionError("A Java compiler is needed (no javac in PATH): apt-get install openjdk-17-jdk-headless")


def require_maven() -> None:
    """Maven resolves Kafka's jars."""
    if shutil.which("mvn") is None:
        raise PreconditionError("Maven is needed to get Kafka (no mvn in PATH): apt-get install maven")


def _first_line(*command: str) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    lines = (result.stdout + result.stderr).splitlines()
    return lines[0] if lines else ""
