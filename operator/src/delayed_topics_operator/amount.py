"""What quotas count."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class Amount:
    """What a quota counts; see `delayed_topics_crds.Quota`."""

    delayed_topics: int = 0
    partitions: int = 0
    workers: int = 0
    executors: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Amount)})

    def at_least(self, other: "Amount") -> "Amount":
        """Number by number the higher one."""
        return Amount(**{f.name: max(getattr(self, f.name), getattr(other, f.name)) for f in fields(Amount)})
