"""What a Java program has seen of its records (java/common/Samples.java), and the judgement on it.

Independent of the worker: due times come from the acknowledgements that the producer got, not from the records' headers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["RECEIVED", "SENT", "Samples", "Verdict", "begun_late", "due_under_load", "judge", "percentiles"]

Numbers = NDArray[np.int64]

SENT = np.dtype([("sent_us", "<i8"), ("acked_us", "<i8"), ("stamp_ms", "<i8")])
"""One a record, in the order of their numbers; -1: unknown. `stamp_ms`: the broker's time of it."""
RECEIVED = np.dtype([("number", "<i4"), ("partition", "<i4"), ("at_us", "<i8"), ("stamp_ms", "<i8")])
"""One a receipt, in their order."""
PERCENTILES: Mapping[str, float] = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Counts of records. `disordered`: first copies that came after a later record of their partition and delay; `order_exempt`:
    those of them of which no order is promised (see overtaken), where that was looked at."""

    records: int = 0
    early: int = 0
    lost: int = 0
    doubled: int = 0
    disordered: int = 0
    order_exempt: int = 0

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(
            records=self.records + other.records,
            early=self.early + other.early,
            lost=self.lost + other.lost,
            doubled=self.doubled + other.doubled,
            disordered=self.disordered + other.disordered,
            order_exempt=self.order_exempt + other.order_exempt,
        )


@dataclass(frozen=True, kw_only=True)
class Samples:
    """`sent`: of dtype SENT; `received`: of dtype RECEIVED."""

    sent: NDArray[np.void]
    received: NDArray[np.void]

    @classmethod
    def read(cls, directory: Path) -> Self:
        """What `Samples.write` of the Java programs has left."""
        return cls(
            sent=np.fromfile(directory / "sent.bin", SENT), received=np.fromfile(directory / "received.bin", RECEIVED)
        )

    @property
    def acked(self) -> NDArray[np.bool_]:
        """By number: whether the broker has taken the record. Only such a record can be lost."""
        return np.asarray(self.sent["acked_us"] >= 0)

    @property
    def rejected(self) -> int:
        """How many records the broker has not taken."""
        return int((~self.acked).sum())

    @property
    def stamp_us(self) -> Numbers:
        """By number: the broker's time of it."""
        return np.asarray(self.sent["stamp_ms"] * 1000)

    @property
    def first(self) -> NDArray[np.void]:
        """The first receipt of each number, in the order of numbers."""
        _, index = np.unique(self.received["number"], return_index=True)
        return np.asarray(self.received[index])

    def late_us(self, due_us: Numbers, *, numbers: NDArray[np.bool_] | None = None) -> Numbers:
        """Of each record from its due time to its first receipt; `numbers`: only of those."""
        first = self.first
        if numbers is not None:
            first = first[numbers[first["number"]]]
        return np.asarray(first["at_us"] - due_us[first["number"]])


def due_under_load(samples: Samples, *, due_us: Numbers, warm_seconds: int) -> NDArray[np.bool_]:
    """By number: whether the record was due while others were still being sent, and not in the first `warm_seconds` of that."""
    sent_us = samples.sent["sent_us"]
    return np.asarray((due_us >= sent_us.min() + warm_seconds * 1_000_000) & (due_us <= sent_us.max()))


def begun_late(samples: Samples, *, warm_seconds: int) -> str | None:
    """Why it is no valid run if nothing was received in the first `warm_seconds`: the start of the consumer would count as lateness."""
    received_us = samples.received["at_us"]
    if not len(received_us):
        return "nothing was received"
    seconds = int(received_us.min() - samples.sent["sent_us"].min()) / 1_000_000
    return (
        f"the first record was received only {seconds:.0f} s after the first was sent"
        if seconds > warm_seconds
        else None
    )


def judge(samples: Samples, *, due_us: Numbers, kinds: int = 1) -> Verdict:
    """`due_us`: by number. `kinds`: number n has the delay n modulo this; order is kept per partition and delay."""
    received = samples.received
    numbers = received["number"]
    stamped, due_of_each_us = received["stamp_ms"] >= 0, due_us[numbers]
    # a stamp has whole milliseconds: of what is due 700 us after one, it says the same as of what is due at once
    early = np.where(stamped, received["stamp_ms"] < due_of_each_us // 1000, received["at_us"] < due_of_each_us)
    first = np.sort(np.unique(numbers, return_index=True)[1])
    seen = np.zeros(len(samples.sent), bool)
    seen[numbers] = True
    return Verdict(
        records=len(samples.sent),
        early=int(early.sum()),
        lost=int((samples.acked & ~seen).sum()),
        doubled=len(received) - len(first),
        disordered=_disordered(received[first], kinds),
    )


def percentiles(late_us: Numbers) -> dict[str, float]:
    """In milliseconds; each a value that was measured, the next higher one where it lies between two."""
    if not len(late_us):
        return {}
    return {
        name: round(float(np.quantile(late_us, share, method="higher")) / 1000, 2)
        for name, share in PERCENTILES.items()
    }


def _disordered(received: NDArray[np.void], kinds: int) -> int:
    count = 0
    for partition in np.unique(received["partition"]):
        numbers = received["number"][received["partition"] == partition]
        for kind in range(kinds):
            line = numbers[numbers % kinds == kind]
            count += int((line < np.maximum.accumulate(line)).sum()) if len(line) else 0
    return count
