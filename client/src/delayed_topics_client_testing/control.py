"""The control topic of a delayed topic without workers. The test writes the answers of workers."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from delayed_topics_devcluster.waiting import wait_until

from delayed_topics_client_testing import Served

ID = b"order-7"


def written(served: Served) -> list[tuple[bytes | None, bytes | None]]:
    """Returns the keys and values of the records in the control topic."""
    return [(copy.key, copy.value) for copy in served.read(served.names.control)]


def write(served: Served, value: bytes | None, *, key: bytes = ID) -> None:
    served.produce(served.names.control, value, key=key, headers=[])


@contextmanager
def worker(served: Served, *answers: bytes | None, asked: bytes = b"cancel", requests: int = 1) -> Iterator[None]:
    """Writes these answers as soon as `requests` more requests `asked` are in the control topic."""
    before = written(served).count((ID, asked))

    def answer() -> None:
        wait_until(lambda: written(served).count((ID, asked)) >= before + requests, what="requests are there")
        for value in answers:
            write(served, value)

    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(answer)
        yield
        answering.result()
