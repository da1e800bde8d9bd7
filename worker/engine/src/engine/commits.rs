//! Commits with the guarantee `AtLeastOnce`, and the fence that rests on them. Ten times a second the engine commits what is
//! acknowledged by then, without waiting for the answer.
//!
//! A worker cannot know when it is removed from its group, but it knows when Kafka last accepted one of its commits. It therefore
//! sends only while that commit began less than a second ago, which limits what it sends after it was removed.

use std::collections::{HashMap, HashSet};

use super::commit_points::{commit_point, MAX_COMMIT_BYTES};
use super::histogram::Histogram;
use super::partition::{Partition, MAX_UNCOMMITTED};
use super::slots::Slots;
use super::{boot_ns, Engine};
use crate::kafka::{code, Error, Offset, Partitions};
use crate::metadata::MetadataEncoder;

const FENCE_NS: i64 = 1_000_000_000;
const RENEW_NS: i64 = 400_000_000;
const RETRY_NS: i64 = 50_000_000;
/// The delay before a partition is committed again if Kafka refuses its commit, but accepts those of others or would accept them.
const RETRY_PARTITION_NS: i64 = 1_000_000_000;
/// Errors that concern one partition, and neither the group member nor other partitions.
const PARTITION_ERRORS: [i32; 4] = [
    code::UNKNOWN_TOPIC_OR_PART,
    code::TOPIC_AUTHORIZATION_FAILED,
    code::OFFSET_METADATA_TOO_LARGE,
    code::INVALID_COMMIT_OFFSET_SIZE,
];
/// After this time a commit has failed. The client answers earlier, at the latest when the request and its retries have timed out.
const UNANSWERED_NS: i64 = 30_000_000_000;

/// See the module.
pub struct Commits {
    interval_ns: i64,
    pub(super) renew_ns: i64,
    next_at_ns: i64,
    /// When the last accepted commit began.
    fence_at_ns: i64,
    in_flight: Option<InFlight>,
    /// Partitions for which the last commit had no room. They come first in the next one.
    deferred: HashSet<usize>,
    /// Whether Kafka refused all partitions of the last commit.
    was_refused: bool,
    pub(super) encoder: MetadataEncoder,
    /// Why the last commit failed.
    pub problem: Option<String>,
    /// How many commits failed.
    pub failed: u64,
    /// The times from sending a commit until Kafka accepted it.
    pub durations: Histogram,
}

/// A commit that is not answered yet.
struct InFlight {
    began_ns: i64,
    /// For each partition its slot, its identity, and how many of its copies were acknowledged.
    covers: Vec<(usize, u64, u64)>,
    points: Vec<Offset>,
}

impl Commits {
    /// The state before the first commit.
    #[must_use]
    pub fn new(interval_ns: i64, renew_ns: i64) -> Self {
        Commits {
            interval_ns,
            renew_ns,
            next_at_ns: i64::MIN,
            fence_at_ns: i64::MIN / 2,
            in_flight: None,
            deferred: HashSet::new(),
            was_refused: false,
            encoder: MetadataEncoder::default(),
            problem: None,
            failed: 0,
            durations: Histogram::default(),
        }
    }

    /// Whether the last accepted commit is recent enough to send copies.
    #[must_use]
    pub fn may_send(&self) -> bool {
        boot_ns() - self.fence_at_ns < FENCE_NS
    }

    /// Returns in how many nanoseconds the next commit is due; `i64::MAX` while one is in flight.
    #[must_use]
    pub fn next_in_ns(&self, now_ns: i64) -> i64 {
        if self.in_flight.is_some() {
            return i64::MAX;
        }
        self.next_at_ns.saturating_sub(now_ns)
    }

    /// Gives up the commit in flight, because the client that should answer is gone.
    pub fn forget_client(&mut self) {
        self.in_flight = None;
        self.next_at_ns = i64::MIN;
    }

    fn fail(&mut self, why: &str, now_ns: i64) {
        self.failed += 1;
        self.problem = Some(format!("a commit failed ({why})"));
        self.next_at_ns = now_ns + RETRY_NS;
    }

