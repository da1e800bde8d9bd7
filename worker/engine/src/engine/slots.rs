//! Partitions by slot, a small number that identifies them in the results of their copies.

use std::collections::HashMap;

use super::partition::Partition;
use super::topic::{Target, TARGETS};
use crate::kafka::{self, Offset};

/// What a slot contains.
#[allow(clippy::large_enum_variant)] // nearly all are partitions
enum Slot {
    Free,
    /// A partition that was given up, with copies that are still in flight. No other partition can have its slot yet.
    Gone {
        in_flight: u32,
    },
    Live(Partition),
}

/// All partitions of this worker.
#[derive(Default)]
pub struct Slots {
    all: Vec<Slot>,
    by_name: HashMap<(String, i32), usize>,
    by_place: HashMap<kafka::Place, usize>,
    /// The partition of the last record, because records of a partition come in runs.
    last: Option<(kafka::Place, usize)>,
}

const OFFSET_BITS: u32 = 46;
const OFFSETS: u64 = 1 << OFFSET_BITS;
const TARGET_BITS: u32 = 2;
/// The most slots that the number of a copy can tell apart.
const MAX_SLOTS: usize = 1 << (u64::BITS - OFFSET_BITS - TARGET_BITS);

/// Identifies a copy in flight: the record that it was made from, and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyOf {
    /// The slot of the record's partition.
    pub slot: usize,
    /// The offset of the record.
    pub offset: i64,
    /// The target of the copy.
    pub target: Target,
}

impl CopyOf {
    /// Encodes it as the number that the copy is produced with.
    #[must_use]
    pub fn number(self) -> u64 {
        let slot_and_target = ((self.slot as u64) << TARGET_BITS) | self.target as u64;
        (slot_and_target << OFFSET_BITS) | (self.offset.unsigned_abs() % OFFSETS)
    }

    /// Decodes a `number`.
    #[must_use]
    pub fn of(number: u64) -> Self {
        let slot_and_target = number >> OFFSET_BITS;
        CopyOf {
            slot: usize::try_from(slot_and_target >> TARGET_BITS).unwrap_or(usize::MAX),
            offset: i64::try_from(number % OFFSETS).unwrap_or(i64::MAX),
            target: TARGETS[(slot_and_target & 3) as usize],
        }
    }
}

impl Slots {
    /// Adds a partition, which replaces one with the same topic and number. Returns its slot.
    ///
    /// # Panics
    /// There are more than `MAX_SLOTS` partitions. What Kafka says of the copies of one would count for another.
    pub fn add(&mut self, partition: Partition) -> usize {
        let name = (partition.name.clone(), partition.number);
        if let Some(former) = self.by_name.get(&name).copied() {
            self.remove(former);
        }
        let slot = self.all.iter().position(|slot| matches!(slot, Slot::Free)).unwrap_or_else(|| {
            assert!(
                self.all.len() < MAX_SLOTS,
                "one worker can serve {MAX_SLOTS} partitions at most: run more workers"
            );
            self.all.push(Slot::Free);
            self.all.len() - 1
        });
        self.all[slot] = Slot::Live(partition);
        self.by_name.insert(name, slot);
        slot
    }

    /// Removes a partition. Its slot stays in use while it has copies in flight.
    pub fn remove(&mut self, slot: usize) -> Option<Partition> {
        let in_flight = self.get(slot)?.in_flight();
        let left = if in_flight == 0 { Slot::Free } else { Slot::Gone { in_flight } };
        let Slot::Live(partition) = std::mem::replace(&mut self.all[slot], left) else { return None };
        self.by_name.remove(&(partition.name.clone(), partition.number));
        self.by_place.retain(|_, of| *of != slot);
        self.last = None;
        Some(partition)
    }

    /// Returns `Partition::uncommitted` of each of these partitions, or 0 if there is no such partition.
    pub fn uncommitted(&self, partitions: &[Offset]) -> Vec<u64> {
        let find = |place: &Offset| self.get(self.find(&place.topic, place.partition)?);
        partitions.iter().map(|place| find(place).map_or(0, Partition::uncommitted)).collect()
    }

    /// Counts a copy of a removed partition as acknowledged or refused.
    pub fn forget_copy(&mut self, slot: usize) {
        if let Some(Slot::Gone { in_flight }) = self.all.get_mut(slot) {
            *in_flight -= 1;
            if *in_flight == 0 {
                self.all[slot] = Slot::Free;
            }
        }
    }

    /// Frees the slots of all removed partitions, because the results of their copies will not be reported.
    pub fn forget_copies(&mut self) {
        for slot in &mut self.all {
            if matches!(slot, Slot::Gone { .. }) {
                *slot = Slot::Free;
            }
        }
    }

    /// The partition in this slot.
    #[must_use]
    pub fn get(&self, slot: usize) -> Option<&Partition> {
        match self.all.get(slot) {
            Some(Slot::Live(partition)) => Some(partition),
            _ => None,
        }
    }

    /// The partition in this slot.
    pub fn get_mut(&mut self, slot: usize) -> Option<&mut Partition> {
        match self.all.get_mut(slot) {
            Some(Slot::Live(partition)) => Some(partition),
            _ => None,
        }
    }

    /// The slot of a partition.
    #[must_use]
    pub fn find(&self, topic: &str, partition: i32) -> Option<usize> {
        self.by_name.get(&(topic.to_owned(), partition)).copied()
    }

    /// The slot of the partition that a record was read from.
    pub fn find_by_record(&mut self, record: &kafka::Fetched) -> Option<usize> {
        let place = record.place();
        if let Some((last, slot)) = self.last {
            if last == place {
                return Some(slot);
            }
        }
        let slot = if let Some(slot) = self.by_place.get(&place) {
            *slot
        } else {
            let slot = self.find(&record.topic(), record.partition())?;
            self.by_place.insert(place, slot);
            slot
        };
        self.last = Some((place, slot));
        Some(slot)
    }

    /// All partitions.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Partition)> {
        self.all.iter().enumerate().filter_map(|(number, slot)| match slot {
            Slot::Live(partition) => Some((number, partition)),
            _ => None,
        })
    }

    /// All partitions.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Partition)> {
        self.all.iter_mut().enumerate().filter_map(|(number, slot)| match slot {
            Slot::Live(partition) => Some((number, partition)),
            _ => None,
        })
    }

    /// The number of partitions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "one worker can serve 65536 partitions at most")]
    fn a_worker_ends_rather_than_take_the_copies_of_one_partition_for_those_of_another() {
        let all = (0..MAX_SLOTS).map(|_| Slot::Gone { in_flight: 1 }).collect();
        let slot = Slots { all, ..Slots::default() }.add(Partition::new(1, 0, "orders".to_owned(), 3));
        let copy = CopyOf { slot, offset: 7, target: Target::Ready };
        assert_eq!(CopyOf::of(copy.number()), copy);
    }

    #[test]
    fn the_number_of_a_copy_tells_what_it_is_of() {
        for (slot, offset, target) in [
            (0, 0, Target::Ready),
            (1, 1, Target::Delays),
            (2, 2, Target::DeadLetter),
            (65_535, (1 << 46) - 1, Target::Other),
        ] {
            let copy = CopyOf { slot, offset, target };
            assert_eq!(CopyOf::of(copy.number()), copy);
        }
    }
}
