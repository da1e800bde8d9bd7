"""The watches, which kopf runs. They receive events and pass them on; nothing is decided here.

Each scope has a thread and an event loop of its own: our resources in all namespaces, and the objects of workers in each namespace that
may have any. If a watch ends, for example because rights or the CRDs are missing, it is started again, and the others go on.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import kopf

from delayed_topics_operator import metrics
from delayed_topics_operator.gateways.kube import APIS, LARGE_PAGE_ITEMS, PAGE_ITEMS
from delayed_topics_operator.values.labels import SELECTOR_LABELS
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.slim import bounded, slim

log = logging.getLogger(__name__)

Seen = Callable[[str | None, Manifest], None]
"""Called with the type of the event and the object, in the event loop in which the `Watch` was created."""

AGAIN_SECONDS = 5.0
SERVER_SECONDS = 60
"""After this time a watch ends and is started again, because one that has gone silent would not be noticed otherwise."""


class Watches:
    """The watches of all scopes. Belongs to one event loop."""

    def __init__(self, everywhere: Sequence[str], of_workers: Sequence[str], seen: Seen, *, home: str) -> None:
        """`everywhere`, `of_workers`: kinds. `home`: the operator's namespace."""
        self._of_workers, self._seen, self._home = of_workers, seen, home
        self._running: dict[str | None, Watch] = {None: Watch(None, everywhere, seen)}
        self._ending: set[asyncio.Task[None]] = set()
        self._running[None].start()

    def follow(self, namespaces: Collection[str]) -> None:
        """Watches the objects of workers in these namespaces from now on, and in no others."""
        for namespace in [known for known in self._running if known is not None and known not in namespaces]:
            ending = asyncio.create_task(self._running.pop(namespace).stop())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        for namespace in namespaces:
            if namespace not in self._running:
                page_items = LARGE_PAGE_ITEMS if namespace == self._home else PAGE_ITEMS
                self._running[namespace] = Watch(namespace, self._of_workers, self._seen, page_items)
                self._running[namespace].start()

    async def stop(self) -> None:
        await asyncio.gather(*self._ending, *(watch.stop() for watch in self._running.values()))


class Watch:
    """A watch of `kinds` in one namespace, or in all (None)."""

    def __init__(self, namespace: str | None, kinds: Sequence[str], seen: Seen, page_items: int = PAGE_ITEMS) -> None:
        self._namespace = namespace
        self._kinds = kinds
        self._seen = seen
        self._page_items = page_items
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run_forever, name=f"watch-{namespace}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    def _run_forever(self) -> None:
        while not self._stop.is_set():
            try:
                asyncio.run(self._operator())
            except Exception as e:  # noqa: BLE001  whatever kopf raises, the watch is started again
                log.warning("the watch of %s ended (%s). The operator starts it again", self._scope, type(e).__name__)
            if not self._stop.is_set():
                metrics.KOPF_RESTARTS.labels(self._scope).inc()
            self._stop.wait(AGAIN_SECONDS)

    @property
    def _scope(self) -> str:
        return f"namespace {self._namespace}" if self._namespace else "all namespaces"

    async def _operator(self) -> None:
        # kopf's tasks may raise while they are cancelled. _run_forever logs what ends a watch.
        asyncio.get_running_loop().set_exception_handler(lambda _, context: log.debug("kopf: %s", context["message"]))
        where: Any = {"namespaces": [self._namespace]} if self._namespace else {"clusterwide": True}
        # kopf's default identity contains the user's name, which a user id in a container need not have.
        identity: Any = "delayed-topics-operator"
        await kopf.operator(
            registry=self._registry(),
            settings=self._settings(),
            standalone=True,
            identity=identity,
            stop_flag=self._stop,
            **where,
        )

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        async def handler(event: Any, **_: Any) -> None:
            event["object"].update(bounded(slim(event["object"])))  # kopf holds it for longer than it is needed
            self._loop.call_soon_threadsafe(self._seen, event["type"], dict(event["object"]))

        for kind in self._kinds:
            group, _, version = APIS[kind].group_version.rpartition("/")
            kopf.on.event(group, version, APIS[kind].plural, registry=registry, id=kind)(handler)
        kopf.on.login(registry=registry)(_login)
        return registry

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False  # the recorder writes Events
        settings.scanning.disabled = True  # scanning needs rights on CRDs and namespaces
        settings.watching.server_timeout = SERVER_SECONDS
        settings.watching.client_timeout = SERVER_SECONDS + 10
        settings.watching.connect_timeout = 10
        settings.watching.chunk_size = self._page_items
        settings.networking.request_timeout = 20
        settings.networking.error_backoffs = (1, 1, 2, 3, 5)
        settings.queueing.error_delays = (1, 1, 2, 3, 5, 10)  # kopf's default delays grow to 610 s
        settings.queueing.exit_timeout = 1.0
        settings.queueing.idle_timeout = 0.1  # for so long kopf keeps an object after it was handled
        settings.execution.executor = ThreadPoolExecutor(1)  # all handlers are asynchronous
        settings.persistence.finalizer = "delayedtopics.io/kopf"
        settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="kopf.delayedtopics.io")
        settings.persistence.diffbase_storage = _NoDiffBase()
        if self._namespace:
            for kind in self._kinds:
                settings.watching.label_selectors[APIS[kind].plural] = SELECTOR_LABELS
        return settings


class _NoDiffBase(kopf.DiffBaseStorage):
    """Stores nothing, because no handler asks what has changed. To find that out, kopf's own storages copy each reported object twice,
    which took half of the CPU time of the watches."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Logs in with the service account of the pod, or with the kubeconfig."""
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
