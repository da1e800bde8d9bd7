//! What becomes of a record: released when it is due, hopped into a delays partition, or dead-lettered. Time is passed in.

use std::num::NonZeroU32;

use crate::dead_letter::Cause;
use crate::layout::{Kind, Layout};
use crate::partitioner::partition_for_key;
use crate::place::Place;
use crate::reading::{legible, Headers, OwnHeaders};
use crate::record::{Policy, Record, Side};
use crate::release::{LowerBoundMs, ReadyPlace, Release};

/// A remainder below this is waited out in the window: no kind is shorter than one second.
pub const HELD_IN_MEMORY_MS: i64 = 1000;
/// A record that was read late by no more than this part of its delay goes to the partitions of its delay.
const LATE_PART: i64 = 8;
/// Through partitions of one delay, where there is no ladder.
const MOST_EQUAL_HOPS: i64 = 8;
/// While the topic that a record asks for is missing, it waits in the delays topic, for no longer than this at a time.
const TARGET_WAIT_MS: i64 = 60_000;
/// The same where there is no such delay: in memory.
const TARGET_HELD_MS: i64 = 1000;
/// Before a worker has looked whether it is there.
const TARGET_UNKNOWN_MS: i64 = 100;

/// What becomes of a record that has just been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// It is held until its turn, which may have come already.
    Wait(Wait<'a>),
    /// It is copied into the delays topic.
    Hop(Hop<'a>),
    /// It is copied into the dead-letter topic.
    DeadLetter(DeadLetter<'a>),
}

/// A record that is held until its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait<'a> {
    /// What its headers say.
    pub own: OwnHeaders<'a>,
    /// Where it was first seen.
    pub root: Place<'a>,
    /// What is to be remembered of it until then.
    pub waiting: Waiting,
}

impl<'a> Wait<'a> {
    /// As `take_turn`, of the record that it is of.
    #[must_use]
    pub fn take_turn<H: Headers<'a>>(self, record: &Record<'a, H>, policy: &Policy, now: LowerBoundMs) -> Turn<'a> {
        turn_of(record, self.own, self.root, self.waiting, policy, now)
    }
}

/// What is remembered of a record that waits. Its headers are read again when its turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Fixed where the record was first seen.
    pub due_at_ms: i64,
    /// When there is something to do: at its due time, or before it, when its partition's delay is over.
    pub turn_at_ms: i64,
    /// A client that should use the front wrote it into a delays partition.
    pub misrouted: bool,
}

/// A copy into the delays topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop<'a> {
    /// What its headers say.
    pub own: OwnHeaders<'a>,
    /// Where it was first seen.
    pub root: Place<'a>,
    /// Fixed there.
    pub due_at_ms: i64,
    /// Of the delays topic.
    pub partition: u32,
}

/// A copy into the dead-letter topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter<'a> {
    /// What its headers say, as far as they can be read.
    pub own: OwnHeaders<'a>,
    /// Where it was first seen.
    pub root: Place<'a>,
    /// When it was to come out; `None`: it never was, or that can't be read.
    pub due_at_ms: Option<i64>,
    /// Why.
    pub cause: Cause<'a>,
}

impl DeadLetter<'_> {
    /// The partition of a dead-letter topic with so many.
    #[must_use]
    pub fn partition(&self, dead_letter_partitions: NonZeroU32) -> u32 {
        self.root.partition % dead_letter_partitions
    }
}