    /// Returns the slots of the partitions to commit next.
    ///
    /// If Kafka refuses one partition of a commit, the client (librdkafka 2.16) reports all of them as refused. Refused partitions are
    /// therefore committed one by one, in turn with the others. If there is nothing to commit and the fence has to be renewed, a
    /// partition is chosen that Kafka refuses only if it refuses this member; otherwise the fence would close for all partitions.
    fn choose(&self, slots: &Slots, renew: bool, now_ns: i64) -> Vec<usize> {
        let is_able = |partition: &Partition| partition.may_commit() && now_ns >= partition.commit_at_ns;
        let dirty = slots.iter().filter(|(_, partition)| is_able(partition) && partition.dirty);
        let (refused, mut chosen): (Vec<_>, Vec<_>) = dirty.partition(|(_, partition)| is_refused(partition));
        if !renew {
            chosen.extend(slots.stale(now_ns));
        } else if chosen.is_empty() {
            let (others, intact): (Vec<_>, Vec<_>) = slots.iter().partition(|(_, partition)| is_refused(partition));
            let topics: HashSet<&str> = others.iter().map(|(_, partition)| partition.name.as_str()).collect();
            let able = intact.into_iter().filter(|(_, p)| is_able(p));
            chosen.extend(able.min_by_key(|(_, p)| topics.contains(p.name.as_str())));
        }
        if chosen.is_empty() || !renew && !self.was_refused {
            if let Some((slot, _)) = refused.iter().min_by_key(|(_, partition)| partition.commit_at_ns) {
                return vec![*slot];
            }
        }
        chosen.sort_by_key(|(slot, _)| !self.deferred.contains(slot));
        chosen.into_iter().map(|(slot, _)| slot).collect()
    }

    /// Takes in Kafka's answer to a commit, which has an error for each partition that Kafka refused.
    fn settle(&mut self, slots: &mut Slots, commit: &InFlight, answers: &[Option<&Error>], now_ns: i64) {
        self.was_refused = answers.iter().all(Option::is_some);
        if !self.was_refused {
            // so this worker is a member of the group, whatever is wrong with single partitions
            self.fence_at_ns = self.fence_at_ns.max(commit.began_ns);
            self.problem = None;
            self.durations.observe((now_ns - commit.began_ns) / 1_000_000);
        }
        for ((slot, id, acknowledged), why) in commit.covers.iter().zip(answers) {
            let is_same = |partition: &&mut Partition| partition.id == *id && partition.may_commit();
            let Some(partition) = slots.get_mut(*slot).filter(is_same) else { continue };
            let Some(why) = why else {
                partition.committed = partition.committed.max(*acknowledged);
                partition.commit_at_ns = 0;
                partition.commit_refused = None;
                partition.renew_at_ns = now_ns.saturating_add(self.renew_ns);
                continue;
            };
            partition.dirty = true;
            // retried at once, this partition would be the only one committed: nothing would be accepted, and the fence would close for all
            if !self.was_refused || PARTITION_ERRORS.contains(&why.code) {
                partition.commit_at_ns = now_ns + RETRY_PARTITION_NS;
                if answers.len() == 1 || !self.was_refused {
                    partition.commit_refused.get_or_insert_with(|| (now_ns, why.to_string()));
                }
            }
        }
        if let Some(first) = answers.iter().flatten().next() {
            self.fail(&first.to_string(), now_ns);
        }
    }
}

/// Whether Kafka refused the last commit of a partition, but would accept those of others.
fn is_refused(partition: &Partition) -> bool {
    partition.commit_at_ns > 0
}

impl Engine {
    /// Sends a commit if one is due.
    pub(super) fn commit(&mut self) {
        if self.transactions.is_some() {
            return;
        }
        let now_ns = boot_ns();
        if let Some(former) = self.commits.in_flight.take() {
            if now_ns - former.began_ns <= UNANSWERED_NS {
                self.commits.in_flight = Some(former);
                return;
            }
            self.mark_dirty(&former.covers);
            self.commits.fail("Kafka did not answer", now_ns);
        }
        let renew = now_ns - self.commits.fence_at_ns >= RENEW_NS && self.is_near();
        if now_ns < self.commits.next_at_ns && !renew && !self.is_urgent() {
            return;
        }
        self.commits.next_at_ns = now_ns + self.commits.interval_ns;
        let chosen = self.commits.choose(&self.slots, renew, now_ns);
        if !chosen.is_empty() {
            self.send_commit(&chosen, now_ns);
        }
    }

    /// Whether a partition has used half of what it may send between two commits.
    fn is_urgent(&self) -> bool {
        self.slots.iter().any(|(_, p)| p.acknowledged > p.committed && p.room() < u64::from(MAX_UNCOMMITTED / 2))
    }

    fn send_commit(&mut self, chosen: &[usize], now_ns: i64) {
        let Some(consumer) = &self.consumer else { return };
        let mut commit = InFlight { began_ns: now_ns, covers: Vec::new(), points: Vec::new() };
        let mut room = MAX_COMMIT_BYTES;
        self.commits.deferred.clear();
        for slot in chosen {
            let Some(partition) = self.slots.get_mut(*slot) else { continue };
            let (point, size) = commit_point(partition, &mut self.commits.encoder);
            if size > room {
                partition.dirty = true;
                self.commits.deferred.insert(*slot);
                continue;
            }
            room -= size;
            commit.covers.push((*slot, partition.id, partition.acknowledged));
            commit.points.push(point);
        }
        match consumer.commit(&commit.points) {
            Ok(()) => self.commits.in_flight = Some(commit),
            Err(error) => {
                self.mark_dirty(&commit.covers);
                self.commits.fail(&error.to_string(), now_ns);
            }
        }
    }

