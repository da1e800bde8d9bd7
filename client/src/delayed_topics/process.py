"""Remembers in which process a Kafka client was made. A process that is forked from it has the client without its threads, so calls would
do nothing or never return."""

import ctypes
import os
import weakref

from delayed_topics.errors import ClientForked

_made: set[weakref.ref[object]] = set()
_kept: list[list[object]] = []


class ProcessOf:
    """The process that made a client. `owner` has the client. `client` names it in the message of the error."""

    def __init__(self, owner: object, client: str) -> None:
        _made.add(weakref.ref(owner, _made.discard))
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


def _keep() -> None:
    """Keeps the clients for a process that is about to be forked, and does not let them be destroyed even when it ends. The client library
    (2.16) would wait for threads that this process does not have, or crash. After the fork would be too late for what other threads
    have as their own, which Python destroys first."""
    owners = [owner for made in list(_made) if (owner := made()) is not None]
    _kept.append(owners)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(owners))


def _release() -> None:
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(_kept.pop()))


os.register_at_fork(before=_keep, after_in_parent=_release)
