"""A program writes its section of a page, and leaves the rest alone."""

from pathlib import Path

import pytest
from delayed_topics_devcluster.errors import PreconditionError
from delayed_topics_devcluster.generated_section import GeneratedSection, markdown_table

SECTION = GeneratedSection(begin="<!-- figures -->", end="<!-- end of figures -->")


def test_the_rest_of_the_page_stays_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{SECTION.containing('old')}\n\nafter\n")
    SECTION.write(page, "new")
    assert page.read_text() == f"before\n\n{SECTION.containing('new')}\n\nafter\n"


@pytest.mark.parametrize(
    "text",
    [
        "a page\n",
        f"a page\n{SECTION.begin}\n",
        f"a page\n{SECTION.end}\n{SECTION.begin}\n",
        f"{SECTION.containing('a')}\n{SECTION.containing('b')}\n",
        f"{SECTION.containing('a')}\n{SECTION.end}\n",
    ],
)
def test_a_page_without_one_place_for_the_text_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(PreconditionError, match=r"page\.md has no place"):
        SECTION.write(page, "new")
    assert page.read_text() == text


def test_a_table_has_its_numbers_on_the_right() -> None:
    table = markdown_table(["row", "trials", "commit"], [["W1", "200", "abc"]], texts={"row", "commit"})
    assert table == "| row | trials | commit |\n| -- | -: | -- |\n| W1 | 200 | abc |"
