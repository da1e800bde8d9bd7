//! A record as it was read, and what routing needs to know besides it.

use std::num::NonZeroU32;

use crate::dead_letter::Cause;
use crate::layout::Layout;
use crate::place::{Place, SourceTopic};
use crate::reading::{read_delays, read_front, Headers, OwnHeaders};

/// What routing needs of a layout record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The table.
    pub layout: Layout,
    /// The last attempt that is made.
    pub retry_cap: u32,
    /// How far ahead of its append time a record may ask to be due.
    pub max_delay_seconds: u32,
    /// Partitions of the ready topic.
    pub ready_partitions: NonZeroU32,
    /// What `dt-target` may name.
    pub targets: Vec<ReadyTopic>,
    /// For so long after its due time a record waits for a topic that is missing.
    pub outage_budget_seconds: u32,
}

impl Policy {
    /// The topic that `dt-target` may name, and its place among them.
    pub(crate) fn target(&self, name: &str) -> Option<(usize, &ReadyTopic)> {
        self.targets.iter().enumerate().find(|(_, topic)| topic.name == name)
    }
}

/// A topic that records are released into if they ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyTopic {
    /// Its name.
    pub name: String,
    /// 0: it is missing. `None`: nobody has looked yet.
    pub partitions: Option<u32>,
}

/// The kind of partition that a record was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// One of the front topic.
    Front,
    /// One of the delays topic.
    Delays {
        /// The delay that the partition stands for (`Layout::delay_of`), which never changes.
        delay_seconds: u32,
    },
}

/// A record as it was read. `H`: an iterator over its headers, see `Headers`.
#[derive(Clone, Debug)]
pub struct Record<'a, H> {
    /// Where from.
    pub side: Side,
    /// Of that topic.
    pub partition: u32,
    /// In that partition.
    pub offset: i64,
    /// Of that topic, as Kafka prints it.
    pub topic_id: &'a str,
    /// The broker's append time. `None`: the topic has producers' times, which decide nothing; the time of reading counts.
    pub appended_at_ms: Option<i64>,
    /// Its key, or null.
    pub key: Option<&'a [u8]>,
    /// `None`: they can't be read, and the record becomes a dead letter without them.
    pub headers: Option<H>,
}

impl<'a, H: Headers<'a>> Record<'a, H> {
    /// Where it stands.
    #[must_use]
    pub fn place(&self) -> Place<'a> {
        let source = match self.side {
            Side::Front => SourceTopic::Front,
            Side::Delays { .. } => SourceTopic::Delays,
        };
        Place { source, partition: self.partition, offset: self.offset, topic_id: self.topic_id }
    }

    /// What its headers say, and where it was first seen.
    ///
    /// # Errors
    /// They can't be read, or not be honoured.
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
