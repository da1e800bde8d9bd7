//! What every record of a delayed topic goes through.
//!
//! The modules are pure: no IO, no clock, nothing of Python. `python` alone gives them to Python.

pub mod partitioner;
#[cfg(feature = "python")]
mod python;
