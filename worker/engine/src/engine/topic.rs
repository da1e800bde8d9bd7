//! A delayed topic as it is served now, and what was done for it.

use std::num::NonZeroU32;

use super::changes::Changes;
use super::histogram::Histogram;
use crate::record::Policy;

/// One of the topics that copies go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Where records are consumed.
    Ready,
    /// Where they wait.
    Delays,
    /// Where those end that can't be served.
    DeadLetter,
    /// Where they are consumed that ask for another ready topic.
    Other,
}

/// All of `Target`.
pub const TARGETS: [Target; 4] = [Target::Ready, Target::Delays, Target::DeadLetter, Target::Other];
/// Those that each delayed topic has.
pub const OWN_TARGETS: [Target; 3] = [Target::Ready, Target::Delays, Target::DeadLetter];

/// Names of a delayed topic's four topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Where clients produce.
    pub front: String,
    /// See `Target`.
    pub delays: String,
    /// See `Target`.
    pub ready: String,
    /// See `Target`.
    pub dead_letter: String,
}

impl Names {
    /// The name of one of them; of another ready topic what it is.
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

/// What the registry says of a delayed topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Layout, retry cap and ready partitions.
    pub policy: Policy,
    /// Nothing is released; hops and dead letters go on.
    pub paused: bool,
    /// By how much brokers' clocks may differ.
    pub skew_ms: i64,
    /// Of copies.
    pub compression: String,
    /// Records can be cancelled.
    pub has_control_topic: bool,
}

/// A delayed topic of this worker.
#[derive(Debug)]
pub struct Topic {
    /// Of its four topics.
    pub names: Names,
    /// `None`: nothing of it is served.
    pub served: Option<Served>,
    /// `None` while the dead-letter topic is missing.
    pub dead_letter_partitions: Option<NonZeroU32>,
    /// They count where there is a control topic.
    pub changes: Changes,
    /// What was done.
    pub tally: Tally,
    /// The same, if the transaction at hand ends well.
    pub undecided: Tally,
}

impl Topic {
    /// Before anything is known of it.
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

    /// The transaction at hand has ended well.
    pub fn decide(&mut self) {
        self.tally.add(std::mem::take(&mut self.undecided));
    }
}

/// What was done since the worker began.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Records taken in.
    pub taken_in: u64,
    /// Copies to the ready topic.
    pub released: u64,
    /// Copies to the delays topic.
    pub hopped: u64,
    /// Records that a client hashed into the delays topic.
    pub misrouted: u64,
    /// How often a record that was due waited on for the topic that it asks for.
    pub waited_for_target: u64,
    /// Copies to the dead-letter topic, by reason.
    pub dead_lettered: Vec<(&'static str, u64)>,
    /// Of releases: from the due time to the sending.
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
        let Tally { taken_in, released, hopped, misrouted, waited_for_target, dead_lettered, lateness } = more;
        self.taken_in += taken_in;
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
