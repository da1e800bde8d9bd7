"""Tools for this repository, built from pinned Go modules in devcluster/: once for each content of `go.mod` and `go.sum`."""

import hashlib
from pathlib import Path
from typing import NamedTuple

from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.locks import made_once
from delayed_topics_devcluster.paths import REPOSITORY, cache_dir
from delayed_topics_devcluster.preconditions import require_go
from delayed_topics_devcluster.progress import step

__all__ = ["TOOLS", "go_tool"]


class Tool(NamedTuple):
    """A Go program. `module`: the folder in devcluster/ that has its `go.mod`. `cgo`: "1" if it needs a C compiler, else "0"."""

    module: str
    package: str
    cgo: str = "0"


TOOLS = {
    "syft": Tool("release", "github.com/anchore/syft/cmd/syft"),
    "oras": Tool("release", "oras.land/oras/cmd/oras"),
    "vale": Tool("prose", "github.com/vale-cli/vale/v3/cmd/vale", cgo="1"),
}


def go_tool(name: str) -> Path:
    """Returns the program: `syft` (SBOMs), `oras` (images and their attachments in registries) or `vale` (checks prose).

    Takes minutes the first time. Raises PreconditionError without Go.
    """
    tool = TOOLS[name]
    module = REPOSITORY / "devcluster" / tool.module

    def build(folder: Path) -> None:
        require_go()
        with step(f"building {name} from source (minutes the first time)"):
            command = ("nice", "-n", "19", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", folder / name)
            run(*command, tool.package, cwd=module, environment={"CGO_ENABLED": tool.cgo})

    digest = hashlib.sha256(b"".join((module / file).read_bytes() for file in ("go.mod", "go.sum")))
    return made_once(cache_dir("go-tools") / f"{name}-{digest.hexdigest()[:16]}", build) / name
