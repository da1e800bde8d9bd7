//! Records from Kafka into the windows of their partitions.

use std::sync::Arc;

use super::happening::Happening;
use super::partition::PATIENCE_NS;
use super::state::{First, State, Step};
use super::stored::Parts;
use super::{boot_ns, Engine};
use crate::kafka::{code, Event, Fetched, Offset};
use crate::window::MAX_SPAN;

/// Kafka's client says so of a batch that is damaged, and goes on with the next one.
const UNDECODABLE: [i32; 4] = [code::BAD_MSG, code::BAD_COMPRESSION, code::NOT_IMPLEMENTED, code::INVALID_MSG];
/// Events between two looks at what is due.
const AT_ONCE: usize = 1_000;

impl Engine {
    /// Takes in what the consumer has to tell; false: it was nothing.
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
                Event::Stranded => self.happenings.push(Happening::Stranded("consumer")),
                Event::Log(line) => self.happenings.push(Happening::Log(line)),
                Event::Delivered(_) | Event::Statistics(_) | Event::Other => {}
            }
        }
        true
    }

    fn take_in(&mut self, record: &Fetched, read_at_ms: i64) {
        let Some(slot) = self.slots.of_record(record) else { return };
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
                partition.held.arrive(record.offset(), &parts, read_at_ms);
                topic.tally.taken_in += 1;
            }
            Ok(false) => partition.dirty = true,
            Err(_) => return,
        }
        self.turns.register(slot, partition, topic.served.as_ref());
        if partition.window.span() >= MAX_SPAN && partition.paused.is_none() {
            self.memory.look_at_once();
        }
    }

    /// There is nothing to read below the partition's end: what lies between the last record and it, transaction marks and
    /// aborted records, is finished. Else it would never be committed, and be missing after retention has removed it.
    fn reach_end(&mut self, at: &Offset) {
        let Some(slot) = self.slots.find(&at.topic, at.partition) else { return };
        if !self.continues(slot, First::End(at.offset)) {
            return;
        }
        if let Some(partition) = self.slots.get_mut(slot) {
            partition.dirty |= partition.window.skip_to(at.offset);
        }
    }

    /// Whether what comes at this offset is taken in: the partition is served, and after a placement it is what had to come
    /// next. If it isn't, reading is placed again.
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
            // where it fails the partition gives nothing, and is placed by another way
            let _ = consumer.seek(&[target]);
        }
        false
    }

    fn consumer_failed(&mut self, error: crate::kafka::Error, at: Option<Offset>) {
        if error.fatal {
            self.happenings.push(Happening::ConsumerFatal(error));
            return;
        }
        let slot = at.as_ref().and_then(|at| self.slots.find(&at.topic, at.partition));
        if UNDECODABLE.contains(&error.code) {
            if let Some(partition) = slot.and_then(|slot| self.slots.get_mut(slot)) {
                partition.step(Step::CannotRead);
                partition.placed_at_ns = boot_ns();
                partition.read_error.get_or_insert(error.text.clone());
                // there is that batch, but what the client takes for an offset in it may lie behind the end: what it fetches
                // next fails, and with that it forgets where the partition ends, often before anybody has looked
                partition.end = partition.end.max(partition.window.position() + 1);
            }
        }
        if matches!(error.code, code::AUTO_OFFSET_RESET | code::LOG_TRUNCATION) {
            let Some(partition) = slot.and_then(|slot| self.slots.get_mut(slot)) else { return };
            let position = partition.window.position();
            // below the position: of what was read before it was known where to begin
            let of_now = partition.state.takes_in() && at.is_some_and(|at| at.offset >= position);
            // of a truncation it may tell no offset
            if of_now || error.code == code::LOG_TRUNCATION {
                partition.step(Step::Stop);
                let (at, topic_id) = (partition.offset(position), Arc::clone(&partition.topic_id));
                self.settling.extend(slot);
                self.happenings.push(Happening::Removed { at, topic_id, error });
            }
            return;
        }
        self.happenings.push(Happening::Reported(error, at));
    }
}
