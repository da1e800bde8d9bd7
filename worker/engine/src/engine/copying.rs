//! Decides what becomes of the records of a partition, and queues their copies.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::alone::{next_extent, Alone, Lone, Refused};
use super::changes::Changes;
use super::engine_event::EngineEvent;
use super::held::Taken;
use super::partition::Partition;
use super::producer::{Output, To};
use super::slots::CopyOf;
use super::state::Step;
use super::stored::{Parts, Stored, StoredHeaders};
use super::topic::{Names, Served, Tally, Target};
use crate::dead_letter::Cause;
use crate::kafka::{code, Copy, Error};
use crate::own::Own;
use crate::record::{Policy, Record, Side};
use crate::release::LowerBoundMs;
use crate::routing::{dead_letter, decide, lacks_target, take_turn, Decision, Outcome, Waiting};
use crate::writing::{self, Extent};

/// How many copies a partition queues before the fence is checked again.
const AT_ONCE: u32 = 500;
/// Roughly how many `dt-` headers a copy has.
const OWN_HEADERS: usize = 8;

impl Outcome<'_> {
    fn target(&self) -> Target {
        match self {
            Outcome::Release(release) if release.to().target.is_some() => Target::Other,
            Outcome::Release(_) | Outcome::Hold(_) => Target::Ready,
            Outcome::Hop(_) => Target::Delays,
            Outcome::DeadLetter(_) => Target::DeadLetter,
        }
    }

    /// Whether the record is due but not released because the topic that it requests is missing.
    fn waits_for_target<'r>(&self, record: &Record<'r, StoredHeaders<'r>>, policy: &Policy, now: LowerBoundMs) -> bool {
        match self {
            // a due record may also hop because it was read before its due time, and there was no room for its copy until then
            Outcome::Hop(hop) => hop.due_at_ms <= now.0 && lacks_target(record, &hop.own, hop.root, policy),
            Outcome::Hold(waiting) => waiting.due_at_ms <= now.0 && waiting.turn_at_ms > now.0,
            Outcome::Release(_) | Outcome::DeadLetter(_) => false,
        }
    }
}

/// How a partition goes on after some of its records were sent.
#[derive(PartialEq, Eq)]
pub enum Goes {
    /// More records may be due.
    On,
    /// No further copy may be queued for now.
    Blocked,
    /// The next copy has to go alone, and cannot yet.
    Alone,
    /// The next copy goes to a partition that its producer does not know yet.
    Unknown,
    /// The transaction accepts no more copies.
    Ended,
    /// A copy cannot even be queued, so the partition stops.
    Refused,
}

/// Sends the records of a partition.
pub struct Sending<'e, P> {
    /// The slot of the partition.
    pub slot: usize,
    pub partition: &'e mut Partition,
    /// The names of the delayed topic's topics.
    pub names: &'e Names,
    /// The number of partitions of the dead-letter topic; `None` while it is missing.
    pub dead_letter_partitions: Option<NonZeroU32>,
    /// The requests of the control topic; `None` if there is no such topic.
    pub changes: Option<&'e mut Changes>,
    /// Counts what is done.
    pub tally: &'e mut Tally,
    /// What the registry says of the delayed topic.
    pub served: &'e Served,
    /// A lower bound of the broker's time, less how much the clocks of brokers may differ.
    pub now: LowerBoundMs,
    /// The producer of copies that may share a batch.
    pub batches: Option<&'e P>,
    /// The producer of copies that have to go alone.
    pub alone: Option<&'e P>,
    /// Whether a copy may go alone now. With `ExactlyOnce` it has to be the only one of its transaction.
    pub may_go_alone: bool,
    /// The limit for the bytes of copies that are not acknowledged.
    pub most_bytes: usize,
    /// Reusable memory for headers.
    pub writer: &'e mut writing::CopyHeaders,
    /// Reusable memory for a record.
    pub block: &'e mut Vec<u8>,
    /// Collects what the engine reports to Python.
    pub events: &'e mut Vec<EngineEvent>,
}

