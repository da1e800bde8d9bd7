//! What to commit for partitions, divided into commits that are small enough for Kafka.

use super::partition::Partition;
use super::slots::Slots;
use crate::kafka::Offset;
use crate::metadata::MetadataEncoder;

/// Kafka writes a commit into `__consumer_offsets` as one batch, and refuses the whole commit if the batch is larger than the
/// `max.message.bytes` of that topic, 1 MiB.
pub const MAX_COMMIT_BYTES: usize = 512 << 10;
/// The size of an offset in that batch, besides the topic's name and the metadata: the group's name of up to 249 bytes, and numbers.
const OFFSET_RECORD_BYTES: usize = 350;

/// Returns what to commit for a partition, and its size in Kafka's batch. The partition is not dirty any more.
pub fn commit_point(partition: &mut Partition, encoder: &mut MetadataEncoder) -> (Offset, usize) {
    let point = partition.window.commit_point(encoder, &partition.topic_id);
    let size = OFFSET_RECORD_BYTES + partition.name.len() + point.metadata.len();
    partition.dirty = false;
    (Offset { metadata: point.metadata, ..partition.offset(point.offset) }, size)
}

/// Returns what to commit for the partitions, divided into commits that are small enough for Kafka.
pub fn in_commits(slots: &mut Slots, chosen: &[usize], encoder: &mut MetadataEncoder) -> Vec<Vec<Offset>> {
    let mut commits: Vec<Vec<Offset>> = Vec::new();
    let mut room = 0;
    for slot in chosen {
        let Some(partition) = slots.get_mut(*slot).filter(|partition| partition.may_commit()) else { continue };
        let (point, size) = commit_point(partition, encoder);
        if size > room {
            commits.push(Vec::new());
            room = MAX_COMMIT_BYTES;
        }
        room = room.saturating_sub(size);
        if let Some(commit) = commits.last_mut() {
            commit.push(point);
        }
    }
    commits
}
