//! Decisions and copies for Python.

use std::num::NonZeroU32;

use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyList};

use super::value_error;
use crate::dead_letter::Cause;
use crate::layout::Layout;
use crate::place::Place;
use crate::reading::Headers;
use crate::record::{self, ReadyTopic, Side};
use crate::release::{LowerBoundMs, Release};
use crate::routing::{self, DeadLetter, Decision, Hop, Outcome, Waiting};
use crate::writing::CopyHeaders;

type List = Vec<(Vec<u8>, Option<Vec<u8>>)>;

#[pyclass(frozen, module = "delayed_topics_engine")]
pub struct Policy(record::Policy);

#[pymethods]
impl Policy {
    #[new]
    #[pyo3(signature = (
        *, delay_seconds, ladder_seconds, partition_delays, retry_cap, ready_partitions, max_delay_seconds, targets,
        outage_budget_seconds
    ))]
    #[allow(clippy::too_many_arguments)] // all are keyword arguments in Python
    #[allow(clippy::needless_pass_by_value)] // PyO3 converts Python's lists to owned vectors
    fn new(
        delay_seconds: Vec<u32>,
        ladder_seconds: Vec<u32>,
        partition_delays: Vec<u32>,
        retry_cap: u32,
        ready_partitions: NonZeroU32,
        max_delay_seconds: u32,
        targets: Vec<(String, Option<u32>)>,
        outage_budget_seconds: u32,
    ) -> PyResult<Self> {
        let layout = Layout::new(&delay_seconds, &ladder_seconds, &partition_delays).map_err(value_error)?;
        let topic = |(name, partitions)| ReadyTopic { name, partitions };
        let targets = targets.into_iter().map(topic).collect();
        Ok(Policy(record::Policy {
            layout,
            retry_cap,
            max_delay_seconds,
            ready_partitions,
            targets,
            outage_budget_seconds,
        }))
    }
}

impl Policy {
    pub(super) fn inner(&self) -> &record::Policy {
        &self.0
    }
}

#[pyclass(frozen, module = "delayed_topics_engine")]
pub struct Record {
    side: Side,
    partition: u32,
    offset: i64,
    topic_id: PyBackedStr,
    appended_at_ms: Option<i64>,
    key: Option<PyBackedBytes>,
    headers: Option<Vec<(PyBackedBytes, Option<PyBackedBytes>)>>,
}

#[pymethods]
impl Record {
    #[new]
    #[pyo3(signature = (*, delay_seconds, partition, offset, topic_id, appended_at_ms, key, headers))]
    fn new(
        delay_seconds: Option<u32>,
        partition: u32,
        offset: i64,
        topic_id: PyBackedStr,
        appended_at_ms: Option<i64>,
        key: Option<PyBackedBytes>,
        headers: Option<Vec<(PyBackedBytes, Option<PyBackedBytes>)>>,
    ) -> Self {
        let side = delay_seconds.map_or(Side::Front, |delay_seconds| Side::Delays { delay_seconds });
        Record { side, partition, offset, topic_id, appended_at_ms, key, headers }
    }
}

impl Record {
    fn borrowed(&self) -> record::Record<'_, impl Headers<'_>> {
        let headers = self.headers.as_ref();
        record::Record {
            side: self.side,
            partition: self.partition,
            offset: self.offset,
            topic_id: &self.topic_id,
            appended_at_ms: self.appended_at_ms,
            key: self.key.as_deref(),
            headers: headers.map(|all| all.iter().map(|(name, value)| (&**name, value.as_deref()))),
        }
    }
}

#[pyclass(frozen, get_all, module = "delayed_topics_engine")]
pub struct Wait {
    root: Vec<u8>,
    due_at_ms: i64,
    turn_at_ms: i64,
    misrouted: bool,
}

impl Wait {
    fn of(root: Vec<u8>, waiting: Waiting) -> Self {
        let Waiting { due_at_ms, turn_at_ms, misrouted } = waiting;
        Wait { root, due_at_ms, turn_at_ms, misrouted }
    }

    fn waiting(&self) -> Waiting {
        let Wait { due_at_ms, turn_at_ms, misrouted, .. } = *self;
        Waiting { due_at_ms, turn_at_ms, misrouted }
    }
}

#[pyclass(frozen, get_all, module = "delayed_topics_engine")]
pub struct Copy {
    target: String,
    partition: u32,
    root: Vec<u8>,
    due_at_ms: Option<i64>,
    reason: Option<&'static str>,
    headers: Py<PyList>,
}

/// The result of a decision.
#[derive(IntoPyObject)]
pub enum WaitOrCopy {
    Wait(Wait),
    Copy(Copy),
}

