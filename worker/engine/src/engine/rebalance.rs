//! Takes over and gives up partitions, joins and leaves the group. No call waits: turns settle what has to be settled before.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::beginning::Beginning;
use super::ending::end;
use super::engine_event::EngineEvent;
use super::partition::{Partition, Pause};
use super::state::{State, Step};
use super::{boot_ns, Engine, METADATA_TIMEOUT_MS};
use crate::kafka::{code, Client, Error, Offset};

/// How long revoked partitions may wait until their copies are acknowledged and committed. After that, they are given up anyway.
const REVOKE_NS: i64 = 4_000_000_000;

/// The same before the worker leaves the group. With a cooperative assignor, a member that joins again keeps its partitions, but Kafka
/// answers its commits only when all members have joined, and waits up to 10 s for the session of a member that has ended.
const LEAVE_NS: i64 = 14_000_000_000;
/// How long the engine waits for a client to end. A client ends at once, unless it waits for Kafka.
const END: Duration = Duration::from_secs(1);

/// Partitions that have to be given up.
pub struct Revoking {
    deadline_ns: i64,
    partitions: Vec<Offset>,
}

impl Revoking {
    fn has_timed_out(&self) -> bool {
        boot_ns() >= self.deadline_ns
    }
}

/// A new subscription, which takes effect when the copies of these partitions are settled, and the client knows how many partitions
/// the topics have.
pub struct Subscribing {
    topics: Vec<String>,
    settling: Revoking,
    counts_known: Arc<AtomicBool>,
}

/// How far the worker has come in leaving the group.
pub enum Leaving {
    /// The copies in flight are settled first.
    Settling { settling: Revoking, for_good: bool },
    /// The client unsubscribes, which makes Kafka remove a static member at once. It is closed when it is no longer a member.
    Unsubscribing,
    /// The client closes.
    Closing,
}

impl Engine {
    pub(super) fn assigned(&mut self, partitions: &[Offset]) {
        // If the client sees that a topic has grown while partitions have to be given up, it joins again without waiting for that
        // (2.16, `rd_kafka_cgrp_revoke_all_rejoin`). If the old partitions were given up later, the new ones would go with them.
        self.give_up_revoked();
        for place in partitions {
            let Some(topic) = self.by_topic.get(&place.topic).copied() else { continue };
            self.identities += 1;
            let partition = Partition::new(self.identities, topic, place.topic.clone(), place.partition);
            self.slots.add(partition);
        }
        self.resubscribe_after_assignment();
        let generation = self.consumer.as_ref().map_or(-1, |consumer| consumer.membership().generation());
        self.events.push(EngineEvent::Assigned { partitions: names(partitions), generation });
    }

    /// Takes over the partitions that `EngineEvent::Assigned` reported, at these offsets. An offset below 0 means that none is known.
    /// Nothing is read before `begin`.
    pub fn assign(&mut self, partitions: &[Offset]) {
        let Some(consumer) = &self.consumer else { return };
        // Never at a logical offset: the client would ask Kafka for it, and if the partition were placed before the answer came,
        // would ask again and read on from there (2.16). The engine ignores records that the client reads from 0.
        let places: Vec<Offset> = partitions.iter().map(|p| Offset { offset: p.offset.max(0), ..p.clone() }).collect();
        let taken = if consumer.is_eager() { consumer.assign(Some(&places)) } else { consumer.assign_more(&places) };
        if let Err(error) = taken {
            self.events.push(EngineEvent::AssignmentFailed(error));
            return;
        }
        consumer.pause(&places);
        for place in partitions {
            if let Some(partition) = self.find(&place.topic, place.partition) {
                partition.step(Step::Take);
                partition.placed_at = (place.offset >= 0).then_some(place.offset);
                partition.paused = Some(Pause::NotServed);
            }
        }
        self.fetch_at_once();
    }

    /// Has the client fetch at once when it has ended the pause of a cooperative rebalance. Does nothing while the worker leaves the
    /// group, because a client that closes may have ended already.
    fn fetch_at_once(&self) {
        let served: Vec<Offset> = self.slots.iter().map(|(_, partition)| partition.offset(0)).collect();
        if let (Some(consumer), None, false) = (&self.consumer, &self.leaving, served.is_empty()) {
            consumer.fetch_at_once(&served);
        }
    }

