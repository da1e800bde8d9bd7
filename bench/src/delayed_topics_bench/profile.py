"""Measures the processor time of a worker by activity, sampled by perf, which sees its threads, librdkafka and the kernel."""

import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.errors import PreconditionError
from delayed_topics_worker_testing.process import WorkerProcess

__all__ = ["AREAS", "Profile", "area_of"]

HERTZ = 997
END_SECONDS = 60

ENGINE, KERNEL, REST = "the engine's own", "kernel", "librdkafka, rest"
_BY_SYMBOL = {
    "malloc, free": r"_?(malloc|free|calloc|realloc|cfree)\b|_int_(malloc|free|realloc)|unlink_chunk|malloc_consolidate|_mid_memalign",
    "copying bytes": r"__mem(move|cpy|set|cmp)|memcpy@plt|__str(len|cmp)",
    "locks, clocks": r".*pthread_(mutex|rwlock|cond)|__vdso_|.*clock_gettime|__lll_lock|rd_clock|mtx_",
    "compressing": r"LZ4|rd_kafka_compress",
    "writing batches": r"rd_buf_write|rd_kafka_msgset_writer|rd_kafka_msgset_create|rd_crc32c|rd_buf_|rd_varint|rd_uvarint_enc",
    "headers": r"rd_kafka_header|rd_list_|rd_kafka_message_headers",
    "reading batches": r"rd_kafka_msgset_reader|rd_slice_|rd_kafka_op_new_fetch_msg",
}
"""Area → a pattern for the beginning of the names of its functions in libc and librdkafka. The first match counts."""
AREAS = (ENGINE, *_BY_SYMBOL, REST, KERNEL)
_SAMPLE = re.compile(r"^\s*[0-9a-f]+\s+(?P<symbol>.*) \((?P<object>[^()]*|\[.*\])\)$")


def area_of(symbol: str, shared_object: str) -> str:
    """Returns the area of a function, by the name of the function and the file that contains it."""
    if "delayed_topics_engine" in shared_object:
        return ENGINE
    for area, begins in _BY_SYMBOL.items():
        if re.match(begins, symbol):
            return area
    if "[" in shared_object:
        return KERNEL
    return REST


class Profile:
    """Watches a drain or a load of one worker. Afterwards, `figures` has area → µs per record. Needs perf.

    `records`: how many records the worker moves meanwhile. `warm_seconds`: the time before the samples begin. `seconds`: how long they
    last; None: until the end.
    """

    def __init__(self, directory: Path, *, records: int, warm_seconds: int = 0, seconds: int | None = None) -> None:
        self.figures: dict[str, float] = {}
        self._file = directory / "perf.data"
        self._records = records
        self._warm_seconds = warm_seconds
        self._seconds = seconds

    @contextmanager
    def __call__(self, workers: Sequence[WorkerProcess]) -> Iterator[None]:
        if shutil.which("perf") is None:
            raise PreconditionError("perf is needed for a profile: apt-get install linux-perf")
        (worker,) = workers
        command = ["perf", "record", "--quiet", f"--freq={HERTZ}", f"--output={self._file}", f"--pid={worker.pid}"]
        if self._seconds is not None:
            whole = self._warm_seconds + self._seconds
            command += [f"--delay={self._warm_seconds * 1000}", "--", "sleep", str(whole)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as perf:
            try:
                yield
                if self._seconds is None:
                    perf.send_signal(signal.SIGINT)
                perf.wait(END_SECONDS)
            finally:
                perf.kill()
        self.figures = self._counted()

    def _counted(self) -> dict[str, float]:
        counts: Counter[str] = Counter()
        for line in run("perf", "script", "--input", self._file, "--fields", "ip,sym,dso").splitlines():
            if found := _SAMPLE.match(line):
                counts[area_of(found["symbol"], found["object"])] += 1
        return {area: round(counts[area] / HERTZ / self._records * 1e6, 3) for area in AREAS}
