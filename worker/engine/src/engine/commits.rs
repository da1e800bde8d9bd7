//! Commits of guarantee `AtLeastOnce`: ten times a second what is acknowledged by then, without waiting for anything. And the
//! fence that rests on them.
//!
//! A worker that was shut out of its group can't know; it can know when a commit of its own was last accepted. So it sends
//! only while that commit began less than a second ago, and what it sent since then is bounded.

use std::collections::{HashMap, HashSet};

use super::histogram::Histogram;
use super::partition::{Partition, MAX_UNCOMMITTED};
use super::slots::Slots;
use super::{boot_ns, Engine};
use crate::kafka::{code, Error, Offset, Partitions};
use crate::metadata::MetadataEncoder;

const FENCE_NS: i64 = 1_000_000_000;
const RENEW_NS: i64 = 400_000_000;
const RETRY_NS: i64 = 50_000_000;
/// A partition whose commit Kafka refuses, while it takes those of others, or would.
const RETRY_PARTITION_NS: i64 = 1_000_000_000;
/// Kafka's answers that say nothing of the member, nor of other partitions.
const OF_PARTITION: [i32; 4] = [
    code::UNKNOWN_TOPIC_OR_PART,
    code::TOPIC_AUTHORIZATION_FAILED,
    code::OFFSET_METADATA_TOO_LARGE,
    code::INVALID_COMMIT_OFFSET_SIZE,
];
/// The client answers each commit, at the latest when its request and the retries of it have timed out.
const UNANSWERED_NS: i64 = 30_000_000_000;
/// Kafka writes a commit into `__consumer_offsets` as one batch, and refuses all of it when it is larger than that topic's
/// `max.message.bytes`, 1 MiB.
const MOST_COMMIT_BYTES: usize = 512 << 10;
/// What Kafka writes of an offset beyond the topic's name and the metadata: the group's name, 249 bytes at most, and numbers.
const OFFSET_RECORD_BYTES: usize = 350;

/// See the module.
pub struct Commits {
    interval_ns: i64,
    pub(super) renew_ns: i64,
    next_at_ns: i64,
    /// When the last commit that was accepted began.
    fence_at_ns: i64,
    on_its_way: Option<OnItsWay>,
    /// Partitions for which there was no room in the last commit; they come first in the next.
    left: HashSet<usize>,
    /// Kafka has accepted nothing of the last commit.
    was_refused: bool,
    pub(super) encoder: MetadataEncoder,
    /// Why the last commit failed.
    pub problem: Option<String>,
    /// How many did.
    pub failed: u64,
    /// From sending one until Kafka has accepted it.
    pub durations: Histogram,
}

struct OnItsWay {
    began_ns: i64,
    /// By number: the partition's identity, and how many of its copies were acknowledged.
    covers: Vec<(usize, u64, u64)>,
    points: Vec<Offset>,
}

impl Commits {
    /// Before the first.
    #[must_use]
    pub fn new(interval_ns: i64, renew_ns: i64) -> Self {
        Commits {
            interval_ns,
            renew_ns,
            next_at_ns: i64::MIN,
            fence_at_ns: i64::MIN / 2,
            on_its_way: None,
            left: HashSet::new(),
            was_refused: false,
            encoder: MetadataEncoder::default(),
            problem: None,
            failed: 0,
            durations: Histogram::default(),
        }
    }

    /// The last accepted commit is fresh.
    #[must_use]
    pub fn may_send(&self) -> bool {
        boot_ns() - self.fence_at_ns < FENCE_NS
    }

    /// When there is something to do.
    #[must_use]
    pub fn next_in_ns(&self, now_ns: i64) -> i64 {
        if self.on_its_way.is_some() {
            return i64::MAX;
        }
        self.next_at_ns.saturating_sub(now_ns)
    }

    /// The client that should answer is gone.
    pub fn forget_client(&mut self) {
        self.on_its_way = None;
        self.next_at_ns = i64::MIN;
    }

    fn fail(&mut self, why: &str, now_ns: i64) {
        self.failed += 1;
        self.problem = Some(format!("a commit failed ({why})"));
        self.next_at_ns = now_ns + RETRY_NS;
    }

