//! A producer of copies, and several that share them.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use super::ending::end;
use super::topic::{Names, Target, OWN_TARGETS};
use crate::kafka::{Client, Copy, CopyHeaders, Error, TopicHandle};
use crate::writing::HeaderSink;

/// A client and the topics that it produces to.
pub struct Producer {
    /// By delayed topic and target, each from its first copy on: one of many topics that a worker has nothing to write to costs nothing.
    /// They are dropped before the client.
    handles: Vec<(String, OnceCell<TopicHandle>)>,
    /// Other ready topics, each from its first copy on.
    others: RefCell<HashMap<String, TopicHandle>>,
    /// Whether Kafka has refused a copy because its epoch is outdated. Nothing that this producer reports can then be trusted.
    pub(super) outdated: bool,
    /// The client of Kafka.
    pub client: Arc<Client>,
}

impl Producer {
    pub(super) fn new(client: Arc<Client>, names: &[Names]) -> Self {
        let mut made = Producer { handles: Vec::new(), others: RefCell::default(), outdated: false, client };
        for names in names {
            made.add_topic(names);
        }
        made
    }

    /// Ends the producer, and discards the copies that it has and their results.
    pub fn end(self) {
        self.client.purge();
        let Producer { handles, others, client, .. } = self;
        drop((handles, others));
        end(client);
    }

    pub(super) fn add_topic(&mut self, names: &Names) {
        self.handles.extend(OWN_TARGETS.map(|target| (names.of(target).to_owned(), OnceCell::new())));
    }

    pub(super) fn handle(&self, index: usize) -> Result<&TopicHandle, Error> {
        let (name, handle) = &self.handles[index];
        match handle.get() {
            Some(made) => Ok(made),
            None => self.client.topic(name).map(|made| handle.get_or_init(|| made)),
        }
    }
}

/// Where a copy goes.
#[derive(Clone, Copy, Debug)]
pub enum To<'a> {
    /// One of a delayed topic's own topics.
    Own(usize, Target),
    /// The ready topic of this name.
    Other(&'a str),
}

/// What queues copies. It does not report their results.
pub trait Output {
    /// The headers of a copy.
    type Headers: HeaderSink;

    /// Creates headers with room for `count`, which may grow.
    fn headers(&self, count: usize) -> Self::Headers;

    /// Queues a copy. Returns how many bytes it has, including its headers.
    ///
    /// # Errors
    /// `code::QUEUE_FULL` if there is no room now; any other code if it cannot be queued at all.
    fn produce(&self, to: To<'_>, copy: Copy<'_, Self::Headers>) -> Result<usize, Error>;
}

impl Output for Producer {
    type Headers = CopyHeaders;

    fn headers(&self, count: usize) -> CopyHeaders {
        self.client.copy_headers(count)
    }

    fn produce(&self, to: To<'_>, copy: Copy<'_, CopyHeaders>) -> Result<usize, Error> {
        let name = match to {
            To::Own(topic, target) => {
                return self.client.produce(self.handle(topic * OWN_TARGETS.len() + target as usize)?, copy)
            }
            To::Other(name) => name,
        };
        let mut others = self.others.borrow_mut();
        if !others.contains_key(name) {
            others.insert(name.to_owned(), self.client.topic(name)?);
        }
        self.client.produce(&others[name], copy)
    }
}

/// Queues copies through one producer or several. All copies to a partition go through the same one, so that they stay in order.
#[derive(Clone, Copy)]
pub struct ProducerPool<'a>(pub(super) &'a [Producer]);

impl<'a> ProducerPool<'a> {
    /// A pool in which all copies go through one producer.
    #[must_use]
    pub fn of_one(producer: &'a Producer) -> Self {
        ProducerPool(std::slice::from_ref(producer))
    }
}

impl Output for ProducerPool<'_> {
    type Headers = CopyHeaders;

    fn headers(&self, count: usize) -> CopyHeaders {
        self.0[0].headers(count)
    }

    fn produce(&self, to: To<'_>, copy: Copy<'_, CopyHeaders>) -> Result<usize, Error> {
        let topic = match to {
            To::Own(topic, target) => topic * OWN_TARGETS.len() + target as usize,
            To::Other(name) => name.bytes().map(usize::from).sum(),
        };
        self.0[pool_index(self.0.len(), topic, copy.partition)].produce(to, copy)
    }
}

/// Returns which producer of a pool of this size a partition belongs to. Brokers often lead every third or fourth partition, so this must
/// not depend on the remainder of the partition's number alone.
fn pool_index(size: usize, topic: usize, partition: i32) -> usize {
    const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    const TOPIC_STEP: u64 = 31;
    let number = (topic as u64).wrapping_mul(TOPIC_STEP).wrapping_add(u64::from(partition.unsigned_abs()));
    // only the upper bits of the product are spread evenly
    let spread = number.wrapping_mul(GOLDEN_RATIO) >> 32;
    ((spread * size as u64) >> 32) as usize
}

impl HeaderSink for CopyHeaders {
    fn header(&mut self, name: &[u8], value: Option<&[u8]>) {
        self.add(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::super::producers::SHARED_BY;
    use super::*;

    #[test]
    fn the_partitions_that_a_broker_leads_are_shared_out_among_the_producers_of_a_pool() {
        for (topic, brokers, broker) in
            (0..9).flat_map(|topic| (1..9).map(move |brokers| (topic, brokers, brokers - 1)))
        {
            let led = (0..24).map(|number| number * brokers + broker);
            let mut partitions = [0; SHARED_BY];
            led.for_each(|partition| partitions[pool_index(SHARED_BY, topic, partition)] += 1);
            assert!(partitions.iter().all(|count| (3..=10).contains(count)), "{brokers} brokers: {partitions:?}");
        }
    }
}
