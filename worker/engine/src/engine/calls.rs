//! The calls of a transaction, which wait for Kafka, in a thread beside the engine's.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{channel, Receiver, Sender, TryRecvError};
use std::sync::Arc;
use std::thread;

use super::boot_ns;
use crate::kafka::{code, Client, Error, Membership, Offset};

/// For Kafka's answer to one call: 3 to 5 ms when all is well.
const CALL_MS: i32 = 5_000;
/// The client does not look at its timeout while it waits for a group coordinator, and waits for ever for one that was gone
/// from the metadata for a moment (librdkafka 5456, 5511): a thread that waits longer than this is left behind.
const HANGING_NS: i64 = 6_000_000_000;

/// What is called.
pub enum Call {
    /// Ends what former producers of the id have left open, and begins the first transaction.
    Open,
    /// Ends a transaction with offsets, as many at once as Kafka takes, and begins the next.
    Commit(Vec<Vec<Offset>>, Membership),
    /// Fails if the transaction can't end well any more.
    Look,
    /// Ends a transaction as if it had not been.
    Abort,
}

/// The thread, and what it was asked.
pub struct Calls {
    asks: Sender<Call>,
    answers: Receiver<Result<(), Error>>,
    asked_at_ns: Option<i64>,
}

impl Calls {
    /// A thread for a client's calls; `wake` is written to with each answer.
    #[must_use]
    pub fn of(client: Arc<Client>, wake: OwnedFd) -> Self {
        let (asks, asked) = channel();
        let (answer, answers) = channel();
        thread::spawn(move || {
            for call in asked {
                if answer.send(made(&client, call)).is_err() {
                    return;
                }
                let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
            }
        });
        Calls { asks, answers, asked_at_ns: None }
    }

    /// Begins a call; `answer` gives its outcome.
    pub fn ask(&mut self, call: Call) {
        self.asked_at_ns = Some(boot_ns());
        // if the thread is gone there is no answer, which is seen in time
        let _ = self.asks.send(call);
    }

    /// The outcome of the last call; `None`: it isn't known yet.
    pub fn answer(&mut self) -> Option<Result<(), Error>> {
        match self.answers.try_recv() {
            Ok(answer) => {
                self.asked_at_ns = None;
                Some(answer)
            }
            Err(TryRecvError::Empty) if boot_ns() - self.asked_at_ns? < HANGING_NS => None,
            Err(_) => {
                let what = "the coordinator of the group or of the transaction did not answer within 6 s";
                Some(Err(Error { retriable: true, ..Error::local(code::TIMED_OUT, what) }))
            }
        }
    }
}

fn made(client: &Client, call: Call) -> Result<(), Error> {
    match call {
        Call::Open => {
            client.init_transactions(CALL_MS)?;
            client.begin_transaction()
        }
        Call::Commit(commits, member) => {
            for offsets in commits {
                client.send_offsets(&offsets, &member, CALL_MS)?;
            }
            client.commit_transaction(CALL_MS)?;
            client.begin_transaction()
        }
        Call::Look => client.look_at_transaction(),
        Call::Abort => client.abort_transaction(CALL_MS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_an_answer_is_an_outage_and_no_refusal() {
        let ((asks, _asked), (_answer, answers)) = (channel(), channel());
        let mut calls = Calls { asks, answers, asked_at_ns: Some(boot_ns() - HANGING_NS) };
        assert!(calls.answer().unwrap().unwrap_err().retriable);
    }
}
