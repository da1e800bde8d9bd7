//! What the engine reports to Python: events to know of, and decisions to make.

use std::sync::Arc;

use super::changes::Changed;
use crate::kafka::{Error, LogLine, Offset};

impl EngineEvent {
    /// A log line of the engine itself, with the level of a warning.
    #[must_use]
    pub fn log(text: String) -> Self {
        EngineEvent::Log(LogLine { level: 4, facility: "ENGINE".to_owned(), text })
    }
}

/// What the engine reports. Partitions are identified by Kafka topic and number.
#[derive(Clone, Debug)]
pub enum EngineEvent {
    /// The group assigned partitions to this member: `Engine::assign` has to be called with all of them.
    Assigned {
        /// The assigned partitions.
        partitions: Vec<(String, i32)>,
        /// The generation of the group; with the newer protocol, the epoch of the member.
        generation: i32,
    },
    /// Partitions were given up. Unless they were lost, the engine waited until their copies were acknowledged and committed, or for
    /// as long as it may.
    Revoked {
        /// The partitions that were given up.
        partitions: Vec<(String, i32)>,
        /// Whether nothing could be committed: another member may already have the partitions.
        lost: bool,
        /// `Seen::delayed` of each partition.
        delayed: Vec<u64>,
        /// For each partition, how many copies were sent and not committed.
        in_flight: Vec<u64>,
    },
    /// A copy was refused permanently, and its partition stands still until `Engine::go_on`.
    Refused {
        /// The record that was copied.
        origin: Offset,
        /// The topic that the copy should go to.
        target: String,
        /// The reason.
        error: Error,
    },
    /// A request of the control topic took effect for a record, or came too late for that. The copy of the record is acknowledged, and
    /// its transaction is committed if it is part of one.
    Changed {
        /// The number of the delayed topic.
        topic: usize,
        /// The id of the record.
        id: Box<[u8]>,
        /// What the request did.
        changed: Changed,
    },
    /// The next offset is no longer in the partition, or Kafka lost the end of the partition (`LOG_TRUNCATION`). The partition stands
    /// still.
    Removed {
        /// The partition and the offset.
        at: Offset,
        /// The ID of the topic that was read, from `Beginning`. Another topic may have its name by now.
        topic_id: Arc<str>,
        /// The reason.
        error: Error,
    },
    /// A transaction failed: before `Engine::begin`, Kafka has to be asked what is committed of these partitions.
    CommitUnknown(Vec<(String, i32)>),
    /// Kafka's client reports an error of a partition, or of its own.
    Reported(Error, Option<Offset>),
    /// A client failed permanently: the consumer, or the producer of transactions.
    Fatal(Error),
    /// Kafka's client cannot take over partitions that were assigned, give them up, or read them again.
    AssignmentFailed(Error),
    /// The copies in flight were given up, and new producers send them again. Their records may come out twice.
    ProducersReplaced,
    /// A client knows no broker any more, and does not recover.
    Stranded(&'static str),
    /// A log line of a client or of the engine.
    Log(LogLine),
}
