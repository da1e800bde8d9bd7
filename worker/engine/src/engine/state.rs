//! The states of a partition, from its assignment to its revocation. `docs/engine.md` has a drawing of them.

/// The state of a partition. It determines which operations are allowed; `Partition::begun` says whether its window may be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The partition is assigned, but not yet in Kafka's client. It ignores where an earlier assignment of it began.
    Assigned,
    /// It is not known at which offset the partition begins.
    Unplaced,
    /// As `Unplaced`, after the failure of a transaction that had copies of the partition. The committed offset that Kafka reports
    /// may change until the next producer has begun.
    Undecided {
        /// Whether the next producer has begun, and the engine has reported that. An offset that was requested before does not
        /// count. The partition waits for a `Forget`, and for an offset that is requested after it.
        told: bool,
    },
    /// Kafka's client has to read from the window's position. What comes first, a record or the partition's end, has to be at
    /// that position. If it is not, the partition is placed again, and the same gap is accepted the second time, because
    /// transaction markers and aborted records leave gaps.
    Placed {
        /// What came first after the previous placement, if it was not at the position.
        gap: Option<First>,
    },
    /// Records are read and sent.
    Serving,
    /// The client could not decode the next record, and tries again. The engine takes in nothing after it, and sends what it holds.
    Unreadable,
    /// Nothing is read or sent until all copies in flight are acknowledged or refused.
    Settling(Then),
    /// The partition is stopped until `GoOn`.
    Standing,
    /// The partition was revoked and has no copies in flight. Its last commit may still be in flight.
    Leaving,
}

/// What comes first after a placement.
///
/// The end of a partition and the record that is appended there next have the same offset. One does not confirm the other, because
/// the client may have fetched both before the placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// A record, at this offset.
    Record(i64),
    /// The end: the client has delivered all records below this offset.
    End(i64),
}

impl First {
    /// The offset of the record or the end.
    #[must_use]
    pub fn offset(self) -> i64 {
        match self {
            First::Record(offset) | First::End(offset) => offset,
        }
    }
}

/// What follows when no more copies are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The partition is read again from the lowest unfinished offset.
    ReadAgain,
    /// The partition is stopped.
    Stand,
    /// The partition is given up.
    Leave,
}

/// What happens to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The partition is now assigned in Kafka's client.
    Take,
    /// Kafka's client has to read from the window's position.
    Place,
    /// The first event after a placement has come.
    FirstAt {
        /// See `First`.
        first: First,
        /// The position of the window.
        position: i64,
    },
    /// Kafka's client has reported that it cannot decode the next record. It continues with the records after it.
    CannotRead,
    /// Copies were refused or given up, or have to go through another producer. Their records have to be read again.
    ReadAgain,
    /// The partition must not be served.
    Stop,
    /// The partition may be served again.
    GoOn,
    /// The partition goes to another worker.
    Revoke,
    /// The partition has no copies in flight.
    Settled,
    /// The window is no longer valid, and only Kafka knows what is committed.
    Forget,
    /// A transaction that had copies of the partition has failed.
    Fail,
    /// What Kafka reports as committed after such a failure can no longer change.
    Decide,
}

impl State {
    /// Returns the state after `step`. A step that is not possible in a state does not change it.
    #[must_use]
    pub fn after(self, step: Step) -> State {
        use State::{Assigned, Leaving, Placed, Serving, Settling, Standing, Undecided, Unplaced, Unreadable};
        match (self, step) {
            (Leaving | Settling(Then::Leave), Step::Settled) => Leaving,
            (Leaving | Settling(Then::Leave), _) => self,
            (_, Step::Revoke) => Settling(Then::Leave),
            (Assigned, Step::Take) => Unplaced,
            (Assigned, _) => Assigned,
            (_, Step::Fail) | (Undecided { told: false }, Step::Forget) => Undecided { told: false },
            (Undecided { .. }, Step::Decide) => Undecided { told: true },
            (_, Step::Forget) | (Unplaced, Step::Stop) => Unplaced,
            (Unplaced | Undecided { .. } | Placed { .. } | Unreadable | Settling(Then::ReadAgain), Step::Place) => {
                Placed { gap: None }
            }
            (Placed { gap }, Step::FirstAt { first, position }) => {
                if first.offset() == position || gap == Some(first) {
                    Serving
                } else {
                    Placed { gap: Some(first) }
                }
            }
            (Placed { .. } | Serving, Step::CannotRead) => Unreadable,
            (Placed { .. } | Serving | Unreadable, Step::ReadAgain)
            | (Standing | Settling(Then::Stand), Step::GoOn) => Settling(Then::ReadAgain),
            (Placed { .. } | Serving | Unreadable | Settling(Then::ReadAgain), Step::Stop) => Settling(Then::Stand),
            (Settling(Then::Stand), Step::Settled) => Standing,
            (state, _) => state,
        }
    }

