//! An engine that runs in a thread of its own. Others look at it and change it between two of its turns.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::happening::Happening;
use super::{boot_ns, Engine};

/// Between two turns at most, however little there is to do.
const LONGEST_REST_NS: i64 = 100_000_000;

/// See the module.
pub struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The engine's thread has ended by a fault of its own, which it has told on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

struct Shared {
    engine: Mutex<Engine>,
    /// Those who wait for it: the engine's thread would have it again before they woke up.
    wanted: AtomicUsize,
    wake: OwnedFd,
    happened: Mutex<Vec<Happening>>,
    told: Condvar,
    turned_at_ns: AtomicI64,
    ended: AtomicBool,
}

impl Running {
    /// Lets it run.
    ///
    /// # Errors
    /// The system gives no descriptor or no thread.
    pub fn start(engine: Engine) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            wake: engine.wake.try_clone()?,
            engine: Mutex::new(engine),
            wanted: AtomicUsize::new(0),
            happened: Mutex::new(Vec::new()),
            told: Condvar::new(),
            turned_at_ns: AtomicI64::new(boot_ns()),
            ended: AtomicBool::new(false),
        });
        let its = Arc::clone(&shared);
        let thread = thread::Builder::new().name("engine".to_owned()).spawn(move || its.run())?;
        Ok(Running { shared, thread: Some(thread) })
    }

    /// Looks at it between two turns.
    ///
    /// # Errors
    /// See `Panicked`.
    pub fn look<T>(&self, look: impl FnOnce(&mut Engine) -> T) -> Result<T, Panicked> {
        self.shared.wanted.fetch_add(1, Ordering::AcqRel);
        let engine = self.shared.engine.lock();
        self.shared.wanted.fetch_sub(1, Ordering::AcqRel);
        engine.map(|mut engine| look(&mut engine)).map_err(|_| Panicked)
    }

    /// Changes it between two turns; it sees at once what there is to do.
    ///
    /// # Errors
    /// See `Panicked`.
    pub fn change<T>(&self, change: impl FnOnce(&mut Engine) -> T) -> Result<T, Panicked> {
        let changed = self.look(change);
        self.shared.wake();
        changed
    }

    /// What has happened since, waiting for it.
    ///
    /// # Errors
    /// See `Panicked`.
    pub fn wait(&self, longest: Duration) -> Result<Vec<Happening>, Panicked> {
        let happened = self.shared.happened.lock().map_err(|_| Panicked)?;
        let nothing = |happened: &mut Vec<Happening>| happened.is_empty() && !self.has_ended();
        let (mut happened, _) =
            self.shared.told.wait_timeout_while(happened, longest, nothing).map_err(|_| Panicked)?;
        if happened.is_empty() && self.has_ended() {
            return Err(Panicked);
        }
        Ok(std::mem::take(&mut *happened))
    }

    /// For how long it has not come to the end of a turn.
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
            let _ = thread.join(); // what it panicked with was told
        }
    }
}

impl Shared {
    fn run(&self) {
        while !self.ended.load(Ordering::Acquire) {
            while self.wanted.load(Ordering::Acquire) > 0 {
                thread::yield_now();
            }
            let Ok(mut engine) = self.engine.lock() else { break };
            let busy = engine.turn();
            let happened = engine.take_happenings();
            if !happened.is_empty() {
                // before anybody can see what has come of it
                if let Ok(mut told) = self.happened.lock() {
                    told.extend(happened);
                }
                self.told.notify_all();
            }
            let rest_ns = if busy { 0 } else { engine.rest_ns().min(LONGEST_REST_NS) };
            drop(engine);
            self.turned_at_ns.store(boot_ns(), Ordering::Relaxed);
            if rest_ns > 0 {
                self.rest(rest_ns);
            }
        }
    }

    /// Until a client has something to tell, somebody has changed something, or the time is over.
    fn rest(&self, longest_ns: i64) {
        let mut fds = [PollFd::new(&self.wake, PollFlags::IN)];
        let timeout = Timespec { tv_sec: longest_ns / 1_000_000_000, tv_nsec: longest_ns % 1_000_000_000 };
        // an error is a signal: somebody else's
        if poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0) {
            let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        }
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes()); // it fails only where it has been written to often enough
    }
}
