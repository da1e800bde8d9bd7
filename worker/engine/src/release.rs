//! The last check before a copy goes to a producer. Whichever path a record took, it is released only if it is due.

use crate::place::Place;
use crate::reading::OwnHeaders;

/// A lower bound of the broker's time, in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LowerBoundMs(pub i64);

/// The topic and the partition that a record is released into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyPlace {
    /// The index in `Policy::targets`, or `None` for the delayed topic's own ready topic.
    pub target: Option<usize>,
    /// The partition of that topic.
    pub partition: u32,
}

/// A record that is due. Only `prepare` creates a `Release`, and the headers for a ready topic are written only for a `Release`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release<'a> {
    own: OwnHeaders<'a>,
    root: Place<'a>,
    due_at_ms: i64,
    to: ReadyPlace,
    released_at: LowerBoundMs,
}

impl<'a> Release<'a> {
    /// Prepares the release of a record into a partition of a ready topic. Returns `None` if the record is not due. This is a bug of the
    /// caller, so the function panics if debug assertions are enabled.
    #[must_use]
    pub fn prepare(
        own: OwnHeaders<'a>,
        root: Place<'a>,
        due_at_ms: i64,
        to: ReadyPlace,
        now: LowerBoundMs,
    ) -> Option<Self> {
        if due_at_ms > now.0 {
            debug_assert!(false, "a record that is due at {due_at_ms} ms must not be released at {} ms", now.0);
            return None;
        }
        Some(Release { own, root, due_at_ms, to, released_at: now })
    }

    /// Returns the headers of this project that the record has.
    #[must_use]
    pub fn own(&self) -> &OwnHeaders<'a> {
        &self.own
    }

    /// Returns the place where the attempt was first seen.
    #[must_use]
    pub fn root(&self) -> Place<'a> {
        self.root
    }

    /// Returns the due time, which was fixed when the attempt was first seen.
    #[must_use]
    pub fn due_at_ms(&self) -> i64 {
        self.due_at_ms
    }

    /// Returns the topic and the partition that the record goes to.
    #[must_use]
    pub fn to(&self) -> ReadyPlace {
        self.to
    }

    /// Returns the lower bound of the broker's time by which the record is due.
    #[must_use]
    pub fn released_at(&self) -> LowerBoundMs {
        self.released_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::SourceTopic;

    fn prepared(due_at_ms: i64, now_ms: i64) -> Option<i64> {
        let root = Place { source: SourceTopic::Front, partition: 0, offset: 0, topic_id: "" };
        let to = ReadyPlace { target: None, partition: 0 };
        let release = Release::prepare(OwnHeaders::default(), root, due_at_ms, to, LowerBoundMs(now_ms))?;
        Some(release.due_at_ms())
    }

    #[test]
    fn what_is_due_passes() {
        assert_eq!(prepared(5, 5), Some(5));
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "due at 6 ms must not be released at 5 ms"))]
    fn what_is_not_due_is_refused() {
        assert_eq!(prepared(6, 5), None);
    }
}
