"""Remembers in which process a Kafka client was made. A process that is forked from it has the client without its threads, so calls would
do nothing or never return."""

import ctypes
import os
import weakref

from delayed_topics.errors import ClientForked

_made = weakref.WeakSet[object]()


class ProcessOf:
    """The process that made a client. `owner` has the client. `client` names it in the message of the error."""

    def __init__(self, owner: object, client: str) -> None:
        _made.add(owner)
        self._client = client
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raises ClientForked in any other process."""
        if not self.is_here:
            raise ClientForked(
                f"{self._client} was made in process {self._pid}, and can't be used in process {os.getpid()}, which was forked from it. "
                "Call DelayedTopic.connect in each process, after the fork"
            )


def _keep_inherited() -> None:
    """Keeps what this process was forked with until it ends, and does not let it be destroyed even then. The client library (2.16) would
    wait for threads that this process does not have, or crash."""
    for owner in _made:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))


os.register_at_fork(after_in_child=_keep_inherited)
