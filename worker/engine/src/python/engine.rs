//! The Python class `Engine`, which the worker uses.

use std::collections::HashMap;
use std::time::Duration;

use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::routing::Policy;
use crate::engine::{
    self, Beginning, Change, Changed, EngineEvent, Histogram, Names, Panicked, Running, Seen, Served, Settings, Tally,
};
use crate::kafka::{self, Error, Offset};
use crate::metadata;
use crate::record::Side;

type Properties = Vec<(String, String)>;
type Place = (String, i32);

/// See `delayed_topics_engine.pyi`.
#[pyclass(frozen, module = "delayed_topics_engine")]
pub struct Engine(Running);

impl From<Panicked> for PyErr {
    fn from(_: Panicked) -> Self {
        PyRuntimeError::new_err(
            "the engine ended because of an internal error, which the worker's standard error shows",
        )
    }
}

#[pymethods]
#[allow(clippy::too_many_arguments)] // most are keyword arguments in Python
#[allow(clippy::needless_pass_by_value)] // PyO3 converts Python's lists to owned vectors
impl Engine {
    #[new]
    #[pyo3(signature = (*, library, producer, clock, clock_topic, window_bytes, commit_interval_ms, renew_seconds, exactly_once))]
    fn new(
        library: &str,
        producer: Properties,
        clock: Properties,
        clock_topic: String,
        window_bytes: usize,
        commit_interval_ms: i64,
        renew_seconds: i64,
        exactly_once: bool,
    ) -> PyResult<Self> {
        let load = kafka::load(library).map_err(PyRuntimeError::new_err)?;
        let settings = Settings {
            producer,
            clock,
            clock_topic,
            window_bytes,
            commit_interval_ns: commit_interval_ms * 1_000_000,
            renew_ns: renew_seconds * 1_000_000_000,
            exactly_once,
        };
        Ok(Engine(Running::start(engine::Engine::new(load, settings)?)?))
    }

    fn add_topic(&self, front: String, delays: String, ready: String, dead_letter: String) -> PyResult<()> {
        let names = Names { front, delays, ready, dead_letter };
        Ok(self.0.change(|engine| engine.add_topic(names))?)
    }

    #[pyo3(signature = (number, policy, *, paused, skew_ms, compression, replicated, dead_letter_partitions, has_control_topic))]
    fn serve(
        &self,
        number: usize,
        policy: Option<&Policy>,
        paused: bool,
        skew_ms: i64,
        compression: String,
        replicated: Option<bool>,
        dead_letter_partitions: u32,
        has_control_topic: bool,
    ) -> PyResult<()> {
        let served = policy.map(|policy| Served {
            policy: policy.inner().clone(),
            paused,
            skew_ms,
            compression,
            replicated,
            has_control_topic,
        });
        Ok(self.0.change(|engine| engine.serve(number, served, dead_letter_partitions))?)
    }

    fn want(&self, number: usize, changes: Vec<(Vec<u8>, Option<i64>)>) -> PyResult<Vec<bool>> {
        let change = |at_ms: Option<i64>| at_ms.map_or(Change::Cancel, Change::DeliverAt);
        Ok(self.0.change(|engine| changes.iter().map(|(id, at)| engine.want(number, id, change(*at))).collect())?)
    }

    fn withdraw(&self, number: usize, ids: Option<Vec<Vec<u8>>>) -> PyResult<()> {
        Ok(self.0.change(|engine| match ids {
            Some(ids) => ids.iter().for_each(|id| engine.withdraw(number, id)),
            None => engine.withdraw_all(number),
        })?)
    }

    #[pyo3(signature = (topics, consumer, *, grown))]
    fn subscribe(&self, topics: Vec<String>, consumer: Properties, grown: Vec<String>) -> PyResult<()> {
        self.0.change(|engine| engine.subscribe(&topics, &grown, &consumer))?.map_err(PyValueError::new_err)
    }

    fn assign(&self, places: Vec<(String, i32, i64)>) -> PyResult<()> {
        let offset = |(topic, partition, offset)| Offset { topic, partition, offset, metadata: String::new() };
        let places: Vec<Offset> = places.into_iter().map(offset).collect();
        Ok(self.0.change(|engine| engine.assign(&places))?)
    }

    #[pyo3(signature = (topic, partition, *, topic_id, delay_seconds, offset, metadata, commit, stands=false))]
    fn begin(
        &self,
        topic: String,
        partition: i32,
        topic_id: String,
        delay_seconds: Option<u32>,
        offset: i64,
        metadata: &str,
        commit: bool,
        stands: bool,
    ) -> PyResult<()> {
        let finished = metadata::decode(offset, metadata).map_err(super::value_error)?.collect();
        let side = delay_seconds.map_or(Side::Front, |delay_seconds| Side::Delays { delay_seconds });
        let at = Beginning { topic: topic.clone(), partition, topic_id, side, offset, finished, commit };
        Ok(self.0.change(|engine| {
            engine.begin(at);
            if stands {
                engine.stop(&topic, partition);
            }
        })?)
    }

