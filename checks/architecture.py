"""Draws docs/architecture.svg, the members and what each may import, from the import contracts in pyproject.toml.

`make architecture` writes the picture. The contracts determine the rows and the arrows. `PLACES` sets the place of each member in
its row, so that every arrow goes straight down.
"""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from checks.documents import ROOT

PICTURE: Final = ROOT / "docs" / "architecture.svg"
COLUMN, ROW, BOX = 126, 104, 52
"""In pixels: the distance between columns, the distance between rows, and the height of a box."""


class Place(NamedTuple):
    """A place in a row, from the left edge of column `begin` to that of column `end`. `says`: a few words about the contents."""

    begin: int
    end: int
    colour: str
    says: str


PLACES: Final[Mapping[str, Place]] = {
    "bench": Place(0, 2, "#fff3d6", "benchmarks"),
    "faults": Place(2, 5, "#fff3d6", "fault tests and their judge"),
    "e2e": Place(5, 6, "#fff3d6", "user stories"),
    "operator": Place(0, 2, "#e8eefc", "creates topics and workers"),
    "worker": Place(2, 3, "#e8eefc", "moves records"),
    "audit": Place(3, 4, "#e8eefc", "the Spark job"),
    "client": Place(4, 5, "#e8eefc", "library, command"),
    "kafka": Place(1, 5, "#e3f5e6", "calls to Kafka from Python"),
    "crds": Place(0, 1, "#e3f5e6", "the resources"),
    "core": Place(1, 6, "#e3f5e6", "decisions and data types that need only Python"),
    "devcluster": Place(6, 7, "#fff3d6", "Kubernetes, Kafka"),
}
FRAMES: Final[Mapping[tuple[str, ...], Place]] = {
    ("bench", "faults", "e2e"): Place(0, 7, "#fffcf3", "tests and benchmarks"),
    ("operator", "worker", "audit", "client"): Place(0, 5, "#f6f9ff", "programs"),
}
"""Frames around the members of a row. An arrow that all members of the row have begins at the frame."""


def imports(contracts: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[str, ...]], dict[str, set[str]]]:
    """Returns the rows from top to bottom, and the members that each member may import, without those that it also reaches through
    others."""
    (layers,) = (
        contract["layers"] for contract in contracts if contract["type"] == "layers" and "containers" not in contract
    )
    rows = [row for layer in layers if (row := _members(layer.split(" | ")))]
    may = {
        one: {
            other for lower in rows[at + 1 :] for other in lower if not any(_refuses(c, one, other) for c in contracts)
        }
        for at, row in enumerate(rows)
        for one in row
    }
    return rows, {one: others - {far for near in others for far in may[near]} for one, others in may.items()}


def _members(packages: Sequence[str]) -> tuple[str, ...]:
    """Returns the folders of these packages, without packages for tests."""
    names = (package.removeprefix("delayed_topics").removeprefix("_") or "client" for package in packages)
    return tuple(name for name in names if not name.endswith("_testing"))


def _refuses(contract: Mapping[str, Any], one: str, other: str) -> bool:
    if contract["type"] == "protected":
        return other in _members(contract["protected_modules"]) and one not in _members(contract["allowed_importers"])
    refuses = contract["type"] == "forbidden"
    return refuses and one in _members(contract["source_modules"]) and other in _members(contract["forbidden_modules"])


def drawn(contracts: Sequence[Mapping[str, Any]]) -> str:
    """Returns the picture as SVG. Raises KeyError for a member without a place, and ValueError for an arrow that can't go straight
    down."""
    rows, arrows = imports(contracts)
    top = {member: 30 + at * ROW for at, row in enumerate(rows) for member in row}
    frames, lines, boxes = [], [], []
    for row in rows:
        y, shared = top[row[0]], set[str]()
        if (frame := FRAMES.get(row)) is not None:
            shared = set.intersection(*(arrows[one] for one in row))
            frames.append(_frame(frame, y))
            lines += [_arrow(frame, y + BOX + 8, PLACES[to], top[to]) for to in sorted(shared)]
        for one in row:
            boxes.append(_box(one, PLACES[one], y))
            lines += [_arrow(PLACES[one], y + BOX, PLACES[to], top[to]) for to in sorted(arrows[one] - shared)]
    shapes = "\n  ".join((*frames, *lines, *boxes))
    width, height = _x(max(place.end for place in PLACES.values())) + 10, 20 + len(rows) * ROW - BOX + 20
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" \
font-family="Helvetica,Arial,sans-serif" font-size="14">
  <!-- drawn by make architecture from the import contracts in pyproject.toml -->
  <defs><marker id="a" markerWidth="9" markerHeight="9" refX="8" refY="4" orient="auto">\
<path d="M0,0 L9,4 L0,8 z" fill="#334"/></marker></defs>
  <rect width="{width}" height="{height}" fill="#ffffff"/>
  {shapes}
</svg>
"""


def _x(column: float) -> int:
    return round(10 + column * COLUMN)


def _frame(place: Place, y: int) -> str:
    x, width = _x(place.begin), (place.end - place.begin) * COLUMN
    return (
        f'<rect x="{x}" y="{y - 22}" width="{width}" height="{BOX + 30}" rx="8" fill="{place.colour}" stroke="#99a"/>'
        f'<text x="{x + 8}" y="{y - 8}" font-size="11" fill="#556">{place.says}</text>'
    )


def _box(member: str, place: Place, y: int) -> str:
    x, width, middle = _x(place.begin) + 6, (place.end - place.begin) * COLUMN - 12, _x((place.begin + place.end) / 2)
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{BOX}" rx="8" fill="{place.colour}" stroke="#334" stroke-width="1.4"/>'
        f'<text x="{middle}" y="{y + 22}" fill="#112" font-weight="bold" text-anchor="middle">{member}/</text>'
        f'<text x="{middle}" y="{y + 40}" fill="#556" font-size="11" text-anchor="middle">{place.says}</text>'
    )


def _arrow(place: Place, y: int, other: Place, other_y: int) -> str:
    """Draws an arrow in the middle of the columns that both places have. Raises ValueError if they have none in common."""
    begin, end = max(place.begin, other.begin), min(place.end, other.end)
    if begin >= end:
        raise ValueError(f"an arrow goes straight down, and no column has both {place} and {other}")
    x = _x((begin + end) / 2)
    return f'<path d="M{x},{y} V{other_y - 1}" stroke="#334" stroke-width="1.6" marker-end="url(#a)"/>'


def read_contracts() -> Sequence[Mapping[str, Any]]:
    """Reads the import contracts of this repository."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contracts: Sequence[Mapping[str, Any]] = linter["contracts"]
    return contracts


if __name__ == "__main__":
    PICTURE.write_text(drawn(read_contracts()))
