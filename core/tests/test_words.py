import pytest
from delayed_topics_core.words import counted


@pytest.mark.parametrize(("number", "text"), [(0, "0 records"), (1, "1 record"), (1200, "1,200 records")])
def test_a_count_has_the_form_of_its_number(number: int, text: str) -> None:
    assert counted(number, "record") == text
