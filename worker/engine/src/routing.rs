//! Decides what happens to a record: it waits, is released when it is due, hops into a delays partition, or becomes a dead letter. The
//! time is passed in.

use std::num::NonZeroU32;

use crate::dead_letter::Cause;
use crate::layout::{Kind, Layout};
use crate::partitioner::partition_for_key;
use crate::place::Place;
use crate::reading::{legible, Headers, OwnHeaders};
use crate::record::{Policy, Record, Side};
use crate::release::{LowerBoundMs, ReadyPlace, Release};

/// A record with less time to wait than this waits in the window, because no delay above 0 is shorter than one second.
pub const HELD_IN_MEMORY_MS: i64 = 1000;
/// A record still goes to the partitions of its delay if it was read late by at most the delay divided by this.
const LATE_DIVISOR: i64 = 8;
/// How often a record may hop through the partitions of one delay if there is no ladder.
const MAX_EQUAL_HOPS: i64 = 8;
/// While the topic that a record requests is missing, the record waits in the delays topic, for at most this long at a time.
const TARGET_WAIT_MS: i64 = 60_000;
/// If there is no such delay, the record waits in memory, for this long at a time.
const TARGET_HELD_MS: i64 = 1000;
/// Until the worker has checked whether the topic exists, the record waits in memory, for this long at a time.
const TARGET_UNKNOWN_MS: i64 = 100;

/// What happens to a record that has just been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// The record is held until its turn, which may have come already.
    Wait(Wait<'a>),
    /// The record is copied into the delays topic.
    Hop(Hop<'a>),
    /// The record is copied into the dead-letter topic.
    DeadLetter(DeadLetter<'a>),
}

/// A record that is held until its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait<'a> {
    /// The headers of this project that the record has.
    pub own: OwnHeaders<'a>,
    /// Where the attempt was first seen.
    pub root: Place<'a>,
    /// What is remembered of the record until its turn.
    pub waiting: Waiting,
}

impl<'a> Wait<'a> {
    /// Decides as the function `take_turn` does, without reading the headers again. `record` must be the one that is waiting.
    #[must_use]
    pub fn take_turn<H: Headers<'a>>(self, record: &Record<'a, H>, policy: &Policy, now: LowerBoundMs) -> Outcome<'a> {
        turn_of(record, self.own, self.root, self.waiting, policy, now)
    }
}

/// What is remembered of a record that waits. Its headers are read again when its turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The due time, which was fixed when the attempt was first seen.
    pub due_at_ms: i64,
    /// When the engine decides about the record again: at its due time, or before it, when the delay of its partition is over. If the
    /// ready topic is missing, this is later than the due time.
    pub turn_at_ms: i64,
    /// Whether a client that should use the front topic wrote the record into a delays partition.
    pub misrouted: bool,
}

/// A copy into the delays topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop<'a> {
    /// The headers of this project that the record has.
    pub own: OwnHeaders<'a>,
    /// Where the attempt was first seen.
    pub root: Place<'a>,
    /// The due time, which was fixed when the attempt was first seen.
    pub due_at_ms: i64,
    /// The partition of the delays topic.
    pub partition: u32,
}

/// A copy into the dead-letter topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter<'a> {
    /// The headers of this project that the record has, as far as they can be read.
    pub own: OwnHeaders<'a>,
    /// Where the attempt was first seen.
    pub root: Place<'a>,
    /// When the record was to come out. `None` if it was never to come out, or if that cannot be read.
    pub due_at_ms: Option<i64>,
    /// Why the record is a dead letter.
    pub cause: Cause<'a>,
}

impl DeadLetter<'_> {
    /// Returns the partition in a dead-letter topic with `dead_letter_partitions` partitions.
    #[must_use]
    pub fn partition(&self, dead_letter_partitions: NonZeroU32) -> u32 {
        self.root.partition % dead_letter_partitions
    }
}

