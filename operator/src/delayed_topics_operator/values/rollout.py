"""Whether the pods of workers may be replaced now. `engine/rollouts.py` answers this. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """`may_begin`: whether few enough other StatefulSets are replacing their pods. `stuck`: how many StatefulSets have lost workers by the
    present chart values, while no worker anywhere shows that pods run with them; 0 for a StatefulSet that has been given these values."""

    may_begin: bool = True
    stuck: int = 0

    @property
    def all_may_change(self) -> bool:
        """Whether the pods may be replaced by pods with the present chart values."""
        return self.may_begin and not self.stuck
