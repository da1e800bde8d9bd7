//! Handles delivery reports: Kafka has acknowledged copies, or refused them.

use std::collections::BTreeMap;

use super::alone::{Alone, Lone, Refused};
use super::engine_event::EngineEvent;
use super::partition::Partition;
use super::producer::Producer;
use super::refusals::is_of_the_copy;
use super::slots::CopyOf;
use super::state::Step;
use super::topic::{Target, Topic};
use super::transactions::Transactions;
use super::Engine;
use crate::kafka::{code, Error, Event, Refusal};

/// Kafka refuses a batch as a whole, so the refused record need not be the one that is too large.
const TOO_LARGE: [i32; 3] = [code::MSG_SIZE_TOO_LARGE, code::RECORD_LIST_TOO_LARGE, code::INVALID_MSG_SIZE];
/// With these errors, nothing is wrong with the copy, or it is unknown whether Kafka has it. The engine sends it again.
const TO_BE_REPEATED: [i32; 6] = [
    code::PURGE_QUEUE,
    code::PURGE_INFLIGHT,
    code::FATAL,
    code::OUT_OF_ORDER_SEQUENCE_NUMBER,
    code::UNKNOWN_PRODUCER_ID,
    code::INVALID_DIFFERENT_RECORD,
];

impl Engine {
    /// Takes the events of the producers. Returns whether there were any.
    pub(super) fn take_delivery_reports(&mut self) -> bool {
        let mut events: Vec<(usize, Event)> = self.producers.events().collect();
        if let Some(producer) = self.transactions.as_ref().and_then(Transactions::producer) {
            events.extend(std::iter::from_fn(|| producer.client.poll()).map(|event| (usize::MAX, event)));
        }
        let any = !events.is_empty();
        let mut failed = BTreeMap::new();
        for (producer, event) in events {
            match event {
                // a producer reports this before the results of the copies that it still has, so it is given up later
                Event::Failed(error, _) if error.fatal && self.transactions.is_none() => {
                    failed.entry(producer).or_insert(error);
                }
                event => {
                    let outdated = self.producers.is_outdated(producer);
                    if let Some(error) = self.take_delivery_report(event, outdated) {
                        self.producers.distrust(producer);
                        failed.insert(producer, error);
                    }
                }
            }
        }
        let mut read_again = !failed.is_empty();
        for (producer, error) in failed {
            self.events
                .push(EngineEvent::log(format!("a producer failed permanently, and the worker replaces it: {error}")));
            if self.producers.give_up(producer, &error) {
                self.events.push(EngineEvent::ProducersReplaced);
            }
        }
        read_again |= any && self.producers.retire_refused();
        if read_again {
            for (slot, partition) in self.slots.iter_mut().filter(|(_, partition)| partition.in_flight() > 0) {
                partition.step(Step::ReadAgain);
                self.settling.push(slot);
            }
        }
        any
    }

    /// Handles one event of a producer. Returns an error if Kafka refused a copy because its epoch is outdated. Nothing that an
    /// `outdated` producer reports about other copies can be trusted, so they are sent again.
    fn take_delivery_report(&mut self, event: Event, outdated: bool) -> Option<Error> {
        let mut refused_epoch = None;
        match event {
            // the copies may have arrived, but no consumer of committed records reads them; they are sent again
            Event::Delivered(_) | Event::Failed(..)
                if self.transactions.as_ref().is_some_and(Transactions::is_given_up) => {}
            Event::Delivered(copies) => {
                for (number, bytes, mut refusal) in copies {
                    if self.transactions.is_none() {
                        let error = refusal.as_ref().map(|refusal| &refusal.error);
                        refused_epoch =
                            refused_epoch.or(error.filter(|error| error.code == code::INVALID_PRODUCER_EPOCH).cloned());
                        if outdated || refused_epoch.is_some() {
                            let error = Error::local(code::PURGE_INFLIGHT, "the report of an outdated producer");
                            refusal = Some(Refusal { error, topic: String::new() });
                        }
                    }
                    let CopyOf { slot, offset, target } = CopyOf::of(number);
                    match (self.slots.get_mut(slot), refusal) {
                        (None, _) => self.slots.forget_copy(slot),
                        (Some(partition), None) => {
                            partition.acknowledge(offset, target, bytes);
                            let changed = partition.changed.remove(&offset);
                            let topic = partition.topic;
                            let Topic { tally, undecided, .. } = &mut self.topics[topic];
                            let counts = if self.transactions.is_some() { undecided } else { tally };
                            counts.acknowledged += 1;
                            let reports =
                                self.transactions.as_mut().map_or(&mut self.events, |t| &mut t.report_on_commit);
                            reports.extend(changed.map(|(id, changed)| EngineEvent::Changed { topic, id, changed }));
                        }
                        (Some(partition), Some(refusal)) => {
                            if let Some(transactions) = &mut self.transactions {
                                let of_the_copy = is_of_the_copy(&refusal.error);
                                // librdkafka then only lets the transaction be aborted (2.16, `rd_kafka_txn_set_abortable_error`)
                                transactions.fail(Error { aborts_transaction: of_the_copy, ..refusal.error.clone() });
                                if !of_the_copy {
                                    continue;
                                }
                                // together with this copy, the whole transaction would fail again
                                let code = refusal.error.code;
                                let is_known = code == code::UNKNOWN_PARTITION && !partition.alone.is_empty();
                                if !TOO_LARGE.contains(&code) && !is_known {
                                    partition.alone.entry(offset).or_insert(Alone::AsDecided);
                                }
                            }
                            self.events.extend(refuse(partition, offset, target, bytes, refusal));
                            self.settling.push(slot);
                        }
                    }
                }
            }
            Event::Failed(error, _) if error.fatal => {
                if let Some(transactions) = &mut self.transactions {
                    transactions.fail(error);
                }
            }
            Event::Stranded => self.events.push(EngineEvent::Stranded("producer")),
            Event::Log(line) => self.events.push(EngineEvent::Log(line)),
            _ => {}
        }
        refused_epoch
    }

