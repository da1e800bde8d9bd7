import pytest
from delayed_topics_core.words import counted, shortened


@pytest.mark.parametrize(("number", "text"), [(0, "0 records"), (1, "1 record"), (1200, "1,200 records")])
def test_a_count_has_the_form_of_its_number(number: int, text: str) -> None:
    assert counted(number, "record") == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, ""), (1, "0"), (2, "0, 1"), (3, "0, 1 and 1 more"), (2002, "0, 1 and 2,000 more")]
)
def test_a_long_list_of_names_is_cut_and_says_how_many_it_leaves_out(number: int, text: str) -> None:
    assert shortened([str(n) for n in range(number)], most=2) == text
