//! Guarantee `ExactlyOnce`: copies, and the offsets and bitmaps that account for them, are committed in one transaction.
//!
//! When a transaction fails, for whatever reason, a new producer with the same transactional id ends it, and the partitions that
//! had a part in it begin again at the offsets that Kafka reports as committed. Kafka accepts offsets only from a member of the
//! current generation, and copies only from the newest producer with the transactional id, so a zombie can release nothing.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::calls::{Call, Calls};
use super::commit_points::in_commits;
use super::engine_event::EngineEvent;
use super::histogram::Histogram;
use super::partition::Partition;
use super::producer::Producer;
use super::refusals::{says_why, FENCED, NOT_ADDED};
use super::state::{State, Step};
use super::topic::{Tally, Topic};
use super::{boot_ns, Engine};
use crate::kafka::{code, Error};

/// How long a transaction that is being ended may wait for its copies. Kafka has aborted it by then. After a broker crashed,
/// librdkafka (2.16) was seen to wait forever to send the rest of a transaction.
const TRANSACTION_NS: i64 = 10_000_000_000;
const RETRY_NS: i64 = 1_000_000_000;
/// Between two checks of whether the client can still complete the transaction.
const CHECK_INTERVAL_NS: i64 = 100_000_000;

/// The stage of the current transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is no transaction before `until_ns`.
    Closed { until_ns: i64 },
    /// A new producer begins a transaction.
    Opening,
    /// Copies are added to the transaction.
    Open { since_ns: i64 },
    /// No more copies are added, and the engine waits for those in flight. At `check_at_ns`, it checks whether it waits in vain.
    Ending { since_ns: i64, check_at_ns: i64 },
    /// As `Ending`, while a call finds out whether the transaction has failed.
    Checking { since_ns: i64 },
    /// A call commits the transaction.
    Committing,
    /// A call aborts the transaction.
    Aborting,
}

/// See the module.
pub struct Transactions {
    interval_ns: i64,
    stage: Stage,
    /// It is dropped before `calls`, because topic handles have to be dropped before the client, which `calls` holds as well.
    producer: Option<Producer>,
    calls: Option<Calls>,
    /// The slots of the partitions that have copies or offsets in the transaction.
    touched: BTreeSet<usize>,
    /// Why the transaction cannot be committed.
    failed: Option<Error>,
    /// The events that are reported if the transaction is committed, and dropped otherwise.
    pub(super) report_on_commit: Vec<EngineEvent>,
    /// The slot of a partition whose next copy has to be sent alone. The current transaction ends for it, and its own right after it.
    pub(super) alone: Option<usize>,
    /// Whether a copy was sent alone, so that the copies of other partitions come first now.
    pub(super) others_first: bool,
    /// Why the last transaction failed.
    pub problem: Option<String>,
    /// What Kafka refuses this worker, and will presumably go on refusing.
    pub refused: Option<String>,
    /// How many transactions failed.
    pub failures: u64,
    /// How long Kafka took to commit each transaction, from the moment when the engine stopped adding copies.
    pub durations: Histogram,
    ended_at_ns: i64,
}

impl Transactions {
    /// There is no transaction yet, and the first turn begins one.
    #[must_use]
    pub fn new(interval_ns: i64) -> Self {
        Transactions {
            interval_ns,
            stage: Stage::Closed { until_ns: i64::MIN },
            producer: None,
            calls: None,
            touched: BTreeSet::new(),
            failed: None,
            report_on_commit: Vec::new(),
            alone: None,
            others_first: false,
            problem: None,
            refused: None,
            failures: 0,
            durations: Histogram::default(),
            ended_at_ns: 0,
        }
    }

    /// Whether copies may be added to the transaction.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open { .. }) && self.failed.is_none()
    }

    /// Whether the transaction is being aborted, so that the results of its copies no longer count.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.stage == Stage::Aborting
    }

    /// Whether the transaction is still empty.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.touched.is_empty()
    }

    /// The producer of the current transaction.
    #[must_use]
    pub fn producer(&self) -> Option<&Producer> {
        self.producer.as_ref()
    }

    /// Whether a copy may be sent as the only one of the transaction.
    #[must_use]
    pub fn may_go_alone(&self) -> bool {
        self.is_clean() && !self.others_first
    }

    /// Takes the slot of the partition whose next copy is sent alone now, if there is one.
    pub fn take_alone(&mut self) -> Option<usize> {
        if self.is_open() && self.may_go_alone() {
            self.alone.take()
        } else {
            None
        }
    }

    /// Records that the transaction has copies of a partition.
    pub fn touch(&mut self, slot: usize) {
        self.touched.insert(slot);
    }

    /// Whether the transaction has copies or offsets of a partition.
    #[must_use]
    pub fn touches(&self, slot: usize) -> bool {
        self.touched.contains(&slot)
    }

    /// In how many nanoseconds the transaction needs a turn; `i64::MAX` if it needs none before the next event.
    #[must_use]
    pub fn next_in_ns(&self, now_ns: i64) -> i64 {
        match self.stage {
            Stage::Closed { until_ns } => until_ns.saturating_sub(now_ns),
            Stage::Open { since_ns } if !self.is_clean() => (since_ns + self.interval_ns).saturating_sub(now_ns),
            Stage::Ending { check_at_ns, .. } => check_at_ns.saturating_sub(now_ns),
            _ => i64::MAX, // the answer to a call, or the result of a copy, wakes the engine
        }
    }

    /// Records why the transaction cannot be committed. Later errors do not replace the first.
    pub fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }

    /// Ends the transaction because the client accepts no more copies, and checks why at once.
    pub fn end_now(&mut self) {
        let now_ns = boot_ns();
        self.stage = Stage::Ending { since_ns: now_ns, check_at_ns: now_ns };
    }

    fn record_failure(&mut self, what: &str, error: &Error) {
        self.failures += 1;
        self.problem = Some(format!("{what} ({error})"));
    }
}

