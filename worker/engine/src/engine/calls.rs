//! Makes the blocking calls of a transaction on a thread of its own, so that the engine's thread never waits for Kafka.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{channel, Receiver, Sender, TryRecvError};
use std::sync::Arc;
use std::thread;

use super::boot_ns;
use crate::kafka::{code, Client, Error, Membership, Offset};

/// The timeout of one call. Kafka normally answers within 3 to 5 ms.
const CALL_MS: i32 = 5_000;
/// The client ignores its timeout while it waits for a group coordinator, and waits indefinitely if the coordinator was missing from
/// the metadata for a moment (librdkafka 5456, 5511). The engine therefore abandons a thread that waits longer than this.
const HANGING_NS: i64 = 6_000_000_000;

/// A call for the thread to make.
pub enum Call {
    /// Ends what former producers of the transactional ID left open, and begins the first transaction.
    Open,
    /// Adds offsets to the transaction, in lists that are small enough for Kafka, commits it, and begins the next one.
    Commit(Vec<Vec<Offset>>, Membership),
    /// Fails if the transaction can no longer be committed.
    Look,
    /// Aborts the transaction.
    Abort,
}

/// The engine's connection to the thread.
pub struct Calls {
    requests: Sender<Call>,
    results: Receiver<Result<(), Error>>,
    requested_at_ns: Option<i64>,
}

impl Calls {
    /// Starts a thread that makes calls on `client`, and writes to `wake` after each result.
    #[must_use]
    pub fn of(client: Arc<Client>, wake: OwnedFd) -> Self {
        let (requests, requested) = channel();
        let (result, results) = channel();
        thread::spawn(move || {
            for call in requested {
                if result.send(make(&client, call)).is_err() {
                    return;
                }
                let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
            }
        });
        Calls { requests, results, requested_at_ns: None }
    }

    /// Hands a call to the thread. `answer` returns its result.
    pub fn ask(&mut self, call: Call) {
        self.requested_at_ns = Some(boot_ns());
        // if the thread has ended, no result comes, and `answer` returns a timeout
        let _ = self.requests.send(call);
    }

    /// Returns the result of the last call, `None` while it is not known, and a timeout if the thread hangs or has ended.
    pub fn answer(&mut self) -> Option<Result<(), Error>> {
        match self.results.try_recv() {
            Ok(result) => {
                self.requested_at_ns = None;
                Some(result)
            }
            Err(TryRecvError::Empty) if boot_ns() - self.requested_at_ns? < HANGING_NS => None,
            Err(why) => {
                let what = match why {
                    TryRecvError::Empty => {
                        "the coordinator of the group or of the transaction did not answer within 6 s"
                    }
                    TryRecvError::Disconnected => "the thread of the transaction has ended",
                };
                Some(Err(Error { retriable: true, ..Error::local(code::TIMED_OUT, what) }))
            }
        }
    }
}

fn make(client: &Client, call: Call) -> Result<(), Error> {
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
        let ((requests, _requested), (_result, results)) = (channel(), channel());
        let mut calls = Calls { requests, results, requested_at_ns: Some(boot_ns() - HANGING_NS) };
        assert!(calls.answer().unwrap().unwrap_err().retriable);
    }
}
