"""What Kafka and the registry know of one delayed topic. The reads of all resources that are looked at go out together."""

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
    """Raises KafkaCallError. Of topics that nobody claimed only their existence and settings are looked at, for adopting. `unmarked`: see
    `Executor.unmarked`. `deleting`: its workers are to end, whatever members their group has yet."""
    # The control topic stays when it is asked for no more.
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
    # Of a topic that is adopted, the start offsets of all partitions are noted at once.
    fresh = fresh if adopted and names.front not in record.ids else led(fresh, topics)
    configs, earliest, latest, group = await asyncio.gather(
        link.configs(existing),
        link.offsets(fresh, "earliest"),
        link.offsets(fresh if adopted else [], "latest"),
        link.group(group_id),
    )
    # What a member gives up it has committed before. Asked together with the group, the last commit could be missed.
    handed = handover.places(record, registered.layout, at_rest=deleting or not group.members)
    pending = list(dict.fromkeys((*unbegun(record, topics, sources), *handed))) if ours else []
    committed = await link.committed(group_id, pending)
    return KafkaView(
        registered=registered,
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
