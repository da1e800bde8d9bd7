"""Computes the times of `spec.audit.schedule`. The API server can only check that there are five fields, and not what they mean."""

from collections.abc import Iterator
from datetime import datetime

from cronsim import CronSim, CronSimError

from delayed_topics_operator.errors import SpecInvalid


def times(schedule: str, after: datetime) -> Iterator[datetime]:
    """Yields the times after `after`, in UTC, without an end. Raises SpecInvalid if the schedule is not a cron expression, or has no such
    time."""
    yield from _walked(schedule, after)
    raise SpecInvalid(
        f"spec.audit.schedule {schedule!r} never comes, since no day in the next 50 years is as its fields say. For example, '0 3 * * *' "
        "means every day at 3:00"
    )


def last_time(schedule: str, before: datetime) -> datetime | None:
    """Returns the last time before `before`. None: there is none. Raises SpecInvalid if the schedule is not a cron expression."""
    return next(_walked(schedule, before, reverse=True), None)


def _walked(schedule: str, begin: datetime, *, reverse: bool = False) -> Iterator[datetime]:
    try:
        yield from CronSim(schedule, begin, reverse)
    except CronSimError as e:
        raise SpecInvalid(
            f"spec.audit.schedule {schedule!r} is not a cron expression ({e}). For example, '0 3 * * *' means every day at 3:00"
        ) from e
