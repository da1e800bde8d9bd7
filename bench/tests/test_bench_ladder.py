"""The picture of the copies that a ladder makes."""

from pathlib import Path

from delayed_topics_bench.ladder import DRAWN, draw


def test_the_picture_in_the_documents_is_what_the_layout_says_today(tmp_path: Path) -> None:
    draw(tmp_path / "ladder.png")
    assert (tmp_path / "ladder.png").read_bytes() == DRAWN.read_bytes(), "run `python -m delayed_topics_bench.ladder`"
