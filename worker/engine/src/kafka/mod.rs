//! Calls Kafka through librdkafka. Only this module has unsafe code; its public functions are safe to call in any order.

#![allow(unsafe_code)]
#![allow(clippy::must_use_candidate)] // nearly all functions only read

mod batching;
mod client;
mod error;
mod event;
mod ffi;
mod list;
mod membership;
mod producing;
mod statistics;
mod topics;

pub use client::{Client, Kind, Settings};
pub use error::{code, Error};
pub use event::{Delivered, Event, Fetched, HeaderIterator, LogLine, Place, Refusal};
pub use ffi::{load, Load};
pub use list::{Offset, Partitions};
pub use membership::Membership;
pub use producing::{Copy, CopyHeaders};
pub use statistics::out_of_reach;
pub use topics::TopicHandle;
