//! Snapshots of the engine's state, which the worker takes twice a second.

use super::held::Held;
use super::histogram::Histogram;
use super::partition::{Pause, Undone};
use super::state::State;
use super::topic::TARGETS;
use super::{boot_ns, Engine};
use crate::kafka::Error;

const COMMIT_REFUSED_NS: i64 = 10_000_000_000;

/// The state of a partition at one moment.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The name of the Kafka topic.
    pub topic: String,
    /// The number of the partition in that topic.
    pub partition: i32,
    /// `unplaced`, `undecided`, `placed`, `serving`, `unreadable`, `settling`, `standing` or `leaving`.
    pub state: &'static str,
    /// Whether it is paused because it holds too much.
    pub held_back: bool,
    /// Why the next record could not be read.
    pub read_error: Option<String>,
    /// Whether it has had no leader in two statistics in a row, or one to which the consumer was not connected. While a broker restarts,
    /// it is so for a moment.
    pub out_of_reach: bool,
    /// Why Kafka has refused its commits for ten seconds, but not those of others.
    pub commit_error: Option<String>,
    /// The offset that is read next.
    pub position: i64,
    /// The offset that would be committed now.
    pub lowest_unfinished: i64,
    /// The end of the partition at the last fetch; negative while it is not known.
    pub end: i64,
    /// How many records are held.
    pub waiting: usize,
    /// How many of these are due, plus how many copies are not acknowledged, or not committed if copies are sent in transactions. After
    /// a failed transaction, what was due when it failed counts, until a copy is acknowledged or no record is due.
    pub due: usize,
    /// By how many milliseconds the append time of the record whose turn is next is ahead of the broker's time; 0 if it is not.
    pub ahead_ms: i64,
    /// Which targets have copies that are not acknowledged, in the order of `TARGETS`.
    pub unacknowledged: [bool; TARGETS.len()],
    /// For how long no copy has been acknowledged or refused although some are in flight.
    pub stuck_ns: i64,
    /// How many released records were already due when the partition was first served after its assignment.
    pub delayed: u64,
    /// Whether no more such records follow.
    pub caught_up: bool,
}

impl Engine {
    /// Returns the state of each partition.
    pub fn look(&mut self) -> Vec<Seen> {
        let now_ns = boot_ns();
        let estimate_ms = self.clock.estimate_ms().unwrap_or(i64::MIN);
        let consumer = self.consumer.as_ref();
        let transactional = self.transactions.is_some();
        let see = |(_, partition): (usize, &mut super::Partition)| {
            if partition.state.sends() && estimate_ms > i64::MIN {
                partition.delayed.serve_from(estimate_ms);
            }
            let due = partition.due(estimate_ms, transactional);
            let is_read = !matches!(partition.state, State::Unplaced | State::Undecided { .. } | State::Placed { .. });
            if is_read && due == 0 {
                partition.undone = Undone::default();
            }
            let unacknowledged = partition.unacknowledged();
            if partition.made_progress || !unacknowledged.contains(&true) {
                partition.made_progress = false;
                partition.progress_at_ns = now_ns;
            }
            let ends = consumer.and_then(|consumer| consumer.known_ends(&partition.name, partition.number));
            // the client knows no end after a placement until it has fetched something
            partition.end = ends.map(|(_, end)| end).filter(|end| *end >= 0).unwrap_or(partition.end);
            let at_end = partition.end >= 0 && partition.window.position() >= partition.end;
            let settled = partition.in_flight() == 0 && !partition.held.has_arrived();
            let next_due_ms = if settled { partition.held.next_turn_at_ms() } else { Some(i64::MIN) };
            Seen {
                topic: partition.name.clone(),
                partition: partition.number,
                state: name(partition.state),
                held_back: partition.paused == Some(Pause::HeldBack),
                read_error: partition.read_error.clone(),
                out_of_reach: partition.unreached_looks > 1,
                commit_error: partition
                    .commit_refused
                    .as_ref()
                    .filter(|(since_ns, _)| now_ns - since_ns >= COMMIT_REFUSED_NS)
                    .map(|(_, why)| why.clone()),
                position: partition.window.position(),
                lowest_unfinished: partition.window.lowest_unfinished(),
                end: partition.end,
                waiting: partition.held.len(),
                due: due.max(partition.undone.due),
                ahead_ms: ahead_ms(&mut partition.held, estimate_ms),
                unacknowledged,
                stuck_ns: now_ns - partition.progress_at_ns,
                delayed: partition.delayed.released,
                caught_up: partition.state.sends() && partition.delayed.is_over(next_due_ms, at_end),
            }
        };
        self.slots.iter_mut().map(see).collect()
    }

