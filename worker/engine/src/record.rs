//! A record as it was read, and the other input of routing.

use std::num::NonZeroU32;

use crate::dead_letter::Cause;
use crate::layout::Layout;
use crate::place::{Place, SourceTopic};
use crate::reading::{read_delays, read_front, Headers, OwnHeaders};

/// What routing needs of the layout record of a delayed topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Which partition of the delays topic stands for which delay.
    pub layout: Layout,
    /// The number of the last attempt.
    pub retry_cap: u32,
    /// How far ahead of its append time the requested due time of a record may be.
    pub max_delay_seconds: u32,
    /// The number of partitions of the ready topic.
    pub ready_partitions: NonZeroU32,
    /// The topics that `dt-target` may name.
    pub targets: Vec<ReadyTopic>,
    /// How long after its due time a record waits for a missing topic.
    pub outage_budget_seconds: u32,
}

impl Policy {
    /// Returns the index in `targets` of the topic with this name, and the topic.
    pub(crate) fn target(&self, name: &str) -> Option<(usize, &ReadyTopic)> {
        self.targets.iter().enumerate().find(|(_, topic)| topic.name == name)
    }
}

/// A topic that records can request with `dt-target`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyTopic {
    /// The name of the topic.
    pub name: String,
    /// The number of partitions: 0 if the topic is missing, `None` if no one has checked yet.
    pub partitions: Option<u32>,
}

/// The topic that a record was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The front topic.
    Front,
    /// The delays topic.
    Delays {
        /// The delay that the record's partition stands for (`Layout::delay_of`), which never changes.
        delay_seconds: u32,
    },
}

/// A record as it was read. `H` is an iterator over its headers, see `Headers`.
#[derive(Clone, Debug)]
pub struct Record<'a, H> {
    /// The topic that it was read from.
    pub side: Side,
    /// The partition of that topic.
    pub partition: u32,
    /// The offset in that partition.
    pub offset: i64,
    /// The id of that topic, as Kafka prints it.
    pub topic_id: &'a str,
    /// The broker's append time. `None` if the topic has producers' timestamps, which are ignored: the time of the decision counts.
    pub appended_at_ms: Option<i64>,
    /// The key, or `None` for null.
    pub key: Option<&'a [u8]>,
    /// The headers. `None` if they cannot be read; the record then becomes a dead letter without them.
    pub headers: Option<H>,
}

impl<'a, H: Headers<'a>> Record<'a, H> {
    /// Returns the place of the record.
    #[must_use]
    pub fn place(&self) -> Place<'a> {
        let source = match self.side {
            Side::Front => SourceTopic::Front,
            Side::Delays { .. } => SourceTopic::Delays,
        };
        Place { source, partition: self.partition, offset: self.offset, topic_id: self.topic_id }
    }

    /// Reads the headers of this project, and returns them with the place where the attempt was first seen.
    ///
    /// # Errors
    /// The headers cannot be read, or one of them is not accepted.
    pub fn read(&self) -> Result<(OwnHeaders<'a>, Place<'a>), Cause<'a>> {
        let headers = self.headers.clone().ok_or(Cause::HeadersUnreadable)?;
        let own = match self.side {
            Side::Front => read_front(headers),
            Side::Delays { .. } => read_delays(headers),
        };
        let own = own.map_err(Cause::Unreadable)?;
        let root = own.hop.map_or_else(|| self.place(), |hop| hop.root);
        Ok((own, root))
    }
}
