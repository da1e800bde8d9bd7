//! Decides which copies a producer may be given: only those that it can send now, and only one if Kafka does not know the producer.
//!
//! An idempotent producer of librdkafka sends nothing more to a partition while five or more of its records are in flight to that
//! partition. If it then holds another record for the partition, and its `linger.ms` is over, the producer's thread checks without a
//! pause whether it may send that record. This takes a whole processor until the acknowledgement comes, longest if the broker is slow.
//! See `rd_kafka_toppar_producer_serve` and <https://github.com/confluentinc/librdkafka/issues/3692>.
//!
//! Such a producer also loses records if Kafka temporarily refuses the first batch to a partition (`NOT_LEADER_OR_FOLLOWER`, while a
//! leader is elected or the partition is new), but not the second one, which is in flight behind it. If Kafka has no state of a producer
//! in a partition, it accepts any sequence number. librdkafka then reports the first batch as delivered, too, because a later one was.
//! See `rd_kafka_dr_implicit_ack` and <https://github.com/confluentinc/confluent-kafka-go/issues/921>. If Kafka has state of the
//! producer, it refuses a batch whose predecessor is missing. The first record therefore goes alone, and others follow when it has an
//! offset. A topic that was created again since then looks like the known one, so event.rs treats a delivery without an offset as a
//! refusal.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::client::Settings;
use super::event::Place;

/// `RD_KAFKA_IDEMP_MAX_INFLIGHT`, which counts records, although its documentation says requests.
const MAX_IN_FLIGHT: usize = 5;
/// How long after the first record of a batch further records join it: less than `linger.ms`.
const BATCH_OPEN: Duration = Duration::from_micros(800);
/// The size at which a batch is full: less than `batch.size`, which is a million.
const MAX_BATCH_BYTES: usize = 900_000;
/// How long after an acknowledgement Kafka surely knows the producer. It forgets a producer that has written nothing to a partition for
/// `producer.id.expiration.ms`, which is a day by default.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// The records that a producer was given for one partition.
#[derive(Debug)]
struct Partition {
    /// The sizes of the records in flight, in bytes. Kafka acknowledges or refuses the records of a partition in order.
    in_flight: VecDeque<usize>,
    /// When the open batch, or the last one, began.
    opened_at: Instant,
    /// The size of that batch.
    bytes: usize,
    /// Whether a record was not admitted. The next one is admitted when none is in flight, so that batches stay large.
    full: bool,
    /// When Kafka last reported the offset of a record of the producer. `None` if the latest record came back without one.
    known_at: Option<Instant>,
}

/// Shared by a producer and the events that report what became of its records.
pub type Shared = Arc<Batching>;

/// The partitions that a producer writes to.
#[derive(Debug, Default)]
pub struct Batching {
    partitions: Mutex<HashMap<Place, Partition>>,
    /// The number of batches that Kafka refused.
    refused: AtomicU32,
}

impl Batching {
    /// Returns the state for a client with these settings, or `None`, because only an idempotent producer needs it.
    pub fn of(settings: &Settings) -> Option<Shared> {
        let is_idempotent = settings.iter().any(|(name, value)| name == "enable.idempotence" && value == "true");
        is_idempotent.then(Shared::default)
    }

    /// Returns whether the producer may be given one more record of `bytes` bytes. If so, the record is counted.
    pub fn admit(&self, place: Place, bytes: usize, now: Instant) -> bool {
        let mut partitions = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Partition { in_flight: VecDeque::new(), opened_at: now, bytes: 0, full: false, known_at: None };
        let partition = partitions.entry(place).or_insert_with(new);
        if partition.in_flight.is_empty() {
            partition.full = false;
        }
        if !partition.full && partition.in_flight.len() < MAX_IN_FLIGHT {
            partition.opened_at = now;
            partition.bytes = 0;
        }
        let is_known = partition.known_at.is_some_and(|known_at| now - known_at < KNOWN_FOR);
        partition.full |= now - partition.opened_at > BATCH_OPEN
            || partition.bytes > MAX_BATCH_BYTES
            || (!is_known && !partition.in_flight.is_empty());
        if !partition.full {
            partition.in_flight.push_back(bytes);
            partition.bytes += bytes;
        }
        !partition.full
    }

    /// Counts the record that was admitted first as no longer in flight, and returns its size. `known_at` is the present time if Kafka
    /// reported the offset of the record. Otherwise the topic may be another one of the same name.
    pub fn completed(&self, place: Place, known_at: Option<Instant>) -> usize {
        let mut partitions = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(partition) = partitions.get_mut(&place) else { return 0 };
        partition.known_at = known_at;
        partition.in_flight.pop_front().unwrap_or(0)
    }

