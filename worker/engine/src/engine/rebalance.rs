//! Partitions come and go. Nothing here waits: what has to be settled before a partition goes is settled by the turns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::beginning::Beginning;
use super::ending::end;
use super::happening::Happening;
use super::partition::{Partition, Pause};
use super::state::{State, Step};
use super::{boot_ns, Engine, LOOK_MS};
use crate::kafka::{code, Client, Error, Offset};

/// For copies to be acknowledged and offsets committed, before partitions are given up all the same.
const REVOKE_NS: i64 = 4_000_000_000;

/// The same before the group is left. A member that has joined again keeps what it has with a cooperative assignor, but Kafka
/// answers no commit of it before all have joined, and waits for the session of one that has ended (10 s).
const LEAVE_NS: i64 = 14_000_000_000;
/// For a client to end that has been given up, as it does at once unless it waits for Kafka.
const END: Duration = Duration::from_secs(1);

/// Partitions that are to be given up.
pub struct Revoking {
    deadline_ns: i64,
    partitions: Vec<Offset>,
}

impl Revoking {
    fn is_too_long(&self) -> bool {
        boot_ns() >= self.deadline_ns
    }
}

/// Topics that are to be read instead of those before, once all that was sent of these partitions is settled, and the client
/// knows how many partitions the topics have.
pub struct Subscribing {
    topics: Vec<String>,
    settling: Revoking,
    known: Arc<AtomicBool>,
}

/// How far a group is left.
pub enum Leaving {
    /// What was sent is settled first.
    Settling { settling: Revoking, for_good: bool },
    /// Kafka is told, and then the client is closed.
    Unsubscribing,
    /// The client is closed.
    Closing,
}

impl Engine {
    pub(super) fn assigned(&mut self, partitions: &[Offset]) {
        // Where it sees that a topic has grown while partitions are still to be given up, the client joins again and doesn't wait
        // for that (2.16, `rd_kafka_cgrp_revoke_all_rejoin`). Given up later on, the new ones would go with them.
        self.give_up_revoked();
        for place in partitions {
            let Some(topic) = self.by_topic.get(&place.topic).copied() else { continue };
            self.identities += 1;
            let partition = Partition::new(self.identities, topic, place.topic.clone(), place.partition);
            self.slots.add(partition);
        }
        self.subscribe_anew();
        let generation = self.consumer.as_ref().map_or(-1, |consumer| consumer.membership().generation());
        self.happenings.push(Happening::Assigned { partitions: names(partitions), generation });
    }

