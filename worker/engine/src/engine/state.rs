//! What becomes of a partition from its assignment to its revocation. `docs/engine.md` has a drawing of it.

/// Where a partition stands. All that may be done with it follows from this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Assigned, and Kafka's client is still to be told that it is taken. Where a former assignment of it began doesn't count.
    Assigned,
    /// It isn't known where it begins.
    Unplaced,
    /// The same, after a transaction that it had a part in has failed: what Kafka says is committed may change until the next
    /// producer has begun.
    Undecided {
        /// It has, and somebody was told. What was asked before that doesn't count: it waits for a `Forget`, and for what is
        /// asked then.
        told: bool,
    },
    /// Kafka's client was told to read from the window's position. The first that comes, a record or the partition's end, has
    /// to continue there: `gap` is what didn't, once, and it is believed the second time, since transaction marks and aborted
    /// records leave gaps.
    Placed {
        /// What came first after the last placement, if it was not at the position.
        gap: Option<First>,
    },
    /// Records are taken in and sent.
    Serving,
    /// What comes next could not be read. It is tried again, and nothing that comes after it is taken in; what is held is sent.
    Unreadable,
    /// Nothing is taken in or sent any more until what is on its way is acknowledged or refused.
    Settling(Then),
    /// It stands still until somebody lets it go on.
    Standing,
    /// It was revoked and nothing of it is on its way; its last commit is.
    Leaving,
}

/// What comes first after a placement.
///
/// The end of a partition and the record that is appended there next have the same offset. So the one doesn't confirm the other:
/// both may have been on their way before the client was told where to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// A record, at this offset.
    Record(i64),
    /// The end: nothing lies below this offset that was not given.
    End(i64),
}

impl First {
    /// Where it is.
    #[must_use]
    pub fn offset(self) -> i64 {
        match self {
            First::Record(offset) | First::End(offset) => offset,
        }
    }
}

/// What follows when nothing is on its way any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is read again from the lowest unfinished offset.
    ReadAgain,
    /// It stands still.
    Stand,
    /// It is given up.
    Leave,
}

/// What happens to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Kafka's client has been told that it is taken.
    Take,
    /// It is known where it begins, or begins again.
    Place,
    /// What came first after a placement, and the window is at `position`.
    FirstAt {
        /// See `First`.
        first: First,
        /// Of the window.
        position: i64,
    },
    /// What comes next can't be decoded: Kafka's client has told so, and goes on with what comes after it.
    CannotRead,
    /// Something was lost, or passed over, on the way from Kafka or to it.
    ReadAgain,
    /// It must not be served.
    Stop,
    /// It may be served again.
    GoOn,
    /// It goes to another worker.
    Revoke,
    /// Nothing of it is on its way.
    Settled,
    /// What is known of it is not true any more: only Kafka knows what is committed.
    Forget,
    /// A transaction that it had a part in has failed.
    Fail,
    /// What Kafka says of that transaction can't change any more.
    Decide,
}

impl State {
    /// The state after `step`. What can't happen changes nothing.
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

    /// Records that come are taken into the window.
    #[must_use]
    pub fn takes_in(self) -> bool {
        matches!(self, State::Placed { .. } | State::Serving)
    }

    /// What is held stays, and is sent when it is due.
    #[must_use]
    pub fn sends(self) -> bool {
        self.takes_in() || self == State::Unreadable
    }

    /// It goes, whatever happens.
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
