"""This machine's clock, for measuring durations."""

import time


def boot_seconds() -> float:
    """Returns the seconds since boot. This clock runs on while the machine is suspended, and cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