    fn stop(&self, topic: &str, partition: i32) -> PyResult<()> {
        Ok(self.0.change(|engine| engine.stop(topic, partition))?)
    }

    fn go_on(&self, topic: &str, partition: i32) -> PyResult<()> {
        Ok(self.0.change(|engine| engine.go_on(topic, partition))?)
    }

    fn wait<'py>(&self, py: Python<'py>, longest_seconds: f64) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let longest = Duration::from_secs_f64(longest_seconds.clamp(0.0, 60.0));
        let events = py.detach(|| self.0.wait(longest))?;
        events.into_iter().map(|event| to_tuple(py, event)).collect()
    }

    fn look(&self, py: Python<'_>) -> PyResult<Vec<PySeen>> {
        Ok(py.detach(|| self.0.look(engine::Engine::look))?.into_iter().map(PySeen::from).collect())
    }

    fn state(&self, py: Python<'_>) -> PyResult<PyState> {
        let state = py.detach(|| self.0.look(engine::Engine::state))?;
        Ok(PyState {
            may_send: state.may_send,
            problem: state.problem,
            refused: state.refused,
            commits: PyHistogram::from(&state.commits),
            failed_commits: state.failed_commits,
            held_bytes: state.held_bytes,
            time_known: state.time_known,
            clock_problem: state.clock_problem.map(fault),
            now_ms: state.now_ms,
        })
    }

    fn tallies(&self, py: Python<'_>, numbers: Vec<usize>) -> PyResult<Vec<PyTally>> {
        let of = |engine: &mut engine::Engine| -> Result<Vec<Tally>, usize> {
            let topics = engine.topics();
            numbers.iter().map(|&number| topics.get(number).map(|topic| topic.tally.clone()).ok_or(number)).collect()
        };
        let found = py.detach(|| self.0.look(of))?;
        let tallies = found.map_err(|number| PyIndexError::new_err(format!("there is no topic {number}")))?;
        Ok(tallies.into_iter().map(PyTally::from).collect())
    }

    fn is_finished(&self, topic: &str, partition: i32, offset: i64) -> PyResult<Option<bool>> {
        Ok(self.0.look(|engine| engine.is_finished(topic, partition, offset))?)
    }

    fn committed(
        &self,
        py: Python<'_>,
        places: Vec<Place>,
        timeout_ms: i32,
    ) -> PyResult<Vec<(String, i32, i64, String)>> {
        let Some(consumer) = self.0.look(|engine| engine.consumer())? else { return Ok(Vec::new()) };
        let place = |(topic, partition)| Offset { topic, partition, offset: 0, metadata: String::new() };
        let requested: Vec<Offset> = places.into_iter().map(place).collect();
        let answered = py.detach(|| consumer.committed(&requested, timeout_ms)).unwrap_or_default();
        let known = answered.into_iter().filter(|(_, error)| error.is_none());
        Ok(known.map(|(at, _)| (at.topic, at.partition, at.offset, at.metadata)).collect())
    }

    fn forget(&self, topic: &str, partition: i32) -> PyResult<()> {
        Ok(self.0.change(|engine| engine.forget(topic, partition))?)
    }

    fn leave_at_once(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.0.change(engine::Engine::leave_at_once))?)
    }

    fn leave(&self, for_good: bool) -> PyResult<()> {
        Ok(self.0.change(|engine| engine.leave(for_good))?)
    }

    #[getter]
    fn still_seconds(&self) -> f64 {
        #[allow(clippy::cast_precision_loss)]
        let seconds = self.0.still_ns() as f64 / 1e9;
        seconds
    }

    #[getter]
    fn left(&self) -> PyResult<bool> {
        Ok(self.0.look(|engine| engine.is_left())?)
    }
}

type Fault = (i32, String, String);

