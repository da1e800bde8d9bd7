"""Gives a process a wrong wall clock, as if somebody had set it. Its monotonic clocks stay right."""

import mmap
import struct
from pathlib import Path
from typing import Final

from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.paths import cache_dir

SOURCE: Final = Path(__file__).parent / "wrong_clock.c"


class WrongClock:
    """The clock of one process or more. `shift` may be called while they run, and takes effect at once."""

    def __init__(self, file: Path, seconds: int = 0) -> None:
        file.write_bytes(struct.pack("q", seconds))
        self._file = file
        self._library = cache_dir("wrong-clock") / "wrong_clock.so"
        run("cc", "-O2", "-shared", "-fPIC", "-o", self._library, SOURCE, "-ldl")

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "WRONG_CLOCK": str(self._file)}

    def shift(self, seconds: int) -> None:
        """Sets the clock ahead of the machine's by this much."""
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), 8) as page:
            page[:8] = struct.pack("q", seconds)
