"""Calls of other programs: their output is captured, and an error has the end of it."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from delayed_topics_devcluster.errors import CommandFailedError

__all__ = ["run"]

LINES_SHOWN = 15


def run(
    *command: str | Path,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    text_in: str | None = None,
    prefix: Sequence[str] = (),
) -> str:
    """Runs a command to its end and returns its standard output; `environment` is added to the present one.

    Raises CommandFailedError if its exit code is not 0.
    """
    words = [*prefix, *map(str, command)]
    result = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        input=text_in,
        stdin=subprocess.DEVNULL if text_in is None else None,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if result.returncode:
        printed = (result.stderr.strip() or result.stdout.strip()).splitlines()[-LINES_SHOWN:]
        raise CommandFailedError("\n  ".join([f"`{' '.join(words)}` failed with code {result.returncode}:", *printed]))
    return result.stdout
