import pytest
from delayed_topics_core.control import Control, ControlKind


@pytest.mark.parametrize(
    ("value", "control"),
    [
        (b"cancel", Control(ControlKind.CANCEL)),
        (b"cancelled", Control(ControlKind.CANCELLED)),
        (b"too-late", Control(ControlKind.TOO_LATE)),
        (b"deliver-at 1767225600000", Control(ControlKind.DELIVER_AT, 1_767_225_600_000)),
        (b"rescheduled 0", Control(ControlKind.RESCHEDULED, 0)),
        (b"too-late 999999999999999", Control(ControlKind.TOO_LATE, 999_999_999_999_999)),
        (b"no-room 5", Control(ControlKind.NO_ROOM, 5)),
    ],
)
def test_a_value_says_what_is_wanted_or_what_became_of_it(value: bytes, control: Control) -> None:
    assert Control.decode(value) == control
    assert control.encode() == value


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"Cancel",
        b"cancel ",
        b"cancel 5",
        b"cancelled 5",
        b"deliver-at",
        b"deliver-at ",
        b"deliver-at soon",
        b"deliver-at -5",
        b"deliver-at +5",
        b"deliver-at 5.0",
        b"deliver-at  5",
        b"deliver-at 5 ",
        b"deliver-at 1000000000000000",
        b"rescheduled",
        b"\xff",
        b"deliver-at \xd9\xa5",
    ],
)
def test_what_is_none_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Control.decode(value)


def test_an_answer_is_about_what_was_asked_for_and_holds_unless_it_refuses() -> None:
    request = Control(ControlKind.DELIVER_AT, 5)
    assert request.is_request
    for kind in ControlKind:
        answer = request.answered(kind)
        assert answer.deliver_at_ms == 5
        refuses = kind in (ControlKind.NO_LADDER, ControlKind.TOO_FAR, ControlKind.NO_ROOM, ControlKind.NOT_UNDERSTOOD)
        assert answer.is_in_force is not refuses
