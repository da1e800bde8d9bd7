//! The last check before the producer, whatever way a record came: only what is due is released.

use std::fmt::{self, Display, Formatter};

use crate::place::Place;
use crate::reading::OwnHeaders;

/// A lower bound of the broker's time, in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LowerBoundMs(pub i64);

/// Where a record is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyPlace {
    /// Which of `Policy::targets`; `None`: the delayed topic's own ready topic.
    pub target: Option<usize>,
    /// Of that topic.
    pub partition: u32,
}

/// A record that is due. Nothing else makes one than `prepare`, and only of one the headers for the ready topic are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release<'a> {
    own: OwnHeaders<'a>,
    root: Place<'a>,
    due_at_ms: i64,
    to: ReadyPlace,
    released_at: LowerBoundMs,
}

/// A record that is not due must not be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotDue {
    /// When it is.
    pub due_at_ms: i64,
    /// What is known of the time.
    pub now: LowerBoundMs,
}

impl Display for NotDue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "a record that is due at {} ms must not be released at {} ms", self.due_at_ms, self.now.0)
    }
}

impl std::error::Error for NotDue {}

impl<'a> Release<'a> {
    /// What is to be released into a partition of a ready topic.
    ///
    /// # Errors
    /// It isn't due. The caller is at fault then, so with debug assertions it panics.
    pub fn prepare(
        own: OwnHeaders<'a>,
        root: Place<'a>,
        due_at_ms: i64,
        to: ReadyPlace,
        now: LowerBoundMs,
    ) -> Result<Self, NotDue> {
        if due_at_ms > now.0 {
            let refused = NotDue { due_at_ms, now };
            debug_assert!(false, "{refused}");
            return Err(refused);
        }
        Ok(Release { own, root, due_at_ms, to, released_at: now })
    }

    /// What its headers say.
    #[must_use]
    pub fn own(&self) -> &OwnHeaders<'a> {
        &self.own
    }

    /// Where it was first seen.
    #[must_use]
    pub fn root(&self) -> Place<'a> {
        self.root
    }

    /// Fixed where it was first seen.
    #[must_use]
    pub fn due_at_ms(&self) -> i64 {
        self.due_at_ms
    }

    /// Where it goes.
    #[must_use]
    pub fn to(&self) -> ReadyPlace {
        self.to
    }

    /// The bound by which it is due.
    #[must_use]
    pub fn released_at(&self) -> LowerBoundMs {
        self.released_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::SourceTopic;

    fn prepared(due_at_ms: i64, now_ms: i64) -> Result<i64, NotDue> {
        let root = Place { source: SourceTopic::Front, partition: 0, offset: 0, topic_id: "" };
        let to = ReadyPlace { target: None, partition: 0 };
        let release = Release::prepare(OwnHeaders::default(), root, due_at_ms, to, LowerBoundMs(now_ms))?;
        Ok(release.due_at_ms())
    }

    #[test]
    fn what_is_due_passes() {
        assert_eq!(prepared(5, 5), Ok(5));
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "due at 6 ms must not be released at 5 ms"))]
    fn what_is_not_due_is_refused() {
        assert_eq!(prepared(6, 5), Err(NotDue { due_at_ms: 6, now: LowerBoundMs(5) }));
    }
}