/// What becomes of a record whose turn has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn<'a> {
    /// It is due.
    Release(Release<'a>),
    /// It isn't, and hops on.
    Hop(Hop<'a>),
    /// It isn't, and is held until it is.
    Hold(Waiting),
    /// What it was decided by can't be read any more, which nothing can cause but a fault of ours.
    DeadLetter(DeadLetter<'a>),
}

/// What becomes of a record that has not been looked at before.
///
/// Its way follows from when it was read, not from when there is room for its copy: one that was read in time hops, as those
/// before it did, even if it has become due meanwhile. Otherwise it would overtake them.
#[must_use]
pub fn decide<'a, H: Headers<'a>>(
    record: &Record<'a, H>,
    policy: &Policy,
    now: LowerBoundMs,
    read_at: LowerBoundMs,
) -> Decision<'a> {
    let (own, root) = match record.read() {
        Ok(read) => read,
        Err(cause) => return Decision::DeadLetter(dead_letter(record, None, cause)),
    };
    let appended_at_ms = record.appended_at_ms.unwrap_or(now.0);
    match record.side {
        Side::Front => decide_front(own, root, appended_at_ms, policy, read_at),
        Side::Delays { delay_seconds } => {
            decide_delays(own, root, appended_at_ms, i64::from(delay_seconds) * 1000, record, policy)
        }
    }
}

/// When a client's record is due: at the time that it asks for, or after a delay that begins when it was appended.
fn due_at_ms(own: &OwnHeaders<'_>, appended_at_ms: i64, delay_ms: i64) -> i64 {
    let asked_ms = own.deliver_at_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
    asked_ms.map_or(appended_at_ms.saturating_add(delay_ms), |ms| ms.max(appended_at_ms))
}

/// A record of a front partition. Due when it was read, or within a second: it waits; otherwise it hops.
fn decide_front<'a>(
    own: OwnHeaders<'a>,
    root: Place<'a>,
    appended_at_ms: i64,
    policy: &Policy,
    read_at: LowerBoundMs,
) -> Decision<'a> {
    if let Some(cause) = refused(&own, appended_at_ms, policy) {
        return Decision::DeadLetter(DeadLetter { own, root, due_at_ms: None, cause });
    }
    let layout = &policy.layout;
    let listed = own.delay_level.map_or_else(|| layout.for_attempt(own.attempt), |level| layout.for_level(level));
    let due_at_ms = due_at_ms(&own, appended_at_ms, listed.delay_ms());
    let own_kind = own.deliver_at_ms.is_none().then_some(listed);
    if let Some(kind) = next_kind(layout, own_kind, due_at_ms.saturating_sub(read_at.0)) {
        return Decision::Hop(Hop { own, root, due_at_ms, partition: kind.lane(root.partition) });
    }
    let waiting = Waiting { due_at_ms, turn_at_ms: due_at_ms, misrouted: false };
    Decision::Wait(Wait { own, root, waiting })
}

/// A record of a delays partition: first in, first out, its turn is when the partition's delay, or its own wait, is over.
fn decide_delays<'a, H: Headers<'a>>(
    own: OwnHeaders<'a>,
    root: Place<'a>,
    appended_at_ms: i64,
    delay_ms: i64,
    record: &Record<'a, H>,
    policy: &Policy,
) -> Decision<'a> {
    let due_at_ms = if let Some(hop) = own.hop {
        hop.due_at_ms
    } else {
        if let Some(cause) = refused(&own, appended_at_ms, policy) {
            return Decision::DeadLetter(DeadLetter { own, root, due_at_ms: None, cause });
        }
        due_at_ms(&own, appended_at_ms, delay_ms)
    };
    let served_at_ms = appended_at_ms.saturating_add(delay_ms);
    let due_by_then = due_at_ms < served_at_ms.saturating_add(HELD_IN_MEMORY_MS);
    // one that waits for its topic was due before it came here
    let waits_for_topic = due_at_ms < appended_at_ms && lacks_target(record, &own, root, policy);
    let turn_at_ms = if due_by_then && !waits_for_topic { due_at_ms } else { served_at_ms };
    let waiting = Waiting { due_at_ms, turn_at_ms, misrouted: !own.any };
    Decision::Wait(Wait { own, root, waiting })
}

/// Why a record can't be released.
#[derive(PartialEq, Eq)]
enum NoPlace<'a> {
    /// It asks for a topic that is not allowed.
    NotAllowed(&'a str),
    /// The topic that it asks for, or the partition, isn't there.
    Missing,
    /// Nobody knows yet whether it is.
    Unknown,
}

