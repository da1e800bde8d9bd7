"""Draws how many times a record with its own due time is copied, by how far ahead the time is, for docs/choose-a-ladder.md.

Run `python -m delayed_topics_bench.ladder` after a change of the hops along a ladder.
"""

from pathlib import Path

from delayed_topics_core.layout import ladder, most_hops
from matplotlib.figure import Figure as Picture

DRAWN = Path(__file__).parents[3] / "docs" / "ladder.png"
AHEAD_SECONDS = [round(10 ** (tenths / 40)) for tenths in range(257)]
"""From a second to 29 days, in even steps of a logarithmic axis."""
MARKS = {1: "1 s", 60: "1 min", 3600: "1 h", 86_400: "1 d", 7 * 86_400: "7 d", 30 * 86_400: "30 d"}
LADDERS = ((2, 65_536), (4, 65_536), (10, 86_400), (2, 3600))
"""Base and maximum in seconds, as in the table beside the picture."""


def draw(file: Path) -> None:
    picture = Picture(figsize=(8, 4), layout="constrained")
    axes = picture.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    for base, max_seconds in LADDERS:
        delays = ladder(max_seconds=max_seconds, base=base)
        hops = [most_hops(delays, max_delay_seconds=ahead) for ahead in AHEAD_SECONDS]
        axes.plot(AHEAD_SECONDS, hops, label=f"base {base}, maxSeconds {max_seconds:,} ({len(delays)} delays)")
    axes.set(xscale="log", yscale="log", xlabel="the due time is ahead by", ylabel="copies at most")
    axes.set_xticks(list(MARKS), list(MARKS.values()))
    axes.set_xticks([], minor=True)
    axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axes.grid(which="major", color="#dddddd")
    axes.legend(frameon=False)
    # without Matplotlib's version in the file, the same figures give the same bytes
    picture.savefig(file, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    draw(DRAWN)