    /// What the next commit is of. Where Kafka refuses one partition of it, its client (2.16) says so of all: so those that were refused
    /// go one by one, in turn with the others. To `renew` without anything to commit takes one that Kafka has no reason to refuse
    /// unless it refuses this member: else the fence would close for all.
    fn choose(&self, slots: &Slots, renew: bool, now_ns: i64) -> Vec<usize> {
        let is_able = |partition: &Partition| partition.may_commit() && now_ns >= partition.commit_at_ns;
        let able = || slots.iter().filter(|(_, partition)| is_able(partition));
        let (refused, mut chosen): (Vec<_>, Vec<_>) =
            able().filter(|(_, partition)| partition.dirty).partition(|(_, partition)| is_refused(partition));
        if !renew {
            chosen.extend(slots.stale(now_ns));
        } else if chosen.is_empty() {
            let others = slots.iter().filter(|(_, partition)| is_refused(partition));
            let topics: HashSet<&str> = others.map(|(_, partition)| partition.name.as_str()).collect();
            let intact = able().filter(|(_, partition)| !is_refused(partition));
            chosen.extend(intact.min_by_key(|(_, partition)| topics.contains(partition.name.as_str())));
        }
        if chosen.is_empty() || !renew && !self.was_refused {
            if let Some((slot, _)) = refused.iter().min_by_key(|(_, partition)| partition.commit_at_ns) {
                return vec![*slot];
            }
        }
        chosen.sort_by_key(|(slot, _)| !self.left.contains(slot));
        chosen.into_iter().map(|(slot, _)| slot).collect()
    }

    /// What Kafka has said of a commit: of each partition, why it refuses it.
    fn settle(&mut self, slots: &mut Slots, commit: &OnItsWay, said: &[Option<&Error>], now_ns: i64) {
        self.was_refused = said.iter().all(Option::is_some);
        if !self.was_refused {
            // so this is a member, whatever is wrong with single partitions
            self.fence_at_ns = self.fence_at_ns.max(commit.began_ns);
            self.problem = None;
            self.durations.observe((now_ns - commit.began_ns) / 1_000_000);
        }
        for ((slot, id, acknowledged), why) in commit.covers.iter().zip(said) {
            let Some(partition) = slots.get_mut(*slot).filter(|partition| partition.id == *id) else { continue };
            let Some(why) = why else {
                partition.committed = partition.committed.max(*acknowledged);
                partition.commit_at_ns = 0;
                partition.renew_at_ns = now_ns.saturating_add(self.renew_ns);
                continue;
            };
            partition.dirty = true;
            // tried again at once, it would be the only one: no commit would be accepted, and the fence would close for all others
            if !self.was_refused || OF_PARTITION.contains(&why.code) {
                partition.commit_at_ns = now_ns + RETRY_PARTITION_NS;
            }
        }
        if let Some(first) = said.iter().flatten().next() {
            self.fail(&first.to_string(), now_ns);
        }
    }
}

/// Whether Kafka has refused the last commit of a partition, and would take those of others.
fn is_refused(partition: &Partition) -> bool {
    partition.commit_at_ns > 0
}

/// What is to be committed for a partition, and how much of a batch of Kafka's it takes.
fn commit_point(partition: &mut Partition, encoder: &mut MetadataEncoder) -> (Offset, usize) {
    let point = partition.window.commit_point(encoder, &partition.topic_id);
    let size = OFFSET_RECORD_BYTES + partition.name.len() + point.metadata.len();
    partition.dirty = false;
    (Offset { metadata: point.metadata, ..partition.offset(point.offset) }, size)
}

/// What is to be committed for partitions, in as many commits as Kafka takes.
pub fn in_commits(slots: &mut Slots, chosen: &[usize], encoder: &mut MetadataEncoder) -> Vec<Vec<Offset>> {
    let mut commits: Vec<Vec<Offset>> = Vec::new();
    let mut room = 0;
    for slot in chosen {
        let Some(partition) = slots.get_mut(*slot).filter(|partition| partition.may_commit()) else { continue };
        let (point, size) = commit_point(partition, encoder);
        if size > room {
            commits.push(Vec::new());
            room = MOST_COMMIT_BYTES;
        }
        room = room.saturating_sub(size);
        if let Some(commit) = commits.last_mut() {
            commit.push(point);
        }
    }
    commits
}

impl Engine {
    /// Sends a commit, if it is time.
    pub(super) fn commit(&mut self) {
        if self.transactions.is_some() {
            return;
        }
        let now_ns = boot_ns();
        if let Some(former) = self.commits.on_its_way.take() {
            if now_ns - former.began_ns <= UNANSWERED_NS {
                self.commits.on_its_way = Some(former);
                return;
            }
            self.undo(&former.covers);
            self.commits.fail("Kafka did not answer", now_ns);
        }
        let renew = now_ns - self.commits.fence_at_ns >= RENEW_NS && self.is_near();
        if now_ns < self.commits.next_at_ns && !renew && !self.is_pressed() {
            return;
        }
        self.commits.next_at_ns = now_ns + self.commits.interval_ns;
        let chosen = self.commits.choose(&self.slots, renew, now_ns);
        if !chosen.is_empty() {
            self.send_commit(&chosen, now_ns);
        }
    }

