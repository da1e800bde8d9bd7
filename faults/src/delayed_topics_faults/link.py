"""A network namespace for one worker, with a link to it that can be cut, slow or lossy.

The link consists of two tun devices with a thread between them, because not every kernel has the netem qdisc.
"""

import fcntl
import heapq
import os
import select
import struct
import subprocess
import threading
import time
from itertools import count
from random import Random
from typing import Final

from delayed_topics_devcluster.commands import run
from delayed_topics_kafka.closing import Closing

TUNSETIFF: Final = 0x400454CA
TUN_WITHOUT_HEADER: Final = 0x1001
MTU: Final = 9000
HOST: Final = "10.213.77.1"
INSIDE: Final = "10.213.77.2"


class Link(Closing):
    """A link between the host and a namespace of its own. `delay_seconds`, `loss` (0 to 1) and `cut` may be changed at any time."""

    def __init__(self, rng: Random) -> None:
        self.delay_seconds = 0.0
        self.loss = 0.0
        self.cut = False
        self.namespace = f"dt-faults-{os.getpid()}"
        self._rng = rng
        self._ended = False
        run("ip", "netns", "add", self.namespace)
        outer, inner = f"dtfo{os.getpid()}", f"dtfi{os.getpid()}"
        self._ends = (_tun(outer), _tun(inner))
        run("ip", "link", "set", inner, "netns", self.namespace)
        run("ip", "addr", "add", HOST, "peer", INSIDE, "dev", outer)
        run("ip", "link", "set", outer, "mtu", str(MTU), "up")
        self._inside("addr", "add", INSIDE, "peer", HOST, "dev", inner)
        self._inside("link", "set", inner, "mtu", str(MTU), "up")
        self._inside("link", "set", "lo", "up")
        self._thread = threading.Thread(target=self._carry, name="link", daemon=True)
        self._thread.start()

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words to put before a command to run it in the namespace."""
        return "nsenter", f"--net=/var/run/netns/{self.namespace}"

    def close(self) -> None:
        self._ended = True
        self._thread.join()
        for end in self._ends:
            os.close(end)
        run("ip", "netns", "delete", self.namespace)

    def _inside(self, *words: str) -> None:
        subprocess.run([*self.prefix, "ip", *words], check=True)

    def _carry(self) -> None:
        """Forwards the packets of each end to the other end when their delay is over."""
        held: list[tuple[float, int, int, bytes]] = []
        tie_breakers = count()
        while not self._ended:
            wait = min(0.05, max(0.0, held[0][0] - time.monotonic())) if held else 0.05
            for end in select.select(self._ends, [], [], wait)[0]:
                packet = os.read(end, MTU + 100)
                if not self.cut and self._rng.random() >= self.loss:
                    other = self._ends[0] if end == self._ends[1] else self._ends[1]
                    heapq.heappush(held, (time.monotonic() + self.delay_seconds, next(tie_breakers), other, packet))
            while held and held[0][0] <= time.monotonic():
                _, _, end, packet = heapq.heappop(held)
                os.write(end, packet)


def _tun(name: str) -> int:
    end = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", name.encode(), TUN_WITHOUT_HEADER))
    return end
