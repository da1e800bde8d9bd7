//! Measures how long it takes to decide about a record and to write the headers of its copy: the median in nanoseconds, as JSON.
//!
//! `cargo run --release --example nanoseconds [ROUNDS]`. Headers are written in the format of Kafka's record batches, into memory
//! that is reused, so that the figures include no allocation and no client library.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Instant;

use delayed_topics_engine::layout::Layout;
use delayed_topics_engine::reading::Header;
use delayed_topics_engine::record::{Policy, Record, Side};
use delayed_topics_engine::release::LowerBoundMs;
use delayed_topics_engine::routing::{decide, take_turn, Decision, Outcome};
use delayed_topics_engine::writing::{CopyHeaders, HeaderSink};

const ROUNDS: usize = 101;
const RECORDS: i64 = 20_000;
const NOW: LowerBoundMs = LowerBoundMs(1_790_000_000_000);
const TOPIC_ID: &str = "uT1eKVuTQ2--Rhh9b73dqg";

/// Encodes headers as in Kafka's record batches: each length as a variable-length integer, and then the bytes.
#[derive(Default)]
struct Encoded(Vec<u8>);

impl Encoded {
    fn length(&mut self, length: usize) {
        let mut rest = length << 1; // zigzag
        while rest >= 0x80 {
            self.0.push(0x80 | u8::try_from(rest & 0x7f).unwrap_or(0));
            rest >>= 7;
        }
        self.0.push(u8::try_from(rest).unwrap_or(0));
    }
}

impl HeaderSink for Encoded {
    fn header(&mut self, name: &[u8], value: Option<&[u8]>) {
        self.length(name.len());
        self.0.extend_from_slice(name);
        match value {
            Some(value) => {
                self.length(value.len());
                self.0.extend_from_slice(value);
            }
            None => self.0.push(1), // -1
        }
    }
}

/// Measures the same decision about a record, again and again.
struct Bench {
    rounds: usize,
    policy: Policy,
    copies: CopyHeaders,
    encoded: Encoded,
}

impl Bench {
    fn new(delay_seconds: &[u32], partition_delays: &[u32]) -> Self {
        let rounds = std::env::args().nth(1).map_or(ROUNDS, |rounds| rounds.parse().expect("a number of rounds"));
        let layout = Layout::new(delay_seconds, &[], partition_delays).expect("a layout");
        let ready_partitions = NonZeroU32::new(8).expect("not 0");
        let (retry_cap, max_delay_seconds, outage_budget_seconds) = (5, 0, 0);
        let policy =
            Policy { layout, retry_cap, max_delay_seconds, ready_partitions, targets: vec![], outage_budget_seconds };
        Bench { rounds, policy, copies: CopyHeaders::default(), encoded: Encoded::default() }
    }

    /// Prints the median under this name.
    fn measure(&mut self, name: &str, side: Side, appended_at_ms: i64, headers: &[Header<'_>]) {
        let mut nanoseconds: Vec<f64> = (0..self.rounds)
            .map(|_| {
                let began = Instant::now();
                for offset in 0..RECORDS {
                    self.one(side, offset, appended_at_ms, black_box(headers));
                }
                began.elapsed().as_secs_f64() * 1e9 / f64::from(u32::try_from(RECORDS).unwrap_or(1))
            })
            .collect();
        nanoseconds.sort_by(f64::total_cmp);
        println!("{{\"way\": \"{name}\", \"ns_per_record\": {:.1}}}", nanoseconds[self.rounds / 2]);
    }

    fn one(&mut self, side: Side, offset: i64, appended_at_ms: i64, headers: &[Header<'_>]) {
        let record = Record {
            side,
            partition: 3,
            offset,
            topic_id: TOPIC_ID,
            appended_at_ms: Some(appended_at_ms),
            key: Some(b"order-7"),
            headers: Some(headers.iter().copied()),
        };
        let place = record.place();
        self.encoded.0.clear();
        match decide(&record, &self.policy, NOW, NOW) {
            Decision::Wait(wait) if side == Side::Front => match wait.take_turn(&record, &self.policy, NOW) {
                Outcome::Release(release) => {
                    self.copies.release(headers.iter().copied(), place, &release, &mut self.encoded);
                }
                turn => panic!("not due: {turn:?}"),
            },
            Decision::Wait(wait) => match take_turn(&record, wait.waiting, &self.policy, NOW) {
                Outcome::Release(release) => {
                    self.copies.release(headers.iter().copied(), place, &release, &mut self.encoded);
                }
                turn => panic!("not due: {turn:?}"),
            },
            Decision::Hop(hop) => self.copies.hop(headers.iter().copied(), place, &hop, &mut self.encoded),
            Decision::DeadLetter(dead) => {
                self.copies.dead_letter(headers.iter().copied(), place, &dead, &mut self.encoded);
            }
        }
        black_box(&self.encoded.0);
    }
}

fn main() {
    let now_ms = NOW.0;
    let trace: Header<'_> = (b"traceparent", Some(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
    let hop: Vec<Header<'_>> = vec![
        trace,
        (b"dt-id", Some(b"f:3:17:uT1eKVuTQ2--Rhh9b73dqg")),
        (b"dt-attempt", Some(b"0")),
        (b"dt-root", Some(b"f:3:17:uT1eKVuTQ2--Rhh9b73dqg")),
        (b"dt-origin", Some(b"f:3:17")),
        (b"dt-due-at", Some(b"1790000000000")),
        (b"dt-hops", Some(b"1")),
    ];
    let retry: Vec<Header<'_>> = vec![
        trace,
        (b"dt-id", Some(b"order-7")),
        (b"dt-attempt", Some(b"2")),
        (b"dt-group", Some(b"billing")),
        (b"dt-created-at", Some(b"1789999990000")),
        (b"dt-done-at", Some(b"1789999999000")),
        (b"dt-error", Some(b"connection refused")),
    ];
    let mut bench = Bench::new(&[0, 10, 60], &[0, 0, 0, 0, 10, 60]);
    bench.measure("front, no header, released", Side::Front, now_ms - 1, &[]);
    bench.measure("front, one foreign header, released", Side::Front, now_ms - 1, &[trace]);
    bench.measure("delays, a hop, released", Side::Delays { delay_seconds: 10 }, now_ms - 10_001, &hop);
    bench.measure("front, a retry with six own headers, hopped", Side::Front, now_ms - 1, &retry);
    let mut bench = Bench::new(&[10], &[10]);
    bench.measure("front, one foreign header, hopped", Side::Front, now_ms - 1, &[trace]);
}