    /// Begins to serve a partition that was assigned and taken over. Does nothing if it may not begin in its state.
    pub fn begin(&mut self, at: Beginning) {
        let Some(slot) = self.slots.find(&at.topic, at.partition) else { return };
        let now_ms = self.clock.estimate_ms();
        let Some(partition) = self.slots.get_mut(slot) else { return };
        if !partition.begin(at) {
            return;
        }
        if let Some(now_ms) = now_ms {
            partition.delayed.serve_from(now_ms);
        }
        if partition.placed_at == Some(partition.window.position()) {
            partition.step(Step::Place);
            partition.placed_at_ns = boot_ns();
        } else {
            self.place(slot);
        }
    }

    /// Stops a partition. Nothing more is sent from it, and it stands still when its copies in flight are acknowledged or refused.
    pub fn stop(&mut self, topic: &str, partition: i32) {
        self.step(topic, partition, Step::Stop);
    }

    /// Serves a stopped partition again.
    pub fn go_on(&mut self, topic: &str, partition: i32) {
        self.step(topic, partition, Step::GoOn);
    }

    /// Discards the window of a partition whose topic was created again, or of which only Kafka knows what is committed. The partition
    /// waits for another `begin`, and copies that are in flight finish no offset of its new window. If it has copies in the current
    /// transaction, that is rolled back, and `EngineEvent::CommitUnknown` reports when the committed offset can be requested.
    pub fn forget(&mut self, topic: &str, partition: i32) {
        let found = self.slots.find(topic, partition);
        if found.is_some_and(|slot| self.transactions.as_ref().is_some_and(|t| t.touches(slot))) {
            // otherwise its copies would become visible without the commit of the offsets that they finish
            self.roll_back(&Error::local(code::PURGE_QUEUE, "a partition has to be looked at again"));
        }
        let former = self.slots.find(topic, partition).and_then(|slot| self.slots.get(slot));
        let Some(former) = former.filter(|p| p.in_flight() > 0 && !p.state.leaves()) else {
            return self.step(topic, partition, Step::Forget);
        };
        let (of, paused, delayed) = (former.topic, former.paused, former.delayed);
        self.identities += 1;
        let again = Partition::new(self.identities, of, topic.to_owned(), partition);
        self.slots.add(Partition { state: State::Unplaced, delayed, paused, ..again });
    }

    fn step(&mut self, topic: &str, number: i32, step: Step) {
        let Some(slot) = self.slots.find(topic, number) else { return };
        if let Some(partition) = self.slots.get_mut(slot) {
            partition.step(step);
            self.settling.push(slot);
        }
    }

    fn find(&mut self, topic: &str, partition: i32) -> Option<&mut Partition> {
        let slot = self.slots.find(topic, partition)?;
        self.slots.get_mut(slot)
    }

    pub(super) fn revoked(&mut self, partitions: &[Offset]) {
        if self.consumer.as_ref().is_some_and(|consumer| consumer.has_lost_assignment()) {
            self.revoking = None;
            let in_flight = self.slots.uncommitted(partitions);
            self.give_up(partitions, true, in_flight);
            return;
        }
        self.give_up_revoked();
        let mut revoking = self.begin_revoking(partitions.to_vec());
        if matches!(self.leaving, Some(Leaving::Unsubscribing | Leaving::Closing)) {
            revoking.deadline_ns = 0; // `leave` has already waited for their copies
        }
        self.revoking = Some(revoking);
    }

    /// Stops sending from these partitions, so that their copies can be acknowledged and committed.
    fn begin_revoking(&mut self, partitions: Vec<Offset>) -> Revoking {
        for place in &partitions {
            self.step(&place.topic, place.partition, Step::Revoke);
        }
        Revoking { deadline_ns: boot_ns() + REVOKE_NS, partitions }
    }

    /// Gives up revoked partitions when they are settled and committed, or when that takes too long.
    pub(super) fn revoke(&mut self) {
        let Some(revoking) = &self.revoking else { return };
        if self.is_settled_or_timed_out(revoking) {
            self.give_up_revoked();
        }
    }

