//! Takes the events of the consumer, and adds records to the windows of their partitions.

use std::collections::HashSet;
use std::sync::Arc;

use super::engine_event::EngineEvent;
use super::partition::PATIENCE_NS;
use super::state::{First, State, Step};
use super::stored::Parts;
use super::{boot_ns, Engine};
use crate::kafka::{code, out_of_reach, Event, Fetched, Offset};
use crate::window::MAX_SPAN;

/// The errors that Kafka's client reports for a damaged batch. It then continues with the next batch.
const UNDECODABLE: [i32; 4] = [code::BAD_MSG, code::BAD_COMPRESSION, code::NOT_IMPLEMENTED, code::INVALID_MSG];
/// How many events one turn takes, before records that are due are sent.
const AT_ONCE: usize = 1_000;

impl Engine {
    /// Takes the events of the consumer. Returns whether there were any.
    pub(super) fn take_events(&mut self) -> bool {
        self.polled_at_ns = boot_ns();
        let read_at_ms = self.clock.estimate_ms().unwrap_or(i64::MAX);
        for taken in 0..AT_ONCE {
            let Some(event) = self.consumer.as_ref().and_then(|consumer| consumer.poll()) else { return taken > 0 };
            match event {
                Event::Fetched(record) => self.take_in(&record, read_at_ms),
                Event::End(at) => self.reach_end(&at),
                Event::Failed(error, at) => self.consumer_failed(error, at),
                Event::Assigned(partitions) => self.assigned(&partitions),
                Event::Revoked(partitions) => self.revoked(&partitions),
                Event::Committed(error, partitions) => self.committed(error.as_ref(), &partitions),
                Event::Stranded => self.events.push(EngineEvent::Stranded("consumer")),
                Event::Log(line) => self.events.push(EngineEvent::Log(line)),
                Event::Statistics(statistics) => self.note_reach(&statistics),
                Event::Delivered(_) | Event::Other => {}
            }
        }
        true
    }

    fn note_reach(&mut self, statistics: &str) {
        let unreached: HashSet<_> =
            out_of_reach(statistics).into_iter().filter_map(|(topic, number)| self.slots.find(topic, number)).collect();
        for (slot, partition) in self.slots.iter_mut() {
            partition.unreached_looks = if unreached.contains(&slot) { partition.unreached_looks + 1 } else { 0 };
        }
    }

    fn take_in(&mut self, record: &Fetched, read_at_ms: i64) {
        let Some(slot) = self.slots.find_by_record(record) else { return };
        if !self.continues(slot, First::Record(record.offset())) {
            return;
        }
        let Some(partition) = self.slots.get_mut(slot) else { return };
        let Some(topic) = self.topics.get_mut(partition.topic) else { return };
        match partition.window.take(record.offset()) {
            Ok(true) => {
                let parts = Parts {
                    appended_at_ms: record.appended_at_ms(),
                    key: record.key(),
                    value: record.value(),
                    headers: record.headers(),
                };
                partition.held.arrive(record.offset(), &parts, read_at_ms, &mut self.scratch.header_bytes);
                topic.tally.taken_in += 1;
            }
            Ok(false) => partition.dirty = true,
            Err(_) => return,
        }
        self.turns.register(slot, partition, topic.served.as_ref());
        if partition.window.span() >= MAX_SPAN && partition.paused.is_none() {
            self.memory.check_at_once();
        }
    }

    /// Finishes the offsets between the last record and the partition's end, which are transaction markers and aborted records.
    /// Otherwise they would never be committed, and would be missing once retention has removed them.
    fn reach_end(&mut self, at: &Offset) {
        let Some(slot) = self.slots.find(&at.topic, at.partition) else { return };
        if !self.continues(slot, First::End(at.offset)) {
            return;
        }
        if let Some(partition) = self.slots.get_mut(slot) {
            partition.dirty |= partition.window.skip_to(at.offset);
        }
    }

    /// Whether the engine accepts a record, or the end of the partition, at this offset. The partition has to be served, and what
    /// comes first after a placement has to continue at the position. If it does not, the partition is placed again.
    fn continues(&mut self, slot: usize, first: First) -> bool {
        let Some(partition) = self.slots.get_mut(slot) else { return false };
        let (offset, position) = (first.offset(), partition.window.position());
        if !partition.state.takes_in() || offset < position {
            return false;
        }
        if partition.state == State::Serving {
            return true;
        }
        partition.step(Step::FirstAt { first, position });
        if partition.state == State::Serving {
            partition.patience_ns = PATIENCE_NS;
            partition.read_error = None;
            return true;
        }
        let target = partition.offset(position);
        if let Some(consumer) = &self.consumer {
            // if this fails, the client delivers nothing, and `place_stalled` places the partition in another way
            let _ = consumer.seek(&[target]);
        }
        false
    }

    fn consumer_failed(&mut self, error: crate::kafka::Error, at: Option<Offset>) {
        if error.fatal {
            self.events.push(EngineEvent::Fatal(error));
            return;
        }
        let slot = at.as_ref().and_then(|at| self.slots.find(&at.topic, at.partition));
        if UNDECODABLE.contains(&error.code) {
            if let Some(partition) = slot.and_then(|slot| self.slots.get_mut(slot)) {
                partition.step(Step::CannotRead);
                partition.placed_at_ns = boot_ns();
                partition.read_error.get_or_insert(error.text.clone());
                // The batch exists, so the end is past it. The client may derive an offset from it that is past the end. Its
                // next fetch then fails and makes it forget the end, often before the engine has read that.
                partition.end = partition.end.max(partition.window.position() + 1);
            }
        }
        if matches!(error.code, code::AUTO_OFFSET_RESET | code::LOG_TRUNCATION) {
            let Some(partition) = slot.and_then(|slot| self.slots.get_mut(slot)) else { return };
            let position = partition.window.position();
            // an error below the position is about an offset that was read before the worker knew where to begin
            let of_now = partition.state.takes_in() && at.is_some_and(|at| at.offset >= position);
            // the client may report a truncation without an offset
            if of_now || error.code == code::LOG_TRUNCATION {
                partition.step(Step::Stop);
                let (at, topic_id) = (partition.offset(position), Arc::clone(&partition.topic_id));
                self.settling.extend(slot);
                self.events.push(EngineEvent::Removed { at, topic_id, error });
            }
            return;
        }
        self.events.push(EngineEvent::Reported(error, at));
    }
}
