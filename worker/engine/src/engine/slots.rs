//! Partitions by a small number, with which their copies come back.

use std::collections::HashMap;

use super::partition::Partition;
use super::topic::{Target, TARGETS};
use crate::kafka::{self, Offset};

/// What a number stands for.
#[allow(clippy::large_enum_variant)] // nearly all are partitions
enum Slot {
    Free,
    /// A partition that was given up, with copies that are still on their way: its number can't be another's yet.
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
    /// Records of a partition come in runs.
    last: Option<(kafka::Place, usize)>,
}

const OFFSET_BITS: u32 = 46;
const OFFSETS: u64 = 1 << OFFSET_BITS;
const TARGET_BITS: u32 = 2;

/// A copy that is on its way: of which record of which partition, and where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyOf {
    /// The partition's number.
    pub slot: usize,
    /// Of the record.
    pub offset: i64,
    /// Of the copy.
    pub target: Target,
}

impl CopyOf {
    /// The number that the copy is produced with.
    #[must_use]
    pub fn number(self) -> u64 {
        let slot_and_target = ((self.slot as u64) << TARGET_BITS) | self.target as u64;
        (slot_and_target << OFFSET_BITS) | (self.offset.unsigned_abs() % OFFSETS)
    }

    /// The contrary of `number`.
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
    /// Takes in a partition, instead of one of the same name.
    pub fn add(&mut self, partition: Partition) -> usize {
        let name = (partition.name.clone(), partition.number);
        if let Some(former) = self.by_name.get(&name).copied() {
            self.remove(former);
        }
        let slot = self.all.iter().position(|slot| matches!(slot, Slot::Free)).unwrap_or_else(|| {
            self.all.push(Slot::Free);
            self.all.len() - 1
        });
        self.all[slot] = Slot::Live(partition);
        self.by_name.insert(name, slot);
        slot
    }

    /// Gives a partition up.
    pub fn remove(&mut self, slot: usize) -> Option<Partition> {
        let in_flight = self.get(slot)?.in_flight();
        let left = if in_flight == 0 { Slot::Free } else { Slot::Gone { in_flight } };
        let Slot::Live(partition) = std::mem::replace(&mut self.all[slot], left) else { return None };
        self.by_name.remove(&(partition.name.clone(), partition.number));
        self.by_place.retain(|_, of| *of != slot);
        self.last = None;
        Some(partition)
    }

    /// Of each of these, see `Partition::uncommitted`.
    pub fn uncommitted(&self, partitions: &[Offset]) -> Vec<u64> {
        let find = |place: &Offset| self.get(self.find(&place.topic, place.partition)?);
        partitions.iter().map(|place| find(place).map_or(0, Partition::uncommitted)).collect()
    }

    /// A copy of a partition that was given up has come back.
    pub fn forget_copy(&mut self, slot: usize) {
        if let Some(Slot::Gone { in_flight }) = self.all.get_mut(slot) {
            *in_flight -= 1;
            if *in_flight == 0 {
                self.all[slot] = Slot::Free;
            }
        }
    }

    /// No copy of a partition that was given up comes back any more.
    pub fn forget_copies(&mut self) {
        for slot in &mut self.all {
            if matches!(slot, Slot::Gone { .. }) {
                *slot = Slot::Free;
            }
        }
    }

    /// The partition with this number.
    #[must_use]
    pub fn get(&self, slot: usize) -> Option<&Partition> {
        match self.all.get(slot) {
            Some(Slot::Live(partition)) => Some(partition),
            _ => None,
        }
    }

    /// The partition with this number.
    pub fn get_mut(&mut self, slot: usize) -> Option<&mut Partition> {
        match self.all.get_mut(slot) {
            Some(Slot::Live(partition)) => Some(partition),
            _ => None,
        }
    }

    /// The number of a partition.
    #[must_use]
    pub fn find(&self, topic: &str, partition: i32) -> Option<usize> {
        self.by_name.get(&(topic.to_owned(), partition)).copied()
    }

    /// The number of the partition that a record came from.
    pub fn of_record(&mut self, record: &kafka::Fetched) -> Option<usize> {
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

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
