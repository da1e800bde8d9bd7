"""All rows report unfinished partitions in the same words."""

from typing import Any

import pytest
from delayed_topics_faults.judge import Seen
from delayed_topics_faults.row import Trial
from delayed_topics_faults.rows import ROWS


class NeverSettled:
    """A testbed on which a partition stays behind."""

    def settled(self, _: float) -> bool:
        return False

    def unsettled(self) -> list[str]:
        return ["orders [0]: 1 of 2"]

    def read(self) -> Seen:
        return Seen((), (), (), ())

    read_repeats = read


@pytest.mark.parametrize(("name", "seconds"), [("W1", 180), ("W7", 600)])
def test_what_is_not_finished_is_said_with_the_time_that_was_waited(name: str, seconds: int) -> None:
    testbed: Any = NeverSettled()
    _, unfinished = ROWS[name]().finish(testbed, Trial(injected=""))
    assert unfinished == [f"not finished after {seconds} s: orders [0]: 1 of 2"]
