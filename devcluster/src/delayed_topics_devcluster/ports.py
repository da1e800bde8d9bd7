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
    """Returns free loopback ports below the kernel's range of ephemeral ports, and reserves them for this process.

    In the ephemeral range, a client that keeps retrying while the broker is down would sooner or later connect to
    itself, and so hold the broker's port. A server binds its port only seconds after this call, so each port stays
    locked against other processes of this user until this process ends.
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
    """Locks the byte of the ledger that stands for this port. The kernel releases the lock when this process ends, or when it closes
    any descriptor of the file."""
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
