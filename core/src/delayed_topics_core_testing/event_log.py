"""Events as workers write them into `delayedtopics.events`, and the rebalances that follow from these events."""

from collections.abc import Iterable, Mapping
from typing import Any

from delayed_topics_core.events import Event, EventKind
from delayed_topics_core.layout import format_ranges
from delayed_topics_core.rebalances import Rebalance, Rebalances

SESSION_MS = 10_000


class EventLog:
    """Collects the events that workers write. Each event comes a second after the previous one."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.events: list[Event] = []
        self._templates: dict[str, dict[str, str]] = {}

    def add(self, kind: EventKind, member: str, **detail: Any) -> None:
        self.now_ms += 1_000
        self.events.append(Event(kind=kind, topic="orders", member=member, at_ms=self.now_ms, detail=detail))

    def starts(self, *members: str, template: str | None = None) -> None:
        """`template` is the template of the workers' pods. With None, their events do not name one."""
        for member in members:
            self._templates[member] = {} if template is None else {"template": template}
            self.add("worker-started", member, **self._templates[member])

    def stops(self, member: str) -> None:
        self.add("worker-stopped", member)

    def assigned(self, generation: int, **partitions: Iterable[int]) -> None:
        """Kafka assigns these partitions, and the members serve them. `partitions` gives the partitions of each member."""
        self.given(generation, partitions)

    def given(
        self, generation: int, partitions: Mapping[str, Iterable[int]], *, served: bool = True, group: str = "g"
    ) -> None:
        for member, numbers in partitions.items():
            places = [f"orders[{format_ranges(sorted(numbers))}]"]
            detail = {"generation": generation, "places": places}
            template = self._templates.get(member, {})
            self.add("assignment", member, group=group, session_timeout_ms=SESSION_MS, **detail, **template)
            if served:
                self.add("rebalance", member, change="assigned", **detail)

    def revoked(self, **partitions: Iterable[int]) -> None:
        self.taken("revoked", partitions)

    def taken(self, change: str, partitions: Mapping[str, Iterable[int]], **further: Any) -> None:
        for member, numbers in partitions.items():
            places = [f"orders[{format_ranges(sorted(numbers))}]"]
            self.add("rebalance", member, change=change, places=places, **further)


def of_two_workers() -> EventLog:
    """Two workers, `a` and `b`, to which the partitions 0 to 3 are assigned."""
    log = EventLog()
    log.starts("a", "b")
    log.assigned(1, a=(0, 1), b=(2, 3))
    return log


def rebalances(events: Iterable[Event]) -> tuple[Rebalance, ...]:
    found = Rebalances(keep=100)
    for event in events:
        found.add(event)
    return found.latest


def shown(log: EventLog) -> list[tuple[int, str, int, int, int]]:
    return [
        (r.generation, r.reason, r.moved_partitions, r.affected_workers, r.unaffected_workers)
        for r in rebalances(log.events)
    ]
