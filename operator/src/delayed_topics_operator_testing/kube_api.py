"""Access to the objects of a real API server, for tests of the operator."""

import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delayed_topics_devcluster.api_server import ApiServer
from delayed_topics_operator.gateways.kube import APIS

APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"


@contextmanager
def unless_gone() -> Iterator[None]:
    """Ignores that the object of a call does not exist."""
    try:
        yield
    except urllib.error.HTTPError as e:
        if e.code != 404:
            raise


@dataclass(frozen=True)
class KubeApi:
    """Frequent calls go over HTTP, all others through kubectl. `operators_kubeconfig`: has the rights that the chart grants."""

    server: ApiServer
    operators_kubeconfig: Path

    def kubectl(self, *arguments: str, text_in: str | None = None) -> str:
        return self.server.kubectl(*arguments, text_in=text_in)

    def apply(self, *manifests: dict[str, Any], subresource: str | None = None) -> None:
        for manifest in manifests:
            meta = manifest["metadata"]
            path = APIS[manifest["kind"]].path(meta.get("namespace"), meta["name"], subresource)
            path = f"{path}?fieldManager=test&force=true&fieldValidation=Strict"
            self.server.call("PATCH", path, manifest, content_type=APPLY)

    def merge(self, kind: str, name: str, patch: dict[str, Any], namespace: str = "") -> None:
        """As `kubectl patch --type=merge`."""
        self.server.call("PATCH", APIS[kind].path(namespace, name), patch, content_type=MERGE)

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        """As `kubectl delete --wait=false --ignore-not-found`."""
        with unless_gone():
            self.server.call("DELETE", APIS[kind].path(namespace, name))

    def delete_all(self, kind: str, namespace: str, labels: str) -> None:
        """Deletes all objects with these labels."""
        self.server.call("DELETE", f"{APIS[kind].path(namespace)}?labelSelector={labels}")

    def get(self, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        try:
            return self.server.call("GET", APIS[kind].path(namespace, name))
        except urllib.error.HTTPError as e:
            if e.code == 404:
                return None
            raise

    def list_all(self, kind: str, namespace: str = "") -> list[dict[str, Any]]:
        return list(self.server.call("GET", APIS[kind].path(namespace))["items"])