/// Where a record is released.
fn ready_place<'a, H: Headers<'a>>(
    record: &Record<'a, H>,
    own: &OwnHeaders<'a>,
    root: Place<'a>,
    policy: &Policy,
) -> Result<ReadyPlace, NoPlace<'a>> {
    let spread = |partitions: NonZeroU32| match (record.side, own.hop, record.key) {
        (Side::Delays { .. }, None, Some(key)) if !key.is_empty() => partition_for_key(key, partitions),
        _ => root.partition % partitions,
    };
    let Some(asked) = own.target else {
        return Ok(ReadyPlace { target: None, partition: spread(policy.ready_partitions) });
    };
    let Some((target, topic)) = policy.target(asked.topic) else {
        return Err(NoPlace::NotAllowed(asked.topic));
    };
    let partitions = NonZeroU32::new(topic.partitions.ok_or(NoPlace::Unknown)?).ok_or(NoPlace::Missing)?;
    let partition = asked.partition.unwrap_or_else(|| spread(partitions));
    if partition < partitions.get() {
        Ok(ReadyPlace { target: Some(target), partition })
    } else {
        Err(NoPlace::Missing)
    }
}

/// Whether the topic that a record asks for, or the partition, isn't there.
pub fn lacks_target<'a, H: Headers<'a>>(
    record: &Record<'a, H>,
    own: &OwnHeaders<'a>,
    root: Place<'a>,
    policy: &Policy,
) -> bool {
    ready_place(record, own, root, policy) == Err(NoPlace::Missing)
}

/// What becomes of a record that was read, and decided, before, and whose turn has come.
#[must_use]
pub fn take_turn<'a, H: Headers<'a>>(
    record: &Record<'a, H>,
    waiting: Waiting,
    policy: &Policy,
    now: LowerBoundMs,
) -> Turn<'a> {
    match record.read() {
        Ok((own, root)) => turn_of(record, own, root, waiting, policy, now),
        Err(cause) => Turn::DeadLetter(dead_letter(record, None, cause)),
    }
}

/// As `take_turn`, of a record that was read.
pub fn turn_of<'a, H: Headers<'a>>(
    record: &Record<'a, H>,
    own: OwnHeaders<'a>,
    root: Place<'a>,
    waiting: Waiting,
    policy: &Policy,
    now: LowerBoundMs,
) -> Turn<'a> {
    let due_at_ms = waiting.due_at_ms;
    if due_at_ms <= now.0 {
        return match ready_place(record, &own, root, policy) {
            Ok(to) => Release::prepare(own, root, due_at_ms, to, now).map_or(Turn::Hold(waiting), Turn::Release),
            Err(NoPlace::NotAllowed(topic)) => {
                let cause = Cause::TargetNotAllowed(topic);
                Turn::DeadLetter(DeadLetter { own, root, due_at_ms: Some(due_at_ms), cause })
            }
            Err(NoPlace::Missing) => wait_for_topic(own, root, waiting, policy, now),
            Err(NoPlace::Unknown) => {
                Turn::Hold(Waiting { turn_at_ms: now.0.saturating_add(TARGET_UNKNOWN_MS), ..waiting })
            }
        };
    }
    match next_kind(&policy.layout, None, due_at_ms.saturating_sub(now.0)) {
        Some(kind) => Turn::Hop(Hop { own, root, due_at_ms, partition: kind.lane(root.partition) }),
        None => Turn::Hold(Waiting { turn_at_ms: due_at_ms, ..waiting }),
    }
}

