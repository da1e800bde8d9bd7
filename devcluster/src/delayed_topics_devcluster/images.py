"""The project's images, each built only if one of its inputs has changed.

Builds are reproducible: times, paths and file modes of the machine do not get into an image.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.errors import DevclusterError
from delayed_topics_devcluster.kafka import kafka_jars
from delayed_topics_devcluster.locks import locked
from delayed_topics_devcluster.packages import install_for_images
from delayed_topics_devcluster.paths import IMAGE_SOURCES, REPOSITORY, cache_dir
from delayed_topics_devcluster.preconditions import require_python_of_images
from delayed_topics_devcluster.progress import step
from delayed_topics_devcluster.wheels import own_wheels, third_party_wheels

__all__ = [
    "IMAGES",
    "BuiltImage",
    "build_archive",
    "build_layout",
    "chart_values",
    "image_name",
    "image_registry",
    "make_context",
]

DEBIAN_SUITE = "bookworm"
EPOCH_SECONDS = 315_532_800
"""The time of all files in an image: 1980, the first year that zip files can have."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The contents of an image, besides the files in images/NAME."""

    base: str  # one of the two bases that this module builds; other builds use the default in the Dockerfile
    distribution: str | None = None  # the workspace member that it runs
    spark_jars: bool = False
    kafka_jars: bool = False


@dataclass(frozen=True, kw_only=True)
class BuiltImage:
    """An image in a docker-archive."""

    name: str
    archive: Path


IMAGES = {
    "operator": Recipe(base="base-python", distribution="delayed-topics-operator"),
    "worker": Recipe(base="base-python", distribution="delayed-topics-worker"),
    "audit": Recipe(base="base-java", distribution="delayed-topics-audit", spark_jars=True),
    "kafka": Recipe(base="base-java", kafka_jars=True),
}


def image_registry() -> str:
    """The registry of the images: IMAGE_REGISTRY, or a name for images that are only on this machine."""
    return (os.environ.get("IMAGE_REGISTRY") or "delayed-topics").rstrip("/")


def image_name(name: str, *, content: str = "") -> str:
    """The image's name in manifests, with the tag `dev` or `dev-CONTENT`. YAML never reads such a tag as a number."""
    _recipe(name)
    return f"{image_registry()}/{name}:dev" + (f"-{content}" if content else "")


def chart_values(images: Mapping[str, str]) -> str:
    """Values for the chart, as YAML, that name these images. `images`: for example `registry/path/worker:tag` by `worker`."""
    parts = {name: image.rpartition(":") for name, image in images.items()}
    return str(yaml.safe_dump({"images": {name: {"repository": r, "tag": t} for name, (r, _, t) in parts.items()}}))


def build_archive(name: str, *, tagged_by_content: bool = False) -> BuiltImage:
    """Builds an image with buildah on a base of Debian packages, if one of its inputs has changed.

    Takes about 60 s the first time (base), 5 s after a change of our own code, less than a second without a change.
    The tag is `dev`, or `dev-CONTENT` with `tagged_by_content`.
    """
    with locked("images"):
        return _build_archive(name, tagged_by_content=tagged_by_content)


def build_layout(name: str, folder: Path, *, tag: str) -> str:
    """Builds an image, writes it as an OCI image layout with this tag, and returns the digest of its manifest."""
    with locked("images"), step(f"building image {name}"):
        install_for_images()
        base = _recipe(name).base
        _bud(make_context(name), tag=image_name(name), base_name=_ensure_base_in_store(base, _base_archive(base)))
        _buildah("push", "--quiet", image_name(name), f"oci:{folder}:{tag}")
    [manifest] = json.loads((folder / "index.json").read_text())["manifests"]
    return str(manifest["digest"])


def _build_archive(name: str, *, tagged_by_content: bool) -> BuiltImage:
    recipe = _recipe(name)
    base = _base_archive(recipe.base)
    context = make_context(name)
    key = _digest(context, base.name)
    folder = cache_dir("images", *(["tagged"] if tagged_by_content else []))
    archive = folder / f"{name}-{key}.tar"
    built = BuiltImage(name=image_name(name, content=key if tagged_by_content else ""), archive=archive)
    if not archive.exists():
        with step(f"building image {built.name}"):
            install_for_images()
            base_name = _ensure_base_in_store(recipe.base, base)
            _bud(context, tag=built.name, base_name=base_name)
            _push(built.name, archive)
    return built


