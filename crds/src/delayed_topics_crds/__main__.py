"""`python -m delayed_topics_crds`: writes the files that are generated from the models, or reports which are out of date."""

from pathlib import Path

import click

from delayed_topics_crds.kinds import GROUP, KINDS
from delayed_topics_crds.manifests import chart_template, plain_manifest
from delayed_topics_crds.reference import reference

MANIFESTS = Path("crds/manifests")
CHART_TEMPLATES = Path("charts/delayed-topics/templates/crds")
REFERENCE = Path("docs/reference.md")


def generated() -> dict[Path, str]:
    """Returns the content of every generated file, by its path in the repository."""
    files = {REFERENCE: reference()}
    for kind in KINDS.values():
        files[MANIFESTS / f"{GROUP}_{kind.plural}.yaml"] = plain_manifest(kind)
        files[CHART_TEMPLATES / f"{kind.plural}.yaml"] = chart_template(kind)
    return files


def drifted(root: Path) -> list[Path]:
    """Returns the files that differ from the models, are missing, or no longer have a model."""
    expected = generated()
    present = {
        path.relative_to(root) for folder in (MANIFESTS, CHART_TEMPLATES) for path in (root / folder).glob("*.yaml")
    }
    differing = {path for path, text in expected.items() if _text(root / path) != text}
    return sorted(differing | (present - expected.keys()))


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


@click.group()
def main() -> None:
    """Generates the CRDs, the chart's copies of them, and docs/reference.md from the models."""


_root = click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path.cwd,
    help="The repository; the current folder unless given.",
)


@main.command()
@_root
def generate(root: Path) -> None:
    """Write all generated files."""
    expected = generated()
    for path in drifted(root):
        target = root / path
        if path in expected:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(expected[path], encoding="utf-8")
        else:
            target.unlink()
        click.echo(path)


@main.command()
@_root
def check(root: Path) -> None:
    """Fail if a generated file differs from the models."""
    paths = drifted(root)
    if paths:
        names = "\n".join(f"  {path}" for path in paths)
        raise click.ClickException(f"out of date, run `python -m delayed_topics_crds generate`:\n{names}")


if __name__ == "__main__":
    main()