#[pyfunction]
pub fn decide(py: Python<'_>, record: &Record, policy: &Policy, now_ms: i64) -> PyResult<WaitOrCopy> {
    let borrowed = record.borrowed();
    Ok(match routing::decide(&borrowed, &policy.0, LowerBoundMs(now_ms), LowerBoundMs(now_ms)) {
        Decision::Wait(wait) => WaitOrCopy::Wait(Wait::of(root_bytes(wait.root), wait.waiting)),
        Decision::Hop(hop) => WaitOrCopy::Copy(hop_copy(py, &borrowed, &hop)?),
        Decision::DeadLetter(dead) => WaitOrCopy::Copy(dead_letter_copy(py, &borrowed, &dead, true)?),
    })
}

#[pyfunction]
pub fn take_turn(py: Python<'_>, record: &Record, wait: &Wait, policy: &Policy, now_ms: i64) -> PyResult<WaitOrCopy> {
    let borrowed = record.borrowed();
    Ok(match routing::take_turn(&borrowed, wait.waiting(), &policy.0, LowerBoundMs(now_ms)) {
        Outcome::Release(release) => WaitOrCopy::Copy(release_copy(py, &borrowed, &release, &policy.0)?),
        Outcome::Hop(hop) => WaitOrCopy::Copy(hop_copy(py, &borrowed, &hop)?),
        Outcome::Hold(waiting) => WaitOrCopy::Wait(Wait::of(wait.root.clone(), waiting)),
        Outcome::DeadLetter(dead) => WaitOrCopy::Copy(dead_letter_copy(py, &borrowed, &dead, true)?),
    })
}

#[pyfunction]
#[pyo3(signature = (record, *, value_bytes, foreign_headers))]
pub fn too_large(py: Python<'_>, record: &Record, value_bytes: usize, foreign_headers: bool) -> PyResult<Copy> {
    let borrowed = record.borrowed();
    let dead = routing::dead_letter(&borrowed, None, Cause::TooLarge(value_bytes));
    dead_letter_copy(py, &borrowed, &dead, foreign_headers)
}

fn release_copy<'a>(
    py: Python<'_>,
    record: &record::Record<'a, impl Headers<'a>>,
    release: &Release<'a>,
    policy: &record::Policy,
) -> PyResult<Copy> {
    let other = release.to().target.and_then(|target| policy.targets.get(target));
    let mut headers = List::default();
    CopyHeaders::default().release(record.headers.clone().into_iter().flatten(), record.place(), release, &mut headers);
    Ok(Copy {
        target: other.map_or("ready", |topic| &topic.name).to_owned(),
        partition: release.to().partition,
        root: root_bytes(release.root()),
        due_at_ms: Some(release.due_at_ms()),
        reason: None,
        headers: to_py_list(py, &headers)?,
    })
}

fn hop_copy<'a>(py: Python<'_>, record: &record::Record<'a, impl Headers<'a>>, hop: &Hop<'a>) -> PyResult<Copy> {
    let mut headers = List::default();
    CopyHeaders::default().hop(record.headers.clone().into_iter().flatten(), record.place(), hop, &mut headers);
    Ok(Copy {
        target: "delays".to_owned(),
        partition: hop.partition,
        root: root_bytes(hop.root),
        due_at_ms: Some(hop.due_at_ms),
        reason: None,
        headers: to_py_list(py, &headers)?,
    })
}

fn dead_letter_copy<'a>(
    py: Python<'_>,
    record: &record::Record<'a, impl Headers<'a>>,
    dead: &DeadLetter<'a>,
    foreign_headers: bool,
) -> PyResult<Copy> {
    let mut headers = List::default();
    let kept = record.headers.clone().filter(|_| foreign_headers).into_iter().flatten();
    CopyHeaders::default().dead_letter(kept, record.place(), dead, &mut headers);
    Ok(Copy {
        target: "dead-letter".to_owned(),
        partition: dead.root.partition,
        root: root_bytes(dead.root),
        due_at_ms: dead.due_at_ms,
        reason: Some(dead.cause.reason()),
        headers: to_py_list(py, &headers)?,
    })
}

fn root_bytes(root: Place<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    root.write_root(&mut text);
    text
}

fn to_py_list(py: Python<'_>, headers: &List) -> PyResult<Py<PyList>> {
    let bytes = headers
        .iter()
        .map(|(name, value)| (PyBytes::new(py, name), value.as_deref().map(|value| PyBytes::new(py, value))));
    Ok(PyList::new(py, bytes.collect::<Vec<_>>())?.unbind())
}
