"""Keeps the operator from doing over and over what somebody else undoes. Pure: the time is passed in."""

from datetime import UTC, datetime

from delayed_topics_operator.values.plan import Action

Actions = tuple[Action, ...]


class Undone:
    """Of one resource. `in_vain`: what changed nothing when it was done the last time, as where a webhook puts back what there was."""

    def __init__(self) -> None:
        self.in_vain: Actions = ()
        self._in_vain_at = datetime.min.replace(tzinfo=UTC)
        self._last: Actions = ()

    def begin(self, now: datetime, *, again_seconds: float) -> None:
        """A pass. What was in vain is done again when that much time has gone by."""
        self._last = self.in_vain if (now - self._in_vain_at).total_seconds() < again_seconds else ()

    def has(self, planned: Actions) -> bool:
        """Whether this was done last, and so is planned again only because somebody has undone it."""
        return bool(planned) and planned == self._last

    def done(self, actions: Actions, now: datetime, *, changed: bool) -> None:
        """`changed`: whether anything is other than before by them."""
        self._last = actions
        if not changed:
            self.in_vain, self._in_vain_at = actions, now
