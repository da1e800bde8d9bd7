//! A producer for tests, which keeps the copies that it is given.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::producer::{Output, To};
use super::slots::CopyOf;
use super::topic::Target;
use crate::kafka::{code, Copy, Error};

/// The size of a record that does not fit into a request. Its dead letter does.
pub const HUGE: usize = 400;

type Headers = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A copy that was queued: of which record, when, for which partition, and some of its content.
pub struct Queued {
    pub of: CopyOf,
    pub at_ms: i64,
    pub partition: i32,
    pub bytes: usize,
    pub due_at_ms: Option<i64>,
}

/// See the module.
#[derive(Default)]
pub struct Producer {
    pub now_ms: Cell<i64>,
    pub room: Cell<usize>,
    pub queued: RefCell<VecDeque<Queued>>,
}

impl Output for Producer {
    type Headers = Headers;

    fn headers(&self, _: usize) -> Headers {
        Headers::new()
    }

    fn produce(&self, to: To<'_>, copy: Copy<'_, Headers>) -> Result<usize, Error> {
        let of = CopyOf::of(copy.number);
        assert!(matches!(to, To::Own(0, target) if target == of.target));
        if self.room.get() == 0 {
            let fatal = self.now_ms.get() % 2 == 0; // then it has failed for good, and the engine has not replaced it yet
            return Err(Error { fatal, ..Error::local(if fatal { code::FATAL } else { code::QUEUE_FULL }, "no room") });
        }
        if copy.value.is_some_and(|value| value.len() == HUGE) && of.target != Target::DeadLetter {
            return Err(Error::local(code::MSG_SIZE_TOO_LARGE, "larger than a request may be"));
        }
        self.room.set(self.room.get() - 1);
        let text = |value: &[u8]| std::str::from_utf8(value).unwrap().parse().unwrap();
        let due_at_ms = copy.headers.iter().find(|header| header.0 == b"dt-due-at").and_then(|it| it.1.as_deref());
        self.queued.borrow_mut().push_back(Queued {
            of,
            at_ms: self.now_ms.get(),
            partition: copy.partition,
            bytes: copy.value.map_or(0, <[u8]>::len),
            due_at_ms: due_at_ms.map(text),
        });
        Ok(copy.value.map_or(0, <[u8]>::len))
    }
}
