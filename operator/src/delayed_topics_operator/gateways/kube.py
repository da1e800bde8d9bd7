"""All calls to the API server: plain dicts in and out, server-side apply, one error tree, and a count of every call.

Only the configuration and the transport of the official client are used. Its generated methods send a strategic merge patch where an apply
is meant, and its models refuse fields that they don't know.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import aiohttp
from delayed_topics_crds import API_VERSION, KINDS
from kubernetes import aio

from delayed_topics_operator import metrics
from delayed_topics_operator.errors import (
    Conflict,
    Denied,
    Expired,
    Forbidden,
    Invalid,
    KubeError,
    KubeRefused,
    KubeUnreachable,
    NotFound,
    QuotaExceeded,
    Undeclared,
    of_quota,
)
from delayed_topics_operator.values.field_managers import FIELD_MANAGER
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.slim import bounded, slim

REQUEST_SECONDS = 20.0
CONNECTIONS = 64
PAGE_ITEMS = 20
"""The page size of lists. An object can have 1.5 MB, and all objects of a page are in memory at once."""
LARGE_PAGE_ITEMS = 500
"""The page size of lists of objects that no tenant can write, which are small."""

Propagation = Literal["Foreground", "Background", "Orphan"]


def _kept(manifest: Manifest) -> Manifest:
    return bounded(slim(manifest))


@dataclass(frozen=True)
class Api:
    """The API group, version and plural name of a kind."""

    group_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        root = "/api/v1" if self.group_version == "v1" else f"/apis/{self.group_version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return root + scope + "/" + "/".join(part for part in (self.plural, name, subresource) if part)


APIS: Mapping[str, Api] = {
    **{kind.name: Api(API_VERSION, kind.plural, namespaced=kind.namespaced) for kind in KINDS.values()},
    "Namespace": Api("v1", "namespaces", namespaced=False),
    "ConfigMap": Api("v1", "configmaps"),
    "Secret": Api("v1", "secrets"),
    "Service": Api("v1", "services"),
    "Event": Api("v1", "events"),
    "Pod": Api("v1", "pods"),
    "StatefulSet": Api("apps/v1", "statefulsets"),
    "PodDisruptionBudget": Api("policy/v1", "poddisruptionbudgets"),
    "Job": Api("batch/v1", "jobs"),
    "SparkApplication": Api("sparkoperator.k8s.io/v1beta2", "sparkapplications"),
    "Lease": Api("coordination.k8s.io/v1", "leases"),
}

_REFUSALS: Mapping[int, type[KubeRefused]] = {403: Forbidden, 404: NotFound, 409: Conflict, 410: Expired, 422: Invalid}
_OF_WEBHOOK = re.compile(r'admission webhook ".*" denied the request')
_UNDECLARED = "field not declared in schema"
_UNAVAILABLE = frozenset({429, 500, 502, 503, 504})


class Kube:
    """`await Kube.connect()` uses the service account of the pod, or outside a pod the kubeconfig. Returned objects are `slim`. They are
    `bounded`, too, unless one is read by its name."""

    def __init__(self, client: aio.client.ApiClient, before_writing: Callable[[], None]) -> None:
        self._client = client
        self._before_writing = before_writing

    @classmethod
    async def connect(cls, *, before_writing: Callable[[], None] = lambda: None) -> "Kube":
        """`before_writing`: called right before each call that changes something. What it raises ends the call."""
        configuration = type.__call__(aio.client.Configuration)
        try:
            aio.config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except aio.config.ConfigException:
            await aio.config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        configuration.connection_pool_maxsize = CONNECTIONS
        # As in kopf's watches. Otherwise aiohttp looks for proxies in all environment variables at every call.
        configuration.client_session_kwargs = {"trust_env": False}
        return cls(aio.client.ApiClient(configuration), before_writing)

    async def close(self) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

    async def get(self, kind: str, namespace: str | None, name: str) -> Manifest:
        """Raises NotFound."""
        return slim(await self._call("GET", kind, namespace, name))

    async def find(self, kind: str, namespace: str | None, name: str) -> Manifest | None:
        """Returns the object. None: it does not exist."""
        try:
            return await self.get(kind, namespace, name)
        except NotFound:
            return None

    async def list_one(
        self, kind: str, namespace: str | None, name: str, *, keep: Callable[[Manifest], Manifest] = _kept
    ) -> Manifest | None:
        """Returns what `keep` returns for the object, and None if it does not exist. For the operator's own kinds, which it has the right
        to list, but not to get."""
        listed = await self.list_all(kind, namespace, fields=f"metadata.name={name}", keep=keep)
        return listed[0] if listed else None

    async def list_all(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        page_items: int = PAGE_ITEMS,
        keep: Callable[[Manifest], Manifest] = _kept,
    ) -> list[Manifest]:
        """Lists all objects, in pages of `page_items`, and returns what `keep` returns for each. If the API server no longer has the
        state of the first page, lists all of them in one call, as the pager of client-go does."""
        selectors = [(key, chosen) for key, chosen in (("labelSelector", labels), ("fieldSelector", fields)) if chosen]

        async def page(*further: tuple[str, str]) -> tuple[list[Manifest], str]:
            answer = await self._call("GET", kind, namespace, query=[*selectors, *further], verb="LIST")
            return [keep(_typed(kind, item)) for item in answer["items"]], answer["metadata"].get("continue", "")

        limit = ("limit", str(page_items))
        items, token = await page(limit)
        while token:
            try:
                more, token = await page(limit, ("continue", token))
            except Expired:
                return (await page())[0]
            items += more
        return items

    async def apply(
        self,
        manifest: Manifest,
        *,
        subresource: str | None = None,
        field_manager: str = FIELD_MANAGER,
        force: bool = True,
    ) -> Manifest:
        """Server-side apply: creates the object, or sets the fields that `manifest` has, and only these.

        Fields that this field manager applied before and that are no longer in `manifest` are removed. Without `force`, raises Conflict if
        another field manager has applied another value of a field.
        """
        meta = manifest["metadata"]
        return _kept(
            await self._call(
                "PATCH",
                manifest["kind"],
                meta.get("namespace"),
                meta["name"],
                subresource=subresource,
                query=[("fieldManager", field_manager), ("force", str(force).lower())],
                body=manifest,
                content_type="application/apply-patch+yaml",
                verb="APPLY",
            )
        )

    async def merge(self, kind: str, namespace: str | None, name: str, patch: Manifest) -> Manifest:
        """Sends a JSON merge patch. If it contains `metadata.resourceVersion`, raises Conflict if someone else was faster."""
        return _kept(await self._call(
            "PATCH", kind, namespace, name, body=patch, content_type="application/merge-patch+json",
            query=[("fieldManager", FIELD_MANAGER)],
        ))  # fmt: skip

    async def create(self, manifest: Manifest) -> Manifest:
        """Raises Conflict if it exists."""
        query = [("fieldManager", FIELD_MANAGER)]
        return _kept(
            await self._call(
                "POST", manifest["kind"], manifest["metadata"].get("namespace"), body=manifest, query=query
            )
        )

    async def delete(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        propagation: Propagation = "Background",
    ) -> None:
        """Deletes an object. One that does not exist counts as deleted, and so does one with another `uid`."""
        options: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self._call("DELETE", kind, namespace, name, body=options)
        except NotFound:
            return
        except Conflict:
            if uid is None:
                raise

    async def _call(
        self,
        method: str,
        kind: str,
        namespace: str | None,
        name: str | None = None,
        *,
        subresource: str | None = None,
        query: list[tuple[str, str]] | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
        verb: str | None = None,
    ) -> Manifest:
        path = APIS[kind].path(namespace, name, subresource)
        counted = verb or method
        what = f"{counted} {kind} {'/'.join(part for part in (namespace, name, subresource) if part)}"
        if method != "GET":
            self._before_writing()
        try:
            status, data, headers = await self._send(method, path, query or [], body, content_type)
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            metrics.KUBE_CALLS.labels(counted, kind, "none").inc()
            raise KubeUnreachable(
                f"the API server did not answer {what} ({e!r}). The operator tries again later"
            ) from e
        metrics.KUBE_CALLS.labels(counted, kind, str(status)).inc()
        if status < 300:
            return dict(json.loads(data))
        raise _error(what, status, data, headers)

    async def _send(
        self, method: str, path: str, query: list[tuple[str, str]], body: Manifest | None, content_type: str
    ) -> tuple[int, bytes, Mapping[str, str]]:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        request = await self._client.param_serialize(
            method, path, query_params=query, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        async with asyncio.timeout(REQUEST_SECONDS):
            response = await self._client.call_api(*request, _request_timeout=REQUEST_SECONDS)
            return response.status, await response.read(), response.headers  # type: ignore[no-untyped-call]


def _typed(kind: str, item: Manifest) -> Manifest:
    """Returns an item of a list with its kind, which the API server leaves out."""
    return {"apiVersion": APIS[kind].group_version, "kind": kind, **item}


def _error(what: str, status: int, data: bytes, headers: Mapping[str, str]) -> KubeError:
    try:
        message = str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        message = data[:200].decode(errors="replace")
    if status == 500 and _UNDECLARED in message:
        older = "an older version is installed in the cluster. Apply the CRDs of this version of the operator first"
        return Undeclared(f"the API server refused {what} ({status}), because {older}: {message}", status=status)
    if status in _UNAVAILABLE:
        asked = headers.get("Retry-After", "")
        retry_after_seconds = float(asked) if asked.isdecimal() else None
        return KubeUnreachable(
            f"the API server can't serve {what} at present ({status}: {message})",
            retry_after_seconds=retry_after_seconds,
        )
    refusal = _REFUSALS.get(status, KubeRefused)
    if refusal is Forbidden and of_quota(message):
        refusal = QuotaExceeded
    elif refusal in (Forbidden, KubeRefused) and _OF_WEBHOOK.search(message):
        refusal = Denied
    return refusal(f"the API server refused {what} ({status}): {message}", status=status)