def make_context(name: str) -> Path:
    """Makes the build context of an image: the files of images/NAME, with the wheels and jars that its Dockerfile copies."""
    recipe = _recipe(name)
    if recipe.distribution:
        require_python_of_images()
    context = cache_dir("contexts") / name
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(IMAGE_SOURCES / name, context)
    shutil.copy(REPOSITORY / "LICENSE", context)
    if recipe.distribution:
        _link(third_party_wheels(recipe.distribution), context / "wheels" / "third-party")
        _link(own_wheels(recipe.distribution), context / "wheels" / "own")
    if recipe.spark_jars:
        folder = run("make", "--silent", "--no-print-directory", "spark-jars", cwd=REPOSITORY).splitlines()[-1]
        _link(Path(folder), context / "spark-jars")
    if recipe.kafka_jars:
        _link(kafka_jars(), context / "jars")
    for path in (context, *context.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return context


def _recipe(name: str) -> Recipe:
    if name not in IMAGES:
        raise DevclusterError(f"there is no image {name!r}. The images are {', '.join(IMAGES)}")
    return IMAGES[name]


def _base_archive(base: str) -> Path:
    """The archive of a root file system with the Debian packages that images/base/<base>.packages lists.

    The packages come from the current state of Debian's mirrors, or from the sources in the file that DEBIAN_SOURCES names, which
    has the format of a sources.list.
    """
    packages = ",".join((IMAGE_SOURCES / "base" / f"{base}.packages").read_text().split())
    kept = ("exclude=/usr/share/doc/*", "include=/usr/share/doc/*/copyright", "exclude=/usr/share/locale/*")
    hooks = (
        'ln -s python3 "$1/usr/bin/python"',
        # mmdebstrap copies these from this machine
        'rm -f "$1/etc/resolv.conf" "$1/etc/hostname" "$1/etc/apt/sources.list" "$1"/etc/apt/sources.list.d/*',
    )
    options = (
        *("--variant=minbase", "--format=tar", f"--include={packages}"),
        *(f"--dpkgopt=path-{rule}" for rule in kept),
        *(f"--customize-hook={hook}" for hook in hooks),
    )
    sources = [os.environ["DEBIAN_SOURCES"]] if os.environ.get("DEBIAN_SOURCES") else []
    ingredients = (str(EPOCH_SECONDS), DEBIAN_SUITE, *options, *(Path(file).read_text() for file in sources))
    key = hashlib.sha256("\0".join(ingredients).encode()).hexdigest()[:16]
    root = cache_dir("images") / f"{base}-{key}.rootfs.tar"
    if not root.exists():
        install_for_images()
        with step(f"making base image {base} of Debian packages (about 45 s)"):
            unfinished = root.with_suffix(".unfinished")
            environment = {"SOURCE_DATE_EPOCH": str(EPOCH_SECONDS)}
            run("mmdebstrap", *options, DEBIAN_SUITE, unfinished, *sources, environment=environment)
            unfinished.rename(root)
    return root


def _ensure_base_in_store(base: str, root: Path) -> str:
    """Makes an image of the base, for Dockerfiles to start from, and returns its name, which holds the key of its content."""
    name = f"localhost/{base}:{root.name.split('-')[-1].split('.')[0]}"
    if not _buildah("images", "--quiet", "--filter", f"reference={name}").strip():
        context = cache_dir("contexts") / base
        shutil.rmtree(context, ignore_errors=True)
        context.mkdir()
        shutil.copy(IMAGE_SOURCES / "base" / "Dockerfile", context)
        os.link(root, context / "rootfs.tar")
        _bud(context, tag=name, base_name=None)
    return name


def _bud(context: Path, *, tag: str, base_name: str | None) -> None:
    base = [f"--build-arg=BASE_IMAGE={base_name}"] if base_name else []
    how = ("--layers", "--pull-never", "--isolation=chroot", f"--timestamp={EPOCH_SECONDS}")
    _buildah("build", *how, f"--tag={tag}", *base, str(context))


def _push(name: str, archive: Path) -> None:
    unfinished = archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)  # buildah refuses to write to an archive that exists
    _buildah("push", "--quiet", name, f"docker-archive:{unfinished}:docker.io/{name}")
    archives = archive.parent.glob(f"{archive.name.rsplit('-', 1)[0]}-*.tar")
    for older in sorted(archives, key=lambda file: file.stat().st_mtime)[:-1]:  # someone may be loading the newest one
        older.unlink()
    unfinished.rename(archive)


def _buildah(*arguments: str) -> str:
    """Runs buildah with a store of its own in the user's cache."""
    store = cache_dir("buildah")
    places = (f"--root={store / 'images'}", f"--runroot={store / 'run'}", "--storage-driver=overlay")
    return run("buildah", *places, *arguments)


def _link(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=os.link)


def _digest(context: Path, base: str) -> str:
    digest = hashlib.sha256(base.encode())
    for file in sorted(file for file in context.rglob("*") if file.is_file()):
        digest.update(f"\0{file.relative_to(context)}\0".encode())
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()[:16]
