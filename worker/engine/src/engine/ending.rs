//! Ends clients on threads of their own, because a client waits for Kafka's answers for up to a minute, and for those of a name server
//! for as long as they take.

use std::sync::mpsc::{channel, Receiver};
use std::sync::Arc;
use std::thread;

use crate::kafka::Client;

/// The interval between checks whether the client is still in use.
const POLL_MS: i32 = 100;

/// Ends a client. The receiver gets a value when the client has ended, and may be dropped before.
///
/// While another thread uses the client, in a call that may never return, its events are read and dropped: its queue is unbounded, and
/// statistics and log lines arrive all the time.
pub fn end(client: Arc<Client>) -> Receiver<()> {
    client.wake_no_more();
    let (ended, end) = channel();
    thread::spawn(move || {
        while Arc::strong_count(&client) > 1 {
            drop(client.wait(POLL_MS));
        }
        drop(client);
        let _ = ended.send(()); // fails if the receiver was dropped
    });
    end
}
