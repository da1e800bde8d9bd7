//! Measures the broker's time with small probe records, because no request to Kafka returns it. The bounds for releases never run ahead
//! of the broker's clock.
//!
//! A probe is appended after it was sent and before its acknowledgement was seen. The broker's clock therefore shows at least the
//! append time plus the time since the acknowledgement was seen, and at most the append time plus the time since the probe was sent.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::time::{clock_gettime, ClockId};

use super::ending::end;
use crate::kafka::{Client, Copy, Error, Event, Kind, Load, TopicHandle};
use crate::release::LowerBoundMs;

/// A probe that was acknowledged longer ago gives no bound any more.
const FRESH_NS: i64 = 1_000_000_000;
/// The interval between probes while the time is needed.
const PROBE_NS: i64 = 250_000_000;
/// The interval otherwise. In this time two clocks drift apart by up to 12 ms. A longer interval could delay the next due record.
const IDLE_PROBE_NS: i64 = 60_000_000_000;
/// A client whose probes have failed for this long is replaced. It may know a topic of this name that was deleted, and it then ignores
/// who leads the new one, whose leader epoch is lower (2.16, `rd_kafka_toppar_leader_update`).
const REPLACE_NS: i64 = 10_000_000_000;
/// How much the clocks of two machines may differ in speed, as a fraction.
const RATE_ERROR: f64 = 200e-6;

/// Returns the nanoseconds of a clock that runs on while the machine is suspended and cannot be set.
#[must_use]
pub fn boot_ns() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// An acknowledged probe. The append time is by the broker's clock, the other times are by this machine's clock.
#[derive(Clone, Copy, Debug)]
struct Sample {
    sent_ns: i64,
    acknowledged_ns: i64,
    appended_ms: i64,
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // far below 2^53
impl Sample {
    /// The least that the broker's clock shows.
    fn lowest_ms(&self, now_ns: i64) -> f64 {
        self.appended_ms as f64 + (now_ns - self.acknowledged_ns) as f64 * (1.0 - RATE_ERROR) / 1e6
    }

    /// The most that the broker's clock shows. The append time has lost its fraction of a millisecond.
    fn highest_ms(&self, now_ns: i64) -> f64 {
        self.appended_ms as f64 + 1.0 + (now_ns - self.sent_ns) as f64 * (1.0 + RATE_ERROR) / 1e6
    }
}

/// The acknowledged probes.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    fresh: VecDeque<Sample>,
    last: Option<Sample>,
}

impl Samples {
    /// Adds a probe, in nanoseconds of this machine and milliseconds of the broker.
    pub fn add(&mut self, sent_ns: i64, acknowledged_ns: i64, appended_ms: i64) {
        let sample = Sample { sent_ns, acknowledged_ns, appended_ms };
        self.fresh.push_back(sample);
        self.last = Some(sample);
    }

    /// Returns a lower bound of the broker's time, or `None` without a fresh probe.
    ///
    /// This is the highest lower bound of the fresh probes, without those that the newest probe proves wrong because the broker's clock
    /// was set back.
    pub fn bound(&mut self, now_ns: i64) -> Option<LowerBoundMs> {
        while self.fresh.front().is_some_and(|sample| now_ns - sample.acknowledged_ns > FRESH_NS) {
            self.fresh.pop_front();
        }
        let highest_ms = self.fresh.back()?.highest_ms(now_ns);
        let lowest = self.fresh.iter().map(|sample| sample.lowest_ms(now_ns)).filter(|lowest| *lowest <= highest_ms);
        #[allow(clippy::cast_possible_truncation)] // milliseconds since the epoch
        lowest.reduce(f64::max).map(|lowest| LowerBoundMs(lowest.floor() as i64))
    }

    /// Estimates the broker's time from the last probe, however old it is. It is for planning and display, never for releases.
    #[must_use]
    pub fn estimate_ms(&self, now_ns: i64) -> Option<i64> {
        #[allow(clippy::cast_possible_truncation)] // milliseconds since the epoch
        self.last.map(|sample| sample.lowest_ms(now_ns) as i64)
    }
}

/// Measures the broker's time with a client of its own.
pub struct Clock {
    load: Load,
    properties: Vec<(String, String)>,
    topic: String,
    /// It has to be dropped before the client.
    handle: Option<TopicHandle>,
    client: Option<Arc<Client>>,
    samples: Samples,
    probed_at_ns: i64,
    failing_since_ns: Option<i64>,
    /// Why the last probe failed; `None` once one has succeeded.
    pub problem: Option<Error>,
}