    /// Whether a record is finished, so that a restart would not repeat it; `None` if this worker does not have the partition.
    #[must_use]
    pub fn is_finished(&self, topic: &str, partition: i32, offset: i64) -> Option<bool> {
        let slot = self.slots.find(topic, partition)?;
        self.slots.get(slot).map(|partition| partition.window.is_finished(offset))
    }

    /// Returns the state that does not belong to a single partition.
    pub fn state(&mut self) -> EngineState {
        let time_known = self.clock.bound().is_some();
        let transactions = self.transactions.as_ref();
        EngineState {
            may_send: self.may_send(),
            problem: transactions.map_or_else(|| self.commits.problem.clone(), |t| t.problem.clone()),
            refused: transactions.map_or_else(|| self.producers.refused.clone(), |t| t.refused.clone()),
            commits: transactions.map_or_else(|| self.commits.durations.clone(), |t| t.durations.clone()),
            failed_commits: transactions.map_or(self.commits.failed, |t| t.failures),
            held_bytes: self.memory.held_bytes,
            time_known,
            clock_problem: self.clock.problem.clone(),
            now_ms: self.clock.estimate_ms(),
        }
    }
}

/// The state of the engine that does not belong to a single partition.
#[derive(Clone, Debug)]
pub struct EngineState {
    /// Whether copies may be sent: the last accepted commit is recent, or a transaction is open.
    pub may_send: bool,
    /// Why the last commit or transaction failed.
    pub problem: Option<String>,
    /// What Kafka refuses this worker, and will presumably go on refusing.
    pub refused: Option<String>,
    /// How long Kafka took to accept commits of offsets, or to commit transactions.
    pub commits: Histogram,
    /// How many commits or transactions failed.
    pub failed_commits: u64,
    /// The memory that held records take.
    pub held_bytes: usize,
    /// Whether the broker's time is known.
    pub time_known: bool,
    /// Why the last clock probe failed.
    pub clock_problem: Option<Error>,
    /// An estimate of the broker's time, in milliseconds since the epoch.
    pub now_ms: Option<i64>,
}

/// By how many milliseconds the append time of the record whose turn is next is ahead of `now_ms`. It is 0 if no record waits, or
/// if its turn has come.
fn ahead_ms(held: &mut Held, now_ms: i64) -> i64 {
    if held.next_turn_at_ms().map_or(true, |turn_ms| turn_ms <= now_ms) || now_ms == i64::MIN {
        return 0;
    }
    let Some(next) = held.take(i64::MAX, false) else { return 0 };
    let appended_at_ms = held.get(&next).parts().appended_at_ms;
    held.put_back(&next);
    appended_at_ms.map_or(0, |at_ms| at_ms.saturating_sub(now_ms).max(0))
}

fn name(state: State) -> &'static str {
    match state {
        State::Assigned | State::Unplaced => "unplaced",
        State::Undecided { .. } => "undecided",
        State::Placed { .. } => "placed",
        State::Serving => "serving",
        State::Unreadable => "unreadable",
        State::Settling(_) => "settling",
        State::Standing => "standing",
        State::Leaving => "leaving",
    }
}

#[cfg(test)]
mod tests {
    use super::super::stored::{HeaderBytes, Parts};
    use super::*;
    use crate::routing::Waiting;

    #[test]
    fn only_what_comes_next_and_waits_is_ahead_and_it_comes_next_as_before() {
        let mut held = Held::default();
        for (offset, appended_at_ms) in [(0, 5_000), (1, 1_000)] {
            let headers: [(&[u8], Option<&[u8]>); 0] = [];
            let parts = Parts {
                appended_at_ms: Some(appended_at_ms),
                key: None,
                value: None,
                headers: Some(headers.into_iter()),
            };
            held.arrive(offset, &parts, i64::MAX, &mut HeaderBytes::default());
            let taken = held.take(0, false).unwrap();
            held.wait(&taken, Waiting { due_at_ms: appended_at_ms, turn_at_ms: appended_at_ms, misrouted: false });
        }
        assert_eq!([i64::MIN, 0, 999, 1_000].map(|now_ms| ahead_ms(&mut held, now_ms)), [0, 1_000, 1, 0]);
        assert_eq!(held.take(1_000, false).map(|taken| taken.offset), Some(1));
        assert_eq!(ahead_ms(&mut held, 1_000), 4_000);
    }
}
