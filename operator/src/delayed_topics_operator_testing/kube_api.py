"""Objects of a real API server, asked for in the words of the operator's tests."""

import urllib.error
from dataclasses import dataclass
from typing import Any

from delayed_topics_devcluster.api_server import ApiServer
from delayed_topics_operator.gateways.kube import APIS


@dataclass(frozen=True)
class KubeApi:
    """What tests ask a hundred times goes over HTTP; the rest is kubectl's."""

    server: ApiServer

    def kubectl(self, *arguments: str, text_in: str | None = None) -> str:
        return self.server.kubectl(*arguments, text_in=text_in)

    def apply(self, *manifests: dict[str, Any], subresource: str | None = None) -> None:
        for manifest in manifests:
            meta = manifest["metadata"]
            path = APIS[manifest["kind"]].path(meta.get("namespace"), meta["name"], subresource)
            self.server.call("PATCH", f"{path}?fieldManager=test&force=true&fieldValidation=Strict", manifest)

    def get(self, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        try:
            return self.server.call("GET", APIS[kind].path(namespace, name))
        except urllib.error.HTTPError as e:
            if e.code == 404:
                return None
            raise

    def list_all(self, kind: str, namespace: str = "") -> list[dict[str, Any]]:
        return list(self.server.call("GET", APIS[kind].path(namespace))["items"])
