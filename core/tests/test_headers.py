import pytest
from delayed_topics_core.headers import Target


@pytest.mark.parametrize(
    ("value", "target"),
    [
        (b"invoices", Target("invoices")),
        (b"a.b-c_D:0", Target("a.b-c_D", 0)),
        (b"invoices:2147483647", Target("invoices", 2147483647)),
        (b"x" * 249, Target("x" * 249)),
    ],
)
def test_a_ready_topic_that_a_record_asks_for_may_have_a_partition(value: bytes, target: Target) -> None:
    assert Target.decode(value) == target


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b":1",
        b"invoices:",
        b"invoices:-1",
        b"invoices:2147483648",
        b"invoices:00000000001",
        b"a b",
        b"x" * 250,
        b"a\n",
    ],
)
def test_what_is_no_topic_with_or_without_a_partition_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="b'"):
        Target.decode(value)