    /// Takes in the client's answer to a commit.
    pub(super) fn committed(&mut self, error: Option<&Error>, answered: &Partitions) {
        let answers: HashMap<(&str, i32, i64), Option<&Error>> = answered
            .iter()
            .map(|(at, why)| ((at.topic.as_str(), at.partition, at.offset), why.as_ref().or(error)))
            .collect();
        let key = |point: &'_ Offset| (point.topic.clone(), point.partition, point.offset);
        let find =
            |(topic, partition, offset): (String, i32, i64)| answers.get(&(topic.as_str(), partition, offset)).copied();
        // the answer may be to a commit that was given up before
        let is_answered = |commit: &InFlight| {
            commit.points.len() == answers.len() && commit.points.iter().all(|point| find(key(point)).is_some())
        };
        if !self.commits.in_flight.as_ref().is_some_and(is_answered) {
            return;
        }
        let Some(commit) = self.commits.in_flight.take() else { return };
        let answers: Vec<Option<&Error>> = commit.points.iter().map(|point| find(key(point)).flatten()).collect();
        self.commits.settle(&mut self.slots, &commit, &answers, boot_ns());
    }

    fn mark_dirty(&mut self, covers: &[(usize, u64, u64)]) {
        for (slot, id, _) in covers {
            if let Some(partition) = self.slots.get_mut(*slot).filter(|partition| partition.id == *id) {
                partition.dirty = true;
            }
        }
    }

