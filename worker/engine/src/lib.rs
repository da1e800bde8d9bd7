//! The relay's engine: reads the records of delayed topics, decides about each, and writes its copies when they are due.
//!
//! [`engine`] holds the records, the state of each partition and the loop; [`kafka`] is the only code that calls librdkafka. The other modules
//! decide about one record. They do no IO and read no clock, and allocate nothing for a record:
//!
//! * The intake makes a [`record::Record`] of what it has read, whose values are borrowed, and notes its offset in the
//!   partition's [`window::Window`].
//! * [`routing::decide`] says what becomes of it. One that waits goes into [`pending::Pending`] with its [`routing::Waiting`];
//!   when its turn has come, [`routing::take_turn`] says what becomes of it then.
//! * [`writing::CopyHeaders`] gives the headers of the copy to a [`writing::HeaderSink`]. Those of a release it writes for a
//!   [`release::Release`] only, which can't be had of a record that isn't due.
//! * Acknowledged, the offset is finished in the window, whose [`window::CommitPoint`] may be committed.
//!
//! `python` gives all of it to Python: the engine to the worker, the decisions to property tests and tools.

pub mod dead_letter;
pub mod digits;
pub mod engine;
pub mod kafka;
pub mod layout;
pub mod metadata;
pub mod own;
pub mod partitioner;
pub mod pending;
pub mod place;
#[cfg(feature = "python")]
mod python;
pub mod reading;
pub mod record;
pub mod release;
pub mod routing;
pub mod window;
pub mod writing;
