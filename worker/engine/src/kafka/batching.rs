//! Which copies a producer may be given: none that it may not send yet, and one alone where Kafka doesn't know the producer.
//!
//! An idempotent producer of librdkafka sends nothing more to a partition while five or more of its records are on their way
//! there. If it holds one more meanwhile, whose `linger.ms` is over, its thread asks again and again whether it may be sent, without
//! a pause: it takes a whole processor until the acknowledgement comes, and most where the broker is slow.
//! See `rd_kafka_toppar_producer_serve` and <https://github.com/confluentinc/librdkafka/issues/3692>.
//!
//! And it loses records where the first batch to a partition is refused for a moment (`NOT_LEADER_OR_FOLLOWER` while a leader is elected,
//! or a partition is new) and the second, on its way behind it, is not. From a producer of which it has no record in that partition
//! Kafka takes any sequence number, and librdkafka tells the first batch as delivered too, since what came after it was. See
//! `rd_kafka_dr_implicit_ack` and <https://github.com/confluentinc/confluent-kafka-go/issues/921>. Once Kafka has a record of the producer
//! it refuses a batch whose predecessor is missing. So the first record goes alone, and others when it has an offset. A topic that was
//! made again since then looks like the one that is known: what is told as delivered without an offset counts as refused (event.rs).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::client::Settings;
use super::event::Place;

/// `RD_KAFKA_IDEMP_MAX_INFLIGHT`; what counts are records, whatever its documentation says of requests.
const MOST_IN_FLIGHT: u32 = 5;
/// What comes so soon after the first record of a batch goes with it: less than `linger.ms`.
const OPEN: Duration = Duration::from_micros(800);
/// Less than `batch.size`, a million.
const MOST_BYTES: usize = 900_000;
/// Kafka forgets a producer that has written nothing to a partition for `producer.id.expiration.ms`, a day unless it is set.
const KNOWN: Duration = Duration::from_secs(60);

/// The records of one partition that a producer was given.
#[derive(Clone, Copy, Debug)]
struct Partition {
    in_flight: u32,
    /// Of the batch that is open, or was last.
    opened_at: Instant,
    bytes: usize,
    /// One more was refused: the next goes when none is on its way, so that batches stay large.
    full: bool,
    /// When Kafka last told where a record of the producer is.
    known_at: Option<Instant>,
}

/// Of a producer, and of the events that tell what has come back.
pub type Shared = Arc<Batching>;

/// The partitions that a producer writes to.
#[derive(Debug, Default)]
pub struct Batching {
    partitions: Mutex<HashMap<Place, Partition>>,
    refused: AtomicU32,
}

impl Batching {
    /// Of a client with these settings: an idempotent producer needs it.
    pub fn of(settings: &Settings) -> Option<Shared> {
        let is_idempotent = settings.iter().any(|(name, value)| name == "enable.idempotence" && value == "true");
        is_idempotent.then(Shared::default)
    }

    /// Whether the producer may be given one more record of that many bytes; if so, it is counted.
    pub fn admit(&self, place: Place, bytes: usize, now: Instant) -> bool {
        let mut partitions = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        let new = Partition { in_flight: 0, opened_at: now, bytes: 0, full: false, known_at: None };
        let partition = partitions.entry(place).or_insert(new);
        if partition.in_flight == 0 {
            partition.full = false;
        }
        if !partition.full && partition.in_flight < MOST_IN_FLIGHT {
            partition.opened_at = now;
            partition.bytes = 0;
        }
        let is_known = partition.known_at.is_some_and(|known_at| now - known_at < KNOWN);
        partition.full |=
            now - partition.opened_at > OPEN || partition.bytes > MOST_BYTES || (!is_known && partition.in_flight > 0);
        if !partition.full {
            partition.in_flight += 1;
            partition.bytes += bytes;
        }
        !partition.full
    }

    /// One came back, or could not be queued. `known_at`: now, if Kafka told at which offset it is; it may be another topic of
    /// that name otherwise.
    pub fn came_back(&self, place: Place, known_at: Option<Instant>) {
        let mut partitions = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(partition) = partitions.get_mut(&place) {
            partition.in_flight -= 1;
            partition.known_at = known_at;
        }
    }

    /// A batch was refused.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were.
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

    /// Kafka has a record of the producer in the partition.
    fn known(now: Instant) -> Batching {
        let batching = Batching::default();
        assert!(batching.admit(PLACE, 100, now));
        batching.came_back(PLACE, Some(now));
        batching
    }

    #[test]
    fn the_first_record_goes_alone_until_kafka_tells_where_it_is() {
        let (batching, now) = (Batching::default(), Instant::now());
        assert_eq!(admitted(&batching, 10, 100, now), 1);
        batching.came_back(PLACE, None);
        assert_eq!(admitted(&batching, 10, 100, now), 1);
        batching.came_back(PLACE, Some(now));
        assert_eq!(admitted(&batching, 10, 100, now), 10);
    }

    #[test]
    fn after_a_refusal_one_goes_alone_again() {
        let now = Instant::now();
        let batching = known(now);
        assert!(batching.admit(PLACE, 100, now));
        batching.came_back(PLACE, None);
        assert_eq!(admitted(&batching, 10, 100, now), 1);
    }

    #[test]
    fn a_partition_that_was_not_written_to_for_long_begins_with_one_record_again() {
        let now = Instant::now();
        let batching = known(now);
        assert_eq!(admitted(&batching, 10, 100, now + KNOWN), 1);
        batching.came_back(PLACE, Some(now + KNOWN));
        assert_eq!(admitted(&batching, 10, 100, now + KNOWN), 10);
    }

    #[test]
    fn what_comes_at_once_goes_at_once_and_what_comes_later_waits_until_all_of_it_has_come_back() {
        let now = Instant::now();
        let batching = known(now);
        assert_eq!(admitted(&batching, 1000, 100, now), 1000);
        assert_eq!(admitted(&batching, 10, 100, now + OPEN), 10);
        assert_eq!(admitted(&batching, 10, 100, now + 2 * OPEN), 0);
        (0..1009).for_each(|_| batching.came_back(PLACE, Some(now)));
        assert_eq!(admitted(&batching, 10, 100, now + 3 * OPEN), 0);
        batching.came_back(PLACE, Some(now));
        assert_eq!(admitted(&batching, 1000, 100, now + 4 * OPEN), 1000);
    }

    #[test]
    fn a_few_go_whenever_they_come() {
        let now = Instant::now();
        let batching = known(now);
        for number in 0..100 {
            assert_eq!(admitted(&batching, 1, 100, now + number * 2 * OPEN), 1);
            if number >= 3 {
                batching.came_back(PLACE, Some(now));
            }
        }
    }

    #[test]
    fn no_more_than_a_batch_goes_at_once() {
        let now = Instant::now();
        let batching = known(now);
        let admitted = admitted(&batching, 1000, 10_000, now);
        assert_eq!(admitted as usize, MOST_IN_FLIGHT as usize + MOST_BYTES / 10_000);
    }

    #[test]
    fn partitions_do_not_wait_for_each_other() {
        let now = Instant::now();
        let batching = known(now);
        assert_eq!(admitted(&batching, 10, 100, now), 10);
        assert!(!batching.admit(PLACE, 100, now + 2 * OPEN));
        assert!(batching.admit(Place(1, 1), 100, now + 2 * OPEN));
    }
}
