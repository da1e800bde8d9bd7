//! The lower bound of the broker's time, from clock probes.

use pyo3::prelude::*;

use crate::engine::Samples;

#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 converts Python's lists to owned vectors
pub fn broker_time_ms(probes: Vec<(i64, i64, i64)>, now_ns: i64) -> Option<i64> {
    let mut samples = Samples::default();
    for (sent_ns, seen_ns, appended_ms) in probes {
        samples.add(sent_ns, seen_ns, appended_ms);
    }
    samples.bound(now_ns).map(|bound| bound.0)
}
