//! Guarantee `ExactlyOnce`: copies, and the offsets and bitmaps that account for them, are one transaction.
//!
//! It comes true as a whole or not at all. When it fails, for whatever reason, a new producer of the same transactional id
//! ends it for good, and the partitions that had a part in it begin again where Kafka says that they are committed. Kafka takes
//! the offsets from a member of the present generation only and the copies from the newest producer of the id only, so there is
//! nothing that a zombie could release.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::calls::{Call, Calls};
use super::commits::in_commits;
use super::happening::Happening;
use super::histogram::Histogram;
use super::partition::Partition;
use super::producers::Producer;
use super::refusals::{says_why, FENCED, NOT_ADDED};
use super::state::{State, Step};
use super::topic::{Tally, Topic};
use super::{boot_ns, Engine};
use crate::kafka::{code, Error};

/// Kafka has ended a transaction by then. Seen: after a broker's crash the client (2.16) waited for ever to send the rest of it.
const TRANSACTION_NS: i64 = 10_000_000_000;
const RETRY_NS: i64 = 1_000_000_000;
/// Between two looks at whether what is waited for will still come.
const LOOK_NS: i64 = 100_000_000;

/// Where a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is none, until then.
    Closed { until_ns: i64 },
    /// One is being begun.
    Opening,
    /// Copies become part of it.
    Open { since_ns: i64 },
    /// Nothing more does; what is on its way is waited for. Until the next look at whether that makes sense.
    Ending { since_ns: i64, look_at_ns: i64 },
    /// The same, while the client is asked whether it has failed.
    Looking { since_ns: i64 },
    /// It is being ended well.
    Committing,
    /// It is being ended as if it had not been.
    Aborting,
}

/// See the module.
pub struct Transactions {
    interval_ns: i64,
    stage: Stage,
    /// They go before the client.
    producer: Option<Producer>,
    calls: Option<Calls>,
    /// Partitions that have a part in the transaction.
    touched: BTreeSet<usize>,
    /// Why it can't end well.
    failed: Option<Error>,
    /// What is true only if the transaction ends well.
    pub(super) told: Vec<Happening>,
    /// A copy that has to go alone: it ends the transaction before it, and its own.
    pub(super) alone: Option<usize>,
    /// One went, and others come first now, if they have something to send.
    pub(super) others_first: bool,
    /// Why the last one failed.
    pub problem: Option<String>,
    /// What Kafka refuses for good, as far as anybody can know.
    pub refused: Option<String>,
    /// How many did.
    pub failures: u64,
    /// From ending one until Kafka has committed it.
    pub durations: Histogram,
    ended_at_ns: i64,
}

impl Transactions {
    /// Before the first.
    #[must_use]
    pub fn new(interval_ns: i64) -> Self {
        Transactions {
            interval_ns,
            stage: Stage::Closed { until_ns: i64::MIN },
            producer: None,
            calls: None,
            touched: BTreeSet::new(),
            failed: None,
            told: Vec::new(),
            alone: None,
            others_first: false,
            problem: None,
            refused: None,
            failures: 0,
            durations: Histogram::default(),
            ended_at_ns: 0,
        }
    }

    /// Copies may become part of the transaction.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open { .. }) && self.failed.is_none()
    }

    /// Whatever becomes of its copies counts no more.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.stage == Stage::Aborting
    }

    /// Nothing is part of it yet.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.touched.is_empty()
    }

    /// Of the transaction that is open.
    #[must_use]
    pub fn producer(&self) -> Option<&Producer> {
        self.producer.as_ref()
    }

    /// A copy may be all that the transaction has.
    #[must_use]
    pub fn may_go_alone(&self) -> bool {
        self.is_clean() && !self.others_first
    }

    /// The partition whose first record goes alone now.
    pub fn take_alone(&mut self) -> Option<usize> {
        if self.is_open() && self.may_go_alone() {
            self.alone.take()
        } else {
            None
        }
    }

    /// A partition has a part in it.
    pub fn touch(&mut self, slot: usize) {
        self.touched.insert(slot);
    }

    /// Whether a partition has a part in it that isn't decided.
    #[must_use]
    pub fn touches(&self, slot: usize) -> bool {
        self.touched.contains(&slot)
    }

    /// When there is something to do.
    #[must_use]
    pub fn next_in_ns(&self, now_ns: i64) -> i64 {
        match self.stage {
            Stage::Closed { until_ns } => until_ns.saturating_sub(now_ns),
            Stage::Open { since_ns } if !self.is_clean() => (since_ns + self.interval_ns).saturating_sub(now_ns),
            Stage::Ending { look_at_ns, .. } => look_at_ns.saturating_sub(now_ns),
            _ => i64::MAX, // an answer, or an outcome, wakes
        }
    }

    /// It can't end well any more.
    pub fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }

    /// The client takes no more copies for it: why is found out.
    pub fn end_now(&mut self) {
        let now_ns = boot_ns();
        self.stage = Stage::Ending { since_ns: now_ns, look_at_ns: now_ns };
    }

    fn note(&mut self, what: &str, error: &Error) {
        self.failures += 1;
        self.problem = Some(format!("{what} ({error})"));
    }
}