    /// Changes the subscription when copies in flight are settled. If the protocol revokes all partitions for a new subscription, the
    /// client joins again without waiting for them to be given up (2.16, `rd_kafka_cgrp_subscribe`), and copies that are in flight
    /// would come out twice.
    ///
    /// `grown` are topics that have more partitions than the client knows. By itself, the client of each member would see that at some
    /// time within five minutes and join again. It would not wait either if partitions had to be given up at that moment
    /// (`rd_kafka_cgrp_revoke_all_rejoin`).
    pub(super) fn settle_and_subscribe(&mut self, topics: &[String], grown: &[String]) {
        let Some(consumer) = &self.consumer else { return };
        let counts_known = self.refresh_partition_counts(Arc::clone(consumer), grown);
        let is_eager = consumer.is_eager();
        let all = self.slots.iter().filter(|_| is_eager);
        let partitions = all.map(|(_, partition)| partition.offset(0)).collect();
        let settling = self.begin_revoking(partitions);
        self.subscribing = Some(Subscribing { topics: topics.to_vec(), settling, counts_known });
    }

    /// Has the client request the metadata of topics, in a thread of its own. The result becomes true when Kafka has answered for all
    /// topics, or has not answered in time.
    fn refresh_partition_counts(&self, consumer: Arc<Client>, topics: &[String]) -> Arc<AtomicBool> {
        let counts_known = Arc::new(AtomicBool::new(topics.is_empty()));
        if let (false, Ok(wake)) = (topics.is_empty(), self.wake.try_clone()) {
            let (done, topics) = (Arc::clone(&counts_known), topics.to_vec());
            thread::spawn(move || {
                for topic in topics {
                    let _ = consumer.look_at_topic(&topic, METADATA_TIMEOUT_MS);
                    // if this fails, the client sees it by itself later
                }
                done.store(true, Ordering::Release);
                let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
            });
        }
        counts_known
    }

    /// Makes the new subscription when all is settled and known, or when that takes too long. It waits while partitions are given up,
    /// because the client would then subscribe only after other partitions have been assigned.
    pub(super) fn subscribe_settled(&mut self) {
        let Some(Subscribing { settling, counts_known, .. }) = &self.subscribing else { return };
        let is_gone = |place: &Offset| self.slots.find(&place.topic, place.partition).is_none();
        if self.revoking.is_some() || settling.partitions.iter().any(is_gone) {
            return;
        }
        let is_known = counts_known.load(Ordering::Acquire) || settling.has_timed_out();
        if !is_known || !self.is_settled_or_timed_out(settling) {
            return;
        }
        let (Some(subscribing), Some(consumer)) = (self.subscribing.take(), &self.consumer) else { return };
        if let Err(error) = consumer.subscribe(&subscribing.topics) {
            self.events.push(EngineEvent::Reported(error, None));
        }
        self.subscribed = subscribing.topics;
    }

    /// Starts a pending subscription again because partitions were assigned in the meantime. If topics have only grown, it is done: the
    /// assignor has requested the number of their partitions from Kafka.
    fn resubscribe_after_assignment(&mut self) {
        if !self.consumer.as_ref().is_some_and(|consumer| consumer.is_eager()) {
            return;
        }
        if let Some(Subscribing { topics, .. }) = self.subscribing.take() {
            if topics != self.subscribed {
                self.settle_and_subscribe(&topics, &[]);
            }
        }
    }

    /// Whether the copies of the partitions are settled, or that takes too long.
    fn is_settled_or_timed_out(&self, settling: &Revoking) -> bool {
        settling.has_timed_out() || self.are_settled(&settling.partitions)
    }

    /// Whether all copies of these partitions are acknowledged and committed.
    fn are_settled(&self, partitions: &[Offset]) -> bool {
        partitions.iter().all(|place| match self.slots.find(&place.topic, place.partition) {
            Some(slot) => {
                self.slots.get(slot).is_some_and(|partition| partition.state == State::Leaving)
                    && self.is_committed(slot)
            }
            None => true,
        })
    }

    /// Gives up the revoked partitions, if there are any, whether they are settled or not.
    fn give_up_revoked(&mut self) {
        let Some(Revoking { partitions, .. }) = self.revoking.take() else { return };
        let in_flight = self.slots.uncommitted(&partitions);
        // copies in flight must not arrive after another worker has sent their records again
        let open = |place: &Offset| {
            let slot = self.slots.find(&place.topic, place.partition);
            slot.and_then(|slot| self.slots.get(slot)).is_some_and(|partition| partition.in_flight() > 0)
        };
        if partitions.iter().any(open) {
            self.replace_producers();
        }
        if !self.are_settled(&partitions) {
            let text =
                "the worker gives up revoked partitions before all of their copies are acknowledged and committed";
            self.events.push(EngineEvent::log(text.to_owned()));
        }
        self.give_up(&partitions, false, in_flight);
    }

