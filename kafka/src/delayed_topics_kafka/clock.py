"""This machine's clock, for how long something takes or has been."""

import time


def boot_seconds() -> float:
    """Goes on while the machine is suspended, and nobody can set it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
