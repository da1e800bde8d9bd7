"""Loopback ports for servers of tests and benchmarks."""

import fcntl
import random
import socket
from functools import cache
from io import TextIOWrapper

from delayed_topics_devcluster.errors import DevclusterError
from delayed_topics_devcluster.paths import cache_dir

__all__ = ["free_ports"]

PORTS = range(20_000, 30_000)

_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Free loopback ports below those that the kernel hands out. No other process of this user is given them meanwhile.

    From the kernel's own range a client that keeps trying while the broker is down would sooner or later connect to
    itself, and hold the broker's port. And a port that was free is taken seconds later only, when its server has
    started: so each is locked until the process that asked for it ends.
    """
    ports: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(ports) == count:
            return ports
        if port not in _given and _locked(port) and _is_free(port):
            _given.add(port)
            ports.append(port)
    raise DevclusterError(f"fewer than {count} of the loopback ports {PORTS.start} to {PORTS.stop - 1} are free")


def _locked(port: int) -> bool:
    """A byte of the file for each port. The kernel frees it when this process ends, or closes the file anywhere."""
    try:
        fcntl.lockf(_ledger(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _ledger() -> TextIOWrapper:
    return (cache_dir("locks") / "ports").open("a+")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
