"""Which namespaces admit the operator for their own KafkaConnections, with the Secrets, workers and audits of these."""

from collections.abc import Collection
from typing import Final

from delayed_topics_operator.engine.settings import Settings
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.values.selectors import selects


class Tenants:
    """The namespaces that are listed, and those that the selector matches. Belongs to one event loop."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings: Final = settings
        self._store: Final = store
        self.entered = frozenset(settings.tenant_namespaces)

    def may_use(self, namespace: str) -> bool:
        """Whether the operator works with Secrets and workers in this namespace."""
        return namespace == self._settings.namespace or namespace in self.entered

    def may_audit(self, namespace: str) -> bool:
        """Whether the operator runs Jobs of audits in this namespace. Its rights on these differ from its rights on workers."""
        return namespace == self._settings.audit_namespace or namespace in self.entered

    @property
    def worker_namespaces(self) -> frozenset[str]:
        return self.entered | {self._settings.namespace}

    def requested(self) -> frozenset[str]:
        """Returns the namespaces that admit the operator now, as the store knows them. The platform's own namespaces are no tenants,
        whatever their labels are."""
        selector = self._settings.tenant_selector
        if selector is None:
            return frozenset(self._settings.tenant_namespaces)
        platform = {self._settings.namespace, self._settings.audit_namespace}
        selected = {
            namespace["metadata"]["name"]
            for namespace in self._store.all("Namespace")
            if selects(selector, namespace["metadata"].get("labels") or {})
        }
        return frozenset((*self._settings.tenant_namespaces, *(selected - platform)))

    def enter(self, namespaces: Collection[str]) -> frozenset[str]:
        """Makes these the tenants' namespaces. Returns those that were added or removed."""
        before, self.entered = self.entered, frozenset(namespaces)
        return before ^ self.entered
