//! Decodes any metadata of a commit. If this succeeds, the offsets are encoded again, and those that fit decode to the same.

#![no_main]

use delayed_topics_engine::metadata::{decode, topic_id, MetadataEncoder, MAX_METADATA_CHARS};
use delayed_topics_engine::window::Window;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|given: (u32, &str)| {
    let (committed, metadata) = given;
    let committed = i64::from(committed);
    let Ok(finished) = decode(committed, metadata) else { return };
    let finished: Vec<i64> = finished.collect();
    assert!(finished.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(finished.first().is_none_or(|first| *first > committed));
    let of_topic = topic_id(metadata).unwrap_or("");
    if of_topic.len() > 100 {
        return; // Kafka's topic ids have 22 characters
    }
    let point = Window::new(committed, finished.iter().copied()).commit_point(&mut MetadataEncoder::default(), of_topic);
    assert!(point.metadata.len() <= MAX_METADATA_CHARS);
    let again: Vec<i64> = decode(committed, &point.metadata).expect("our own").collect();
    assert_eq!(again, finished[..again.len()]);
});