impl Clock {
    /// Creates a clock that is not connected yet. `topic` has one partition, and its records get the broker's time.
    #[must_use]
    pub fn new(load: Load, properties: Vec<(String, String)>, topic: String) -> Self {
        Clock {
            load,
            properties,
            topic,
            handle: None,
            client: None,
            samples: Samples::default(),
            probed_at_ns: i64::MIN / 2,
            failing_since_ns: None,
            problem: None,
        }
    }

    /// Takes in acknowledgements, and sends a probe when the interval is over, which is shorter if the time `is_needed`.
    pub fn turn(&mut self, is_needed: bool, wake: BorrowedFd<'_>) {
        self.take_acknowledgements();
        let now_ns = boot_ns();
        if self.failing_since_ns.is_some_and(|since_ns| now_ns - since_ns >= REPLACE_NS) {
            self.end_client();
        }
        if now_ns - self.probed_at_ns >= if is_needed { PROBE_NS } else { IDLE_PROBE_NS } {
            self.probed_at_ns = now_ns;
            if let Err(error) = self.probe(now_ns, wake) {
                self.problem = Some(error);
            }
        }
    }

    fn probe(&mut self, now_ns: i64, wake: BorrowedFd<'_>) -> Result<(), Error> {
        if self.client.is_none() {
            let client = Client::new(self.load, Kind::Producer, &self.properties, wake);
            let client = Arc::new(client.map_err(|why| Error::local(0, &why))?);
            self.handle = Some(client.topic(&self.topic)?);
            self.client = Some(client);
        }
        let (Some(client), Some(handle)) = (&self.client, &self.handle) else { return Ok(()) };
        let headers = client.copy_headers(0);
        let copy =
            Copy { partition: 0, key: None, value: Some(b""), headers, timestamp_ms: 0, number: now_ns.unsigned_abs() };
        client.produce(handle, copy).map(drop)
    }

    fn take_acknowledgements(&mut self) {
        while let Some(event) = self.client.as_ref().and_then(|client| client.poll()) {
            match event {
                Event::Delivered(mut probes) => {
                    while let Some((sent_ns, outcome)) = probes.next_timed() {
                        self.take_delivery_report(
                            i64::try_from(sent_ns).unwrap_or(i64::MAX),
                            outcome.map_err(|refusal| refusal.error),
                        );
                    }
                }
                Event::Stranded => self.end_client(),
                _ => {}
            }
        }
    }

    /// Ends the client. The next probe makes another.
    fn end_client(&mut self) {
        self.failing_since_ns = None;
        self.handle = None;
        if let Some(client) = self.client.take() {
            client.purge();
            end(client);
        }
    }

    fn take_delivery_report(&mut self, sent_ns: i64, outcome: Result<Option<i64>, Error>) {
        self.failing_since_ns = outcome.is_err().then(|| self.failing_since_ns.unwrap_or_else(boot_ns));
        self.problem = match outcome {
            Ok(Some(appended_ms)) => {
                self.samples.add(sent_ns, boot_ns(), appended_ms);
                None
            }
            Ok(None) => {
                let what = "the broker does not stamp its records, so set its message.timestamp.type to LogAppendTime";
                Some(Error::local(0, what))
            }
            Err(error) => Some(error),
        };
    }

    /// See `Samples::bound`.
    pub fn bound(&mut self) -> Option<LowerBoundMs> {
        self.samples.bound(boot_ns())
    }

    /// See `Samples::estimate_ms`.
    #[must_use]
    pub fn estimate_ms(&self) -> Option<i64> {
        self.samples.estimate_ms(boot_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn one_slow_probe_does_not_make_the_bound_worse() {
        let mut samples = Samples::default();
        samples.add(0, MS, 5000);
        samples.add(250 * MS, 650 * MS, 5251);
        // 5000 + 649 less the rate error; the slow probe alone would say 5251
        assert_eq!(samples.bound(650 * MS), Some(LowerBoundMs(5648)));
    }

    #[test]
    fn a_broker_clock_that_was_set_back_is_believed() {
        let mut samples = Samples::default();
        samples.add(0, MS, 5000);
        samples.add(250 * MS, 252 * MS, 4251);
        assert_eq!(samples.bound(252 * MS), Some(LowerBoundMs(4251)));
    }

    #[test]
    fn a_second_after_the_last_probe_there_is_no_bound() {
        let mut samples = Samples::default();
        assert_eq!(samples.bound(0), None);
        samples.add(0, MS, 5000);
        assert!(samples.bound(FRESH_NS + MS).is_some());
        assert_eq!(samples.bound(FRESH_NS + MS + 1), None);
        assert_eq!(samples.estimate_ms(2 * FRESH_NS + MS), Some(6999));
    }
}
