"""Reads topics with Kafka's own Java consumer, independently of the client that workers use."""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from delayed_topics_devcluster.kafka import QUICK, compiled, java_command, kafka_jars
from delayed_topics_kafka.closing import Closing

from delayed_topics_faults.copies import Copy, read_line

PROGRAM: Final = Path(__file__).parent / "Dump.java"


class ReaderFailed(Exception):
    """The independent reader could not read a topic, so that nothing can be judged."""


class Reader(Closing):
    """One Java process that serves many requests. Use it as a context manager."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        class_path = compiled("faults", [PROGRAM], jars=kafka_jars())
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                java_command(PROGRAM.stem, bootstrap, options=(*QUICK, "-Xmx1g"), class_path=class_path),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "KAFKA_LOG_LEVEL": "WARN"},
            )
        self._log = log

    def read(
        self, topic: str, begin: Sequence[int] = (), *, keep: Callable[[Copy], bool] = bool
    ) -> tuple[list[Copy], tuple[int, ...]]:
        """Reads a topic to its present end. Returns the records for which `keep` is true, and the end offsets by partition.

        `begin` has the first offset to read of partition 0, 1 …; partitions without one are read from offset 0. Raises ReaderFailed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join([topic, *map(str, begin)]) + "\n")
        self._process.stdin.flush()
        found: list[Copy] = []
        for line in self._process.stdout:
            text = line.rstrip("\n")
            match text.split("\t", 1):
                case ["end", ends]:
                    return found, tuple(int(end) for end in ends.split("\t"))
                case ["failed", why]:
                    raise ReaderFailed(f"could not read {topic}: {why} (see {self._log})")
                case _:
                    copy = read_line(text)
                    if keep(copy):
                        found.append(copy)
        raise ReaderFailed(f"the Java reader ended while it read {topic} (see {self._log})")

    def close(self) -> None:
        self._process.kill()
        self._process.wait(180)