    /// Whether records that come are added to the window.
    #[must_use]
    pub fn takes_in(self) -> bool {
        matches!(self, State::Placed { .. } | State::Serving)
    }

    /// Whether records are held, and sent when they are due.
    #[must_use]
    pub fn sends(self) -> bool {
        self.takes_in() || self == State::Unreadable
    }

    /// Whether the partition will leave this worker, whatever happens.
    #[must_use]
    pub fn leaves(self) -> bool {
        matches!(self, State::Leaving | State::Settling(Then::Leave))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(steps: &[Step]) -> State {
        steps.iter().fold(State::Assigned.after(Step::Take), |state, step| state.after(*step))
    }

    const FIRST: Step = first(First::Record(7));

    const fn first(first: First) -> Step {
        Step::FirstAt { first, position: 7 }
    }

    #[test]
    fn one_that_is_not_taken_yet_changes_by_nothing_that_was_meant_for_a_former_assignment() {
        for step in [Step::Place, FIRST, Step::ReadAgain, Step::Stop, Step::GoOn, Step::Forget, Step::Fail] {
            assert_eq!(State::Assigned.after(step), State::Assigned);
        }
        assert!(State::Assigned.after(Step::Revoke).leaves());
    }

    #[test]
    fn a_gap_after_a_placement_is_believed_the_second_time() {
        for gap in [First::Record(9), First::End(9)] {
            assert_eq!(after(&[Step::Place, first(gap)]), State::Placed { gap: Some(gap) });
            assert_eq!(after(&[Step::Place, first(gap), first(gap)]), State::Serving);
            let other = First::Record(8);
            assert_eq!(after(&[Step::Place, first(gap), first(other)]), State::Placed { gap: Some(other) });
        }
    }

    #[test]
    fn a_record_at_the_end_that_was_told_before_it_came_confirms_no_gap() {
        let (end, record) = (First::End(9), First::Record(9));
        assert_eq!(after(&[Step::Place, first(end), first(record)]), State::Placed { gap: Some(record) });
        assert_eq!(after(&[Step::Place, first(end), first(record), first(First::Record(7))]), State::Serving);
    }

    #[test]
    fn what_can_not_be_read_is_never_passed_over() {
        let passed_over = first(First::Record(9));
        let mut state = after(&[Step::Place, FIRST]);
        for _ in 0..3 {
            state = state.after(Step::CannotRead);
            assert_eq!((state.takes_in(), state.sends()), (false, true));
            assert_eq!(state.after(passed_over), State::Unreadable);
            state = state.after(Step::Place);
        }
        assert_eq!(state.after(FIRST), State::Serving);
    }

    #[test]
    fn what_was_revoked_never_comes_back() {
        let steps = [Step::Place, FIRST, Step::ReadAgain, Step::Stop, Step::GoOn];
        for state in [after(&[Step::Place, FIRST, Step::Revoke]), after(&[Step::Revoke, Step::Settled])] {
            for step in steps {
                assert!(!state.after(step).takes_in());
                assert_eq!(state.after(step).after(Step::Settled), State::Leaving);
            }
        }
    }

    #[test]
    fn a_partition_that_is_stopped_while_it_settles_stands_still_and_is_read_again_when_it_goes_on() {
        let stopped = after(&[Step::Place, FIRST, Step::ReadAgain, Step::Stop, Step::Settled]);
        assert_eq!(stopped, State::Standing);
        assert_eq!(stopped.after(Step::GoOn).after(Step::Place), State::Placed { gap: None });
    }
}
