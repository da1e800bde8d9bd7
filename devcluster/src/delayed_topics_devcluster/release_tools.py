"""Programs that only a release needs, built from the Go modules that devcluster/release/go.mod pins: once per content."""

import hashlib
from pathlib import Path

from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.locks import made_once
from delayed_topics_devcluster.paths import REPOSITORY, cache_dir
from delayed_topics_devcluster.preconditions import require_go
from delayed_topics_devcluster.progress import step

__all__ = ["release_tool"]

MODULE = REPOSITORY / "devcluster" / "release"
PACKAGES = {"syft": "github.com/anchore/syft/cmd/syft", "oras": "oras.land/oras/cmd/oras"}


def release_tool(name: str) -> Path:
    """The program: `syft` (SBOMs) or `oras` (images and what is attached to them, in registries).

    Takes minutes the first time. Raises PreconditionError without Go.
    """

    def build(folder: Path) -> None:
        require_go()
        with step(f"building {name} from source (minutes the first time)"):
            command = ("nice", "-n", "19", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", folder / name)
            run(*command, PACKAGES[name], cwd=MODULE, environment={"CGO_ENABLED": "0"})

    digest = hashlib.sha256(b"".join((MODULE / file).read_bytes() for file in ("go.mod", "go.sum")))
    return made_once(cache_dir("release-tools") / f"{name}-{digest.hexdigest()[:16]}", build) / name
