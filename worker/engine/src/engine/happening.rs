//! What somebody has to know or to decide.

use std::sync::Arc;

use super::changes::Changed;
use crate::kafka::{Error, LogLine, Offset};

impl Happening {
    /// A line of the engine's own.
    #[must_use]
    pub fn log(text: String) -> Self {
        Happening::Log(LogLine { level: 4, facility: "ENGINE".to_owned(), text })
    }
}

/// See the module. Partitions are named by their Kafka topic and number.
#[derive(Clone, Debug)]
pub enum Happening {
    /// Partitions are this member's: `Engine::assign` has to be called, with all of them.
    Assigned {
        /// Which.
        partitions: Vec<(String, i32)>,
        /// Of the group.
        generation: i32,
    },
    /// Partitions were given up, all that was sent of them accounted for if it could be; `lost`: to somebody who has them
    /// already.
    Revoked {
        /// Which.
        partitions: Vec<(String, i32)>,
        /// Nothing could be committed.
        lost: bool,
        /// Of each, see `Seen::delayed`.
        delayed: Vec<u64>,
        /// Of each, the copies that were sent and not committed.
        in_flight: Vec<u64>,
    },
    /// A copy was refused for good, and its partition stands still until `Engine::go_on`.
    Refused {
        /// Of what.
        origin: Offset,
        /// The topic that it should go to.
        target: String,
        /// Why.
        error: Error,
    },
    /// What was wanted of a record, in the control topic, has come true, or can't: its copy is acknowledged, and its transaction
    /// committed if it is part of one.
    Changed {
        /// The number of the delayed topic.
        topic: usize,
        /// Of the record.
        id: Box<[u8]>,
        /// What became of it.
        changed: Changed,
    },
    /// The offset that comes next isn't in the partition any more, or Kafka has lost the end of the partition
    /// (`LOG_TRUNCATION`); it stands still.
    Removed {
        /// The partition, and the offset.
        at: Offset,
        /// Of the topic that it was read in, as `Beginning` has it: another one may have its name by now.
        topic_id: Arc<str>,
        /// Why.
        error: Error,
    },
    /// A transaction has failed: where these partitions begin again, Kafka has to be asked, for `Engine::begin`.
    CommitUnknown(Vec<(String, i32)>),
    /// Kafka's client reports something about a partition, or about itself.
    Reported(Error, Option<Offset>),
    /// The consumer can't go on.
    ConsumerFatal(Error),
    /// Kafka's client can't take over the partitions that are its.
    AssignmentFailed(Error),
    /// What the producers had on its way is given up, and sent again by new ones: it may come twice.
    ProducersReplaced,
    /// A client knows no broker any more, and never will again.
    Stranded(&'static str),
    /// Something for the log, of a client or of the engine.
    Log(LogLine),
}
