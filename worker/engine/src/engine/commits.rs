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
    next_at_ns: i64,
    /// When the last commit that was accepted began.
    fence_at_ns: i64,
    on_its_way: Option<OnItsWay>,
    /// Partitions for which there was no room in the last commit; they come first in the next.
    left: HashSet<usize>,
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
    pub fn new(interval_ns: i64) -> Self {
        Commits {
            interval_ns,
            next_at_ns: i64::MIN,
            fence_at_ns: i64::MIN / 2,
            on_its_way: None,
            left: HashSet::new(),
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
        if let Some(former) = &self.commits.on_its_way {
            if now_ns - former.began_ns <= UNANSWERED_NS {
                return;
            }
            self.commits.on_its_way = None;
            self.commits.fail("Kafka did not answer", now_ns);
        }
        let renew = now_ns - self.commits.fence_at_ns >= RENEW_NS && self.is_near();
        if now_ns < self.commits.next_at_ns && !renew && !self.is_pressed() {
            return;
        }
        self.commits.next_at_ns = now_ns + self.commits.interval_ns;
        let able = |partition: &Partition| partition.may_commit() && now_ns >= partition.commit_at_ns;
        let mut chosen: Vec<usize> =
            self.slots.iter().filter(|(_, p)| p.dirty && able(p)).map(|(slot, _)| slot).collect();
        chosen.sort_by_key(|slot| !self.commits.left.contains(slot));
        if chosen.is_empty() && renew {
            // one that Kafka has no reason to refuse unless it refuses this member
            chosen.extend(self.slots.iter().find(|(_, p)| able(p)).map(|(slot, _)| slot));
        }
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
        let now_ns = boot_ns();
        let mut refused = Vec::new();
        for (cover, point) in commit.covers.iter().zip(&commit.points) {
            match find(key(point)).flatten() {
                Some(why) => refused.push((*cover, why.clone())),
                None => self.accept(*cover),
            }
        }
        let any_accepted = refused.len() < commit.covers.len();
        if any_accepted {
            // so this is a member, whatever is wrong with single partitions
            self.commits.fence_at_ns = self.commits.fence_at_ns.max(commit.began_ns);
            self.commits.problem = None;
            self.commits.durations.observe((now_ns - commit.began_ns) / 1_000_000);
        }
        let Some((_, first)) = refused.first().cloned() else { return };
        for ((slot, _, _), why) in &refused {
            // tried again at once, it would be the only one: no commit would be accepted, and the fence would close for all others
            if any_accepted || OF_PARTITION.contains(&why.code) {
                if let Some(partition) = self.slots.get_mut(*slot) {
                    partition.commit_at_ns = now_ns + RETRY_PARTITION_NS;
                }
            }
        }
        let covers: Vec<_> = refused.into_iter().map(|(cover, _)| cover).collect();
        self.undo(&covers);
        self.commits.fail(&first.to_string(), now_ns);
    }

    fn accept(&mut self, (slot, id, acknowledged): (usize, u64, u64)) {
        if let Some(partition) = self.slots.get_mut(slot).filter(|partition| partition.id == id) {
            partition.committed = partition.committed.max(acknowledged);
        }
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
