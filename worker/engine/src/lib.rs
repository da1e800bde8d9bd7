//! The engine of a worker: it reads the records of delayed topics, decides about each, and writes their copies when they are due.
//!
//! [`engine`] holds the records, the state of each partition and the main loop. Only [`kafka`] calls librdkafka. The other modules
//! deal with single records. They do no IO, read no clock, and allocate nothing per record:
//!
//! * The engine adds the offset of each record that it reads to the [`window::Window`] of the partition, and represents the record
//!   by a [`record::Record`], whose values are borrowed.
//! * [`routing::decide`] decides what happens to the record. If it has to wait, it goes into [`pending::Pending`] with its
//!   [`routing::Waiting`]. When its turn has come, [`routing::take_turn`] decides again.
//! * [`writing::CopyHeaders`] writes the headers of the copy to a [`writing::HeaderSink`]. It writes those of a release only for a
//!   [`release::Release`], which cannot be created for a record that is not due.
//! * When Kafka has acknowledged the copy, the window marks the offset as finished. Its [`window::CommitPoint`] may be committed.
//!
//! `python` exposes all of this to Python: the engine to the worker, and the decisions to property tests and tools.

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
