//! The Python class `Window`, and functions for commit metadata.

use pyo3::prelude::*;

use super::value_error;
use crate::metadata::{self, MetadataEncoder};
use crate::window;

#[pyclass(module = "delayed_topics_engine")]
pub struct Window(window::Window);

#[pymethods]
impl Window {
    #[new]
    #[pyo3(signature = (start, finished = Vec::new()))]
    fn new(start: i64, finished: Vec<i64>) -> Self {
        Window(window::Window::new(start, finished))
    }

    #[getter]
    fn position(&self) -> i64 {
        self.0.position()
    }

    #[getter]
    fn span(&self) -> i64 {
        self.0.span()
    }

    #[getter]
    fn lowest_unfinished(&self) -> i64 {
        self.0.lowest_unfinished()
    }

    fn take(&mut self, offset: i64) -> PyResult<bool> {
        self.0.take(offset).map_err(value_error)
    }

    fn skip_to(&mut self, offset: i64) -> bool {
        self.0.skip_to(offset)
    }

    fn renewed(&self) -> Window {
        Window(self.0.renewed())
    }

    fn finish(&mut self, offset: i64) -> bool {
        self.0.finish(offset)
    }

    fn is_finished(&self, offset: i64) -> bool {
        self.0.is_finished(offset)
    }

    #[pyo3(signature = (topic_id = ""))]
    fn commit_point(&self, topic_id: &str) -> (i64, String) {
        let point = self.0.commit_point(&mut MetadataEncoder::default(), topic_id);
        (point.offset, point.metadata)
    }
}

#[pyfunction]
#[pyo3(signature = (committed, finished, topic_id = ""))]
#[allow(clippy::needless_pass_by_value)] // PyO3 converts Python's lists to owned vectors
pub fn encode_metadata(committed: i64, finished: Vec<i64>, topic_id: &str) -> String {
    let single = finished.iter().map(|offset| (*offset, 1));
    MetadataEncoder::default().encode(committed, single, topic_id)
}

#[pyfunction]
pub fn decode_metadata(committed: i64, metadata: &str) -> PyResult<Vec<i64>> {
    Ok(metadata::decode(committed, metadata).map_err(value_error)?.collect())
}

#[pyfunction]
pub fn committed_topic_id(metadata: &str) -> Option<&str> {
    metadata::topic_id(metadata)
}
