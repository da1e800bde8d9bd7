"""Kafka removes the offsets of a group that has had no workers for a week. The registry keeps them until the workers are back."""

from dataclasses import replace
from typing import Any

import pytest
from delayed_topics_core.handover import Handover
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.registry import decode, encode
from delayed_topics_operator_testing.shared import SHARED, sharing
from delayed_topics_operator_testing.simulation import Simulation, member, resource

GROUP = "delayedtopics.orders"
PLACES = [("orders", 0), *(("orders.delays", partition) for partition in range(3))]


def serving(**spec: Any) -> Simulation:
    """Returns a served topic whose workers have committed offset 7 of each partition."""
    simulation = Simulation.serving(**spec)
    back(simulation, 7)
    return simulation


def back(simulation: Simulation, committed: int) -> None:
    """Brings the workers into the group, with this offset committed for each partition."""
    simulation.kafka.members[GROUP] = (member(f"{simulation.name}-0", *PLACES),)
    simulation.kafka.committed[GROUP] = dict.fromkeys(PLACES, committed)
    simulation.settle()
    simulation.settle()  # the first one reports that the workers are ready


def scaled_to_zero(simulation: Simulation) -> None:
    simulation.edit(workers={"replicas": 0})
    simulation.kafka.members.clear()
    simulation.settle()


def after(simulation: Simulation, seconds: float) -> None:
    simulation.later(seconds)
    simulation.settle()


def handed(simulation: Simulation) -> Handover | None:
    return simulation.kafka.registry.topics["orders"].handover


def kept(at: int, group: str = GROUP) -> Handover:
    positions = {"orders": (OffsetAndMetadata(at),), "orders.delays": (OffsetAndMetadata(at),) * 3}
    return Handover(group=group, positions=positions, kept=True)


def test_workers_that_were_scaled_to_zero_for_long_go_on_where_they_were() -> None:
    simulation = serving()
    assert handed(simulation) is None
    scaled_to_zero(simulation)
    simulation.kafka.committed.clear()
    after(simulation, 30 * 86_400)
    assert handed(simulation) == kept(7)
    simulation.edit(workers={"replicas": 1})
    simulation.settle()
    assert handed(simulation) == kept(7)
    simulation.workers_come_up()
    back(simulation, 7)
    assert handed(simulation) is None, "the workers have committed the kept offsets"


def test_workers_that_cannot_start_for_long_go_on_where_they_were_and_a_restart_is_no_outage() -> None:
    simulation = serving()
    simulation.kafka.members.clear()
    simulation.children["StatefulSet", simulation.name]["status"]["readyReplicas"] = 0
    simulation.settle()
    after(simulation, 60)
    assert handed(simulation) is None
    after(simulation, 120)
    assert handed(simulation) == kept(7)
    simulation.kafka.committed.clear()
    after(simulation, 86_400)
    assert handed(simulation) == kept(7)


def test_offsets_that_somebody_sets_meanwhile_count_whether_they_are_further_or_not() -> None:
    simulation = serving()
    scaled_to_zero(simulation)
    for at in (3, 9):
        simulation.kafka.committed[GROUP] = dict.fromkeys(PLACES, at)
        simulation.settle()
        assert handed(simulation) == kept(at)


def test_where_former_workers_of_another_group_have_got_further_that_counts() -> None:
    simulation = serving()
    former = Handover(group=GROUP, positions=kept(20).positions)
    record = replace(simulation.kafka.registry.topics["orders"], handover=former)
    simulation.kafka.write(record.key, encode(record))
    scaled_to_zero(simulation)
    assert handed(simulation) == former


def test_what_was_deleted_and_retained_goes_on_where_it_was_when_it_is_applied_again() -> None:
    simulation = serving(deletionPolicy="Retain")
    simulation.delete()
    simulation.settle()
    assert simulation.gone
    assert handed(simulation) == kept(7)
    simulation.kafka.members.clear()
    simulation.kafka.committed.clear()
    again = Simulation(resource(uid="another"), kafka=simulation.kafka)
    again.settle()
    assert handed(again) == kept(7)
    again.workers_come_up()
    back(again, 7)
    assert handed(again) is None


def test_what_was_retained_after_shared_workers_goes_on_where_they_were() -> None:
    simulation = Simulation(resource(deletionPolicy="Retain"), connection=sharing())
    simulation.settle()
    simulation.kafka.members[SHARED.group] = (member(f"{SHARED.name}-0", *PLACES),)
    simulation.kafka.committed[SHARED.group] = dict.fromkeys(PLACES, 7)
    simulation.settle()
    simulation.delete()
    simulation.settle()
    simulation.kafka.members[SHARED.group] = (member(f"{SHARED.name}-0", ("payments", 0)),)
    simulation.settle()
    assert simulation.gone
    assert handed(simulation) == kept(7, SHARED.group)
    simulation.kafka.committed[SHARED.group] = {("payments", 0): 1}
    again = Simulation(resource(uid="another"), kafka=simulation.kafka, connection=sharing())
    again.settle()
    assert handed(again) == kept(7, SHARED.group)


@pytest.mark.parametrize("is_kept", [True, False])
def test_the_registry_tells_what_is_kept_from_what_is_handed_over(is_kept: bool) -> None:
    simulation = serving()
    record = replace(simulation.kafka.registry.topics["orders"], handover=replace(kept(7), kept=is_kept))
    assert decode(record.key, encode(record)) == record