    /// A partition has used half of what it may send between two commits.
    fn is_pressed(&self) -> bool {
        self.slots.iter().any(|(_, p)| p.acknowledged > p.committed && p.room() < u64::from(MAX_UNCOMMITTED / 2))
    }

    fn send_commit(&mut self, chosen: &[usize], now_ns: i64) {
        let Some(consumer) = &self.consumer else { return };
        let mut commit = OnItsWay { began_ns: now_ns, covers: Vec::new(), points: Vec::new() };
        let mut room = MOST_COMMIT_BYTES;
        self.commits.left.clear();
        for slot in chosen {
            let Some(partition) = self.slots.get_mut(*slot) else { continue };
            let (point, size) = commit_point(partition, &mut self.commits.encoder);
            if size > room {
                partition.dirty = true;
                self.commits.left.insert(*slot);
                continue;
            }
            room -= size;
            commit.covers.push((*slot, partition.id, partition.acknowledged));
            commit.points.push(point);
        }
        match consumer.commit(&commit.points) {
            Ok(()) => self.commits.on_its_way = Some(commit),
            Err(error) => {
                self.undo(&commit.covers);
                self.commits.fail(&error.to_string(), now_ns);
            }
        }
    }

    /// The answer to a commit.
    pub(super) fn committed(&mut self, error: Option<&Error>, answered: &Partitions) {
        let said: HashMap<(&str, i32, i64), Option<&Error>> = answered
            .iter()
            .map(|(at, why)| ((at.topic.as_str(), at.partition, at.offset), why.as_ref().or(error)))
            .collect();
        let key = |point: &'_ Offset| (point.topic.clone(), point.partition, point.offset);
        let find =
            |(topic, partition, offset): (String, i32, i64)| said.get(&(topic.as_str(), partition, offset)).copied();
        // one that was given up may be answered yet
        let is_ours = |commit: &OnItsWay| {
            commit.points.len() == said.len() && commit.points.iter().all(|point| find(key(point)).is_some())
        };
        if !self.commits.on_its_way.as_ref().is_some_and(is_ours) {
            return;
        }
        let Some(commit) = self.commits.on_its_way.take() else { return };
        let said: Vec<Option<&Error>> = commit.points.iter().map(|point| find(key(point)).flatten()).collect();
        self.commits.settle(&mut self.slots, &commit, &said, boot_ns());
    }

    fn undo(&mut self, covers: &[(usize, u64, u64)]) {
        for (slot, id, _) in covers {
            if let Some(partition) = self.slots.get_mut(*slot).filter(|partition| partition.id == *id) {
                partition.dirty = true;
            }
        }
    }

    /// Whether a partition's last commit is answered.
    pub(super) fn is_committed(&self, slot: usize) -> bool {
        if self.transactions.as_ref().is_some_and(|transactions| transactions.touches(slot)) {
            return false;
        }
        let on_its_way = self.commits.on_its_way.as_ref();
        let waited_for = on_its_way.is_some_and(|commit| commit.covers.iter().any(|(of, _, _)| *of == slot));
        !waited_for && self.slots.get(slot).map_or(true, |partition| !partition.dirty)
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::{First, Step};
    use super::*;

    const MS: i64 = 1_000_000;
    const ANSWER_NS: i64 = 5 * MS;

    /// Partitions of `orders` and then of `others`, that are served and have nothing to commit.
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

    /// A commit that takes `ANSWER_NS`, and that Kafka refuses if it has partitions of `orders`; of how many it was.
    fn commit(commits: &mut Commits, slots: &mut Slots, code: i32, now_ns: i64) -> usize {
        let renew = now_ns - commits.fence_at_ns >= RENEW_NS;
        let chosen = commits.choose(slots, renew, now_ns);
        let refusal = Error::local(code, "refused");
        let mut sent = OnItsWay { began_ns: now_ns, covers: Vec::new(), points: Vec::new() };
        for slot in &chosen {
            let partition = slots.get_mut(*slot).unwrap();
            partition.dirty = false;
            sent.covers.push((*slot, partition.id, 0));
        }
        if !chosen.is_empty() {
            let is_refused = chosen.iter().any(|slot| slots.get(*slot).unwrap().name == "orders");
            let said = vec![is_refused.then_some(&refusal); chosen.len()];
            commits.settle(slots, &sent, &said, now_ns + ANSWER_NS);
        }
        chosen.len()
    }

    #[test]
    fn however_many_partitions_kafka_refuses_to_commit_the_fence_stays_open_for_the_others() {
        for code in OF_PARTITION {
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
