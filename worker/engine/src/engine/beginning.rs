//! Where a partition begins, and whether it may begin yet.

use super::partition::Partition;
use super::state::State;
use crate::record::Side;
use crate::window::Window;

/// Where a partition begins.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// The name of the Kafka topic.
    pub topic: String,
    /// The partition's number in that topic.
    pub partition: i32,
    /// The ID of the topic.
    pub topic_id: String,
    /// The front topic, or the delays topic with the delay of the partition.
    pub side: Side,
    /// The lowest unfinished offset.
    pub offset: i64,
    /// The finished offsets above `offset`, in ascending order.
    pub finished: Vec<i64>,
    /// Whether to commit this position even if no record is processed.
    pub commit: bool,
}

impl Partition {
    /// Begins the partition at a position that Kafka was asked for.
    ///
    /// Returns false, and changes nothing, if the partition has already begun or if the position is outdated: it belongs to a former
    /// assignment, or Kafka was asked before the outcome of a failed transaction was known.
    pub(super) fn begin(&mut self, at: Beginning) -> bool {
        let may_begin = match self.state {
            State::Unplaced => true,
            // A commit is requested although Kafka has one only if the topic was recreated. This position then replaces whatever is
            // committed now.
            State::Undecided { .. } => at.commit && self.has_commit,
            _ => false,
        };
        if !may_begin {
            return false;
        }
        if *self.topic_id != *at.topic_id {
            // these are offsets of the former topic
            self.alone.clear();
            self.unknown = None;
        }
        self.topic_id = at.topic_id.into();
        self.side = at.side;
        self.window = Window::new(at.offset, at.finished);
        self.begun = true;
        self.committed = self.acknowledged; // otherwise the copies of the former window would count as uncommitted permanently
        self.has_commit = !at.commit;
        self.dirty = at.commit;
        self.renew_soon();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::alone::{Alone, Refused};
    use super::super::partition::MAX_UNCOMMITTED;
    use super::super::state::Step;
    use super::super::topic::Target;
    use super::*;
    use crate::writing::Extent;

    fn at(offset: i64, commit: bool) -> Beginning {
        Beginning {
            topic: "orders".to_owned(),
            partition: 3,
            topic_id: "AAAAAAAAAAAAAAAAAAAAAA".to_owned(),
            side: Side::Front,
            offset,
            finished: Vec::new(),
            commit,
        }
    }

    /// A partition that has begun and was placed.
    fn begun(at: Beginning) -> Partition {
        let mut partition = Partition::new(1, 0, "orders".to_owned(), 3);
        partition.step(Step::Take);
        assert!(partition.begin(at));
        partition.step(Step::Place);
        partition
    }

    #[test]
    fn where_a_former_assignment_began_does_not_count() {
        let mut partition = Partition::new(1, 0, "orders".to_owned(), 3);
        assert!(!partition.begin(at(7, false)));
        partition.step(Step::Take);
        assert!(partition.begin(at(9, false)));
        assert_eq!(partition.window.position(), 9);
    }

    #[test]
    fn what_was_asked_before_a_failed_transaction_is_decided_does_not_count() {
        for first in [at(7, false), at(0, true)] {
            let mut partition = begun(first.clone());
            partition.step(Step::Fail);
            for step in [Step::Forget, Step::Stop, Step::GoOn, Step::Decide] {
                assert!(!partition.begin(first.clone()), "before {step:?}");
                partition.step(step);
            }
            assert!(!partition.begin(first), "it was asked before, and comes later");
            partition.step(Step::Forget);
            assert!(partition.begin(at(9, false)));
            assert_eq!(partition.window.position(), 9);
        }
    }

    #[test]
    fn one_that_begins_again_may_send_as_much_as_any_other() {
        let mut partition = begun(at(7, false));
        partition.acknowledged = u64::from(MAX_UNCOMMITTED);
        assert_eq!(partition.room(), 0, "nothing of it is committed");
        partition.step(Step::Forget);
        assert!(partition.begin(at(7, false)));
        assert_eq!(partition.room(), u64::from(MAX_UNCOMMITTED));
    }

    #[test]
    fn what_was_left_to_do_when_a_transaction_failed_stays_so_until_a_copy_is_acknowledged() {
        let mut partition = begun(at(7, false));
        partition.on_their_way[Target::Delays as usize] = 2;
        partition.acknowledged = 3;
        partition.fail(0);
        assert_eq!((partition.state, partition.in_flight()), (State::Undecided { told: false }, 0));
        partition.fail(0);
        assert_eq!((partition.undone.due, partition.unacknowledged()), (5, [false, true, false, false]));
        partition.on_their_way[Target::Ready as usize] = 1;
        partition.acknowledge(7, Target::Ready, 0);
        assert_eq!((partition.undone.due, partition.unacknowledged()), (0, [false; 4]));
    }

    #[test]
    fn one_whose_topic_was_made_again_begins_whatever_becomes_of_the_transaction() {
        let mut partition = begun(at(7, false));
        partition.step(Step::Fail);
        assert!(partition.begin(at(0, true)));
        partition.step(Step::Place);
        partition.step(Step::Decide);
        assert!(partition.may_commit() && partition.dirty);
    }

    #[test]
    fn a_record_that_was_too_large_says_nothing_of_one_that_has_its_offset_in_a_topic_made_again() {
        let mut partition = begun(at(7, false));
        partition.alone.insert(8, Alone::AsDeadLetter(Extent::WithoutValue, Refused::TooLarge));
        for (topic_id, left) in [("AAAAAAAAAAAAAAAAAAAAAA", 1), ("BBBBBBBBBBBBBBBBBBBBBB", 0)] {
            partition.step(Step::Forget);
            assert!(partition.begin(Beginning { topic_id: topic_id.to_owned(), ..at(0, true) }));
            assert_eq!(partition.alone.len(), left);
        }
    }

    #[test]
    fn one_that_leaves_is_not_waited_for() {
        let mut partition = begun(at(7, false));
        partition.step(Step::Fail);
        partition.step(Step::Revoke);
        partition.step(Step::Decide);
        partition.step(Step::Settled);
        assert_eq!(partition.state, State::Leaving);
        assert!(!partition.may_commit());
    }
}