    /// Whether the last commit of a partition is answered, and nothing more is to be committed for it.
    pub(super) fn is_committed(&self, slot: usize) -> bool {
        if self.transactions.as_ref().is_some_and(|transactions| transactions.touches(slot)) {
            return false;
        }
        let in_flight = self.commits.in_flight.as_ref();
        let is_in_flight = in_flight.is_some_and(|commit| commit.covers.iter().any(|(of, _, _)| *of == slot));
        !is_in_flight && self.slots.get(slot).map_or(true, |partition| !partition.dirty)
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::{First, Step};
    use super::*;

    const MS: i64 = 1_000_000;
    const ANSWER_NS: i64 = 5 * MS;

    /// Partitions of `orders`, then of `others`, that are served and have nothing to commit.
    fn idle(orders: i32, others: i32) -> Slots {
        let mut slots = Slots::default();
        for (topic, count) in [("orders", orders), ("others", others)] {
            for number in 0..count {
                let mut partition = Partition::new(1, 0, topic.to_owned(), number);
                partition.begun = true;
                partition.step(Step::Take);
                partition.step(Step::Place);
                partition.step(Step::FirstAt { first: First::End(0), position: 0 });
                slots.add(partition);
            }
        }
        slots
    }

    /// Makes a commit that takes `ANSWER_NS` and that Kafka refuses if it has partitions of `orders`. Returns how many it has.
    fn commit(commits: &mut Commits, slots: &mut Slots, code: i32, now_ns: i64) -> usize {
        let renew = now_ns - commits.fence_at_ns >= RENEW_NS;
        let chosen = commits.choose(slots, renew, now_ns);
        let refusal = Error::local(code, "refused");
        let mut sent = InFlight { began_ns: now_ns, covers: Vec::new(), points: Vec::new() };
        for slot in &chosen {
            let partition = slots.get_mut(*slot).unwrap();
            partition.dirty = false;
            sent.covers.push((*slot, partition.id, 0));
        }
        if !chosen.is_empty() {
            let is_refused = chosen.iter().any(|slot| slots.get(*slot).unwrap().name == "orders");
            let answers = vec![is_refused.then_some(&refusal); chosen.len()];
            commits.settle(slots, &sent, &answers, now_ns + ANSWER_NS);
        }
        chosen.len()
    }

    #[test]
    fn however_many_partitions_kafka_refuses_to_commit_the_fence_stays_open_for_the_others() {
        for code in PARTITION_ERRORS {
            let (mut slots, mut commits) = (idle(500, 2), Commits::new(100 * MS, i64::MAX));
            commits.fence_at_ns = 0;
            for now_ns in (RENEW_NS..20_000 * MS).step_by(10_000_000) {
                commit(&mut commits, &mut slots, code, now_ns);
                assert!(now_ns - commits.fence_at_ns < FENCE_NS, "{code}: closed at {} ms", now_ns / MS);
            }
        }
    }

    #[test]
    fn partitions_that_were_refused_only_with_others_are_committed_within_seconds() {
        let (mut slots, mut commits) = (idle(40, 2), Commits::new(100 * MS, i64::MAX));
        commits.fence_at_ns = 0;
        slots.iter_mut().for_each(|(_, partition)| partition.dirty = true);
        for now_ns in (RENEW_NS..20_000 * MS).step_by(10_000_000) {
            commit(&mut commits, &mut slots, code::UNKNOWN_TOPIC_OR_PART, now_ns);
            if now_ns >= 3_000 * MS {
                let dirty = slots.iter().filter(|(_, p)| p.dirty && p.name == "others").count();
                assert_eq!((dirty, now_ns - commits.fence_at_ns < FENCE_NS), (0, true), "at {} ms", now_ns / MS);
            }
        }
    }

    #[test]
    fn only_a_partition_that_kafka_also_refuses_by_itself_is_told_of() {
        let (mut slots, mut commits) = (idle(1, 200), Commits::new(100 * MS, i64::MAX));
        commits.fence_at_ns = 0;
        slots.iter_mut().for_each(|(_, partition)| partition.dirty = true);
        for now_ns in (RENEW_NS..40_000 * MS).step_by(10_000_000) {
            commit(&mut commits, &mut slots, code::TOPIC_AUTHORIZATION_FAILED, now_ns);
            let refused = slots.iter().filter(|(_, partition)| partition.commit_refused.is_some());
            assert!(refused.map(|(_, partition)| partition.name.as_str()).all(|name| name == "orders"));
        }
        let partition = slots.get_mut(0).unwrap();
        assert!(partition.commit_refused.is_some());
        partition.step(Step::Forget);
        assert_eq!(partition.commit_refused, None, "the topic may be another one now");
    }

    #[test]
    fn what_kafka_answers_to_a_commit_of_a_window_that_is_gone_since_is_no_refusal() {
        let (mut slots, mut commits) = (idle(1, 0), Commits::new(100 * MS, i64::MAX));
        let partition = slots.get_mut(0).unwrap();
        let sent = InFlight { began_ns: 0, covers: vec![(0, partition.id, 0)], points: Vec::new() };
        partition.step(Step::Forget);
        let refusal = Error::local(code::UNKNOWN_TOPIC_OR_PART, "refused");
        commits.settle(&mut slots, &sent, &[Some(&refusal)], ANSWER_NS);
        let partition = slots.get(0).unwrap();
        assert_eq!((&partition.commit_refused, partition.dirty), (&None, false));
    }

    #[test]
    fn a_partition_whose_commit_kafka_takes_again_is_one_like_others() {
        let (mut slots, mut commits) = (idle(1, 1), Commits::new(100 * MS, i64::MAX));
        commits.fence_at_ns = 0;
        commit(&mut commits, &mut slots, code::TOPIC_AUTHORIZATION_FAILED, RENEW_NS);
        assert_eq!(commits.choose(&slots, true, RENEW_NS + 10 * MS), [1]);
        let later_ns = RENEW_NS + ANSWER_NS + RETRY_PARTITION_NS;
        assert_eq!(commits.choose(&slots, true, later_ns), [1]);
        assert_eq!(commits.choose(&slots, false, later_ns), [0], "it is due again");
        slots.get_mut(0).unwrap().name = "others".to_owned();
        commits.fence_at_ns = later_ns;
        commit(&mut commits, &mut slots, 0, later_ns);
        assert_eq!(commits.choose(&slots, true, later_ns + RENEW_NS), [0]);
        assert!(commits.choose(&slots, false, later_ns + RENEW_NS).is_empty());
    }

    #[test]
    fn quiet_partitions_are_committed_again_and_few_at_once() {
        let (mut slots, mut commits) = (idle(0, 45), Commits::new(100 * MS, 1_000 * MS));
        commits.fence_at_ns = i64::MAX / 2;
        slots.iter_mut().for_each(|(_, partition)| partition.renew_at_ns = 0);
        let counts = (0..14).map(|n| commit(&mut commits, &mut slots, 0, n * 100 * MS));
        assert_eq!(counts.collect::<Vec<_>>(), [20, 20, 5, 0, 0, 0, 0, 0, 0, 0, 0, 20, 20, 5]);
    }

    #[test]
    fn a_worker_that_is_no_member_tries_no_more_partitions_than_it_has_to_commit() {
        const ILLEGAL_GENERATION: i32 = 22;
        let (mut slots, mut commits) = (idle(10, 0), Commits::new(100 * MS, i64::MAX));
        slots.get_mut(3).unwrap().dirty = true;
        for now_ns in (RENEW_NS..1_000 * MS).step_by(10_000_000) {
            assert_eq!(commit(&mut commits, &mut slots, ILLEGAL_GENERATION, now_ns), 1);
        }
    }
}
