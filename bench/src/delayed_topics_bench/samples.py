"""Reads what a Java program sent and received (java/common/Samples.java), and judges it.

The judgement is independent of the worker: due times come from the acknowledgements that the producer got, not from the records' headers.
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
"""One item for each record, in the order of record numbers; -1: unknown. `stamp_ms`: the broker's timestamp of the record."""
RECEIVED = np.dtype([("number", "<i4"), ("partition", "<i4"), ("at_us", "<i8"), ("stamp_ms", "<i8")])
"""One item for each receipt, in the order of receipts."""
PERCENTILES: Mapping[str, float] = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Counts of records.

    `disordered`: first copies that came after a later record of their partition and delay. `order_exempt`: the number of these for
    which no order is promised (see overtaken), if this was checked.
    """

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
    """The records that were sent (dtype SENT), and the receipts (dtype RECEIVED)."""

    sent: NDArray[np.void]
    received: NDArray[np.void]

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Reads the files that `Samples.write` of the Java programs has written."""
        return cls(
            sent=np.fromfile(directory / "sent.bin", SENT), received=np.fromfile(directory / "received.bin", RECEIVED)
        )

    @property
    def acked(self) -> NDArray[np.bool_]:
        """By number: whether the broker has acknowledged the record. Only an acknowledged record can be lost."""
        return np.asarray(self.sent["acked_us"] >= 0)

    @property
    def rejected(self) -> int:
        """The number of records that the broker has not acknowledged."""
        return int((~self.acked).sum())

    @property
    def stamp_us(self) -> Numbers:
        """By number: the broker's timestamp of the record."""
        return np.asarray(self.sent["stamp_ms"] * 1000)

    @property
    def first(self) -> NDArray[np.void]:
        """The first receipt of each number, in the order of numbers."""
        _, index = np.unique(self.received["number"], return_index=True)
        return np.asarray(self.received[index])

    def late_us(self, due_us: Numbers, *, numbers: NDArray[np.bool_] | None = None) -> Numbers:
        """Returns the time from the due time of each record to its first receipt. `numbers`: a mask that selects records."""
        first = self.first
        if numbers is not None:
            first = first[numbers[first["number"]]]
        return np.asarray(first["at_us"] - due_us[first["number"]])


def due_under_load(samples: Samples, *, due_us: Numbers, warm_seconds: int) -> NDArray[np.bool_]:
    """By number: whether the record was due while others were still being sent, but not in the first `warm_seconds`."""
    sent_us = samples.sent["sent_us"]
    return np.asarray((due_us >= sent_us.min() + warm_seconds * 1_000_000) & (due_us <= sent_us.max()))


def begun_late(samples: Samples, *, warm_seconds: int) -> str | None:
    """Returns why the run is not valid if nothing came in the first `warm_seconds`: the consumer's start would count as lateness."""
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
    """Counts the records that came early, twice, out of order or not at all.

    `due_us`: the due times by number. `kinds`: the number of delays; record n has delay n modulo `kinds`. Order is judged within each
    partition and delay.
    """
    received = samples.received
    numbers = received["number"]
    stamped, due_of_each_us = received["stamp_ms"] >= 0, due_us[numbers]
    # timestamps have whole milliseconds, so the due time is rounded down as well
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
    """Returns percentiles in milliseconds. Each is a measured value: the higher one where a percentile lies between two."""
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
