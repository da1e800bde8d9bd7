//! What becomes due is sent on, in the order of turns.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::happening::Happening;
use super::partition::{Alone, Lone, Partition};
use super::producers::{Producer, Through};
use super::slots::CopyOf;
use super::state::Step;
use super::stored::{Parts, Stored, StoredHeaders};
use super::topic::{Served, Target, Topic};
use super::transactions::Transactions;
use super::{boot_ns, Engine};
use crate::kafka::{code, Copy, CopyHeaders, Error};
use crate::record::{Record, Side};
use crate::release::{LowerBoundMs, Release};
use crate::routing::{decide, take_turn, too_large, DeadLetter, Decision, Hop, Turn, Waiting};
use crate::writing::{self, Extent};

/// Copies of a partition before the fence is looked at again.
const AT_ONCE: u64 = 500;
/// Whoever polled longer ago than this may not be a member any more.
const POLLED_NS: i64 = 1_000_000_000;
/// Memory of copies that are not acknowledged: of all partitions together, each having its equal share.
const MOST_BYTES_ON_THEIR_WAY: usize = 32 << 20;
/// However many partitions there are.
const LEAST_BYTES_ON_THEIR_WAY: usize = 64 << 10;
/// Headers of ours in a copy, about.
const OWN_HEADERS: usize = 8;

/// What becomes of a record that is looked at.
enum Outcome<'r> {
    Release(Release<'r>),
    Hop(Hop<'r>),
    DeadLetter(DeadLetter<'r>),
    Hold(Waiting),
}

impl Outcome<'_> {
    fn target(&self) -> Target {
        match self {
            Outcome::Release(_) | Outcome::Hold(_) => Target::Ready,
            Outcome::Hop(_) => Target::Delays,
            Outcome::DeadLetter(_) => Target::DeadLetter,
        }
    }
}

/// What becomes of a partition whose records are sent.
#[derive(PartialEq, Eq)]
enum Goes {
    /// There may be more.
    On,
    /// There is more, and no room for it.
    Blocked,
    /// There is one that has to go alone.
    Alone,
    /// A copy can't even be queued: it stands still.
    Refused,
}

impl Engine {
    /// Sends what is due; false: it was nothing.
    pub(super) fn send_due(&mut self) -> bool {
        if let Some(slot) = self.transactions.as_mut().and_then(Transactions::take_alone) {
            self.blocked.retain(|blocked| *blocked != slot);
            self.send_alone(slot);
        }
        for slot in std::mem::take(&mut self.blocked) {
            self.register(slot);
        }
        let mut sent = false;
        while self.may_send() && boot_ns() - self.polled_at_ns < POLLED_NS {
            let Some(now) = self.clock.bound() else { break };
            let Some((turn_ms, slot)) = self.turns.pop(now.0) else { break };
            let Some(partition) = self.slots.get_mut(slot) else { continue };
            if partition.turn_ms != Some(turn_ms) {
                continue; // since then it was registered with an earlier turn
            }
            partition.turn_ms = None;
            let before = partition.sent;
            match self.work(slot, now) {
                Goes::On => self.register(slot),
                Goes::Blocked | Goes::Alone => self.blocked.push(slot),
                Goes::Refused => self.settling.push(slot),
            }
            sent |= self.slots.get(slot).is_some_and(|partition| partition.sent > before);
        }
        sent
    }

    /// The first record of a partition goes as the only one of its transaction.
    fn send_alone(&mut self, slot: usize) {
        if let Some(now) = self.clock.bound() {
            if self.work(slot, now) == Goes::Refused {
                self.settling.push(slot);
            }
        }
        self.blocked.push(slot);
    }

    pub(super) fn register(&mut self, slot: usize) {
        if let Some(partition) = self.slots.get_mut(slot) {
            let served = self.topics[partition.topic].served.as_ref();
            let (paused, skew_ms) = served.map_or((true, 0), |served| (served.paused, served.skew_ms));
            self.turns.register(slot, partition, paused, skew_ms);
        }
    }

    /// In nanoseconds; very long if nothing waits.
    pub(super) fn next_turn_in_ns(&mut self) -> i64 {
        const SOON_NS: i64 = 1_000_000;
        match (self.turns.next_ms(), self.clock.bound()) {
            (None, _) if self.blocked.is_empty() => i64::MAX,
            (Some(turn_ms), Some(now)) if turn_ms > now.0 => (turn_ms - now.0).saturating_mul(1_000_000),
            _ => SOON_NS, // the time, the fence or room is awaited
        }
    }

    /// Sends what of a partition has its turn, up to `AT_ONCE`: what waited first, then what has just arrived.
    fn work(&mut self, slot: usize, now: LowerBoundMs) -> Goes {
        let partitions = self.slots.len().max(1);
        let Some(partition) = self.slots.get_mut(slot) else { return Goes::On };
        let topic = &mut self.topics[partition.topic];
        let Some(served) = topic.served.clone() else { return Goes::On };
        let through = |alone| Through { compression: served.compression.clone(), alone };
        if self.transactions.is_none() {
            let wake = self.wake.as_fd();
            let mut needed = [false, true].into_iter().filter(|alone| !alone || !partition.alone.is_empty());
            let made = needed.try_for_each(|alone| self.producers.make(&through(alone), wake));
            if let Err(why) = made {
                self.happenings.push(Happening::log(format!("no producer can be made: {why}")));
                return Goes::Blocked;
            }
        }
        let (batches, alone) = match &self.transactions {
            Some(transactions) => (transactions.producer(), transactions.producer()),
            None => (self.producers.get(&through(false)), self.producers.get(&through(true))),
        };
        let may_go_alone = self.transactions.as_ref().map_or(true, Transactions::is_clean);
        let before = partition.sent;
        let most_bytes = LEAST_BYTES_ON_THEIR_WAY.max(MOST_BYTES_ON_THEIR_WAY / partitions);
        let mut sending = Sending {
            slot,
            partition,
            topic,
            served: &served,
            now: LowerBoundMs(now.0 - served.skew_ms),
            batches,
            alone,
            may_go_alone,
            most_bytes,
            writer: &mut self.scratch.headers,
            block: &mut self.scratch.block,
            happenings: &mut self.happenings,
        };
        let goes = sending.send();
        if let Some(transactions) = &mut self.transactions {
            if self.slots.get(slot).is_some_and(|partition| partition.sent > before) {
                transactions.touch(slot);
            }
            if goes == Goes::Alone || self.slots.get(slot).is_some_and(|partition| partition.lone.is_some()) {
                transactions.alone = Some(slot);
            }
        }
        goes
    }
}

struct Sending<'e> {
    slot: usize,
    partition: &'e mut Partition,
    topic: &'e mut Topic,
    served: &'e Served,
    now: LowerBoundMs,
    batches: Option<&'e Producer>,
    alone: Option<&'e Producer>,
    may_go_alone: bool,
    most_bytes: usize,
    writer: &'e mut writing::CopyHeaders,
    block: &'e mut Vec<u8>,
    happenings: &'e mut Vec<Happening>,
}

