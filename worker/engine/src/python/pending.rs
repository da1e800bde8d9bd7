//! The Python class `Pending`.

use pyo3::prelude::*;

use crate::pending;

#[pyclass(module = "delayed_topics_engine")]
#[derive(Default)]
pub struct Pending(pending::Pending<()>);

#[pymethods]
impl Pending {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn add(&mut self, turn_at_ms: i64, offset: i64) {
        self.0.add(turn_at_ms, offset, ());
    }

    fn pop(&mut self, now_ms: i64) -> Option<i64> {
        self.0.pop(now_ms).map(|entry| entry.offset)
    }

    #[getter]
    fn next_turn_at_ms(&self) -> Option<i64> {
        self.0.next_turn_at_ms()
    }

    fn due_count(&self, now_ms: i64) -> usize {
        self.0.due_count(now_ms)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}
