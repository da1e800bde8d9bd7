//! Simulations: whatever becomes of copies, each record of a partition comes out once, not early, and in order.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use super::changes::{Change, Changed};
use super::clock::boot_ns;
use super::copying::{Goes, Sending};
use super::delivery_reports::refuse;
use super::fake_producer::{Producer, Queued, HUGE};
use super::partition::{Partition, MAX_UNCOMMITTED, UNKNOWN_PARTITION_NS};
use super::state::{First, State, Step, Then};
use super::stored::{HeaderBytes, Parts};
use super::topic::{Names, Served, Target, Topic};
use crate::kafka::{code, Error, Refusal};
use crate::layout::Layout;
use crate::record::Policy;
use crate::release::LowerBoundMs;
use crate::writing::CopyHeaders;

const START_MS: i64 = 1_790_000_000_000;
const LARGE: usize = 500;
const INVALID: usize = 13;
const DELAYS: [u32; 3] = [0, 1, 2];

/// Random numbers that are the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

struct Record {
    level: usize,
    at_ms: i64,
    bytes: usize,
}

/// A front partition, the records that Kafka has of it, and what became of them.
struct Simulation {
    random: Random,
    partition: Partition,
    topic: Topic,
    served: Served,
    producer: Producer,
    log: Vec<Record>,
    now_ms: i64,
    arrived: BTreeMap<i64, Queued>,
    doubled: usize,
    refused: BTreeSet<i64>,
    events: Vec<super::EngineEvent>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        Self::with_ladder(seed, &[])
    }

    fn with_ladder(seed: u64, ladder_seconds: &[u32]) -> Self {
        let layout = Layout::new(&DELAYS, ladder_seconds, &[0, 0, 1, 2]).unwrap();
        let policy = Policy {
            layout,
            retry_cap: 3,
            max_delay_seconds: 0,
            ready_partitions: NonZeroU32::new(4).unwrap(),
            targets: Vec::new(),
            outage_budget_seconds: 60,
        };
        let [front, delays, ready, dead_letter] = ["orders", "delays", "ready", "dead"].map(str::to_owned);
        let mut topic = Topic::new(Names { front, delays, ready, dead_letter });
        topic.dead_letter_partitions = NonZeroU32::new(2);
        let mut partition = Partition::new(1, 0, "orders".to_owned(), 3);
        partition.step(Step::Take);
        partition.step(Step::Place);
        Simulation {
            random: Random(seed),
            partition,
            topic,
            served: Served {
                policy,
                paused: false,
                skew_ms: 0,
                compression: "none".to_owned(),
                replicated: None,
                has_control_topic: false,
            },
            producer: Producer::default(),
            log: Vec::new(),
            now_ms: START_MS,
            arrived: BTreeMap::new(),
            doubled: 0,
            refused: BTreeSet::new(),
            events: Vec::new(),
        }
    }

    fn append(&mut self) {
        for _ in 0..self.random.below(20) {
            let bytes = [LARGE, INVALID, HUGE].into_iter().find(|_| self.random.one_in(30)).unwrap_or(10);
            let level = usize::try_from(self.random.below(3)).unwrap();
            self.log.push(Record { level, at_ms: self.now_ms, bytes });
        }
    }

    /// Takes in the records of the log, as `intake` does with records from Kafka.
    fn read(&mut self) {
        let value = [7; LARGE];
        while self.partition.state.takes_in() {
            let offset = self.partition.window.position();
            let Some(record) = usize::try_from(offset).ok().and_then(|place| self.log.get(place)) else { return };
            self.partition.step(Step::FirstAt { first: First::Record(offset), position: offset });
            if self.partition.window.take(offset).unwrap() {
                let level = (record.level + 1).to_string();
                let headers = [(&b"dt-delay-level"[..], Some(level.as_bytes()))].into_iter();
                let parts = Parts {
                    appended_at_ms: Some(record.at_ms),
                    key: None,
                    value: Some(&value[..record.bytes]),
                    headers: Some(headers),
                };
                self.partition.held.arrive(offset, &parts, self.now_ms, &mut HeaderBytes::default());
            }
        }
    }

    fn send(&mut self) {
        self.producer.now_ms.set(self.now_ms);
        self.producer.room.set(usize::try_from(self.random.below(40)).unwrap());
        let (mut writer, mut block) = (CopyHeaders::default(), Vec::new());
        let mut sending = Sending {
            slot: 0,
            partition: &mut self.partition,
            names: &self.topic.names,
            dead_letter_partitions: self.topic.dead_letter_partitions,
            changes: self.served.has_control_topic.then_some(&mut self.topic.changes),
            tally: &mut self.topic.tally,
            served: &self.served,
            now: LowerBoundMs(self.now_ms),
            batches: Some(&self.producer),
            alone: Some(&self.producer),
            may_go_alone: true,
            most_bytes: 2000,
            writer: &mut writer,
            block: &mut block,
            events: &mut self.events,
        };
        assert!(sending.send().1 != Goes::Refused);
    }

    /// Acknowledges some copies. If one is too large or invalid, refuses it with the rest of its batch.
    fn answer(&mut self) {
        for _ in 0..self.random.below(30) {
            let Some(copy) = self.producer.queued.borrow_mut().pop_front() else { return };
            let is_dead = copy.of.target == Target::DeadLetter;
            let (code, of_others) = match copy.bytes {
                LARGE if !is_dead => (code::MSG_SIZE_TOO_LARGE, code::MSG_SIZE_TOO_LARGE),
                INVALID if !is_dead => (code::INVALID_RECORD, code::INVALID_DIFFERENT_RECORD),
                _ => (0, 0),
            };
            if code != 0 {
                let behind = if self.partition.lone.is_some() { 0 } else { self.random.below(5) };
                self.refuse(&copy, code);
                for _ in 0..behind {
                    let next = self.producer.queued.borrow_mut().pop_front();
                    if let Some(copy) = next {
                        self.refuse(&copy, of_others);
                    }
                }
            } else if self.random.one_in(200) {
                self.refuse(&copy, code::TOPIC_AUTHORIZATION_FAILED);
            } else {
                self.partition.acknowledge(copy.of.offset, copy.of.target, copy.bytes);
                self.doubled += usize::from(self.arrived.insert(copy.of.offset, copy).is_some());
            }
        }
    }

    fn refuse(&mut self, copy: &Queued, code: i32) {
        self.refused.insert(copy.of.offset);
        let refusal = Refusal { error: Error::local(code, "refused"), topic: "orders.delays".to_owned() };
        refuse(&mut self.partition, copy.of.offset, copy.of.target, copy.bytes, refusal);
    }

    /// Continues with the partition as the engine's turns do, and as Python does if it stands still.
    fn go_on(&mut self) {
        match self.partition.state {
            State::Settling(then) if self.partition.in_flight() == 0 => {
                if then == Then::ReadAgain {
                    self.partition.window = self.partition.window.renewed();
                    self.partition.step(Step::Place);
                } else {
                    self.partition.step(Step::Settled);
                }
            }
            State::Standing => self.partition.step(Step::GoOn),
            _ => {}
        }
        self.partition.committed = self.partition.acknowledged;
    }

    fn turn(&mut self) {
        self.read();
        self.send();
        self.answer();
        self.go_on();
        self.now_ms += i64::try_from(self.random.below(3)).unwrap();
    }

    fn run(&mut self) {
        for _ in 0..100 {
            self.append();
            self.turn();
        }
        let end = i64::try_from(self.log.len()).unwrap();
        for _ in 0..100_000 {
            if self.partition.window.lowest_unfinished() == end {
                return;
            }
            self.turn();
        }
        panic!("offset {} of {end} never came out", self.partition.window.lowest_unfinished());
    }
}

