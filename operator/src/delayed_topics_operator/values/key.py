"""Which resource is meant."""

from typing import NamedTuple


class Key(NamedTuple):
    """A resource. `namespace` is empty for cluster-scoped ones."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"