impl Engine {
    /// Goes on with the transaction, as far as it can without waiting.
    pub(super) fn transact(&mut self) {
        let now_ns = boot_ns();
        let Some(transactions) = &mut self.transactions else { return };
        match transactions.stage {
            Stage::Closed { until_ns } if now_ns >= until_ns => self.open(),
            Stage::Closed { .. } => {}
            Stage::Opening => match answer(&mut transactions.calls) {
                None => {}
                Some(Ok(())) => {
                    transactions.refused = None;
                    match transactions.failed.take() {
                        None => transactions.stage = Stage::Open { since_ns: now_ns },
                        Some(error) => self.close(&error, now_ns),
                    }
                    self.begin_again();
                }
                Some(Err(error)) => {
                    transactions.note("the worker can't begin a transaction", &error);
                    if !error.retriable && !FENCED.contains(&error.code) {
                        transactions.refused = transactions.problem.clone();
                    }
                    self.close(&error, now_ns + RETRY_NS);
                }
            },
            Stage::Open { since_ns } => {
                let late = now_ns - since_ns >= transactions.interval_ns;
                let wanted = !transactions.is_clean() || self.slots.iter().any(|(_, p)| p.dirty || p.is_stale(now_ns));
                if transactions.failed.is_some()
                    || transactions.alone.is_some() && !transactions.is_clean()
                    || late && wanted
                {
                    transactions.stage = Stage::Ending { since_ns: now_ns, look_at_ns: now_ns + LOOK_NS };
                }
            }
            Stage::Ending { since_ns, look_at_ns } => self.end(now_ns, since_ns, look_at_ns),
            Stage::Looking { since_ns } => match answer(&mut transactions.calls) {
                None => {}
                Some(Ok(())) => match transactions.failed.take() {
                    None => transactions.stage = Stage::Ending { since_ns, look_at_ns: now_ns + LOOK_NS },
                    Some(error) => self.roll_back(&error),
                },
                Some(Err(error)) => self.roll_back(&error),
            },
            Stage::Committing => match answer(&mut transactions.calls) {
                None => {}
                Some(Ok(())) => {
                    transactions.stage = Stage::Open { since_ns: now_ns };
                    transactions.problem = None;
                    transactions.durations.observe((now_ns - transactions.ended_at_ns) / 1_000_000);
                    for slot in std::mem::take(&mut transactions.touched) {
                        if let Some(partition) = self.slots.get_mut(slot) {
                            partition.forget_copies();
                            partition.has_commit = true;
                            partition.renew_at_ns = now_ns.saturating_add(self.commits.renew_ns);
                        }
                    }
                    self.happenings.append(&mut transactions.told);
                    self.topics.iter_mut().for_each(Topic::decide);
                }
                Some(Err(error)) => self.roll_back(&error),
            },
            Stage::Aborting => {
                if answer(&mut transactions.calls).is_some() {
                    // what it didn't end, the next producer ends
                    self.reopen(now_ns);
                }
            }
        }
    }

    fn open(&mut self) {
        let Some(compression) =
            self.topics.iter().find_map(|topic| topic.served.as_ref().map(|s| s.compression.clone()))
        else {
            // none is served any more: nothing is to be copied
            if let Some(transactions) = &mut self.transactions {
                transactions.stage = Stage::Closed { until_ns: boot_ns() + RETRY_NS };
            }
            return;
        };
        let made = self.producers.new_producer(&compression, false, self.wake.as_fd());
        let wake = self.wake.try_clone();
        let (Some(transactions), Ok(wake)) = (&mut self.transactions, wake) else { return };
        match made {
            Ok(producer) => {
                let mut calls = Calls::of(Arc::clone(&producer.client), wake);
                calls.ask(Call::Open);
                transactions.calls = Some(calls);
                transactions.producer = Some(producer);
                transactions.stage = Stage::Opening;
            }
            Err(why) => {
                self.happenings.push(Happening::log(format!("could not create a producer: {why}")));
                transactions.stage = Stage::Closed { until_ns: boot_ns() + RETRY_NS };
            }
        }
    }

