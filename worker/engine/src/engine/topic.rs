//! A delayed topic: its topics, how it is served now, and counts of what was done for it.

use std::num::NonZeroU32;

use super::changes::Changes;
use super::histogram::Histogram;
use crate::record::Policy;

/// A kind of topic that copies go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The delayed topic's own ready topic, which applications consume.
    Ready,
    /// The delays topic, where records wait.
    Delays,
    /// The dead-letter topic.
    DeadLetter,
    /// Another ready topic, which a record requests.
    Other,
}

/// All targets.
pub const TARGETS: [Target; 4] = [Target::Ready, Target::Delays, Target::DeadLetter, Target::Other];
/// The targets that belong to a delayed topic.
pub const OWN_TARGETS: [Target; 3] = [Target::Ready, Target::Delays, Target::DeadLetter];

/// The names of a delayed topic's four topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The topic that applications produce to.
    pub front: String,
    /// See `Target`.
    pub delays: String,
    /// See `Target`.
    pub ready: String,
    /// See `Target`.
    pub dead_letter: String,
}

impl Names {
    /// The name of a target; for `Target::Other` a description instead.
    #[must_use]
    pub fn of(&self, target: Target) -> &str {
        match target {
            Target::Ready => &self.ready,
            Target::Delays => &self.delays,
            Target::DeadLetter => &self.dead_letter,
            Target::Other => "a topic that dt-target names",
        }
    }
}

/// What the registry says about a delayed topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Layout, retry cap and ready partitions.
    pub policy: Policy,
    /// Whether releases are paused. Hops and dead letters continue.
    pub paused: bool,
    /// By how much the brokers' clocks may differ, in milliseconds.
    pub skew_ms: i64,
    /// The compression of copies, as librdkafka's `compression.type`.
    pub compression: String,
    /// Whether its topics have replicas. `None`: Kafka has not described them yet.
    pub replicated: Option<bool>,
    /// Whether records can be cancelled and rescheduled.
    pub has_control_topic: bool,
}

/// A delayed topic of this worker.
#[derive(Debug)]
pub struct Topic {
    /// The names of its four topics.
    pub names: Names,
    /// `None` if nothing of it is served.
    pub served: Option<Served>,
    /// The number of partitions of the dead-letter topic; `None` while it is missing.
    pub dead_letter_partitions: Option<NonZeroU32>,
    /// The cancelled and rescheduled records. They have an effect only if there is a control topic.
    pub changes: Changes,
    /// Counts of what was done.
    pub tally: Tally,
    /// Counts that are added to `tally` if the current transaction is committed.
    pub undecided: Tally,
}

impl Topic {
    /// A delayed topic that is not served yet.
    #[must_use]
    pub fn new(names: Names) -> Self {
        Topic {
            names,
            served: None,
            dead_letter_partitions: None,
            changes: Changes::default(),
            tally: Tally::default(),
            undecided: Tally::default(),
        }
    }

    /// Adds the counts of the current transaction, because it was committed.
    pub fn decide(&mut self) {
        self.tally.add(std::mem::take(&mut self.undecided));
    }
}

/// Counts of what was done since the worker started.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Records taken in.
    pub taken_in: u64,
    /// Copies to any topic that Kafka has acknowledged, and committed if they are sent in transactions. The other counts of copies include
    /// each one that was sent.
    pub acknowledged: u64,
    /// Copies to the ready topic.
    pub released: u64,
    /// Copies to the delays topic.
    pub hopped: u64,
    /// Released records that a client wrote into the delays topic instead of the front topic.
    pub misrouted: u64,
    /// How often a record that was due went on waiting because the ready topic that it requests is missing.
    pub waited_for_target: u64,
    /// Copies to the dead-letter topic, by reason.
    pub dead_lettered: Vec<(&'static str, u64)>,
    /// For each release, the time from the due time to the sending.
    pub lateness: Histogram,
}

impl Tally {
    /// Counts a release that was `late_ms` late.
    pub fn release(&mut self, late_ms: i64) {
        self.released += 1;
        self.lateness.observe(late_ms);
    }

    /// Counts dead letters.
    pub fn dead_letter(&mut self, reason: &'static str, more: u64) {
        match self.dead_lettered.iter_mut().find(|(counted, _)| *counted == reason) {
            Some((_, count)) => *count += more,
            None => self.dead_lettered.push((reason, more)),
        }
    }

    fn add(&mut self, more: Tally) {
        let Tally { taken_in, acknowledged, released, hopped, misrouted, waited_for_target, dead_lettered, lateness } =
            more;
        self.taken_in += taken_in;
        self.acknowledged += acknowledged;
        self.released += released;
        self.hopped += hopped;
        self.misrouted += misrouted;
        self.waited_for_target += waited_for_target;
        for (reason, count) in dead_lettered {
            self.dead_letter(reason, count);
        }
        self.lateness.add(&lateness);
    }
}
