"""Keeps the operator from repeating without end what somebody else undoes. Pure: the time is passed in."""

from datetime import UTC, datetime

from delayed_topics_operator.values.plan import Action

Actions = tuple[Action, ...]


class Undone:
    """The actions of one resource that somebody else undoes. `in_vain`: the actions that changed nothing when they were last executed, for
    example because a webhook reverted them."""

    def __init__(self) -> None:
        self.in_vain: Actions = ()
        self._in_vain_at = datetime.min.replace(tzinfo=UTC)
        self._last: Actions = ()

    def begin(self, now: datetime, *, again_seconds: float) -> None:
        """Begins a pass. Actions that were in vain are executed again after `again_seconds`."""
        self._last = self.in_vain if (now - self._in_vain_at).total_seconds() < again_seconds else ()

    def has(self, planned: Actions) -> bool:
        """Whether these actions were the last to be executed, so that they are planned again only because somebody has undone them."""
        return bool(planned) and planned == self._last

    def done(self, actions: Actions, now: datetime, *, changed: bool) -> None:
        """Records the actions that were executed. `changed`: whether they changed anything."""
        self._last = actions
        if not changed:
            self.in_vain, self._in_vain_at = actions, now