impl Engine {
    /// Takes the next step of the transaction, without waiting for anything.
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
                    self.report_undecided();
                }
                Some(Err(error)) => {
                    transactions.record_failure("the worker can't begin a transaction", &error);
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
                    transactions.stage = Stage::Ending { since_ns: now_ns, check_at_ns: now_ns + CHECK_INTERVAL_NS };
                }
            }
            Stage::Ending { since_ns, check_at_ns } => self.end(now_ns, since_ns, check_at_ns),
            Stage::Checking { since_ns } => match answer(&mut transactions.calls) {
                None => {}
                Some(Ok(())) => match transactions.failed.take() {
                    None => transactions.stage = Stage::Ending { since_ns, check_at_ns: now_ns + CHECK_INTERVAL_NS },
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
                    self.events.append(&mut transactions.report_on_commit);
                    self.topics.iter_mut().for_each(Topic::decide);
                }
                Some(Err(error)) => self.roll_back(&error),
            },
            Stage::Aborting => {
                if answer(&mut transactions.calls).is_some() {
                    // the next producer ends the transaction if the abort failed
                    self.reopen(now_ns);
                }
            }
        }
    }

    fn open(&mut self) {
        let Some(compression) =
            self.topics.iter().find_map(|topic| topic.served.as_ref().map(|s| s.compression.clone()))
        else {
            // no delayed topic is served, so there is nothing to copy
            if let Some(transactions) = &mut self.transactions {
                transactions.stage = Stage::Closed { until_ns: boot_ns() + RETRY_NS };
            }
            return;
        };
        let made = self.producers.new_producer(&compression, &[], self.wake.as_fd());
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
                self.events.push(EngineEvent::log(format!("could not create a producer: {why}")));
                transactions.stage = Stage::Closed { until_ns: boot_ns() + RETRY_NS };
            }
        }
    }

    /// Commits the transaction when all of its copies are acknowledged. Rolls it back if it failed, or takes too long.
    fn end(&mut self, now_ns: i64, since_ns: i64, check_at_ns: i64) {
        let Some(transactions) = &mut self.transactions else { return };
        // once a copy has failed, the client does not send the others
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
            } else if let Some(calls) = transactions.calls.as_mut().filter(|_| failed || now_ns >= check_at_ns) {
                // if a partition cannot be added to the transaction, the client purges copies, or neither sends nor refuses them
                calls.ask(Call::Look);
                transactions.stage = Stage::Checking { since_ns };
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

    /// Gives up the transaction. Whether it was committed is known from the offsets that Kafka reports once the next producer has begun.
    /// Until then, a call to commit it may be in flight, and a worker that requested the offsets too early would repeat what it commits.
    pub(super) fn roll_back(&mut self, error: &Error) {
        let Some(transactions) = &mut self.transactions else { return };
        if transactions.stage == Stage::Opening {
            // The transaction is empty. The next producer must not begin before this call has ended, because the call might reach
            // Kafka after that of the next producer, and fence it.
            transactions.fail(error.clone());
            return;
        }
        transactions.record_failure("a transaction failed, and the worker repeats it", error);
        transactions.report_on_commit.clear();
        let now_ms = self.clock.estimate_ms().unwrap_or(i64::MIN);
        for slot in std::mem::take(&mut transactions.touched) {
            let Some(partition) = self.slots.get_mut(slot) else { continue };
            if NOT_ADDED.contains(&error.code) {
                match partition.lone_copy() {
                    None => partition.suspect_first_copies(),
                    Some((offset, target)) => {
                        let target = self.topics[partition.topic].names.of(target).to_owned();
                        let origin = partition.offset(offset);
                        self.events.push(EngineEvent::Refused { origin, target, error: error.clone() });
                    }
                }
            }
            partition.fail(now_ms);
        }
        self.topics.iter_mut().for_each(|topic| topic.undecided = Tally::default());
        self.close(error, boot_ns());
    }

    /// Reports the partitions of failed transactions. Once this producer has begun, Kafka has committed or aborted all of them.
    fn report_undecided(&mut self) {
        let undecided = self.slots.iter_mut().filter(|(_, p)| p.state == State::Undecided { told: false });
        let unknown: Vec<(String, i32)> = undecided
            .map(|(_, partition)| {
                partition.step(Step::Decide);
                (partition.name.clone(), partition.number)
            })
            .collect();
        if !unknown.is_empty() {
            self.events.push(EngineEvent::CommitUnknown(unknown));
        }
    }

    /// Gives up the producer, because a refused copy leaves a gap in its sequence numbers. Aborts the transaction first if the error
    /// requires it.
    fn close(&mut self, error: &Error, until_ns: i64) {
        let Some(transactions) = &mut self.transactions else { return };
        transactions.failed = None;
        if FENCED.contains(&error.code) {
            let mut fatal = error.clone();
            fatal.text = format!(
                "Kafka has fenced the producer ({error}). Either another worker with this name has started, or this worker stood \
                 still for longer than a transaction may last"
            );
            self.events.push(EngineEvent::Fatal(fatal));
        }
        match &mut transactions.calls {
            Some(calls) if error.aborts_transaction && transactions.producer.is_some() => {
                calls.ask(Call::Abort); // takes 13 ms; otherwise the next producer would wait 500 ms for the transaction to end
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
        transactions.failed = None; // the error belonged to the producer that is gone
        transactions.stage = Stage::Closed { until_ns };
        self.slots.forget_copies(); // their results will not be reported
    }
}

fn answer(calls: &mut Option<Calls>) -> Option<Result<(), Error>> {
    calls.as_mut().and_then(Calls::answer)
}
