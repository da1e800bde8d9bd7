//! A record goes from topic to topic: each copy is read again as the worker would read it.

use std::num::NonZeroU32;

use delayed_topics_engine::dead_letter::Cause;
use delayed_topics_engine::layout::Layout;
use delayed_topics_engine::reading::Header;
use delayed_topics_engine::record::{Policy, Record, Side};
use delayed_topics_engine::release::LowerBoundMs;
use delayed_topics_engine::routing::{dead_letter, decide, take_turn, Decision, Outcome, Waiting};
use delayed_topics_engine::writing::{CopyHeaders, Extent};

const T: i64 = 1_790_000_000_000;
const DELAYS: Side = Side::Delays { delay_seconds: 10 };

type Owned = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn policy() -> Policy {
    let layout = Layout::new(&[0, 10, 60], &[1, 4, 16], &[0, 0, 10, 60, 1, 4, 16]).unwrap();
    Policy {
        layout,
        retry_cap: 2,
        max_delay_seconds: 3_600,
        ready_partitions: NonZeroU32::new(4).unwrap(),
        targets: vec![],
        outage_budget_seconds: 600,
    }
}

fn record<'a>(side: Side, headers: &'a [Header<'a>]) -> Record<'a, impl Iterator<Item = Header<'a>> + Clone> {
    let headers = Some(headers.iter().copied());
    Record { side, partition: 2, offset: 17, topic_id: "AbC", appended_at_ms: Some(T), key: None, headers }
}

fn borrowed(headers: &Owned) -> Vec<Header<'_>> {
    headers.iter().map(|(name, value)| (name.as_slice(), value.as_deref())).collect()
}

fn value<'a>(headers: &'a Owned, name: &str) -> &'a str {
    let found = headers.iter().find(|header| header.0 == name.as_bytes()).expect(name);
    std::str::from_utf8(found.1.as_ref().unwrap()).unwrap()
}

#[test]
fn a_retry_hops_and_is_released_when_it_is_due_and_not_before() {
    let sent: Vec<Header<'_>> = vec![(b"\xff", None), (b"dt-attempt", Some(b"1")), (b"\xff", Some(b"2"))];
    let front = record(Side::Front, &sent);
    let Decision::Hop(hop) = decide(&front, &policy(), LowerBoundMs(T + 3), LowerBoundMs(T + 3)) else {
        panic!("it has 10 s to wait")
    };
    assert_eq!((hop.partition, hop.due_at_ms), (2, T + 10_000));

    let mut written = Owned::new();
    CopyHeaders::default().hop(sent.iter().copied(), front.place(), &hop, &mut written);
    assert_eq!(written[..2], [(b"\xff".to_vec(), None), (b"\xff".to_vec(), Some(b"2".to_vec()))]);
    let names = ["dt-id", "dt-attempt", "dt-root", "dt-origin", "dt-due-at", "dt-hops"];
    let values = names.map(|name| value(&written, name));
    assert_eq!(values, ["f:2:17:AbC", "1", "f:2:17:AbC", "f:2:17", "1790000010000", "1"]);

    let read = borrowed(&written);
    let hopped = record(DELAYS, &read);
    let Decision::Wait(wait) = decide(&hopped, &policy(), LowerBoundMs(T), LowerBoundMs(T)) else { panic!("it waits") };
    let waiting = Waiting { due_at_ms: T + 10_000, turn_at_ms: T + 10_000, misrouted: false };
    assert_eq!(wait.waiting, waiting);
    assert_eq!(take_turn(&hopped, waiting, &policy(), LowerBoundMs(T + 9_999)), Outcome::Hold(waiting));
    let Outcome::Release(release) = take_turn(&hopped, waiting, &policy(), LowerBoundMs(T + 10_001)) else {
        panic!("due")
    };

    let mut released = Owned::new();
    CopyHeaders::default().release(read.iter().copied(), hopped.place(), &release, &mut released);
    assert_eq!(released[..2], written[..2]);
    let names = ["dt-id", "dt-attempt", "dt-root", "dt-origin", "dt-due-at", "dt-released", "dt-hops"];
    let values = names.map(|name| value(&released, name));
    assert_eq!(values, ["f:2:17:AbC", "1", "f:2:17:AbC", "d:2:17", "1790000010000", "1:1790000010001", "1"]);
}

#[test]
fn one_that_is_not_due_when_its_partition_is_served_hops_on() {
    let far = (T + 70_000).to_string();
    let hop: Vec<Header<'_>> = vec![
        (b"dt-root", Some(b"f:1:5:AbC")),
        (b"dt-origin", Some(b"f:1:5")),
        (b"dt-due-at", Some(far.as_bytes())),
        (b"dt-hops", Some(b"1")),
    ];
    let hopped = record(DELAYS, &hop);
    let Decision::Wait(wait) = decide(&hopped, &policy(), LowerBoundMs(T), LowerBoundMs(T)) else { panic!("it waits") };
    assert_eq!(wait.waiting.turn_at_ms, T + 10_000);
    let Outcome::Hop(on) = take_turn(&hopped, wait.waiting, &policy(), LowerBoundMs(T + 10_000)) else {
        panic!("60 s left")
    };
    assert_eq!((on.partition, on.due_at_ms, on.root.partition), (3, T + 70_000, 1));
}

#[test]
fn a_copy_that_is_too_large_gets_smaller_until_nothing_is_left_to_leave_out() {
    let headers: Vec<Header<'_>> = vec![(b"trace", Some(b"1")), (b"dt-id", Some(b"order-7"))];
    let front = record(Side::Front, &headers);
    let dead = dead_letter(&front, None, Cause::TooLarge(1_048_576));
    let mut written = Owned::new();
    CopyHeaders::default().dead_letter([].into_iter(), front.place(), &dead, &mut written);
    assert_eq!(value(&written, "dt-id"), "order-7");
    assert_eq!(value(&written, "dt-reason"), "TooLarge");
    assert_eq!(value(&written, "dt-error"), "the copy of 1048576 bytes was refused as too large");
    let extents: Vec<Extent> = std::iter::successors(Some(Extent::Whole), |extent| extent.smaller()).collect();
    assert_eq!(extents, [Extent::Whole, Extent::WithoutValue, Extent::OwnHeaders]);
}

#[test]
fn a_producers_clock_decides_nothing_and_a_name_that_cannot_be_read_is_a_dead_letter() {
    let headers: Vec<Header<'_>> = vec![];
    let producers = Record { appended_at_ms: None, ..record(DELAYS, &headers) };
    let Decision::Wait(wait) = decide(&producers, &policy(), LowerBoundMs(T + 5), LowerBoundMs(T + 5)) else {
        panic!("it waits")
    };
    assert_eq!((wait.waiting.due_at_ms, wait.waiting.misrouted), (T + 10_005, true));

    let unreadable = Record { headers: None, ..record(DELAYS, &headers) };
    let Decision::DeadLetter(dead) = decide(&unreadable, &policy(), LowerBoundMs(T), LowerBoundMs(T)) else {
        panic!("it can't be read")
    };
    assert_eq!(dead.cause.reason(), "HeaderUnreadable");
    assert_eq!(dead.partition(NonZeroU32::new(2).unwrap()), 0);
}
