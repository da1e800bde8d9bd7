//! Simulates a month in a minute: records with due times of their own, each on its whole way through a ladder of delays.
//!
//! `cargo run --release --example due_times [RECORDS]`. Prints as JSON for each ladder how often records were copied, whether any
//! came out early, and how late they were. Fails if a record was early, or later than its last copy explains.

use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Instant;

use delayed_topics_engine::layout::Layout;
use delayed_topics_engine::reading::Header;
use delayed_topics_engine::record::{Policy, Record, Side};
use delayed_topics_engine::release::LowerBoundMs;
use delayed_topics_engine::routing::{decide, take_turn, Decision, Hop, Outcome};
use delayed_topics_engine::writing::CopyHeaders;

const RECORDS: u32 = 1_000_000;
const BEGIN_MS: i64 = 1_790_000_000_000;
const MAX_DELAY_SECONDS: u32 = 30 * 86_400;
const MAX_LADDER_SECONDS: u32 = 65_536;
/// The longest time until a record is read, and the longest time from its turn until its copy is in Kafka.
const MAX_COPY_MS: u64 = 100;

/// `SplitMix64` (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
struct Random(u64);

impl Random {
    /// Returns a number from 0 to `most`.
    fn up_to(&mut self, most: u64) -> i64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        i64::try_from((z ^ (z >> 31)) % (most + 1)).expect("a small bound")
    }
}

/// A record as Kafka stores it.
struct Stored {
    side: Side,
    partition: u32,
    appended_at_ms: i64,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Stored {
    fn headers(&self) -> Vec<Header<'_>> {
        self.headers.iter().map(|(name, value)| (name.as_slice(), value.as_deref())).collect()
    }
}

/// The outcome of one record.
struct Released {
    hops: u32,
    /// Negative if the record was early.
    late_ms: i64,
    /// The time that the last copy took, which explains as much lateness.
    copy_ms: i64,
}

struct Simulation {
    policy: Policy,
    copies: CopyHeaders,
    random: Random,
}

impl Simulation {
    fn new(base: u32) -> (Self, Vec<u32>) {
        let ladder: Vec<u32> = std::iter::successors(Some(1), |delay| Some(delay * base))
            .take_while(|d| *d <= MAX_LADDER_SECONDS)
            .collect();
        let layout = Layout::new(&[0], &ladder, &[&[0], &ladder[..]].concat()).expect("a layout");
        let ready_partitions = NonZeroU32::MIN;
        let policy = Policy {
            layout,
            retry_cap: 0,
            max_delay_seconds: MAX_DELAY_SECONDS,
            ready_partitions,
            targets: vec![],
            outage_budget_seconds: 0,
        };
        (Simulation { policy, copies: CopyHeaders::default(), random: Random(20) }, ladder)
    }

    fn one(&mut self) -> Released {
        let due_at_ms = BEGIN_MS + self.random.up_to(u64::from(MAX_DELAY_SECONDS) * 1000);
        let requested = due_at_ms.to_string().into_bytes();
        let headers = vec![(b"dt-deliver-at".to_vec(), Some(requested))];
        let mut stored = Stored { side: Side::Front, partition: 0, appended_at_ms: BEGIN_MS, headers };
        let (mut hops, mut copy_ms) = (0, 0);
        loop {
            let read_at_ms = stored.appended_at_ms + self.random.up_to(MAX_COPY_MS);
            match self.turn(&stored, read_at_ms) {
                (_, None, released_at_ms) => return Released { hops, late_ms: released_at_ms - due_at_ms, copy_ms },
                (turn_at_ms, Some(next), _) => {
                    hops += 1;
                    copy_ms = next.appended_at_ms - turn_at_ms;
                    stored = next;
                }
            }
        }
    }

    /// Returns the time of the record's turn, the copy if the record hopped, and otherwise the time of its release.
    fn turn(&mut self, stored: &Stored, read_at_ms: i64) -> (i64, Option<Stored>, i64) {
        let headers = stored.headers();
        let record = Record {
            side: stored.side,
            partition: stored.partition,
            offset: 0,
            topic_id: "uT1eKVuTQ2--Rhh9b73dqg",
            appended_at_ms: Some(stored.appended_at_ms),
            key: None,
            headers: Some(headers.iter().copied()),
        };
        let mut now_ms = read_at_ms;
        let mut waiting = match decide(&record, &self.policy, LowerBoundMs(now_ms), LowerBoundMs(now_ms)) {
            Decision::Hop(hop) => return (stored.appended_at_ms, Some(self.copy(&headers, &record, &hop, now_ms)), 0),
            Decision::Wait(wait) => wait.waiting,
            Decision::DeadLetter(dead) => panic!("a dead letter: {dead:?}"),
        };
        loop {
            now_ms = now_ms.max(waiting.turn_at_ms);
            match take_turn(&record, waiting, &self.policy, LowerBoundMs(now_ms)) {
                Outcome::Release(_) => return (now_ms, None, now_ms),
                Outcome::Hop(hop) => return (now_ms, Some(self.copy(&headers, &record, &hop, now_ms)), 0),
                Outcome::Hold(held) => waiting = held,
                Outcome::DeadLetter(dead) => panic!("a dead letter: {dead:?}"),
            }
        }
    }

    fn copy<'a, H: Iterator<Item = Header<'a>> + Clone>(
        &mut self,
        headers: &[Header<'a>],
        record: &Record<'a, H>,
        hop: &Hop<'_>,
        now_ms: i64,
    ) -> Stored {
        let mut written = Vec::with_capacity(8);
        self.copies.hop(headers.iter().copied(), record.place(), hop, &mut written);
        let delay_seconds = self.policy.layout.delay_of(hop.partition).expect("a partition of the layout");
        let appended_at_ms = now_ms + self.random.up_to(MAX_COPY_MS);
        Stored { side: Side::Delays { delay_seconds }, partition: hop.partition, appended_at_ms, headers: written }
    }
}

fn main() -> ExitCode {
    let records = std::env::args().nth(1).map_or(RECORDS, |records| records.parse().expect("a number of records"));
    let mut kept = true;
    for base in [2, 4] {
        let began = Instant::now();
        let (mut simulation, ladder) = Simulation::new(base);
        let (mut hops, mut most_hops, mut early, mut excess_late, mut most_late_ms) = (0_u64, 0, 0_u32, 0_u32, 0);
        for _ in 0..records {
            let released = simulation.one();
            hops += u64::from(released.hops);
            most_hops = most_hops.max(released.hops);
            early += u32::from(released.late_ms < 0);
            excess_late += u32::from(released.late_ms > released.copy_ms + i64::try_from(MAX_COPY_MS).expect("small"));
            most_late_ms = most_late_ms.max(released.late_ms);
        }
        #[allow(clippy::cast_precision_loss)]
        let average = hops as f64 / f64::from(records);
        println!(
            "{{\"base\": {base}, \"delays\": {}, \"records\": {records}, \"days\": {}, \"average_hops\": {average:.1}, \
             \"most_hops\": {most_hops}, \"early\": {early}, \"late_beyond_last_copy\": {excess_late}, \
             \"most_late_ms\": {most_late_ms}, \"seconds\": {:.1}}}",
            ladder.len(),
            MAX_DELAY_SECONDS / 86_400,
            began.elapsed().as_secs_f64(),
        );
        kept &= early == 0 && excess_late == 0;
    }
    if kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