impl<P: Output> Sending<'_, P> {
    /// Sends up to `AT_ONCE` records whose turn has come; waiting records come before newly arrived ones. Returns how many copies were
    /// queued, and how the partition goes on.
    pub fn send(&mut self) -> (u32, Goes) {
        let topic_id = Arc::clone(&self.partition.topic_id);
        let mut block = std::mem::take(self.block);
        let mut queued = 0;
        let goes = self.send_counted(&mut queued, &topic_id, &mut block);
        *self.block = block;
        (queued, goes)
    }

    fn send_counted(&mut self, queued: &mut u32, topic_id: &str, block: &mut Vec<u8>) -> Goes {
        while self.partition.state.sends() && self.partition.lone.is_none() {
            if !self.partition.has_room(self.most_bytes) {
                return Goes::Blocked;
            }
            if *queued >= AT_ONCE {
                return Goes::On;
            }
            let Some(taken) = self.partition.held.take(self.now.0, self.served.paused) else {
                return Goes::On;
            };
            let Taken { offset, waiting, .. } = taken;
            let alone = self.partition.alone.get(&offset).copied();
            if alone.is_some() && !(self.partition.in_flight() == 0 && self.may_go_alone && *queued == 0) {
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
                headers: stored.headers.clone().filter(|headers| waiting.is_some() || headers.are_readable()),
            };
            let outcome = self.outcome(&record, &taken, &stored, alone);
            self.tally.waited_for_target += u64::from(outcome.waits_for_target(&record, &self.served.policy, self.now));
            if let Outcome::Hold(waiting) = outcome {
                self.partition.held.wait(&taken, waiting);
                continue;
            }
            match self.queue(&record, &stored, &outcome, alone) {
                Ok(bytes) => {
                    self.count(&outcome, waiting);
                    self.remember_changed(&record, &outcome);
                    let lone = alone.map(|alone| Lone { offset, next: next_extent(alone, &outcome) });
                    let target = outcome.target();
                    self.partition.sent_on(&taken, target, bytes, lone);
                    *queued += 1;
                }
                Err(error) if error.code == code::QUEUE_FULL => {
                    self.partition.held.put_back(&taken);
                    return Goes::Blocked;
                }
                Err(error)
                    if error.code == code::UNKNOWN_PARTITION && self.partition.waits_for_new_partition(offset) =>
                {
                    self.partition.held.put_back(&taken);
                    return Goes::Unknown;
                }
                // after a fatal error, the producer refuses everything until the engine has read of the error and replaces it
                Err(error) if error.code == code::STATE || error.fatal => {
                    self.partition.held.put_back(&taken);
                    return Goes::Ended;
                }
                Err(error) => {
                    let next = next_extent(alone.unwrap_or(Alone::AsDecided), &outcome);
                    if let (code::MSG_SIZE_TOO_LARGE, Some(next)) = (error.code, next) {
                        self.partition.bury(offset, next, Refused::TooLarge);
                        self.partition.held.put_back(&taken);
                        continue;
                    }
                    let target = self.topic_of(&outcome).to_owned();
                    self.events.push(EngineEvent::Refused { origin: self.partition.offset(offset), target, error });
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
        taken: &Taken,
        stored: &Parts<'_, StoredHeaders<'_>>,
        alone: Option<Alone>,
    ) -> Outcome<'r> {
        let outcome = self.apply_request(record, self.route(record, taken));
        let Some(Alone::AsDeadLetter(_, refused)) = alone else { return outcome };
        let cause = match refused {
            Refused::TooLarge => Cause::TooLarge(stored.value.map_or(0, <[u8]>::len)),
            Refused::Invalid => Cause::Invalid,
        };
        Outcome::DeadLetter(dead_letter(record, outcome.due_at_ms(), cause))
    }

    fn route<'r>(&self, record: &Record<'r, StoredHeaders<'r>>, taken: &Taken) -> Outcome<'r> {
        if let Some(waiting) = taken.waiting {
            return take_turn(record, waiting, &self.served.policy, self.now);
        }
        let read_at = LowerBoundMs(taken.read_at_ms.saturating_sub(self.served.skew_ms).min(self.now.0));
        match decide(record, &self.served.policy, self.now, read_at) {
            Decision::Wait(wait) => {
                let waiting = wait.waiting;
                // in a delays partition, records that have waited longer come first
                let at_once = record.side == Side::Front && waiting.turn_at_ms <= self.now.0 && !self.served.paused;
                if at_once {
                    wait.take_turn(record, &self.served.policy, self.now)
                } else {
                    Outcome::Hold(waiting)
                }
            }
            Decision::Hop(hop) => Outcome::Hop(hop),
            Decision::DeadLetter(dead) => Outcome::DeadLetter(dead),
        }
    }

    /// Returns the name of the topic that the copy goes to.
    fn topic_of(&self, outcome: &Outcome<'_>) -> &str {
        match outcome {
            Outcome::Release(release) => {
                let other = release.to().target.and_then(|target| self.served.policy.targets.get(target));
                other.map_or(&self.names.ready, |topic| &topic.name)
            }
            _ => self.names.of(outcome.target()),
        }
    }

    /// Queues a copy. Returns its size in bytes, with its headers.
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
            Some(Alone::AsDeadLetter(extent, _)) => extent,
            _ => Extent::Whole,
        };
        let mut headers = producer.headers(OWN_HEADERS);
        let partition = self.write(record, outcome, extent, &mut headers)?;
        let copy = Copy {
            partition,
            key: if extent == Extent::OwnHeaders { None } else { stored.key },
            value: if extent == Extent::Whole { stored.value } else { None },
            headers,
            timestamp_ms: self.now.0, // unlike that of librdkafka, not by this machine's clock, which may be wrong
            number: CopyOf { slot: self.slot, offset: record.offset, target: outcome.target() }.number(),
        };
        let to = match outcome.target() {
            Target::Other => To::Other(self.topic_of(outcome)),
            target => To::Own(self.partition.topic, target),
        };
        producer.produce(to, copy)
    }

    /// Writes the headers of the copy. Returns the partition that the copy goes to.
    fn write(
        &mut self,
        record: &Record<'_, StoredHeaders<'_>>,
        outcome: &Outcome<'_>,
        extent: Extent,
        headers: &mut P::Headers,
    ) -> Result<i32, Error> {
        let from = record.headers.clone().into_iter().flatten();
        let place = record.place();
        let number =
            match outcome {
                Outcome::Release(release) => {
                    self.writer.release(from, place, release, headers);
                    release.to().partition
                }
                Outcome::Hop(hop) => {
                    self.writer.hop(from, place, hop, headers);
                    // a requested time may be after the time at which the record came in, but before the copy's own append time
                    if let (Some(_), Some(at_ms)) = (&self.changes, hop.own.came_in_at_ms(record.appended_at_ms)) {
                        writing::put_number(Own::AppendedAt, at_ms, headers);
                    }
                    hop.partition
                }
                Outcome::DeadLetter(dead) => {
                    let kept = from.take(if extent == Extent::OwnHeaders { 0 } else { usize::MAX });
                    self.writer.dead_letter(kept, place, dead, headers);
                    let count = self.dead_letter_partitions;
                    dead.partition(count.ok_or_else(|| {
                        Error::local(code::UNKNOWN_TOPIC_OR_PART, "it is missing, or was created again")
                    })?)
                }
                Outcome::Hold(_) => return Err(Error::local(code::STATE, "it waits")),
            };
        Ok(i32::try_from(number).unwrap_or(i32::MAX))
    }

    fn count(&mut self, outcome: &Outcome<'_>, waiting: Option<Waiting>) {
        let tally = &mut *self.tally;
        match outcome {
            Outcome::Release(release) => {
                tally.release(self.now.0 - release.due_at_ms());
                if let Some(changes) = &mut self.changes {
                    changes.release(release.own(), release.root());
                }
                self.partition.delayed.release(release.due_at_ms());
                tally.misrouted += u64::from(waiting.is_some_and(|waiting| waiting.misrouted));
            }
            Outcome::Hop(_) => tally.hopped += 1,
            Outcome::DeadLetter(dead) => tally.dead_letter(dead.cause.reason(), 1),
            Outcome::Hold(_) => {}
        }
    }
}
