"""Kubernetes as any user sees it: kubectl."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import tenacity
import yaml
from delayed_topics_devcluster.errors import CommandFailedError

from delayed_topics_e2e.waiting import until

__all__ = ["Kube", "Manifest", "condition", "selector_of", "with_retries"]

Manifest = Mapping[str, Any]


class Kubectl(Protocol):
    """Runs kubectl in the context of the tests and returns its output; raises CommandFailedError."""

    def __call__(self, *arguments: str, text_in: str | None = None) -> str: ...


RETRY_SECONDS = 120.0
NO_ANSWER = (
    "Unable to connect to the server",
    "The connection to the server",
    "http2: client connection lost",
    "Error from server (Timeout)",
    "Error from server: etcdserver:",
)


def with_retries(kubectl: Kubectl) -> Kubectl:
    """Returns a kubectl that retries if no answer came, as people do: an API server on a busy machine can be late."""

    def unanswered(error: BaseException) -> bool:
        return isinstance(error, CommandFailedError) and any(sign in error.message for sign in NO_ANSWER)

    patient: Kubectl = tenacity.retry(
        retry=tenacity.retry_if_exception(unanswered),
        wait=tenacity.wait_fixed(1),
        stop=tenacity.stop_after_delay(RETRY_SECONDS),
        reraise=True,
    )(kubectl)
    return patient


@dataclass(frozen=True, kw_only=True)
class Kube:
    """The verbs of kubectl that stories need. `namespace=None`: a cluster-scoped resource, or all namespaces."""

    kubectl: Kubectl

    def apply(self, *manifests: Manifest | str) -> str:
        """`kubectl apply -f -`. Raises CommandFailedError with what kubectl printed if the API server refuses."""
        text = "\n---\n".join(m if isinstance(m, str) else yaml.safe_dump(dict(m)) for m in manifests)
        return self.kubectl("apply", "-f", "-", text_in=text)

    def get(self, kind: str, name: str, *, namespace: str | None = None) -> dict[str, Any] | None:
        """Returns the object, or None if it doesn't exist."""
        printed = self.kubectl("get", kind, name, *_in(namespace), "--ignore-not-found", "-o", "json")
        return json.loads(printed) if printed.strip() else None

    def list(
        self, kind: str, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> "Sequence[dict[str, Any]]":
        where = _in(namespace) or ["--all-namespaces"]
        selector = ["-l", selector_of(labels)] if labels else []
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, *where, *selector, "-o", "json"))["items"]
        return items

    def patch(self, kind: str, name: str, body: Manifest, *, namespace: str | None = None) -> None:
        """Applies a merge patch, as a change by hand."""
        self.kubectl("patch", kind, name, *_in(namespace), "--type=merge", "-p", json.dumps(body))

    def delete(
        self, kind: str, *names: str, namespace: str | None = None, wait_seconds: int = 0, now: bool = False
    ) -> None:
        """`wait_seconds`: how long to wait until the objects are gone; 0: don't wait. `now`: without a grace period, as when a node
        dies."""
        waiting = [f"--wait=true --timeout={wait_seconds}s"] if wait_seconds else ["--wait=false"]
        force = ["--grace-period=0", "--force"] if now else []
        self.kubectl("delete", kind, *names, *_in(namespace), "--ignore-not-found", *" ".join(waiting).split(), *force)

    def wait(
        self,
        kind: str,
        *names: str,
        until_it: str,
        timeout_seconds: float,
        namespace: str | None = None,
        evidence: Callable[[], str] | None = None,
    ) -> None:
        """Runs `kubectl wait --for=<until_it>`. Raises AssertionError after the timeout, with the evidence, by default the output of
        `kubectl describe`."""
        targets = [f"{kind}/{name}" for name in names]
        try:
            self.kubectl("wait", f"--for={until_it}", f"--timeout={timeout_seconds:g}s", *targets, *_in(namespace))
        except CommandFailedError as e:
            seen = evidence() if evidence else self.describe(kind, *names, namespace=namespace)
            waited = f"timed out after {timeout_seconds:g} s. Waited for {until_it} of {', '.join(targets)}"
            raise AssertionError(f"{waited}\n{seen}\n{e}") from None

    def wait_gone(self, kind: str, name: str, *, timeout_seconds: float, namespace: str | None = None) -> None:
        until(
            lambda: self.get(kind, name, namespace=namespace) is None,
            what=f"{kind} {name} is gone",
            timeout_seconds=timeout_seconds,
            evidence=lambda: self.describe(kind, name, namespace=namespace),
        )

    def describe(self, kind: str, *names: str, namespace: str | None = None) -> str:
        """Output of `kubectl describe` for the message of a failed test. Returns the error instead of raising it."""
        try:
            return self.kubectl("describe", kind, *names, *_in(namespace))
        except CommandFailedError as e:
            return str(e)

    def logs(self, pod: str, *, namespace: str, lines: int = 40) -> str:
        try:
            return self.kubectl("logs", pod, *_in(namespace), f"--tail={lines}", "--all-containers")
        except CommandFailedError as e:
            return str(e)

    def events(self, namespace: str, *, about: str | None = None) -> "Sequence[dict[str, Any]]":
        """Events of the namespace. `about`: only those of objects with this name."""
        return [e for e in self.list("events", namespace=namespace) if about in (None, e["involvedObject"]["name"])]

    def pod_get(self, pod: str, path: str, *, namespace: str, port: int = 8080) -> str:
        """Sends HTTP GET to a pod, through the API server."""
        return self.kubectl("get", "--raw", f"/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/{path}")


def condition(resource: Manifest | None, type_: str) -> dict[str, Any]:
    """Returns the condition of this type, or an empty one if it is missing or of an earlier generation."""
    if resource is None:
        return {}
    generation = resource["metadata"].get("generation")
    found = resource.get("status", {}).get("conditions", ())
    return next((c for c in found if c["type"] == type_ and c.get("observedGeneration", generation) == generation), {})


def selector_of(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())


def _in(namespace: str | None) -> list[str]:
    return ["-n", namespace] if namespace else []
