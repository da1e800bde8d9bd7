"""The processor time of a thread belongs to one section."""

import pytest
from delayed_topics_bench.cpu import section_of


@pytest.mark.parametrize(
    ("thread", "section"),
    [
        ("rdk:broker1", "librdkafka, brokers"),
        ("rdk:broker-1", "librdkafka, brokers"),
        ("rdk:main", "librdkafka, main"),
        ("engine", "engine"),
        ("python", "Python"),
    ],
)
def test_a_thread_belongs_to_its_section(thread: str, section: str) -> None:
    assert section_of(thread) == section
