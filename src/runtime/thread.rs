//! The progress thread: sweeps while the application computes without calling MPI [PR-2]. Off
//! unless `MPIX_RMA_PROGRESS=thread`.
//!
//! It enters the runtime like a hook: if another thread is in the runtime, that thread makes the
//! progress, and this one does not wait for it. It completes requests of the host, and transports
//! may call the host from it, so it runs at `MPI_THREAD_MULTIPLE` only.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::collectives;
use super::continuations::{self, Thread};
use super::progress::{nothing_lives, oversubscribed, sweep_from_hook};

/// The thread, while it runs.
static THREAD: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);
static STOP: AtomicBool = AtomicBool::new(false);
/// Whether it runs, for those who need not wait for the lock.
static EXISTS: AtomicBool = AtomicBool::new(false);

fn running() -> MutexGuard<'static, Option<JoinHandle<()>>> {
    THREAD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Idle sweeps without a pause between them: some 20 µs, as in waiting calls. None if the node is
/// oversubscribed.
const SPINS: u32 = 2_000;
/// Further idle sweeps, with a yield between them, before the thread begins to sleep.
const YIELDS: u32 = 64;
/// Sleep between two sweeps: the longest time that a peer waits for this thread. 20,000 sweeps per
/// second take a few per cent of a core.
const NAP: Duration = Duration::from_micros(50);

/// Starts the thread. Called once, at `MPI_Init`.
///
/// # Errors
/// The system cannot create a thread.
pub(crate) fn start() -> io::Result<()> {
    STOP.store(false, Ordering::Release);
    *running() = Some(thread::Builder::new().name("mpix-rma".into()).spawn(drive)?);
    EXISTS.store(true, Ordering::Release);
    Ok(())
}

/// Starts the thread unless it runs: a continuation needs it.
///
/// # Errors
/// The system cannot create a thread.
pub(crate) fn ensure() -> io::Result<()> {
    static ASKED: AtomicBool = AtomicBool::new(false);
    if !ASKED.swap(true, Ordering::AcqRel) && running().is_none() {
        start()?;
    }
    Ok(())
}

/// Ends the thread, if it runs, before the host is finalized.
pub(crate) fn stop() {
    let thread = running().take();
    EXISTS.store(false, Ordering::Release);
    if let Some(thread) = thread {
        STOP.store(true, Ordering::Release);
        thread.thread().unpark();
        // A panic of the thread is on standard error already.
        drop(thread.join());
    }
}

/// Wakes the thread when the first window is made, the first continuation, or when a collective is
/// started.
pub(crate) fn wake() {
    if !EXISTS.load(Ordering::Acquire) {
        return;
    }
    if let Some(thread) = &*running() {
        thread.thread().unpark();
    }
}

fn drive() {
    let spins = if oversubscribed() { 0 } else { SPINS };
    let mut idle = 0;
    while !STOP.load(Ordering::Acquire) {
        if nothing_lives() && continuations::pending() == 0 && !collectives::any_active() {
            thread::park();
        } else if sweep_from_hook() | continuations::run(Thread::Library) {
            idle = 0;
        } else {
            match idle {
                n if n < spins => std::hint::spin_loop(),
                n if n < spins + YIELDS => thread::yield_now(),
                _ => thread::park_timeout(NAP),
            }
            idle = idle.saturating_add(1);
        }
    }
}
