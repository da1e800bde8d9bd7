//! The Python module `delayed_topics_engine`, which `delayed_topics_engine.pyi` documents.

mod clock;
mod engine;
mod pending;
mod routing;
mod window;

#[pyo3::pymodule]
mod delayed_topics_engine {
    #[pymodule_export]
    use super::clock::broker_time_ms;
    #[pymodule_export]
    use super::engine::{Engine, PyHistogram, PySeen, PyState, PyTally};
    #[pymodule_export]
    use super::pending::Pending;
    #[pymodule_export]
    use super::routing::{decide, take_turn, too_large, Copy, Policy, Record, Wait};
    #[pymodule_export]
    use super::window::{committed_topic_id, decode_metadata, encode_metadata, Window};

    #[pymodule_export]
    const MAX_METADATA_CHARS: usize = crate::metadata::MAX_METADATA_CHARS;
    #[pymodule_export]
    const DURATION_BOUNDS_MS: [i64; 13] = crate::engine::DURATION_BOUNDS_MS;
    #[pymodule_export]
    const MAX_SPAN: i64 = crate::window::MAX_SPAN;
}

/// Returns a Python `ValueError` with the message of `error`.
fn value_error(error: impl std::error::Error) -> pyo3::PyErr {
    pyo3::exceptions::PyValueError::new_err(error.to_string())
}