/// Returns the name of an event and its fields. `worker/src/delayed_topics_worker/engine_events.py` has a class for each.
fn to_tuple(py: Python<'_>, event: EngineEvent) -> PyResult<Bound<'_, PyTuple>> {
    match event {
        EngineEvent::Assigned { partitions, generation } => ("Assigned", partitions, generation).into_pyobject(py),
        EngineEvent::Revoked { partitions, lost, delayed, in_flight } => {
            ("Revoked", partitions, lost, delayed, in_flight).into_pyobject(py)
        }
        EngineEvent::Refused { origin, target, error } => {
            ("Refused", origin.topic, origin.partition, origin.offset, target, fault(error)).into_pyobject(py)
        }
        EngineEvent::Changed { topic, id, changed } => {
            let (outcome, deliver_at_ms) = match changed {
                Changed::Cancelled => ("cancelled", None),
                Changed::Rescheduled(at_ms) => ("rescheduled", Some(at_ms)),
                Changed::TooDeep(at_ms) => ("too-deep", Some(at_ms)),
            };
            ("Changed", topic, PyBytes::new(py, &id), outcome, deliver_at_ms).into_pyobject(py)
        }
        EngineEvent::Removed { at, topic_id, error } => {
            ("Removed", at.topic, at.partition, at.offset, &*topic_id, fault(error)).into_pyobject(py)
        }
        EngineEvent::CommitUnknown(partitions) => ("CommitUnknown", partitions).into_pyobject(py),
        EngineEvent::Reported(error, at) => {
            let (topic, partition) = at.map_or((None, None), |at| (Some(at.topic), Some(at.partition)));
            ("Reported", fault(error), topic, partition).into_pyobject(py)
        }
        EngineEvent::Fatal(error) => ("Fatal", fault(error)).into_pyobject(py),
        EngineEvent::AssignmentFailed(error) => ("AssignmentFailed", fault(error)).into_pyobject(py),
        EngineEvent::ProducersReplaced => ("ProducersReplaced",).into_pyobject(py),
        EngineEvent::Stranded(client) => ("Stranded", client).into_pyobject(py),
        EngineEvent::Log(line) => ("Log", line.level, line.facility, line.text).into_pyobject(py),
    }
}

fn fault(error: Error) -> Fault {
    (error.code, error.name, error.text)
}

/// See `delayed_topics_engine.pyi`.
#[pyclass(frozen, get_all, name = "Seen", module = "delayed_topics_engine")]
pub struct PySeen {
    topic: String,
    partition: i32,
    state: &'static str,
    held_back: bool,
    read_error: Option<String>,
    out_of_reach: bool,
    commit_error: Option<String>,
    position: i64,
    lowest_unfinished: i64,
    end: i64,
    waiting: usize,
    due: usize,
    ahead_ms: i64,
    unacknowledged: (bool, bool, bool, bool),
    stuck_seconds: f64,
    delayed: u64,
    caught_up: bool,
}

impl From<Seen> for PySeen {
    fn from(seen: Seen) -> Self {
        let [ready, delays, dead_letter, other] = seen.unacknowledged;
        PySeen {
            topic: seen.topic,
            partition: seen.partition,
            state: seen.state,
            held_back: seen.held_back,
            read_error: seen.read_error,
            out_of_reach: seen.out_of_reach,
            commit_error: seen.commit_error,
            position: seen.position,
            lowest_unfinished: seen.lowest_unfinished,
            end: seen.end,
            waiting: seen.waiting,
            due: seen.due,
            ahead_ms: seen.ahead_ms,
            unacknowledged: (ready, delays, dead_letter, other),
            #[allow(clippy::cast_precision_loss)]
            stuck_seconds: seen.stuck_ns as f64 / 1e9,
            delayed: seen.delayed,
            caught_up: seen.caught_up,
        }
    }
}

/// See `delayed_topics_engine.pyi`.
#[pyclass(frozen, get_all, name = "State", module = "delayed_topics_engine")]
pub struct PyState {
    may_send: bool,
    problem: Option<String>,
    refused: Option<String>,
    commits: PyHistogram,
    failed_commits: u64,
    held_bytes: usize,
    time_known: bool,
    clock_problem: Option<Fault>,
    now_ms: Option<i64>,
}

/// See `delayed_topics_engine.pyi`.
#[pyclass(frozen, get_all, name = "Tally", module = "delayed_topics_engine")]
pub struct PyTally {
    taken_in: u64,
    acknowledged: u64,
    released: u64,
    hopped: u64,
    misrouted: u64,
    waited_for_target: u64,
    dead_lettered: HashMap<&'static str, u64>,
    lateness: PyHistogram,
}

impl From<Tally> for PyTally {
    fn from(tally: Tally) -> Self {
        PyTally {
            taken_in: tally.taken_in,
            acknowledged: tally.acknowledged,
            released: tally.released,
            hopped: tally.hopped,
            misrouted: tally.misrouted,
            waited_for_target: tally.waited_for_target,
            dead_lettered: tally.dead_lettered.into_iter().collect(),
            lateness: PyHistogram::from(&tally.lateness),
        }
    }
}

/// See `delayed_topics_engine.pyi`.
#[pyclass(frozen, get_all, name = "Histogram", module = "delayed_topics_engine")]
#[derive(Clone)]
pub struct PyHistogram {
    counts: Vec<u64>,
    sum_ms: i64,
}

impl From<&Histogram> for PyHistogram {
    fn from(histogram: &Histogram) -> Self {
        PyHistogram { counts: histogram.counts.to_vec(), sum_ms: histogram.sum_ms }
    }
}