    /// Nothing becomes part of it any more: when all copies are told of, it ends.
    fn end(&mut self, now_ns: i64, since_ns: i64, look_at_ns: i64) {
        let Some(transactions) = &mut self.transactions else { return };
        // once a copy has failed the rest of them will not be sent
        if let Some(error) = transactions.failed.as_ref().filter(|error| says_why(error)).cloned() {
            self.roll_back(&error);
            return;
        }
        let outstanding: u32 =
            transactions.touched.iter().filter_map(|slot| self.slots.get(*slot)).map(Partition::in_flight).sum();
        let failed = transactions.failed.is_some();
        if outstanding > 0 || failed {
            if now_ns - since_ns >= TRANSACTION_NS {
                let what = "Kafka did not acknowledge the transaction within 10 s";
                self.roll_back(&Error::local(code::TIMED_OUT, what));
            } else if let Some(calls) = transactions.calls.as_mut().filter(|_| failed || now_ns >= look_at_ns) {
                // copies are given up, or neither sent nor refused, when a partition may not be part of it
                calls.ask(Call::Look);
                transactions.stage = Stage::Looking { since_ns };
            }
            return;
        }
        let Some(consumer) = &self.consumer else { return };
        let dirty = self.slots.iter().filter(|(_, p)| p.dirty && p.may_commit());
        transactions.touched.extend(dirty.chain(self.slots.stale(now_ns)).map(|(slot, _)| slot));
        let chosen: Vec<usize> = transactions.touched.iter().copied().collect();
        let commits = in_commits(&mut self.slots, &chosen, &mut self.commits.encoder);
        if let Some(calls) = &mut transactions.calls {
            calls.ask(Call::Commit(commits, consumer.membership()));
        }
        transactions.stage = Stage::Committing;
        transactions.ended_at_ns = since_ns;
    }

    /// What has become of the transaction is known by what Kafka says is committed, once the next producer has begun. Until then
    /// a call to commit it may be on its way: whoever looks before it arrives does again what it commits.
    pub(super) fn roll_back(&mut self, error: &Error) {
        let Some(transactions) = &mut self.transactions else { return };
        if transactions.stage == Stage::Opening {
            // nothing is part of it; called beside the next one's, its call might come second, and shut that one out
            transactions.fail(error.clone());
            return;
        }
        transactions.note("a transaction failed, and the worker repeats it", error);
        transactions.told.clear();
        let now_ms = self.clock.estimate_ms().unwrap_or(i64::MIN);
        for slot in std::mem::take(&mut transactions.touched) {
            let Some(partition) = self.slots.get_mut(slot) else { continue };
            if NOT_ADDED.contains(&error.code) {
                match partition.lone_copy() {
                    None => partition.suspect_first_copies(),
                    Some((offset, target)) => {
                        let target = self.topics[partition.topic].names.of(target).to_owned();
                        let origin = partition.offset(offset);
                        self.happenings.push(Happening::Refused { origin, target, error: error.clone() });
                    }
                }
            }
            partition.fail(now_ms);
        }
        self.topics.iter_mut().for_each(|topic| topic.undecided = Tally::default());
        self.close(error, boot_ns());
    }

    /// The transactions before this one have ended, one way or the other.
    fn begin_again(&mut self) {
        let undecided = self.slots.iter_mut().filter(|(_, p)| p.state == State::Undecided { told: false });
        let unknown: Vec<(String, i32)> = undecided
            .map(|(_, partition)| {
                partition.step(Step::Decide);
                (partition.name.clone(), partition.number)
            })
            .collect();
        if !unknown.is_empty() {
            self.happenings.push(Happening::CommitUnknown(unknown));
        }
    }

    /// Gives up the producer: after a copy was refused there is a gap in its sequence numbers.
    fn close(&mut self, error: &Error, until_ns: i64) {
        let Some(transactions) = &mut self.transactions else { return };
        transactions.failed = None;
        if FENCED.contains(&error.code) {
            let mut fatal = error.clone();
            fatal.text = format!(
                "Kafka has fenced the producer ({error}). Either another worker with this name has started, or this worker stood \
                 still for longer than a transaction may last"
            );
            self.happenings.push(Happening::ConsumerFatal(fatal));
        }
        match &mut transactions.calls {
            Some(calls) if error.aborts_transaction && transactions.producer.is_some() => {
                calls.ask(Call::Abort); // 13 ms, while the next producer would wait for it for 500
                transactions.stage = Stage::Aborting;
            }
            _ => self.reopen(until_ns),
        }
    }

    fn reopen(&mut self, until_ns: i64) {
        let Some(transactions) = &mut self.transactions else { return };
        if let Some(producer) = transactions.producer.take() {
            producer.end();
        }
        transactions.calls = None;
        transactions.failed = None; // what failed went with the producer
        transactions.stage = Stage::Closed { until_ns };
        self.slots.forget_copies(); // nobody tells of them any more
    }
}

fn answer(calls: &mut Option<Calls>) -> Option<Result<(), Error>> {
    calls.as_mut().and_then(Calls::answer)
}
