"""The code of the helper processes of groups.py. It imports nothing else of the operator, so that a helper stays small."""

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
    """Initializes the helper process."""
    global _admin  # noqa: PLW0603  one for the life of the process
    threading.Thread(target=_end_with_the_operator, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _admin = KafkaAdmin(connection, client_id=client_id, timeout_seconds=timeout_seconds)


def _end_with_the_operator() -> None:
    """Ends this helper when the operator has ended in any way. The process from which helpers are forked ends after the last of them."""
    operator = multiprocessing.parent_process()
    assert operator is not None, "a helper is begun by the operator"
    operator.join()
    os._exit(1)


def call(name: Call, arguments: tuple[Any, ...]) -> dict[Any, Any]:
    """Returns the results by item. An item that failed has a KafkaCallError as its result."""
    results: dict[Any, Any] = getattr(_admin, name)(*arguments)
    return results
