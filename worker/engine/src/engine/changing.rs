//! Applies requests of the control topic: cancels records, or changes their due times.

use super::changes::{Change, Changed};
use super::copying::Sending;
use super::producer::Output;
use super::stored::StoredHeaders;
use crate::dead_letter::Cause;
use crate::place::Place;
use crate::reading::OwnHeaders;
use crate::record::Record;
use crate::routing::{turn_of, DeadLetter, Outcome, Waiting};

impl<P: Output> Sending<'_, P> {
    /// Returns what becomes of a record: `outcome`, changed by the request for the record if there is one.
    pub(super) fn apply_request<'r>(
        &self,
        record: &Record<'r, StoredHeaders<'r>>,
        outcome: Outcome<'r>,
    ) -> Outcome<'r> {
        match self.request_for(record, &outcome) {
            None => outcome,
            Some((own, root, Change::Cancel)) => match outcome {
                Outcome::Hold(_) => outcome,
                _ => Outcome::DeadLetter(DeadLetter {
                    own,
                    root,
                    due_at_ms: outcome.due_at_ms(),
                    cause: Cause::Cancelled,
                }),
            },
            Some((own, root, Change::DeliverAt(at_ms))) => self.reschedule(record, own, root, outcome, at_ms),
        }
    }

    /// Returns the request for a record, unless the record becomes a dead letter anyway.
    fn request_for<'r>(
        &self,
        record: &Record<'r, StoredHeaders<'r>>,
        outcome: &Outcome<'r>,
    ) -> Option<(OwnHeaders<'r>, Place<'r>, Change)> {
        let changes = self.changes.as_ref().filter(|changes| !changes.is_empty())?;
        let (own, root) = match outcome {
            Outcome::Release(release) => (release.own().clone(), release.root()),
            Outcome::Hop(hop) => (hop.own.clone(), hop.root),
            Outcome::Hold(_) => record.read().ok()?,
            Outcome::DeadLetter(_) => return None,
        };
        let (_, change) = changes.of(&own, root)?;
        Some((own, root, change))
    }

    /// Returns what becomes of a record that is to be released at another time. A record that came in after that time keeps its due
    /// time, because it is another attempt.
    fn reschedule<'r>(
        &self,
        record: &Record<'r, StoredHeaders<'r>>,
        own: OwnHeaders<'r>,
        root: Place<'r>,
        outcome: Outcome<'r>,
        at_ms: i64,
    ) -> Outcome<'r> {
        let Some(due_at_ms) = outcome.due_at_ms() else { return outcome };
        let came_in_after = own.came_in_at_ms(record.appended_at_ms).is_some_and(|came_in_at_ms| at_ms < came_in_at_ms);
        let is_too_deep = at_ms < due_at_ms && due_at_ms <= self.now.0;
        // without a ladder the record would be held in memory until then
        let has_no_ladder = !self.served.policy.layout.has_ladder();
        if at_ms == due_at_ms || has_no_ladder || came_in_after || is_too_deep {
            return outcome;
        }
        let misrouted = matches!(outcome, Outcome::Hold(waiting) if waiting.misrouted);
        let waiting = Waiting { due_at_ms: at_ms, turn_at_ms: at_ms, misrouted };
        match turn_of(record, own, root, waiting, &self.served.policy, self.now) {
            // hops are made even while releases are paused: a record that is held instead has its turn at `at_ms` only, even if the pause
            // ends long before
            outcome @ (Outcome::Hop(_) | Outcome::Hold(_)) => outcome,
            _ if self.served.paused => Outcome::Hold(waiting),
            outcome => outcome,
        }
    }

    /// Remembers what a request did to a record, to report that when the copy is acknowledged.
    pub(super) fn remember_changed(&mut self, record: &Record<'_, StoredHeaders<'_>>, outcome: &Outcome<'_>) {
        match self.changed(record, outcome) {
            Some(changed) => self.partition.changed.insert(record.offset, changed),
            // an earlier copy was refused, and the request no longer applies
            None => self.partition.changed.remove(&record.offset),
        };
    }

    fn changed(&self, record: &Record<'_, StoredHeaders<'_>>, outcome: &Outcome<'_>) -> Option<(Box<[u8]>, Changed)> {
        let changes = self.changes.as_ref().filter(|changes| !changes.is_empty())?;
        let (own, root, due_at_ms, is_released) = match outcome {
            Outcome::DeadLetter(DeadLetter { own, root, cause: Cause::Cancelled, .. }) => (own, *root, None, false),
            Outcome::Release(release) => (release.own(), release.root(), Some(release.due_at_ms()), true),
            Outcome::Hop(hop) => (&hop.own, hop.root, Some(hop.due_at_ms), false),
            _ => return None,
        };
        let came_in_at_ms = own.came_in_at_ms(record.appended_at_ms);
        let (id, change) = changes.of(own, root)?;
        let became = match (change, due_at_ms) {
            (Change::Cancel, None) => Changed::Cancelled,
            (Change::DeliverAt(at_ms), Some(due_at_ms)) if at_ms == due_at_ms => Changed::Rescheduled(at_ms),
            (Change::DeliverAt(at_ms), Some(due_at_ms))
                if is_released && at_ms < due_at_ms && came_in_at_ms.map_or(true, |came_in| came_in <= at_ms) =>
            {
                Changed::TooDeep(at_ms)
            }
            _ => return None,
        };
        Some((id, became))
    }
}