    /// Gives up the copies in flight with their producers. Their records are read and sent again, so they may come out twice.
    pub(super) fn replace_producers(&mut self) {
        if self.transactions.is_some() {
            self.roll_back(&Error::local(code::PURGE_QUEUE, "the copies in flight were given up"));
            return;
        }
        let (last, producers) = self.producers.replace();
        let mut outdated = false;
        for event in last {
            if !matches!(event, Event::Failed(..)) {
                outdated |= self.take_delivery_report(event, outdated).is_some();
            }
        }
        producers.into_iter().for_each(Producer::end);
        // nothing will be reported about the copies that are still in flight
        self.events.push(EngineEvent::ProducersReplaced);
        for (slot, partition) in self.slots.iter_mut() {
            if partition.in_flight() > 0 {
                partition.give_up_copies();
                self.settling.push(slot);
            }
        }
        self.slots.forget_copies();
    }
}

/// Handles a copy that Kafka refused. A record that is invalid, or too large in a small batch, goes alone next. The records of a
/// large batch go in smaller batches next. A record that went alone becomes a dead letter, which is smaller each time that Kafka
/// refuses it. For any other error, the partition stops.
pub fn refuse(
    partition: &mut Partition,
    offset: i64,
    target: Target,
    bytes: usize,
    refusal: Refusal,
) -> Option<EngineEvent> {
    let in_flight = partition.in_flight();
    let lone = partition.complete_copy(offset, target, bytes);
    let code = refusal.error.code;
    // a producer that has just begun to write to a topic takes copies before it knows how many partitions there are
    let may_be_new = code == code::UNKNOWN_PARTITION && partition.waits_for_new_partition(offset);
    if may_be_new || TO_BE_REPEATED.contains(&code) {
        partition.step(Step::ReadAgain);
        return None;
    }
    let why = if TOO_LARGE.contains(&code) {
        Refused::TooLarge
    } else if code == code::INVALID_RECORD {
        Refused::Invalid
    } else {
        return stand(partition, offset, refusal);
    };
    match lone {
        None => {
            // a refused batch halves the window once: after its first copy, the partition no longer sends
            if why == Refused::TooLarge && partition.state.sends() {
                partition.congestion.halve(in_flight);
            }
            if why == Refused::Invalid || partition.congestion.is_small() {
                partition.alone.entry(offset).or_insert(Alone::AsDecided);
            }
        }
        Some(Lone { next: None, .. }) => return stand(partition, offset, refusal),
        Some(Lone { next: Some(next), .. }) => {
            partition.congestion.uncap();
            partition.bury(offset, next, why);
        }
    }
    partition.step(Step::ReadAgain);
    None
}

/// Stops a partition because Kafka refused one of its copies. Returns an event for the first refusal only, although more copies
/// may be refused. The record goes alone when it is tried again, because after each refusal a producer sends nothing, to any partition,
/// until Kafka has acknowledged all copies in flight (librdkafka 2.16, `rd_kafka_idemp_drain_epoch_bump`).
fn stand(partition: &mut Partition, offset: i64, refusal: Refusal) -> Option<EngineEvent> {
    let before = partition.state;
    partition.step(Step::Stop);
    if partition.state == before {
        return None;
    }
    partition.alone.entry(offset).or_insert(Alone::AsDecided);
    Some(EngineEvent::Refused { origin: partition.offset(offset), target: refusal.topic, error: refusal.error })
}