/// What becomes of a record: when it is read, or when its turn has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The record is due.
    Release(Release<'a>),
    /// The record hops again, because it is not due, or its ready topic is missing.
    Hop(Hop<'a>),
    /// The record is held until its next turn, because it is not due, or its ready topic is missing or was not checked yet.
    Hold(Waiting),
    /// The record cannot be released: its ready topic is no longer allowed, or was missing for too long. Headers that are no longer
    /// readable are another cause, which only a bug of the engine can bring about.
    DeadLetter(DeadLetter<'a>),
}

impl Outcome<'_> {
    /// The due time; `None` for a dead letter that has none.
    #[must_use]
    pub fn due_at_ms(&self) -> Option<i64> {
        match self {
            Outcome::Release(release) => Some(release.due_at_ms()),
            Outcome::Hop(hop) => Some(hop.due_at_ms),
            Outcome::Hold(waiting) => Some(waiting.due_at_ms),
            Outcome::DeadLetter(dead) => dead.due_at_ms,
        }
    }
}

/// Decides for the first time what happens to a record.
///
/// The decision depends on when the record was read, not on when there is room for its copy. A record that was read in time hops, as the
/// records before it did, even if it has become due in the meantime. Otherwise it would overtake them.
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

/// Returns when a client's record is due: at the time that it requests, but not before its append time; or after a delay that begins
/// at its append time.
fn due_at_ms(own: &OwnHeaders<'_>, appended_at_ms: i64, delay_ms: i64) -> i64 {
    let requested_ms = own.deliver_at_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
    requested_ms.map_or(appended_at_ms.saturating_add(delay_ms), |ms| ms.max(appended_at_ms))
}

/// Decides about a record of a front partition. It hops if `next_kind` finds a kind for it, and waits otherwise.
fn decide_front<'a>(
    own: OwnHeaders<'a>,
    root: Place<'a>,
    appended_at_ms: i64,
    policy: &Policy,
    read_at: LowerBoundMs,
) -> Decision<'a> {
    if let Some(cause) = rejection(&own, appended_at_ms, policy) {
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

/// Decides about a record of a delays partition. Such a partition is first in, first out: the turn of a record comes when the delay of
/// the partition is over, or at the due time of the record, if that is earlier or less than a second later.
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
        if let Some(cause) = rejection(&own, appended_at_ms, policy) {
            return Decision::DeadLetter(DeadLetter { own, root, due_at_ms: None, cause });
        }
        due_at_ms(&own, appended_at_ms, delay_ms)
    };
    let served_at_ms = appended_at_ms.saturating_add(delay_ms);
    let due_by_then = due_at_ms < served_at_ms.saturating_add(HELD_IN_MEMORY_MS);
    // a record that waits for its topic was due before it was appended here
    let waits_for_topic = due_at_ms < appended_at_ms && lacks_target(record, &own, root, policy);
    let turn_at_ms = if due_by_then && !waits_for_topic { due_at_ms } else { served_at_ms };
    let waiting = Waiting { due_at_ms, turn_at_ms, misrouted: !own.any };
    Decision::Wait(Wait { own, root, waiting })
}

/// Why there is no partition that a record can be released into.
#[derive(PartialEq, Eq)]
enum NoReadyPlace<'a> {
    /// The record requests a topic that is not allowed.
    NotAllowed(&'a str),
    /// The topic or the partition that the record requests does not exist.
    Missing,
    /// No one has checked yet whether the topic exists.
    Unknown,
}

/// Returns the topic and the partition that a record is released into.
fn ready_place<'a, H: Headers<'a>>(
    record: &Record<'a, H>,
    own: &OwnHeaders<'a>,
    root: Place<'a>,
    policy: &Policy,
) -> Result<ReadyPlace, NoReadyPlace<'a>> {
    let spread = |partitions: NonZeroU32| match (record.side, own.hop, record.key) {
        (Side::Delays { .. }, None, Some(key)) if !key.is_empty() => partition_for_key(key, partitions),
        _ => root.partition % partitions,
    };
    let Some(requested) = own.target else {
        return Ok(ReadyPlace { target: None, partition: spread(policy.ready_partitions) });
    };
    let Some((target, topic)) = policy.target(requested.topic) else {
        return Err(NoReadyPlace::NotAllowed(requested.topic));
    };
    let partitions = NonZeroU32::new(topic.partitions.ok_or(NoReadyPlace::Unknown)?).ok_or(NoReadyPlace::Missing)?;
    let partition = requested.partition.unwrap_or_else(|| spread(partitions));
    if partition < partitions.get() {
        Ok(ReadyPlace { target: Some(target), partition })
    } else {
        Err(NoReadyPlace::Missing)
    }
}

/// Returns whether the topic or the partition that a record requests is missing.
pub fn lacks_target<'a, H: Headers<'a>>(
    record: &Record<'a, H>,
    own: &OwnHeaders<'a>,
    root: Place<'a>,
    policy: &Policy,
) -> bool {
    ready_place(record, own, root, policy) == Err(NoReadyPlace::Missing)
}

/// Decides what happens to a record that has waited and whose turn has come.
#[must_use]
pub fn take_turn<'a, H: Headers<'a>>(
    record: &Record<'a, H>,
    waiting: Waiting,
    policy: &Policy,
    now: LowerBoundMs,
) -> Outcome<'a> {
    match record.read() {
        Ok((own, root)) => turn_of(record, own, root, waiting, policy, now),
        Err(cause) => Outcome::DeadLetter(dead_letter(record, None, cause)),
    }
}

