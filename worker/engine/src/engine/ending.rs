//! Clients that were given up end on threads of their own: they wait for Kafka's answers for up to a minute, and for those of a
//! name server for as long as that takes.

use std::sync::mpsc::{channel, Receiver};
use std::sync::Arc;
use std::thread;

use crate::kafka::Client;

/// Between two looks at whether nobody else has it.
const LOOK_MS: i32 = 100;

/// Ends a client; what comes when it has ended need not be waited for. As long as somebody else has it, in a call that may hang for
/// ever, what it tells is taken: its queue has no bound, and gets its statistics and log lines all the time.
pub fn end(client: Arc<Client>) -> Receiver<()> {
    client.wake_no_more();
    let (ended, end) = channel();
    thread::spawn(move || {
        while Arc::strong_count(&client) > 1 {
            drop(client.wait(LOOK_MS));
        }
        drop(client);
        let _ = ended.send(()); // nobody waits for it any more
    });
    end
}