/// A record that is due, and whose topic is missing.
fn wait_for_topic<'a>(
    own: OwnHeaders<'a>,
    root: Place<'a>,
    waiting: Waiting,
    policy: &Policy,
    now: LowerBoundMs,
) -> Turn<'a> {
    let Policy { outage_budget_seconds, .. } = *policy;
    let overdue_ms = now.0.saturating_sub(waiting.due_at_ms);
    if let Some(asked) = own.target.filter(|_| overdue_ms >= i64::from(outage_budget_seconds) * 1000) {
        let cause = Cause::TargetUnavailable { topic: asked.topic, outage_budget_seconds };
        return Turn::DeadLetter(DeadLetter { own, root, due_at_ms: Some(waiting.due_at_ms), cause });
    }
    let kind = policy.layout.longest_within(TARGET_WAIT_MS).filter(|kind| kind.delay_ms() <= TARGET_WAIT_MS);
    match kind {
        Some(kind) => {
            let partition = kind.lane(root.partition);
            Turn::Hop(Hop { own, root, due_at_ms: waiting.due_at_ms, partition })
        }
        None => Turn::Hold(Waiting { turn_at_ms: now.0.saturating_add(TARGET_HELD_MS), ..waiting }),
    }
}

/// A record that is a dead letter whatever else was decided of it: its headers can't be read, or Kafka takes no copy of it where it
/// should go. `due_at_ms`: when it was to come out.
#[must_use]
pub fn dead_letter<'a, H: Headers<'a>>(
    record: &Record<'a, H>,
    due_at_ms: Option<i64>,
    cause: Cause<'a>,
) -> DeadLetter<'a> {
    let (own, root) = record.read().unwrap_or_else(|_| {
        let own = record.headers.clone().map_or_else(OwnHeaders::default, legible);
        (own, record.place())
    });
    DeadLetter { own, root, due_at_ms, cause }
}

/// The kind that a record with `remaining_ms` to wait hops to; `None`: it is held in the window.
///
/// The normal case is its own kind, also for a record that was read late by a small part of its delay: should so many wait
/// there that it is served in its turn only, it is late by that part at most. A hop made later goes to the longest kind that
/// fits, so that it isn't served behind records that wait longer; if none fits, to the shortest: what is behind its due time
/// there is the least. Without a ladder the longest that fits may be far too short, and each of its hops is a copy: then it
/// goes to the next longer one.
#[must_use]
pub fn next_kind<'l>(layout: &'l Layout, own: Option<&'l Kind>, remaining_ms: i64) -> Option<&'l Kind> {
    if remaining_ms <= 0 || own.is_some_and(|kind| kind.delay_seconds() == 0) {
        return None;
    }
    let late_ms = |kind: &Kind| kind.delay_ms() - remaining_ms;
    if own.is_some_and(|kind| late_ms(kind) <= HELD_IN_MEMORY_MS.max(kind.delay_ms() / LATE_PART)) {
        return own;
    }
    if remaining_ms < HELD_IN_MEMORY_MS {
        return None;
    }
    let fitting = layout.longest_within(remaining_ms)?;
    if layout.has_ladder() || remaining_ms <= fitting.delay_ms() * MOST_EQUAL_HOPS {
        return Some(fitting);
    }
    layout.shortest_beyond(remaining_ms).or(Some(fitting))
}

/// What a client asks for and doesn't get.
fn refused<'a>(own: &OwnHeaders<'a>, appended_at_ms: i64, policy: &Policy) -> Option<Cause<'a>> {
    let Policy { retry_cap, max_delay_seconds, .. } = *policy;
    if let Some(asked) = own.target.filter(|asked| policy.target(asked.topic).is_none()) {
        return Some(Cause::TargetNotAllowed(asked.topic));
    }
    if own.attempt > retry_cap {
        return Some(Cause::RetryCap { attempt: own.attempt, retry_cap });
    }
    let deliver_at_ms = i64::try_from(own.deliver_at_ms?).unwrap_or(i64::MAX);
    if !policy.layout.has_ladder() {
        return Some(Cause::NoLadder);
    }
    let is_too_far = deliver_at_ms.saturating_sub(appended_at_ms) > i64::from(max_delay_seconds) * 1000;
    is_too_far.then_some(Cause::MaxDelay { deliver_at_ms, max_delay_seconds })
}
