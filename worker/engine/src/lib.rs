//! What every record of a delayed topic goes through: decisions, headers of copies, windows, commit metadata.
//!
//! Pure: no IO, no clock, nothing of Python, and for a record no memory is allocated. What reads and produces does so:
//!
//! * It makes a [`record::Record`] of what it has read, whose values are borrowed, and notes its offset in the partition's
//!   [`window::Window`].
//! * [`routing::decide`] says what becomes of it. One that waits goes into [`pending::Pending`] with its [`routing::Waiting`];
//!   when its turn has come, [`routing::take_turn`] says what becomes of it then.
//! * [`writing::CopyHeaders`] gives the headers of the copy to a [`writing::HeaderSink`]. Those of a release it writes for a
//!   [`release::Release`] only, which can't be had of a record that isn't due.
//! * Acknowledged, the offset is finished in the window, whose [`window::CommitPoint`] may be committed.
//!
//! `python` gives all of it to Python, for property tests and tools.

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
