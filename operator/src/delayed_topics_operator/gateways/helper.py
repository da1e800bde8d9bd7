"""What runs in the process of groups.py. It imports nothing else of the operator, so that it stays small."""

import multiprocessing
import os
import signal
import threading
from typing import Any, Literal

from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection

Call = Literal["describe_groups", "committed_of_groups", "commit", "delete_groups", "fence"]
"""Methods of KafkaAdmin that return a result for each item."""

_admin: KafkaAdmin


def begin(connection: Connection, client_id: str, timeout_seconds: float) -> None:
    """The first that happens in the process."""
    global _admin  # noqa: PLW0603  one for the life of the process
    threading.Thread(target=_end_with_the_operator, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _admin = KafkaAdmin(connection, client_id=client_id, timeout_seconds=timeout_seconds)


def _end_with_the_operator() -> None:
    """However that ends; the process that all helpers are forked from ends after the last of them."""
    operator = multiprocessing.parent_process()
    assert operator is not None, "a helper is begun by the operator"
    operator.join()
    os._exit(1)


def call(name: Call, arguments: tuple[Any, ...]) -> dict[Any, Any]:
    """The results by item, KafkaCallError among them."""
    results: dict[Any, Any] = getattr(_admin, name)(*arguments)
    return results
