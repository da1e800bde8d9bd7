"""Keeps former specs in a layout record, because an audit judges a record by the spec of its time. Pure."""

import json
from dataclasses import asdict, replace
from itertools import accumulate

from delayed_topics_core.delay_list import DelayList
from delayed_topics_core.layout import Layout
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_core.registry import LayoutRecord

from delayed_topics_operator.delayed_topic.reconcile.observation import Observation
from delayed_topics_operator.delayed_topic.reconcile.own_workers import worker_config
from delayed_topics_operator.workers.reconcile.children import all_ready
from delayed_topics_operator.workers.reconcile.manifests import WORKER_CONFIG
from delayed_topics_operator.workers.reconcile.worker_sets import object_name

MAX_LISTS_BYTES = 4096
"""The most that a layout record keeps of delay lists: some 40 of four delays, or 6 of 64. A record from the time before the first of them
may have had any delay."""
MAX_READY_TOPICS = 60
"""The most further ready topics that a layout record keeps, former ones included. An audit has a number for each."""
ROLLED_MS = 600_000
"""The time after the replacement of the last worker with the former guarantee. Everything that such a worker had begun is over by then, by
any clock."""


def lists(o: Observation, before: LayoutRecord | None, layout: Layout) -> tuple[DelayList, ...]:
    """Returns the delay lists since the first one, with the time from which each applies."""
    now_ms = int(o.now.timestamp() * 1000)
    present = DelayList(
        delay_seconds=layout.delay_seconds,
        retry_cap=o.wanted.spec.retry_cap,
        from_ms=now_ms if before is not None else 0,
        max_delay_seconds=o.wanted.spec.max_delay_seconds if layout.ladder_seconds else None,
    )
    if before is None:
        return (present,)
    recorded = before.lists
    return recorded if replace(recorded[-1], from_ms=now_ms) == present else _newest((*recorded, present))


def _newest(lists: tuple[DelayList, ...]) -> tuple[DelayList, ...]:
    """Returns as many of the last lists as there is room for, and at least one."""
    sizes = accumulate(len(json.dumps(asdict(one))) for one in reversed(lists))
    return lists[-max(1, sum(size <= MAX_LISTS_BYTES for size in sizes)) :]


def ready_topics(o: Observation, before: LayoutRecord | None) -> tuple[tuple[AllowedTopic, ...], int]:
    """Returns the additional ready topics that are allowed, with as many former ones as there is room for. The second value is the time
    until which there were former ones that are not kept, in milliseconds; 0 if there are none."""
    now_ms, known = int(o.now.timestamp() * 1000), before.ready_topics if before is not None else ()
    ended = [
        a._replace(until_ms=now_ms) if a.until_ms is None and a.topic not in o.wanted.targets else a for a in known
    ]
    allowed_now = {allowed.topic for allowed in ended if allowed.until_ms is None}
    added = [AllowedTopic(topic, now_ms) for topic in o.wanted.targets if topic not in allowed_now]
    surplus = max(0, len(ended) + len(added) - MAX_READY_TOPICS)
    former = [allowed for allowed in ended if allowed.until_ms is not None]
    forgotten = sorted(former, key=lambda allowed: allowed.until_ms or 0)[:surplus]
    forgotten_ms = before.ready_topics_forgotten_ms if before is not None else 0
    kept = tuple(allowed for allowed in (*ended, *added) if allowed not in forgotten)
    return kept, max([forgotten_ms, *(allowed.until_ms or 0 for allowed in forgotten)])


def exactly_once_from_ms(o: Observation, before: LayoutRecord | None, group: str) -> int | None:
    """Returns the time since when all workers that serve the topics keep the guarantee ExactlyOnce, in milliseconds. None until they do:
    shared workers don't keep it, and workers with the former guarantee continue until they are replaced. `group`: the group of the workers
    that are to serve."""
    if o.wanted.spec.guarantee != "ExactlyOnce" or group != o.wanted.names.group:
        return None
    if before is not None and before.exactly_once_from_ms is not None:
        return before.exactly_once_from_ms
    if before is not None and not _all_keep_it(o):
        return None
    return int(o.now.timestamp() * 1000) + (ROLLED_MS if before is not None else 0)


def _all_keep_it(o: Observation) -> bool:
    """Whether all of the resource's own workers have the declared worker.json."""
    name = object_name(namespace=o.subject.namespace, name=o.subject.name, home=o.pods.home)
    live = o.children.get(("StatefulSet", name))
    if live is None or not all_ready(live, live["spec"].get("replicas", 1)):
        return False
    annotations = live["spec"]["template"]["metadata"].get("annotations") or {}
    return bool(annotations.get(WORKER_CONFIG) == worker_config(o.wanted))