    /// Takes over what `Happening::Assigned` told, at these offsets, below 0 where none is known. Nothing is read before `begin`.
    pub fn assign(&mut self, partitions: &[Offset]) {
        let Some(consumer) = &self.consumer else { return };
        // Never at a logical offset: the client asks Kafka for it, and when the partition is placed before the answer, asks again
        // and goes on there (2.16). What comes from 0 is not taken in.
        let places: Vec<Offset> = partitions.iter().map(|p| Offset { offset: p.offset.max(0), ..p.clone() }).collect();
        let taken = if consumer.is_eager() { consumer.assign(Some(&places)) } else { consumer.assign_more(&places) };
        if let Err(error) = taken {
            self.happenings.push(Happening::AssignmentFailed(error));
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

    /// Once the client has ended the pause of a cooperative rebalance. One that is closing has perhaps ended, and answers nothing.
    fn fetch_at_once(&self) {
        let served: Vec<Offset> = self.slots.iter().map(|(_, partition)| partition.offset(0)).collect();
        if let (Some(consumer), None, false) = (&self.consumer, &self.leaving, served.is_empty()) {
            consumer.fetch_at_once(&served);
        }
    }

    /// A partition that was assigned and taken over is served from now on, if it may begin.
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

    /// A partition stands still from now on, once what is on its way is known.
    pub fn stop(&mut self, topic: &str, partition: i32) {
        self.step(topic, partition, Step::Stop);
    }

    /// A partition that stands still is served again.
    pub fn go_on(&mut self, topic: &str, partition: i32) {
        self.step(topic, partition, Step::GoOn);
    }

    /// What is known of a partition is not true any more: its topic was made again, or Kafka alone knows what is committed. It
    /// waits for another `begin`, and what is on its way then finishes nothing of what comes. If it has a part in a transaction that
    /// isn't decided, nobody can know yet where that is: `Happening::CommitUnknown` tells when.
    pub fn forget(&mut self, topic: &str, partition: i32) {
        let found = self.slots.find(topic, partition);
        if found.is_some_and(|slot| self.transactions.as_ref().is_some_and(|t| t.touches(slot))) {
            // else its copies would become visible, and what they finish would not be committed with them
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
            revoking.deadline_ns = 0; // they were waited for before
        }
        self.revoking = Some(revoking);
    }

    /// Nothing more is sent of these partitions, and what was sent is committed.
    fn begin_revoking(&mut self, partitions: Vec<Offset>) -> Revoking {
        for place in &partitions {
            self.step(&place.topic, place.partition, Step::Revoke);
        }
        Revoking { deadline_ns: boot_ns() + REVOKE_NS, partitions }
    }

    /// Gives partitions up that were revoked, once they are settled and committed, or it takes too long.
    pub(super) fn revoke(&mut self) {
        let Some(revoking) = &self.revoking else { return };
        if self.is_over(revoking) {
            self.give_up_revoked();
        }
    }

    /// Where a protocol has all partitions given up for another subscription, the client joins again without waiting for that
    /// (2.16, `rd_kafka_cgrp_subscribe`): copies that are on their way then come twice. So they are waited for before.
    ///
    /// `grown`: topics that have more partitions than the client knows. It sees that by itself within five minutes, each member in
    /// its own time, and joins again, without waiting either where partitions are to be given up just then
    /// (`rd_kafka_cgrp_revoke_all_rejoin`).
    pub(super) fn settle_and_subscribe(&mut self, topics: &[String], grown: &[String]) {
        let Some(consumer) = &self.consumer else { return };
        let known = self.look_at(Arc::clone(consumer), grown);
        let is_eager = consumer.is_eager();
        let all = self.slots.iter().filter(|_| is_eager);
        let partitions = all.map(|(_, partition)| partition.offset(0)).collect();
        let settling = self.begin_revoking(partitions);
        self.subscribing = Some(Subscribing { topics: topics.to_vec(), settling, known });
    }

    /// Has the client ask Kafka about topics, on a thread of its own; true when it knows, or there was no answer.
    fn look_at(&self, consumer: Arc<Client>, topics: &[String]) -> Arc<AtomicBool> {
        let known = Arc::new(AtomicBool::new(topics.is_empty()));
        if let (false, Ok(wake)) = (topics.is_empty(), self.wake.try_clone()) {
            let (told, topics) = (Arc::clone(&known), topics.to_vec());
            thread::spawn(move || {
                for topic in topics {
                    let _ = consumer.look_at_topic(&topic, LOOK_MS); // it will see it by itself
                }
                told.store(true, Ordering::Release);
                let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
            });
        }
        known
    }

    /// Subscribes to other topics, once all is settled and known, or it takes too long. Not while partitions go: the client would
    /// do it when others have come.
    pub(super) fn subscribe_settled(&mut self) {
        let Some(Subscribing { settling, known, .. }) = &self.subscribing else { return };
        let is_gone = |place: &Offset| self.slots.find(&place.topic, place.partition).is_none();
        if self.revoking.is_some() || settling.partitions.iter().any(is_gone) {
            return;
        }
        let is_known = known.load(Ordering::Acquire) || settling.is_too_long();
        if !is_known || !self.is_over(settling) {
            return;
        }
        let (Some(subscribing), Some(consumer)) = (self.subscribing.take(), &self.consumer) else { return };
        if let Err(error) = consumer.subscribe(&subscribing.topics) {
            self.happenings.push(Happening::Reported(error, None));
        }
        self.subscribed = subscribing.topics;
    }

    /// Partitions have come, while all were to be given up for another subscription. If only topics have grown, that is done with:
    /// whoever assigns them asks Kafka how many there are.
    fn subscribe_anew(&mut self) {
        if !self.consumer.as_ref().is_some_and(|consumer| consumer.is_eager()) {
            return;
        }
        if let Some(Subscribing { topics, .. }) = self.subscribing.take() {
            if topics != self.subscribed {
                self.settle_and_subscribe(&topics, &[]);
            }
        }
    }

    /// Whether what was sent is settled, or it takes too long.
    fn is_over(&self, settling: &Revoking) -> bool {
        settling.is_too_long() || self.are_settled(&settling.partitions)
    }

    /// Whether all that was sent of them is acknowledged and committed.
    fn are_settled(&self, partitions: &[Offset]) -> bool {
        partitions.iter().all(|place| match self.slots.find(&place.topic, place.partition) {
            Some(slot) => {
                self.slots.get(slot).is_some_and(|partition| partition.state == State::Leaving)
                    && self.is_committed(slot)
            }
            None => true,
        })
    }

    /// Gives up what was revoked, if there is such, settled or not.
    fn give_up_revoked(&mut self) {
        let Some(Revoking { partitions, .. }) = self.revoking.take() else { return };
        let in_flight = self.slots.uncommitted(&partitions);
        // what is on its way must not arrive when somebody else has sent it again
        let open = |place: &Offset| {
            let slot = self.slots.find(&place.topic, place.partition);
            slot.and_then(|slot| self.slots.get(slot)).is_some_and(|partition| partition.in_flight() > 0)
        };
        if partitions.iter().any(open) {
            self.replace_producers();
        }
        if !self.are_settled(&partitions) {
            let told =
                "the worker gives up revoked partitions before all of their copies are acknowledged and committed";
            self.happenings.push(Happening::log(told.to_owned()));
        }
        self.give_up(&partitions, false, in_flight);
    }

    /// `in_flight`: of each, before producers were replaced for it.
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
                self.happenings.push(Happening::Reported(error, None));
            }
        }
        self.fetch_at_once();
    }

    fn forget_given_up(&mut self, partitions: &[Offset], lost: bool, in_flight: Vec<u64>) {
        let mut take = |place: &Offset| self.slots.remove(self.slots.find(&place.topic, place.partition)?);
        let delayed = partitions.iter().map(|place| take(place).map_or(0, |gone| gone.delayed.released)).collect();
        self.happenings.push(Happening::Revoked { partitions: names(partitions), lost, delayed, in_flight });
    }

    /// The consumer is given up, and all partitions with it, as lost.
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
            let _ = end(consumer).recv_timeout(END); // it may take longer, which nobody waits for
        }
    }

    /// Begins to leave the group in peace; `is_left` says when it is done, by turns. A static member keeps its partitions until its
    /// session ends, unless it leaves `for_good`.
    ///
    /// A client that is closed while partitions are to be given up doesn't wait for that (2.16, `rd_kafka_cgrp_unsubscribe`), and
    /// that they are to be may not have been told yet. So all is settled before.
    pub fn leave(&mut self, for_good: bool) {
        self.subscribing = None;
        let partitions = self.slots.iter().map(|(_, partition)| partition.offset(0)).collect();
        let mut settling = self.begin_revoking(partitions);
        settling.deadline_ns = boot_ns() + LEAVE_NS;
        self.leaving = Some(Leaving::Settling { settling, for_good });
    }

    /// Leaves the group once all is settled, or it takes too long.
    pub(super) fn leave_settled(&mut self) {
        let Some(consumer) = &self.consumer else { return };
        match &self.leaving {
            None | Some(Leaving::Closing) => {}
            Some(Leaving::Settling { settling, for_good }) => {
                if self.revoking.is_some() || !self.is_over(settling) {
                    return;
                }
                // A client that closes tells Kafka nothing of a static member; one that unsubscribes does.
                let tells = *for_good && consumer.subscribe(&[]).is_ok();
                if !tells {
                    consumer.close();
                }
                self.leaving = Some(if tells { Leaving::Unsubscribing } else { Leaving::Closing });
            }
            Some(Leaving::Unsubscribing) if consumer.membership().is_member() => {}
            Some(Leaving::Unsubscribing) => {
                consumer.close();
                self.leaving = Some(Leaving::Closing);
            }
        }
    }

    /// Whether it has left.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.consumer.as_ref().map_or(true, |consumer| consumer.is_closed())
    }
}

fn names(partitions: &[Offset]) -> Vec<(String, i32)> {
    partitions.iter().map(|place| (place.topic.clone(), place.partition)).collect()
}
