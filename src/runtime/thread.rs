//! The progress thread: sweeps while the application computes without calling MPI [PR-2]. Off
//! unless `MPIX_RMA_PROGRESS=thread`.
//!
//! It enters the runtime like a hook: if another thread is in the runtime, that thread makes the
//! progress, and this one does not wait for it. It completes requests of the host, and transports
//! may call the host from it, so it runs at `MPI_THREAD_MULTIPLE` only.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::progress::{nothing_lives, oversubscribed, sweep_from_hook};

/// The thread, while it runs.
static THREAD: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);
static STOP: AtomicBool = AtomicBool::new(false);

/// Sweeps without progress that follow each other without a pause, unless the node is
/// oversubscribed: some 20 µs, as in waiting calls.
const SPINS: u32 = 2_000;
/// Sweeps that then yield in between, before the thread begins to sleep.
const YIELDS: u32 = 64;
/// How long the thread sleeps between two sweeps: the longest that a peer waits for it. 20,000
/// sweeps per second take a few per cent of a core.
const NAP: Duration = Duration::from_micros(50);

/// Starts the thread. Once, at `MPI_Init`.
///
/// # Errors
/// The system cannot create a thread.
pub(crate) fn start() -> io::Result<()> {
    STOP.store(false, Ordering::Release);
    let started = thread::Builder::new().name("mpix-rma".into()).spawn(drive)?;
    *THREAD.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
    Ok(())
}

/// Ends the thread, if it runs, before the host is finalized.
pub(crate) fn stop() {
    let running = THREAD.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(running) = running {
        STOP.store(true, Ordering::Release);
        running.thread().unpark();
        // A panic of the thread is on standard error already.
        drop(running.join());
    }
}

/// Wakes the thread: the first window was made.
pub(crate) fn wake() {
    if let Some(running) = &*THREAD.lock().unwrap_or_else(PoisonError::into_inner) {
        running.thread().unpark();
    }
}

fn drive() {
    let spins = if oversubscribed() { 0 } else { SPINS };
    let mut idle = 0;
    while !STOP.load(Ordering::Acquire) {
        if nothing_lives() {
            thread::park();
        } else if sweep_from_hook() {
            idle = 0;
        } else {
            idle += 1;
            match idle {
                n if n <= spins => std::hint::spin_loop(),
                n if n <= spins + YIELDS => thread::yield_now(),
                _ => {
                    idle = spins + YIELDS;
                    thread::park_timeout(NAP);
                }
            }
        }
    }
}
