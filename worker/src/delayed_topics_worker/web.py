"""/livez /readyz /metrics /status, on threads of their own: they read what the worker's thread has left for them."""

import json
import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST

from delayed_topics_worker.metrics import Metrics

log = logging.getLogger(__name__)

ALIVE_SECONDS: Final = 45.0
"""Longer than the longest that a rebalance callback may block."""


class PublishedStatus:
    """The state that the worker's thread publishes for the HTTP server. Each field is replaced as a whole."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self.turned_at = seconds()
        self.ready = False
        self.status: dict[str, Any] = {}

    @property
    def alive(self) -> bool:
        """The owning thread turns. Says nothing about Kafka."""
        return self._seconds() - self.turned_at < ALIVE_SECONDS


def serve(published: PublishedStatus, metrics: Metrics, port: int) -> ThreadingHTTPServer:
    """Starts to serve on all addresses. Raises OSError."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/livez":
                    self._answer(
                        200 if published.alive else 503, "text/plain", b"ok\n" if published.alive else b"stuck\n"
                    )
                case "/readyz":
                    self._answer(
                        200 if published.ready else 503, "text/plain", b"ok\n" if published.ready else b"not yet\n"
                    )
                case "/metrics":
                    self._answer(200, CONTENT_TYPE_LATEST, metrics.exposition())
                case "/status":
                    self._answer(200, "application/json", json.dumps(published.status, sort_keys=True).encode())
                case _:
                    self._answer(404, "text/plain", b"/livez /readyz /metrics /status\n")

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name in the base class
            log.debug(format, *args)

    server = ThreadingHTTPServer(("", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server
