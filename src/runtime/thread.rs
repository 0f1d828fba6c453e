//! The progress thread: sweeps while the application computes without calling MPI [PR-2]. Off
//! unless `MPIX_RMA_PROGRESS=thread`.
//!
//! It enters the runtime as a hook does, and never waits for whoever is inside: that one drives
//! already. It completes requests of the host, and transports may make it call the host, so it
//! exists at `MPI_THREAD_MULTIPLE` only.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::progress::{crowded, nothing_lives, sweep_from_hook};

/// The thread, while it runs.
static THREAD: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);
static STOP: AtomicBool = AtomicBool::new(false);

/// Looks that find nothing and follow one another without a pause, where cores are free: some 20
/// µs, as waiting calls have.
const SPINS: u32 = 2_000;
/// Looks that then give the CPU away, before the thread begins to sleep.
const YIELDS: u32 = 64;
/// What a peer may wait for a process that was silent for long; 20,000 looks in a second take a few
/// per cent of a core.
const NAP: Duration = Duration::from_micros(50);

/// Starts the thread. Once, at `MPI_Init`.
///
/// # Errors
/// The system gives no thread.
pub(crate) fn start() -> io::Result<()> {
    STOP.store(false, Ordering::Release);
    let started = thread::Builder::new().name("mpix-rma".into()).spawn(drive)?;
    *THREAD.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
    Ok(())
}

/// Ends the thread, if there is one, before the host ends.
pub(crate) fn stop() {
    let running = THREAD.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(running) = running {
        STOP.store(true, Ordering::Release);
        running.thread().unpark();
        // It does not panic; if it did, it has said so, and is gone.
        drop(running.join());
    }
}

/// The first window lives: there is something to drive.
pub(crate) fn wake() {
    if let Some(running) = &*THREAD.lock().unwrap_or_else(PoisonError::into_inner) {
        running.thread().unpark();
    }
}

fn drive() {
    let spins = if crowded() { 0 } else { SPINS };
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
