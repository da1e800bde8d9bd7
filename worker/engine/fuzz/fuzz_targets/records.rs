//! Takes any record, layout and time through the decisions: no copy goes to the ready topic before its due time, foreign headers are
//! unchanged, and nothing panics.

#![no_main]

use std::num::NonZeroU32;

use arbitrary::Arbitrary;
use delayed_topics_engine::dead_letter::Cause;
use delayed_topics_engine::layout::Layout;
use delayed_topics_engine::own::Own;
use delayed_topics_engine::reading::Header;
use delayed_topics_engine::record::{Policy, ReadyTopic, Record, Side};
use delayed_topics_engine::release::LowerBoundMs;
use delayed_topics_engine::routing::{dead_letter, decide, take_turn, Decision, Outcome};
use delayed_topics_engine::writing::{CopyHeaders, HeaderSink};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Any<'a> {
    /// The delay of the record's partition of the delays topic, or `None` for a record of the front topic.
    delay_seconds: Option<u16>,
    partition: u16,
    offset: u32,
    appended_at_ms: Option<u32>,
    key: Option<&'a [u8]>,
    headers: Option<Vec<NameAndValue<'a>>>,
    delays: Vec<u16>,
    retry_cap: u32,
    ready_partitions: NonZeroU32,
    now_ms: u32,
    read_at_ms: u32,
    later_ms: u32,
}

type NameAndValue<'a> = (Name<'a>, Option<&'a [u8]>);

#[derive(Arbitrary, Debug)]
enum Name<'a> {
    Own(u8),
    Any(&'a [u8]),
}

impl<'a> Name<'a> {
    fn bytes(&self) -> &'a [u8] {
        const OWN: [Own; 17] = [
            Own::Id,
            Own::Attempt,
            Own::Group,
            Own::DeliverAt,
            Own::DelayLevel,
            Own::Target,
            Own::Generation,
            Own::CreatedAt,
            Own::DoneAt,
            Own::Error,
            Own::Root,
            Own::Origin,
            Own::DueAt,
            Own::Released,
            Own::Hops,
            Own::Reason,
            Own::AppendedAt,
        ];
        match self {
            Name::Own(number) => OWN[usize::from(*number) % OWN.len()].name().as_bytes(),
            Name::Any(name) => name,
        }
    }
}

/// Checks that the foreign headers of a copy are those of the record, in the same order.
struct Copied<'a> {
    foreign: std::vec::IntoIter<Header<'a>>,
}

impl HeaderSink for Copied<'_> {
    fn header(&mut self, name: &[u8], value: Option<&[u8]>) {
        if Own::of(name).is_none() {
            assert_eq!(self.foreign.next(), Some((name, value)));
        }
    }
}

fuzz_target!(|any: Any<'_>| {
    let delays: Vec<u32> = any.delays.iter().map(|delay| u32::from(*delay)).collect();
    let Ok(layout) = Layout::new(&delays, &delays[..delays.len() / 2], &delays) else { return };
    let policy = Policy {
        layout,
        retry_cap: any.retry_cap,
        max_delay_seconds: any.retry_cap,
        ready_partitions: any.ready_partitions,
        targets: ["a", "b"]
            .iter()
            .map(|name| ReadyTopic { name: (*name).to_owned(), partitions: (any.retry_cap % 4).checked_sub(1) })
            .collect(),
        outage_budget_seconds: any.retry_cap,
    };
    let headers: Option<Vec<Header<'_>>> =
        any.headers.as_ref().map(|all| all.iter().map(|(name, value)| (name.bytes(), *value)).collect());
    let each: Vec<Header<'_>> = headers.clone().unwrap_or_default();
    let side = match any.delay_seconds {
        None => Side::Front,
        Some(delay) => Side::Delays { delay_seconds: u32::from(delay) },
    };
    let record = Record {
        side,
        partition: u32::from(any.partition),
        offset: i64::from(any.offset),
        topic_id: "uT1eKVuTQ2--Rhh9b73dqg",
        appended_at_ms: any.appended_at_ms.map(i64::from),
        key: any.key,
        headers: headers.as_ref().map(|all| all.iter().copied()),
    };
    let foreign: Vec<Header<'_>> = each.iter().copied().filter(|(name, _)| Own::of(name).is_none()).collect();
    let copied = || Copied { foreign: foreign.clone().into_iter() };
    let (now, later) = (LowerBoundMs(i64::from(any.now_ms)), LowerBoundMs(i64::from(any.later_ms)));
    let mut copies = CopyHeaders::default();
    let place = record.place();
    // its ready topic may be unknown or missing, so that it waits, or becomes a dead letter, although it is due
    let asks_target = each.iter().any(|(name, _)| Own::of(name) == Some(Own::Target));
    match decide(&record, &policy, now, LowerBoundMs(i64::from(any.read_at_ms))) {
        Decision::Wait(wait) => {
            let due_at_ms = wait.waiting.due_at_ms;
            match take_turn(&record, wait.waiting, &policy, later) {
                Outcome::Release(release) => {
                    assert!(due_at_ms <= later.0, "released {} ms early", due_at_ms - later.0);
                    let mut sink = copied();
                    copies.release(each.iter().copied(), place, &release, &mut sink);
                    assert!(sink.foreign.next().is_none());
                }
                Outcome::Hop(hop) => {
                    assert!(due_at_ms > later.0 || asks_target);
                    copies.hop(each.iter().copied(), place, &hop, &mut copied());
                }
                Outcome::Hold(_) => assert!(due_at_ms > later.0 || asks_target),
                Outcome::DeadLetter(dead) => assert!(asks_target, "what was read once is unreadable: {dead:?}"),
            }
        }
        Decision::Hop(hop) => copies.hop(each.iter().copied(), place, &hop, &mut copied()),
        Decision::DeadLetter(dead) => copies.dead_letter(each.iter().copied(), place, &dead, &mut copied()),
    }
    let dead = dead_letter(&record, None, Cause::TooLarge(7));
    copies.dead_letter(each.iter().copied(), place, &dead, &mut copied());
});