    /// Forgets the record that was admitted last, because it could not be queued.
    pub fn not_queued(&self, place: Place) {
        let mut partitions = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(partition) = partitions.get_mut(&place) {
            partition.known_at = None;
            partition.in_flight.pop_back();
        }
    }

    /// Counts a refused batch.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of refused batches.
    pub fn refusals(&self) -> u32 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place(1, 0);

    fn admitted(batching: &Batching, count: u32, bytes: usize, now: Instant) -> u32 {
        (0..count).map(|_| u32::from(batching.admit(PLACE, bytes, now))).sum()
    }

    /// Kafka has state of the producer in the partition.
    fn known(now: Instant) -> Batching {
        let batching = Batching::default();
        assert!(batching.admit(PLACE, 100, now));
        batching.completed(PLACE, Some(now));
        batching
    }

    #[test]
    fn the_first_record_goes_alone_until_kafka_tells_where_it_is() {
        let (batching, now) = (Batching::default(), Instant::now());
        assert_eq!(admitted(&batching, 10, 100, now), 1);
        batching.completed(PLACE, None);
        assert_eq!(admitted(&batching, 10, 100, now), 1);
        batching.completed(PLACE, Some(now));
        assert_eq!(admitted(&batching, 10, 100, now), 10);
    }

    #[test]
    fn after_a_refusal_one_goes_alone_again() {
        let now = Instant::now();
        let batching = known(now);
        assert!(batching.admit(PLACE, 100, now));
        batching.completed(PLACE, None);
        assert_eq!(admitted(&batching, 10, 100, now), 1);
    }

    #[test]
    fn a_partition_that_was_not_written_to_for_long_begins_with_one_record_again() {
        let now = Instant::now();
        let batching = known(now);
        assert_eq!(admitted(&batching, 10, 100, now + KNOWN_FOR), 1);
        batching.completed(PLACE, Some(now + KNOWN_FOR));
        assert_eq!(admitted(&batching, 10, 100, now + KNOWN_FOR), 10);
    }

    #[test]
    fn what_comes_at_once_goes_at_once_and_what_comes_later_waits_until_all_of_it_has_come_back() {
        let now = Instant::now();
        let batching = known(now);
        assert_eq!(admitted(&batching, 1000, 100, now), 1000);
        assert_eq!(admitted(&batching, 10, 100, now + BATCH_OPEN), 10);
        assert_eq!(admitted(&batching, 10, 100, now + 2 * BATCH_OPEN), 0);
        (0..1009).for_each(|_| assert_eq!(batching.completed(PLACE, Some(now)), 100));
        assert_eq!(admitted(&batching, 10, 100, now + 3 * BATCH_OPEN), 0);
        batching.completed(PLACE, Some(now));
        assert_eq!(admitted(&batching, 1000, 100, now + 4 * BATCH_OPEN), 1000);
    }

    #[test]
    fn a_few_go_whenever_they_come() {
        let now = Instant::now();
        let batching = known(now);
        for number in 0..100 {
            assert_eq!(admitted(&batching, 1, 100, now + number * 2 * BATCH_OPEN), 1);
            if number >= 3 {
                batching.completed(PLACE, Some(now));
            }
        }
    }

    #[test]
    fn no_more_than_a_batch_goes_at_once() {
        let now = Instant::now();
        let batching = known(now);
        let admitted = admitted(&batching, 1000, 10_000, now);
        assert_eq!(admitted as usize, MAX_IN_FLIGHT + MAX_BATCH_BYTES / 10_000);
    }

    #[test]
    fn a_record_that_comes_back_has_the_size_with_which_it_was_sent() {
        let now = Instant::now();
        let batching = known(now);
        for bytes in [1, 20, 300, 4000] {
            assert!(batching.admit(PLACE, bytes, now));
        }
        batching.not_queued(PLACE);
        assert_eq!([(); 3].map(|()| batching.completed(PLACE, Some(now))), [1, 20, 300]);
    }

    #[test]
    fn partitions_do_not_wait_for_each_other() {
        let now = Instant::now();
        let batching = known(now);
        assert_eq!(admitted(&batching, 10, 100, now), 10);
        assert!(!batching.admit(PLACE, 100, now + 2 * BATCH_OPEN));
        assert!(batching.admit(Place(1, 1), 100, now + 2 * BATCH_OPEN));
    }
}