impl Sending<'_> {
    fn send(&mut self) -> Goes {
        let limit = self.partition.sent + AT_ONCE;
        let topic_id = Arc::clone(&self.partition.topic_id);
        let before = self.partition.sent;
        let mut block = std::mem::take(self.block);
        let goes = self.send_up_to(limit, before, &topic_id, &mut block);
        *self.block = block;
        goes
    }

    fn send_up_to(&mut self, limit: u64, before: u64, topic_id: &str, block: &mut Vec<u8>) -> Goes {
        while self.partition.state.sends() && self.partition.lone.is_none() {
            if self.partition.room() == 0 || self.partition.bytes_on_their_way >= self.most_bytes {
                return Goes::Blocked;
            }
            if self.partition.sent >= limit {
                return Goes::On;
            }
            let Some(taken) = self.partition.held.take(self.now.0, self.served.paused) else {
                return Goes::On;
            };
            let (offset, waiting) = (taken.offset, taken.waiting);
            let alone = self.partition.alone.get(&offset).copied();
            if alone.is_some()
                && !(self.partition.in_flight() == 0 && self.may_go_alone && self.partition.sent == before)
            {
                self.partition.held.put_back(&taken);
                return Goes::Alone;
            }
            self.partition.held.get(&taken).copy_to(block);
            let stored = Stored::of(block).parts();
            let record = Record {
                side: self.partition.side,
                partition: self.partition.number.unsigned_abs(),
                offset,
                topic_id,
                appended_at_ms: stored.appended_at_ms,
                key: stored.key,
                headers: (waiting.is_some() || stored.headers.are_readable()).then(|| stored.headers.clone()),
            };
            let outcome = self.outcome(&record, waiting, &stored, alone);
            if let Outcome::Hold(waiting) = outcome {
                self.partition.held.wait(&taken, waiting);
                continue;
            }
            match self.queue(&record, &stored, &outcome, alone) {
                Ok(bytes) => {
                    self.count(&outcome, waiting);
                    let lone = alone.map(|alone| Lone { offset, next: next_smaller(alone, &outcome) });
                    let target = outcome.target();
                    self.partition.sent_on(&taken, target, bytes, lone);
                }
                Err(error) if error.code == code::QUEUE_FULL => {
                    self.partition.held.put_back(&taken);
                    return Goes::Blocked;
                }
                Err(error) => {
                    let target = self.topic.names.of(outcome.target()).to_owned();
                    self.happenings.push(Happening::Refused { origin: self.partition.offset(offset), target, error });
                    self.partition.step(Step::Stop);
                    return Goes::Refused;
                }
            }
        }
        if self.partition.lone.is_some() {
            Goes::Blocked
        } else {
            Goes::On
        }
    }

    fn outcome<'r>(
        &self,
        record: &Record<'r, StoredHeaders<'r>>,
        waiting: Option<Waiting>,
        stored: &Parts<'_, StoredHeaders<'_>>,
        alone: Option<Alone>,
    ) -> Outcome<'r> {
        if matches!(alone, Some(Alone::AsDeadLetter(_))) {
            return Outcome::DeadLetter(too_large(record, stored.value.map_or(0, <[u8]>::len)));
        }
        if let Some(waiting) = waiting {
            return match take_turn(record, waiting, &self.served.policy, self.now) {
                Turn::Release(release) => Outcome::Release(release),
                Turn::Hop(hop) => Outcome::Hop(hop),
                Turn::Hold(waiting) => Outcome::Hold(waiting),
                Turn::DeadLetter(dead) => Outcome::DeadLetter(dead),
            };
        }
        match decide(record, &self.served.policy, self.now) {
            Decision::Wait(wait) => {
                let waiting = wait.waiting;
                // in a delays partition others may have waited for longer
                let at_once = record.side == Side::Front && waiting.turn_at_ms <= self.now.0 && !self.served.paused;
                match at_once.then(|| wait.release(self.now)) {
                    Some(Ok(release)) => Outcome::Release(release),
                    _ => Outcome::Hold(waiting),
                }
            }
            Decision::Hop(hop) => Outcome::Hop(hop),
            Decision::DeadLetter(dead) => Outcome::DeadLetter(dead),
        }
    }

    /// Queues a copy; how many bytes its key and value have.
    fn queue(
        &mut self,
        record: &Record<'_, StoredHeaders<'_>>,
        stored: &Parts<'_, StoredHeaders<'_>>,
        outcome: &Outcome<'_>,
        alone: Option<Alone>,
    ) -> Result<usize, Error> {
        let producer = if alone.is_some() { self.alone } else { self.batches };
        let Some(producer) = producer else { return Err(Error::local(code::QUEUE_FULL, "there is no producer")) };
        let extent = match alone {
            Some(Alone::AsDeadLetter(extent)) => extent,
            _ => Extent::Whole,
        };
        let mut headers = producer.client.copy_headers(OWN_HEADERS);
        let partition = self.write(record, outcome, extent, &mut headers)?;
        let copy = Copy {
            partition,
            key: if extent == Extent::OwnHeaders { None } else { stored.key },
            value: if extent == Extent::Whole { stored.value } else { None },
            headers,
            number: CopyOf { slot: self.slot, offset: record.offset, target: outcome.target() }.number(),
        };
        let bytes = copy.key.map_or(0, <[u8]>::len) + copy.value.map_or(0, <[u8]>::len);
        producer.client.produce(producer.handle(self.partition.topic, outcome.target()), copy).map(|()| bytes)
    }

    /// Writes the copy's headers; the partition that it goes to.
    fn write(
        &mut self,
        record: &Record<'_, StoredHeaders<'_>>,
        outcome: &Outcome<'_>,
        extent: Extent,
        headers: &mut CopyHeaders,
    ) -> Result<i32, Error> {
        let from = record.headers.clone().into_iter().flatten();
        let place = record.place();
        let number =
            match outcome {
                Outcome::Release(release) => {
                    self.writer.release(from, place, release, headers);
                    release.ready_partition()
                }
                Outcome::Hop(hop) => {
                    self.writer.hop(from, place, hop, headers);
                    hop.partition
                }
                Outcome::DeadLetter(dead) => {
                    let kept = from.take(if extent == Extent::OwnHeaders { 0 } else { usize::MAX });
                    self.writer.dead_letter(kept, place, dead, headers);
                    let count = self.topic.dead_letter_partitions;
                    dead.partition(count.ok_or_else(|| {
                        Error::local(code::UNKNOWN_TOPIC_OR_PART, "it doesn't exist, or was made again")
                    })?)
                }
                Outcome::Hold(_) => return Err(Error::local(code::STATE, "it waits")),
            };
        Ok(i32::try_from(number).unwrap_or(i32::MAX))
    }

    fn count(&mut self, outcome: &Outcome<'_>, waiting: Option<Waiting>) {
        let tally = &mut self.topic.tally;
        match outcome {
            Outcome::Release(release) => {
                tally.release(self.now.0 - release.due_at_ms());
                tally.misrouted += u64::from(waiting.is_some_and(|waiting| waiting.misrouted));
            }
            Outcome::Hop(_) => tally.hopped += 1,
            Outcome::DeadLetter(dead) => tally.dead_letter(dead.cause.reason()),
            Outcome::Hold(_) => {}
        }
    }
}

/// What is tried next, if the copy of a record is refused as too large though it goes alone; `None`: there is nothing left to
/// leave out.
fn next_smaller(alone: Alone, outcome: &Outcome<'_>) -> Option<Alone> {
    let extent = match (alone, outcome) {
        (Alone::AsDecided, Outcome::DeadLetter(_)) => Some(Extent::WithoutValue),
        (Alone::AsDecided, _) => Some(Extent::Whole),
        (Alone::AsDeadLetter(extent), _) => extent.smaller(),
    };
    extent.map(Alone::AsDeadLetter)
}
