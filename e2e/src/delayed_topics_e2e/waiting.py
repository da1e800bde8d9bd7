"""Waiting for a condition on a cluster, with a longer poll interval, because most polls start a kubectl process."""

from functools import partial

from delayed_topics_devcluster.waiting import wait_until

__all__ = ["until"]

until = partial(wait_until, poll_seconds=0.25)
