//! Runs an engine in a thread of its own. Other threads read and change its state between two turns.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::engine_event::EngineEvent;
use super::{boot_ns, Engine};

/// The longest pause between two turns, even if there is nothing to do.
const LONGEST_REST_NS: i64 = 100_000_000;

/// See the module.
pub struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The engine's thread has panicked. The reason is on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

struct Shared {
    engine: Mutex<Engine>,
    /// How many threads wait for the engine. The engine's thread lets them go first; otherwise it would lock the mutex again before
    /// they woke up.
    waiters: AtomicUsize,
    wake: OwnedFd,
    events: Mutex<Vec<EngineEvent>>,
    reported: Condvar,
    turned_at_ns: AtomicI64,
    ended: AtomicBool,
}

impl Running {
    /// Starts the engine's thread.
    ///
    /// # Errors
    /// The system provides no file descriptor or no thread.
    pub fn start(engine: Engine) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            wake: engine.wake.try_clone()?,
            engine: Mutex::new(engine),
            waiters: AtomicUsize::new(0),
            events: Mutex::new(Vec::new()),
            reported: Condvar::new(),
            turned_at_ns: AtomicI64::new(boot_ns()),
            ended: AtomicBool::new(false),
        });
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("engine".to_owned()).spawn(move || for_thread.run())?;
        Ok(Running { shared, thread: Some(thread) })
    }

    /// Reads the engine's state between two turns.
    ///
    /// # Errors
    /// `Panicked`, if the engine's thread has ended.
    pub fn look<T>(&self, look: impl FnOnce(&mut Engine) -> T) -> Result<T, Panicked> {
        self.shared.waiters.fetch_add(1, Ordering::AcqRel);
        let engine = self.shared.engine.lock();
        self.shared.waiters.fetch_sub(1, Ordering::AcqRel);
        engine.map(|mut engine| look(&mut engine)).map_err(|_| Panicked)
    }

    /// Changes the engine's state between two turns, and wakes the engine, so that the next turn begins at once.
    ///
    /// # Errors
    /// `Panicked`, if the engine's thread has ended.
    pub fn change<T>(&self, change: impl FnOnce(&mut Engine) -> T) -> Result<T, Panicked> {
        let changed = self.look(change);
        self.shared.wake();
        changed
    }

    /// Waits for events, for `longest` at most, and returns those since the last call.
    ///
    /// # Errors
    /// `Panicked`, if the engine's thread has ended.
    pub fn wait(&self, longest: Duration) -> Result<Vec<EngineEvent>, Panicked> {
        let events = self.shared.events.lock().map_err(|_| Panicked)?;
        let nothing = |events: &mut Vec<EngineEvent>| events.is_empty() && !self.has_ended();
        let (mut events, _) =
            self.shared.reported.wait_timeout_while(events, longest, nothing).map_err(|_| Panicked)?;
        if events.is_empty() && self.has_ended() {
            return Err(Panicked);
        }
        Ok(std::mem::take(&mut *events))
    }

    /// How many nanoseconds ago the engine completed its last turn.
    #[must_use]
    pub fn still_ns(&self) -> i64 {
        boot_ns() - self.shared.turned_at_ns.load(Ordering::Relaxed)
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().map_or(true, JoinHandle::is_finished)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // the reason of a panic is on standard error already
        }
    }
}

impl Shared {
    fn run(&self) {
        while !self.ended.load(Ordering::Acquire) {
            while self.waiters.load(Ordering::Acquire) > 0 {
                thread::yield_now();
            }
            let Ok(mut engine) = self.engine.lock() else { break };
            let busy = engine.turn();
            let events = engine.take_engine_events();
            if !events.is_empty() {
                // while the engine is locked, so that no other thread sees the new state before the event that reports it
                if let Ok(mut unread) = self.events.lock() {
                    unread.extend(events);
                }
                self.reported.notify_all();
            }
            let rest_ns = if busy { 0 } else { engine.rest_ns().min(LONGEST_REST_NS) };
            drop(engine);
            self.turned_at_ns.store(boot_ns(), Ordering::Relaxed);
            if rest_ns > 0 {
                self.rest(rest_ns);
            }
        }
    }

    /// Sleeps until a client has an event, another thread has changed the engine, or the time is over.
    fn rest(&self, longest_ns: i64) {
        let mut fds = [PollFd::new(&self.wake, PollFlags::IN)];
        let timeout = Timespec { tv_sec: longest_ns / 1_000_000_000, tv_nsec: longest_ns % 1_000_000_000 };
        // an error means that the process got a signal, which other code handles
        if poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0) {
            let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        }
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes()); // fails only if the counter is full, and then it wakes anyway
    }
}
