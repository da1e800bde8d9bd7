"""Reads the state of one delayed topic from Kafka and the registry. The gateway batches the reads of all resources that are observed at the
same time."""

import asyncio
from collections.abc import Mapping

from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry import Owner, TopicsRecord, claim_key
from delayed_topics_core.registry_state import RegistryState

from delayed_topics_operator.delayed_topic.reconcile import handover
from delayed_topics_operator.delayed_topic.reconcile.observation import KafkaView, Registered
from delayed_topics_operator.delayed_topic.reconcile.target import led, unbegun, unnoted
from delayed_topics_operator.gateways.kafka import KafkaLink


async def kafka_view(
    link: KafkaLink, names: TopicNames, owner: Owner, *, unmarked: Mapping[str, str], deleting: bool
) -> KafkaView:
    """Returns the topics, offsets and consumer group of one delayed topic. Of topics that no resource has claimed, reads only whether they
    exist and their settings, to decide about an adoption. `unmarked`: see `Executor.unmarked`. `deleting`: the workers are to end, so
    commits are read even if the group still has members. Raises KafkaCallError."""
    # The control topic is kept after spec.control was removed.
    state, topics = await asyncio.gather(link.registry(), link.topics(names.possible))
    registered = _registered(state, names, owner)
    group_id = registered.layout.group if registered.layout is not None else names.group
    ours = registered.own is not None
    others = registered.holder is not None and not ours
    existing = [name for name, info in topics.items() if info is not None and not others]
    record = registered.topics or TopicsRecord(topic=names.front)
    sources = (names.front, names.delays)
    adopted = registered.own is not None and registered.own.adopted
    fresh = unnoted(record, topics, sources) if ours else []
    # The start offsets of an adopted topic are recorded in one step, so all of its partitions are needed, even without a leader.
    fresh = fresh if adopted and names.front not in record.ids else led(fresh, topics)
    configs, earliest, latest, group = await asyncio.gather(
        link.configs(existing),
        link.offsets(fresh, "earliest"),
        link.offsets(fresh if adopted else [], "latest"),
        link.group(group_id),
    )
    # A member commits before it gives up a partition. If commits were read in parallel with the group, the last one could be missed.
    handed = handover.places(record, registered.layout, at_rest=deleting or not group.members)
    pending = list(dict.fromkeys((*unbegun(record, topics, sources), *handed))) if ours else []
    committed = await link.committed(group_id, pending)
    return KafkaView(
        registered=registered,
        registry_fullness=link.registry_fullness,
        topics=topics,
        configs=configs,
        earliest=earliest,
        latest=latest,
        committed=committed,
        group=group,
        news=link.event_log.news(names.front),
        unmarked=dict(unmarked),
        refused={name: link.refusals.of(name) for name in existing},
    )


def _registered(state: RegistryState, names: TopicNames, owner: Owner) -> Registered:
    entry = state.claims.get(claim_key(names.front, owner))
    return Registered(
        holder=state.holder(names.front),
        own=entry.claim if entry else None,
        layout=state.layouts.get(names.front),
        topics=state.topics.get(names.front),
    )
