"""Finds what the audit can't see in a window: topics that were created again, records that were removed, and topics that are compacted.
The audit checks this before and after reading. If it could not read everything, it looks for open transactions, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.layout import format_ranges
from delayed_topics_core.settings import DEFAULT_MAX_MESSAGE_BYTES
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.errors import KafkaCallError, KafkaRefused

from delayed_topics_audit.account import BlindSpot
from delayed_topics_audit.errors import AuditFailed

Configs = Mapping[str, Mapping[str, str] | KafkaCallError]
"""The configuration of each topic, or the error of reading it."""


@dataclass(frozen=True, kw_only=True)
class WindowVisibility:
    """`starts` has the first offset of the window that still exists, by topic and partition. `readable` says whether reading makes sense.
    No topic refuses a batch of up to `least_limit_bytes`."""

    spots: Sequence[BlindSpot]
    starts: Mapping[str, tuple[int, ...]]
    readable: bool
    least_limit_bytes: int = DEFAULT_MAX_MESSAGE_BYTES


def look(admin: KafkaAdmin, window: AuditWindow) -> WindowVisibility:
    """Checks the topics of the window. Raises AuditFailed if Kafka doesn't answer."""
    names = window.topics
    changed = _changed(admin, window, names)
    if changed:
        return WindowVisibility(spots=changed, starts={}, readable=False)
    starts, removed = _starts(admin, window, names)
    configs = admin.topic_configs(names)
    return WindowVisibility(
        spots=[*_compacted(configs), *removed],
        starts=starts,
        readable=True,
        least_limit_bytes=_least_limit_bytes(configs),
    )


def held_up(admin: KafkaAdmin, window: AuditWindow) -> list[str]:
    """Returns for each topic what could not be read of the window because a transaction is still open. The end of the front topic is below
    all of them."""
    places = [(name, p) for name, ends in window.end_offsets.items() for p in range(len(ends))]
    stable = admin.list_offsets(places, "latest", isolation="read_committed")
    found = []
    for name, ends in window.end_offsets.items():
        held = {p: at for p, end in enumerate(ends) if isinstance(at := stable[name, p], int) and at < end}
        if held:
            first = min(held)
            found.append(
                f"topic {name} has records in partitions {format_ranges(sorted(held))} behind a transaction that stayed open while the "
                f"audit read. No audit reads them. In partition {first}, they begin at offset {held[first]}. To find the producer, run "
                f"kafka-transactions.sh describe-producers --topic {name} --partition {first}. If find-hanging lists the transaction "
                "too, end it with abort"
            )
    return found


def _changed(admin: KafkaAdmin, window: AuditWindow, names: Sequence[str]) -> list[BlindSpot]:
    spots = []
    for name, info in admin.describe_topics(names).items():
        if isinstance(info, KafkaCallError):
            spots.append(_refused(info))
        elif info is None:
            spots.append(_blind(f"topic {name} doesn't exist any more"))
        elif info.id != window.topic_ids.get(name):
            spots.append(
                _blind(
                    f"topic {name} was deleted and created again. Its id was {window.topic_ids.get(name)}, and is now {info.id}"
                )
            )
    return spots


def _least_limit_bytes(configs: Configs) -> int:
    """Returns Kafka's default, or a lower limit of one of the topics. Higher limits do not count, because Kafka may have refused records
    before somebody raised the limit."""
    limits = [
        int(settings[limit])
        for settings in configs.values()
        if not isinstance(settings, KafkaCallError)
        for limit in ("max.message.bytes", "segment.bytes")
        if limit in settings
    ]
    return min([DEFAULT_MAX_MESSAGE_BYTES, *limits])


def _compacted(configs: Configs) -> list[BlindSpot]:
    spots = []
    for name, settings in configs.items():
        if isinstance(settings, KafkaCallError):
            spots.append(_refused(settings))
        elif "compact" in settings.get("cleanup.policy", ""):
            spots.append(
                _blind(
                    f"topic {name} has cleanup.policy={settings['cleanup.policy']}, so records disappear. Set it to delete"
                )
            )
    return spots


def _starts(
    admin: KafkaAdmin, window: AuditWindow, names: Sequence[str]
) -> tuple[dict[str, tuple[int, ...]], list[BlindSpot]]:
    partitions = [(name, p) for name in names for p in range(len(window.end_offsets[name]))]
    earliest = admin.list_offsets(partitions, "earliest")
    starts, spots = {}, []
    for name in names:
        wanted = window.read_from(name)
        found = [_offset(earliest[name, p]) for p in range(len(wanted))]
        frozen = window.beginning_offsets[name]
        starts[name] = tuple(map(min, window.end_offsets[name], map(max, wanted, frozen, found)))
        cut = [p for p, (first, start) in enumerate(zip(wanted, starts[name], strict=True)) if start > first]
        if cut:
            worst = max(cut, key=lambda p: starts[name][p] - wanted[p])
            spots.append(
                _blind(
                    f"retention has removed records of {name}, partitions {format_ranges(cut)}. "
                    f"Partition {worst} begins at offset {starts[name][worst]}, but the window begins at {wanted[worst]}"
                )
            )
    return starts, spots


def _offset(found: int | KafkaCallError) -> int:
    if isinstance(found, KafkaCallError):
        raise AuditFailed(f"could not read the offsets: {found}") from found
    return found


def _refused(error: KafkaCallError) -> BlindSpot:
    if isinstance(error, KafkaRefused):
        return _blind(str(error))
    raise AuditFailed(str(error)) from error


def _blind(sentence: str) -> BlindSpot:
    return BlindSpot(sentence=sentence, hides_outcomes=True)