/// Decides as `take_turn` does, with headers that were read before.
pub fn turn_of<'a, H: Headers<'a>>(
    record: &Record<'a, H>,
    own: OwnHeaders<'a>,
    root: Place<'a>,
    waiting: Waiting,
    policy: &Policy,
    now: LowerBoundMs,
) -> Outcome<'a> {
    let due_at_ms = waiting.due_at_ms;
    if due_at_ms <= now.0 {
        return match ready_place(record, &own, root, policy) {
            Ok(to) => Release::prepare(own, root, due_at_ms, to, now).map_or(Outcome::Hold(waiting), Outcome::Release),
            Err(NoReadyPlace::NotAllowed(topic)) => {
                let cause = Cause::TargetNotAllowed(topic);
                Outcome::DeadLetter(DeadLetter { own, root, due_at_ms: Some(due_at_ms), cause })
            }
            Err(NoReadyPlace::Missing) => wait_for_topic(own, root, waiting, policy, now),
            Err(NoReadyPlace::Unknown) => {
                Outcome::Hold(Waiting { turn_at_ms: now.0.saturating_add(TARGET_UNKNOWN_MS), ..waiting })
            }
        };
    }
    match next_kind(&policy.layout, None, due_at_ms.saturating_sub(now.0)) {
        Some(kind) => Outcome::Hop(Hop { own, root, due_at_ms, partition: kind.lane(root.partition) }),
        None => Outcome::Hold(Waiting { turn_at_ms: due_at_ms, ..waiting }),
    }
}

/// Decides about a record that is due and whose topic is missing.
fn wait_for_topic<'a>(
    own: OwnHeaders<'a>,
    root: Place<'a>,
    waiting: Waiting,
    policy: &Policy,
    now: LowerBoundMs,
) -> Outcome<'a> {
    let Policy { outage_budget_seconds, .. } = *policy;
    let overdue_ms = now.0.saturating_sub(waiting.due_at_ms);
    if let Some(requested) = own.target.filter(|_| overdue_ms >= i64::from(outage_budget_seconds) * 1000) {
        let cause = Cause::TargetUnavailable { topic: requested.topic, outage_budget_seconds };
        return Outcome::DeadLetter(DeadLetter { own, root, due_at_ms: Some(waiting.due_at_ms), cause });
    }
    let kind = policy.layout.longest_within(TARGET_WAIT_MS).filter(|kind| kind.delay_ms() <= TARGET_WAIT_MS);
    match kind {
        Some(kind) => {
            let partition = kind.lane(root.partition);
            Outcome::Hop(Hop { own, root, due_at_ms: waiting.due_at_ms, partition })
        }
        None => Outcome::Hold(Waiting { turn_at_ms: now.0.saturating_add(TARGET_HELD_MS), ..waiting }),
    }
}

/// Returns a record as a dead letter, whatever else was decided about it, because its headers cannot be read or Kafka refuses its copy.
/// `due_at_ms` is when the record was to come out.
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

/// Returns the kind that a record with `remaining_ms` to wait hops to, or `None` if the record is held in the window.
///
/// Normally this is `own`, the kind of the record's delay, even if the record was read late by a small part of the delay. If so many
/// records wait there that the record is served only in its turn, it comes out late by that part at most. A later hop goes to the
/// longest kind that fits, so that the record is not served behind records that wait longer. If no kind fits, it goes to the shortest
/// one, where it is the least late. Without a ladder, the longest kind that fits may be far too short, and each hop makes a
/// copy. The record then goes to the next longer kind.
#[must_use]
pub fn next_kind<'l>(layout: &'l Layout, own: Option<&'l Kind>, remaining_ms: i64) -> Option<&'l Kind> {
    if remaining_ms <= 0 || own.is_some_and(|kind| kind.delay_seconds() == 0) {
        return None;
    }
    let late_ms = |kind: &Kind| kind.delay_ms() - remaining_ms;
    if own.is_some_and(|kind| late_ms(kind) <= HELD_IN_MEMORY_MS.max(kind.delay_ms() / LATE_DIVISOR)) {
        return own;
    }
    if remaining_ms < HELD_IN_MEMORY_MS {
        return None;
    }
    let fitting = layout.longest_within(remaining_ms)?;
    if layout.has_ladder() || remaining_ms <= fitting.delay_ms() * MAX_EQUAL_HOPS {
        return Some(fitting);
    }
    layout.shortest_beyond(remaining_ms).or(Some(fitting))
}

/// Returns why a client's request is rejected, or `None` if it is accepted.
fn rejection<'a>(own: &OwnHeaders<'a>, appended_at_ms: i64, policy: &Policy) -> Option<Cause<'a>> {
    let Policy { retry_cap, max_delay_seconds, .. } = *policy;
    if let Some(requested) = own.target.filter(|requested| policy.target(requested.topic).is_none()) {
        return Some(Cause::TargetNotAllowed(requested.topic));
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
