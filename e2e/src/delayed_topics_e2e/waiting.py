"""Waiting on a cluster, where most looks are processes of kubectl."""

from functools import partial

from delayed_topics_devcluster.waiting import wait_until

__all__ = ["until"]

until = partial(wait_until, poll_seconds=0.25)
