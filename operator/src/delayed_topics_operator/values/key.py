"""The identity of a resource."""

from typing import NamedTuple


class Key(NamedTuple):
    """Identifies a resource. `namespace` is empty for cluster-scoped resources."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"