#[test]
fn every_record_comes_out_once_none_early_and_in_order() {
    for seed in 1..200 {
        let mut sim = Simulation::new(seed);
        sim.run();
        assert_eq!((sim.arrived.len(), sim.doubled), (sim.log.len(), 0), "seed {seed}");
        let mut last: BTreeMap<(i32, i32, usize), (i64, i64)> = BTreeMap::new();
        for (offset, copy) in &sim.arrived {
            let record = &sim.log[usize::try_from(*offset).unwrap()];
            let due_at_ms = record.at_ms + 1000 * i64::from(DELAYS[record.level]);
            if copy.of.target == Target::DeadLetter {
                assert_ne!(record.bytes, 10, "seed {seed}, offset {offset}");
                continue;
            }
            assert_eq!(copy.due_at_ms, Some(due_at_ms), "seed {seed}, offset {offset}");
            assert!(copy.of.target != Target::Ready || copy.at_ms >= due_at_ms, "seed {seed}, offset {offset}: early");
            if !sim.refused.contains(offset) {
                let line = (copy.of.target as i32, copy.partition, record.level);
                let before = last.insert(line, (*offset, copy.at_ms));
                assert!(
                    before.map_or(true, |(_, at_ms)| at_ms <= copy.at_ms),
                    "seed {seed}, offset {offset}: overtaken"
                );
            }
        }
    }
}

/// The id of a record of the front partition, which is its root.
fn id(offset: i64) -> Vec<u8> {
    format!("f:3:{offset}:").into_bytes()
}

#[test]
fn a_record_that_is_cancelled_comes_out_as_a_dead_letter_and_no_other_one_does() {
    for seed in 1..50 {
        let mut sim = Simulation::new(seed);
        let cancelled = |offset: i64| offset % 3 == 1;
        sim.served.has_control_topic = true;
        for offset in (0..10_000).filter(|offset| cancelled(*offset)) {
            assert!(!sim.topic.changes.want(&id(offset), Change::Cancel));
        }
        sim.run();
        assert_eq!((sim.arrived.len(), sim.doubled), (sim.log.len(), 0), "seed {seed}");
        for (offset, copy) in &sim.arrived {
            let refused = sim.log[usize::try_from(*offset).unwrap()].bytes != 10;
            let dead = copy.of.target == Target::DeadLetter;
            assert_eq!(dead, refused || cancelled(*offset), "seed {seed}, offset {offset}");
        }
        let expected: BTreeSet<i64> = sim.arrived.keys().copied().filter(|offset| cancelled(*offset)).collect();
        assert_eq!(sim.partition.changed.keys().copied().collect::<BTreeSet<_>>(), expected, "seed {seed}");
        assert!(sim.partition.changed.iter().all(|(offset, done)| *done == (id(*offset).into(), Changed::Cancelled)));
    }
}

