"""A test run can end with a table of its stories."""

import pytest
from delayed_topics_devcluster.stories import Story, collect_stories, table


def report(nodeid: str, seconds: float = 1.0) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=nodeid,
        location=("", 0, ""),
        keywords={},
        outcome="passed",
        longrepr=None,
        when="call",
        duration=seconds,
    )


def test_cases_of_a_function_are_one_story_and_setup_counts_for_its_time() -> None:
    refused = "crds/tests/test_refusals.py::test_what_is_wrong_is_refused"
    killed = "e2e/tests/test_story_killed.py::test_a_worker_is_killed"
    seen = [
        ("", report(killed, 0.5)),
        ("passed", report(killed, 2.0)),
        ("passed", report(f"{refused}[no delay]")),
        ("failed", report(f"{refused}[65 delays]")),
        ("passed", report(f"{refused}[a::b]")),
    ]
    first, second = collect_stories(seen)
    assert (first.title, first.result, first.seconds) == ("what is wrong is refused", "1 failed, 2 passed", 3.0)
    assert (second.title, second.result, second.seconds) == ("a worker is killed", "passed", 2.5)


def test_the_table_names_each_file_once_and_then_its_stories() -> None:
    lines = table(
        [
            Story("a.py", "one", seconds=1.26),
            Story("a.py", "two", seconds=100),
            Story("b.py", "three"),
        ]
    ).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["a.py"],
        ["one", "1.3"],
        ["two", "100.0"],
        ["b.py"],
        ["three", "0.0"],
    ]
