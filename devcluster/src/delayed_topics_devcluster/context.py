"""The cluster that commands and tests work on: the local one, or with CONTEXT=name that context of the kubeconfig.

A foreign cluster needs no root and no Go on this machine, and Java only if images are built. These variables say how it gets them:

    (neither)                         the images are there already; nothing is built
    LOAD="kind load docker-image"     docker builds them, and this command gets their names; without docker,
                                      buildah builds them, and the command gets docker-archives
    IMAGE_REGISTRY=registry/path      docker or buildah builds them and pushes them there

Both build from the same Dockerfiles; BASE_IMAGE replaces the base that these name. The tag of a built image depends on its content,
so that the chart's values change when an image changes.
"""

import os
import shlex
import shutil
import tempfile
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Protocol

from delayed_topics_devcluster import cluster
from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.errors import CommandFailedError, DevclusterError, PreconditionError
from delayed_topics_devcluster.images import IMAGES, build_archive, image_name, make_context
from delayed_topics_devcluster.locks import locked
from delayed_topics_devcluster.paths import cache_dir
from delayed_topics_devcluster.progress import step

__all__ = ["Cluster", "ForeignCluster", "LocalCluster", "WithTools", "current_cluster"]

ID_DIGITS = 16
"""How many digits of an image's id are in its tag."""


class Cluster(Protocol):
    """What a local and a foreign cluster have in common."""

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig file whose current context is this cluster."""

    def up(self) -> None:
        """Makes sure that the cluster can be used. Raises DevclusterError if it can't."""

    def down(self) -> None:
        """Removes the cluster if it is ours."""

    def load(self, image: str) -> str:
        """Puts an image onto the cluster: one of ours by its name (`worker`), or an archive. Returns its name for manifests, or the
        archive."""

    def kubectl(self, *arguments: str | Path, text_in: str | None = None) -> str:
        """Runs kubectl to its end and returns what it printed. Raises CommandFailedError."""

    def helm(self, *arguments: str | Path) -> str:
        """Runs helm to its end and returns what it printed. Raises CommandFailedError."""

    def require_mine(self) -> None:
        """Raises PreconditionError unless tests may break things on the cluster."""


class WithTools(ABC):
    """The calls of kubectl and helm, which all kinds of clusters share."""

    @property
    @abstractmethod
    def kubeconfig(self) -> Path: ...

    def kubectl(self, *arguments: str | Path, text_in: str | None = None) -> str:
        return run(self._program("kubectl"), *arguments, text_in=text_in, environment=self._environment())

    def helm(self, *arguments: str | Path) -> str:
        return run(self._program("helm"), *arguments, environment=self._environment())

    def _environment(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self.kubeconfig)}

    def _program(self, name: str) -> Path:
        return cache_dir("bin") / name


class LocalCluster(WithTools):
    """The cluster of `devcluster up`."""

    @property
    def kubeconfig(self) -> Path:
        return cluster.cluster_folders().kubeconfig

    def up(self) -> None:
        cluster.up()

    def down(self) -> None:
        cluster.down()

    def load(self, image: str) -> str:
        if image not in IMAGES:
            cluster.import_image(_archive(image))
            return image
        built = build_archive(image)
        cluster.load(built)
        return built.name

    def require_mine(self) -> None:
        return


class ForeignCluster(WithTools):
    """A context of the user's kubeconfig."""

    def __init__(self, context: str) -> None:
        self.context = context

    @cached_property
    def kubeconfig(self) -> Path:
        """A copy with this context alone, so that nothing can reach another cluster by mistake."""
        file = cache_dir("kubeconfigs") / f"{self.context.replace('/', '_')}.yaml"
        select = ("--raw", "--minify", "--flatten", f"--context={self.context}")
        try:
            content = run(self._program("kubectl"), "config", "view", *select)
        except CommandFailedError as error:
            raise PreconditionError(
                f"The kubeconfig has no context for CONTEXT={self.context} ({error.message.splitlines()[-1].strip()})."
                " To list the contexts, run `kubectl config get-contexts`."
            ) from None
        file.touch(mode=0o600)
        file.write_text(content)
        return file

    def up(self) -> None:
        try:
            self.kubectl("get", "--raw", "/readyz", "--request-timeout=10s")
        except CommandFailedError as error:
            raise DevclusterError(f"CONTEXT={self.context} can't be reached: {error.message}") from None

    def down(self) -> None:
        """Does nothing: the cluster is not ours."""

    def load(self, image: str) -> str:
        """The tag depends on the content, because pods are replaced only if the name of their image has changed."""
        loader, registry = shlex.split(os.environ.get("LOAD", "")), os.environ.get("IMAGE_REGISTRY")
        if image not in IMAGES:
            if loader:
                run(*loader, _archive(image))
            return image
        if registry:
            built = _build(image)
            with step(f"pushing {built}"):
                run(_builder(), "push", built)
            return built
        if not loader:
            return image_name(image)
        archive = None if _builder() == "docker" else build_archive(image, tagged_by_content=True)
        built = archive.name if archive else _build(image)
        with step(f"loading {built} with {' '.join(loader)}"):
            run(*loader, archive.archive if archive else built)
        return built

    def require_mine(self) -> None:
        if os.environ.get("I_OWN_THIS_CLUSTER") != "1":
            raise PreconditionError(
                f"This command breaks things, and CONTEXT={self.context} may be in use by others."
                " Set I_OWN_THIS_CLUSTER=1 if it is yours alone."
            )

    def _program(self, name: str) -> Path:
        found = shutil.which(name)
        built = cache_dir("bin") / name
        if found is None and not built.exists():
            raise PreconditionError(f"{name} is needed for CONTEXT={self.context}. Put it into PATH.")
        return Path(found) if found else built


def current_cluster() -> Cluster:
    """Returns the cluster of the context that CONTEXT names, or else the local cluster."""
    context = os.environ.get("CONTEXT")
    return ForeignCluster(context) if context else LocalCluster()


def _archive(name: str) -> Path:
    if not Path(name).is_file():
        raise DevclusterError(
            f"{name!r} is neither an image of this project ({', '.join(IMAGES)}) nor the file name of an archive"
        )
    return Path(name).resolve()


def _build(image: str) -> str:
    """Builds an image and returns its name: the tag holds the beginning of the image's id."""
    base = os.environ.get("BASE_IMAGE")
    base_argument = [f"--build-arg=BASE_IMAGE={base}"] if base else []
    with locked("images"), tempfile.TemporaryDirectory() as folder, step(f"building {image} with {_builder()}"):
        written = Path(folder, "id")
        run(_builder(), "build", f"--iidfile={written}", *base_argument, make_context(image))
        found = written.read_text().strip().removeprefix("sha256:")
        built = image_name(image, content=found[:ID_DIGITS])
        run(_builder(), "tag", found, built)
    return built


def _builder() -> str:
    for program in ("docker", "buildah"):
        if shutil.which(program):
            return program
    raise PreconditionError(
        "docker or buildah is needed to build images. Either install one of them, or load the images yourself."
    )