#[test]
fn a_record_that_is_rescheduled_is_due_at_the_time_that_was_asked_for_or_came_too_late_for_that() {
    for seed in 1..50 {
        let mut sim = Simulation::with_ladder(seed, &[1, 2]);
        sim.served.has_control_topic = true;
        let mut random = Random(seed);
        let requested: BTreeMap<i64, i64> = (0..10_000)
            .filter(|offset| offset % 3 == 1)
            .map(|offset| (offset, START_MS + i64::try_from(random.below(3000)).unwrap()))
            .collect();
        for (offset, at_ms) in &requested {
            sim.topic.changes.want(&id(*offset), Change::DeliverAt(*at_ms));
        }
        sim.run();
        assert_eq!((sim.arrived.len(), sim.doubled), (sim.log.len(), 0), "seed {seed}");
        let (mut changed, mut too_deep) = (0, 0);
        for (offset, copy) in sim.arrived.iter().filter(|(_, copy)| copy.of.target != Target::DeadLetter) {
            let record = &sim.log[usize::try_from(*offset).unwrap()];
            let listed_ms = record.at_ms + 1000 * i64::from(DELAYS[record.level]);
            let due_at_ms = copy.due_at_ms.unwrap();
            assert!(copy.of.target != Target::Ready || copy.at_ms >= due_at_ms, "seed {seed}, offset {offset}: early");
            let reported = sim.partition.changed.get(offset).map(|(_, changed)| *changed);
            match requested.get(offset).filter(|at_ms| **at_ms >= record.at_ms) {
                None => assert_eq!((due_at_ms, reported), (listed_ms, None), "seed {seed}, offset {offset}"),
                Some(at_ms) if due_at_ms == *at_ms => {
                    assert_eq!(reported, Some(Changed::Rescheduled(*at_ms)), "seed {seed}, offset {offset}");
                    changed += 1;
                }
                Some(at_ms) => {
                    assert_eq!((due_at_ms, reported), (listed_ms, Some(Changed::TooDeep(*at_ms))));
                    assert!(*at_ms < listed_ms && copy.at_ms >= listed_ms, "seed {seed}, offset {offset}");
                    too_deep += 1;
                }
            }
        }
        assert!(changed > 10, "seed {seed}: {changed} changed, {too_deep} too deep");
    }
}

#[test]
fn without_a_ladder_no_record_is_rescheduled() {
    let mut sim = Simulation::new(1);
    sim.served.has_control_topic = true;
    for offset in 0..10_000 {
        sim.topic.changes.want(&id(offset), Change::DeliverAt(START_MS + 30_000));
    }
    sim.run();
    assert_eq!((sim.arrived.len(), sim.doubled, sim.partition.changed.len()), (sim.log.len(), 0, 0));
    for (offset, copy) in sim.arrived.iter().filter(|(_, copy)| copy.of.target != Target::DeadLetter) {
        let record = &sim.log[usize::try_from(*offset).unwrap()];
        assert_eq!(copy.due_at_ms, Some(record.at_ms + 1000 * i64::from(DELAYS[record.level])));
    }
}

/// A simulation that has a copy in flight.
fn sending() -> Simulation {
    let mut sim = Simulation::new(1);
    while sim.partition.in_flight() == 0 {
        sim.append();
        sim.read();
        sim.send();
    }
    sim
}

#[test]
fn a_copy_to_a_partition_that_the_brokers_do_not_know_yet_is_sent_again_for_some_seconds_without_an_alarm() {
    for (since_ns, then) in [(UNKNOWN_PARTITION_NS / 2, Then::ReadAgain), (UNKNOWN_PARTITION_NS, Then::Stand)] {
        let mut sim = sending();
        let copy = sim.producer.queued.borrow_mut().pop_front().unwrap();
        sim.refuse(&copy, code::UNKNOWN_PARTITION);
        assert_eq!(sim.partition.state, State::Settling(Then::ReadAgain));
        while sim.partition.in_flight() > 0 {
            sim.answer();
        }
        sim.go_on();
        sim.read();
        sim.partition.unknown = Some((copy.of.offset, boot_ns() - since_ns));
        while sim.partition.in_flight() == 0 {
            sim.now_ms += 1;
            sim.send();
        }
        let again = sim.producer.queued.borrow_mut().pop_front().unwrap();
        assert_eq!(again.of, copy.of);
        sim.refuse(&again, code::UNKNOWN_PARTITION);
        assert_eq!(sim.partition.state, State::Settling(then));
    }
}

#[test]
fn copies_that_are_given_up_take_no_room() {
    let mut sim = sending();
    sim.partition.give_up_copies();
    assert_eq!(sim.partition.room(), u64::from(MAX_UNCOMMITTED));
}
