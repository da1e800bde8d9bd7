"""Creates the control topic of a declared topic as the operator does, and uses it as an application that cancels records does."""

from collections.abc import Iterable

from delayed_topics_core.control import Control
from delayed_topics_core.settings import topic_settings
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.model import NewTopicSpec

from delayed_topics_worker_testing.harness import DAY_SECONDS, DeclaredTopic


def make_control(orders: DeclaredTopic) -> None:
    config = topic_settings(
        role="control",
        delay_seconds=orders.record.layout.delay_seconds,
        outage_budget_seconds=DAY_SECONDS,
        dead_letter_retention_seconds=DAY_SECONDS,
        replication_factor=1,
    )
    spec = NewTopicSpec(name=orders.names.control, partitions=1, replication_factor=1, config=config)
    orders.note_id(orders.harness.create([spec])[spec.name])


def ask(orders: DeclaredTopic, ids: Iterable[bytes], value: bytes | None = b"cancel") -> None:
    """Produces a request for each id, as any producer does. Returns when Kafka has them."""
    for of_id in ids:
        orders.produce(value, key=of_id, topic=orders.names.control)
    orders.flush()


def answers(orders: DeclaredTopic) -> dict[bytes, Control]:
    """Returns the ids whose last record is an answer of a worker, with that answer."""
    with orders.harness.reader(orders.names.control) as read:
        last = {seen.key or b"": seen.value for seen in sorted(read(), key=lambda seen: seen.offset)}
    decoded = {of_id: _control(value) for of_id, value in last.items()}
    return {of_id: control for of_id, control in decoded.items() if control is not None and not control.is_request}


def _control(value: bytes | None) -> Control | None:
    try:
        return None if value is None else Control.decode(value)
    except ValueError:
        return None


def wait_for_answers(
    orders: DeclaredTopic, ids: Iterable[bytes], *, timeout_seconds: float = 60
) -> dict[bytes, Control]:
    """Waits until all these requests are answered, and returns the answers by id."""
    wanted = set(ids)
    found: dict[bytes, Control] = {}

    def all_there() -> bool:
        found.update({of_id: answer for of_id, answer in answers(orders).items() if of_id in wanted})
        return found.keys() == wanted

    wait_until(all_there, what=f"{len(wanted)} requests are answered", timeout_seconds=timeout_seconds)
    return found
