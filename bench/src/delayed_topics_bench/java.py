"""Runs the benchmark's Java programs. They send and receive fast, with another client implementation than the worker's."""

import os
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from delayed_topics_devcluster.errors import CommandFailedError, NotInTimeError
from delayed_topics_devcluster.kafka import compiled, java_command
from delayed_topics_kafka.closing import Closing

__all__ = ["SOURCES", "JavaProgram", "class_path_of"]

SOURCES = Path(__file__).parent / "java"
LINES_SHOWN = 15
LOG_LEVEL: Mapping[str, str] = {"KAFKA_LOG_LEVEL": "WARN"}
JAVA_OPTIONS: Sequence[str] = (
    "-Xms512m",
    "-Xmx512m",
    "-XX:+UseParallelGC",
    "-XX:MaxDirectMemorySize=2g",
    "-XX:+AlwaysPreTouch",
)


def class_path_of(*folders: str, jars: Path) -> str:
    """Compiles the programs in these folders of java/, and returns their class path. Raises PreconditionError, CommandFailedError."""
    sources = [file for folder in ("common", *folders) for file in sorted((SOURCES / folder).glob("*.java"))]
    return compiled(f"bench-{folders[-1]}", sources, jars=jars)


class JavaProgram(Closing):
    """A program that reads and writes lines. It is killed at the end of its `with` block if it still runs."""

    def __init__(
        self,
        main_class: str,
        words: Sequence[str],
        arguments: Mapping[str, object],
        *,
        class_path: str,
        log: Path,
        options: Sequence[str] = JAVA_OPTIONS,
    ) -> None:
        """`arguments` are passed as name=value, with - for _; those that are None are left out."""
        self._name = main_class
        self._log = log
        named = [f"{name.replace('_', '-')}={value}" for name, value in arguments.items() if value is not None]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                java_command(main_class, *words, *named, options=options, class_path=class_path),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **LOG_LEVEL},
            )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def expect(self, word: str, *, timeout_seconds: float) -> list[str]:
        """Waits for a line that begins with this word, and returns its further words. Skips other lines.

        Raises NotInTimeError, CommandFailedError.
        """
        until = time.monotonic() + timeout_seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise NotInTimeError(
                    f"{self._name} did not say {word!r} within {timeout_seconds:g} s (see {self._log})"
                ) from None
            if line is None:
                raise self._died()
            first, *further = line.split() or [""]
            if first == word:
                return further

    def say(self, line: str) -> None:
        """Writes a line to the standard input of the program."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def finish(self, *, timeout_seconds: float) -> None:
        """Waits until the program ends. Raises NotInTimeError, and CommandFailedError if its exit code is not 0."""
        try:
            code = self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise NotInTimeError(f"{self._name} did not end within {timeout_seconds:g} s (see {self._log})") from None
        if code:
            raise self._died()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _died(self) -> CommandFailedError:
        lines = self._log.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
        return CommandFailedError("\n  ".join([f"{self._name} failed. The end of {self._log}:", *lines]))