    /// Gives up partitions. `in_flight` is the number of uncommitted copies of each, from before their producers were replaced.
    fn give_up(&mut self, partitions: &[Offset], lost: bool, in_flight: Vec<u64>) {
        let undecided = |place: &Offset| {
            let slot = self.slots.find(&place.topic, place.partition);
            slot.is_some_and(|slot| self.transactions.as_ref().is_some_and(|transactions| transactions.touches(slot)))
        };
        if partitions.iter().any(undecided) {
            self.replace_producers();
        }
        self.forget_given_up(partitions, lost, in_flight);
        if let Some(consumer) = &self.consumer {
            let done: Result<(), Error> =
                if consumer.is_eager() { consumer.assign(None) } else { consumer.unassign(partitions) };
            if let Err(error) = done {
                // the client would wait for this call for ever, and hold up the whole group
                self.events.push(EngineEvent::AssignmentFailed(error));
            }
        }
        self.fetch_at_once();
    }

    fn forget_given_up(&mut self, partitions: &[Offset], lost: bool, in_flight: Vec<u64>) {
        let mut take = |place: &Offset| self.slots.remove(self.slots.find(&place.topic, place.partition)?);
        let delayed = partitions.iter().map(|place| take(place).map_or(0, |gone| gone.delayed.released)).collect();
        self.events.push(EngineEvent::Revoked { partitions: names(partitions), lost, delayed, in_flight });
    }

    /// Gives up the consumer at once, and reports all partitions as lost.
    pub fn leave_at_once(&mut self) {
        let partitions: Vec<Offset> = self.slots.iter().map(|(_, partition)| partition.offset(0)).collect();
        let in_flight = self.slots.uncommitted(&partitions);
        self.replace_producers();
        self.forget_given_up(&partitions, true, in_flight);
        self.revoking = None;
        self.subscribing = None;
        self.leaving = None;
        self.commits.forget_client();
        if let Some(consumer) = self.consumer.take() {
            let _ = end(consumer).recv_timeout(END); // a client that takes longer ends in its own thread
        }
    }

    /// Begins to leave the group gracefully. The next turns do it, and `is_left` says when it is done. A static member keeps its
    /// partitions until its session ends, unless it leaves `for_good`.
    ///
    /// A client that is closed while partitions have to be given up does not wait for that (2.16, `rd_kafka_cgrp_unsubscribe`), and it
    /// may not have reported yet that they have to be. All copies are therefore settled before the client is closed.
    pub fn leave(&mut self, for_good: bool) {
        self.subscribing = None;
        let partitions = self.slots.iter().map(|(_, partition)| partition.offset(0)).collect();
        let mut settling = self.begin_revoking(partitions);
        settling.deadline_ns = boot_ns() + LEAVE_NS;
        self.leaving = Some(Leaving::Settling { settling, for_good });
    }

    /// Leaves the group when all copies are settled, or when that takes too long.
    pub(super) fn leave_settled(&mut self) {
        let Some(consumer) = &self.consumer else { return };
        match &self.leaving {
            None | Some(Leaving::Closing) => {}
            Some(Leaving::Settling { settling, for_good }) => {
                if self.revoking.is_some() || !self.is_settled_or_timed_out(settling) {
                    return;
                }
                // A client that closes does not report to Kafka that a static member leaves; one that unsubscribes does.
                let unsubscribes = *for_good && consumer.subscribe(&[]).is_ok();
                if !unsubscribes {
                    consumer.close();
                }
                self.leaving = Some(if unsubscribes { Leaving::Unsubscribing } else { Leaving::Closing });
            }
            Some(Leaving::Unsubscribing) if consumer.membership().is_member() => {}
            Some(Leaving::Unsubscribing) => {
                consumer.close();
                self.leaving = Some(Leaving::Closing);
            }
        }
    }

    /// Whether the worker has left the group.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.consumer.as_ref().map_or(true, |consumer| consumer.is_closed())
    }
}

fn names(partitions: &[Offset]) -> Vec<(String, i32)> {
    partitions.iter().map(|place| (place.topic.clone(), place.partition)).collect()
}
