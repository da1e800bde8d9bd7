"""Serves /livez, /readyz, /metrics and /status, on threads that read what the worker's thread publishes."""

import json
import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST

from delayed_topics_worker.metrics import Metrics

log = logging.getLogger(__name__)

ALIVE_SECONDS: Final = 45.0
"""Longer than any time for which a rebalance callback may block."""
IDLE_SECONDS: Final = 10.0
"""A connection without a request, or whose answer is not taken, is closed after this time, because it holds a thread."""


class PublishedStatus:
    """The state that the worker's thread publishes for the HTTP server. Each field is replaced as a whole."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self.turned_at = seconds()
        self.ready = False
        self.status: dict[str, Any] = {}

    @property
    def alive(self) -> bool:
        """Whether the threads of the worker and of its engine finish their turns. It says nothing about Kafka."""
        return self._seconds() - self.turned_at < ALIVE_SECONDS


class DualStackServer(ThreadingHTTPServer):
    """Serves on all IPv6 and IPv4 addresses, or only on IPv4 addresses if the kernel has no IPv6."""

    daemon_threads = True

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        """Raises OSError."""
        self.address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        super().__init__(("", port), handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def serve(published: PublishedStatus, metrics: Metrics, port: int) -> ThreadingHTTPServer:
    """Starts to serve on all addresses. Raises OSError."""

    class Handler(BaseHTTPRequestHandler):
        timeout = IDLE_SECONDS

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

    server = DualStackServer(port, Handler)
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server
