//! The invalidation monitor: reports when monitored memory is unmapped, discarded or moved, by
//! whatever call.
//!
//! The source is `userfaultfd`. The call that changes the memory (`munmap` or another) returns only
//! after its event was read. A thread reads the events, under the lock of the list to which it
//! appends them. So once the call has returned, whoever locks the list finds the report.
//!
//! Between the change and the report, another thread may already have got the same addresses. In
//! that time [`InvalidationMonitor::is_changing`] is true, or the event has been read and is in the
//! list.
//!
//! The thread must not wait for a thread that waits for it. It neither allocates nor frees, which
//! may unmap, and nobody does so while holding the list. It ends with the monitor.

mod mappings;
mod userfaultfd;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

pub(super) use userfaultfd::Invalidation;
use userfaultfd::{Event, Userfaultfd};

/// Reports that the list holds.
const MAX_REPORTS: usize = 256;
/// Events read by one call.
const EVENT_BATCH: usize = 16;
/// The thread's stack in bytes.
const STACK: usize = 64 * 1024;

/// Reports that have not been taken.
#[derive(Debug)]
pub(super) struct Reports {
    /// In order. Has the capacity for all that it may hold.
    pub(super) list: Vec<Invalidation>,
    /// The list was too short: anything may have changed.
    pub(super) overflowed: bool,
}

impl Reports {
    fn new() -> Self {
        Reports { list: Vec::with_capacity(MAX_REPORTS), overflowed: false }
    }

    fn push(&mut self, report: Invalidation) {
        if self.list.last() == Some(&report) {
            return;
        }
        if self.list.len() < MAX_REPORTS {
            self.list.push(report);
        } else {
            self.overflowed = true;
        }
    }
}

/// State that the thread shares with the monitor's owner.
#[derive(Debug)]
struct Shared {
    uffd: Userfaultfd,
    /// Readable when the thread is to end.
    stop: OwnedFd,
    reports: Mutex<Reports>,
    /// Whether `reports` has any: a hint.
    has_reports: AtomicBool,
    /// A starting thread allocates, so nothing is monitored before it listens.
    started: Barrier,
}

impl Shared {
    fn reports(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's body.
    fn listen(&self) {
        self.started.wait();
        let mut events = [Event::default(); EVENT_BATCH];
        loop {
            let mut polled = [self.uffd.fd(), self.stop.as_raw_fd()].map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            });
            // SAFETY: the array has two entries, which live during the call.
            unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) };
            let mut reports = self.reports();
            loop {
                let count = self.uffd.read(&mut events);
                events[..count]
                    .iter()
                    .filter_map(Event::invalidation)
                    .for_each(|report| reports.push(report));
                if count == 0 {
                    break;
                }
                self.has_reports.store(true, Ordering::Release);
            }
            drop(reports);
            // A call that is still changing memory waits for its event to be read.
            if polled[1].revents != 0 && !self.uffd.is_changing() {
                return;
            }
        }
    }
}

/// A monitor of ranges of this process's memory.
#[derive(Debug)]
pub(super) struct InvalidationMonitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    taken: Reports,
    process: u32,
}

impl InvalidationMonitor {
    pub(super) fn start() -> io::Result<Self> {
        let uffd = Userfaultfd::open()?;
        // SAFETY: the call takes numbers only.
        let stop = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if stop < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened, and nobody else owns it.
        let stop = unsafe { OwnedFd::from_raw_fd(stop) };
        let (reports, has_reports) = (Mutex::new(Reports::new()), AtomicBool::new(false));
        let started = Barrier::new(2);
        let shared = Arc::new(Shared { uffd, stop, reports, has_reports, started });
        let of_thread = Arc::clone(&shared);
        let thread = with_signals_blocked(|| {
            let thread =
                std::thread::Builder::new().name("mpix-rma-memory".into()).stack_size(STACK);
            thread.spawn(move || of_thread.listen())
        })?;
        shared.started.wait();
        let process = std::process::id();
        Ok(InvalidationMonitor { shared, thread: Some(thread), taken: Reports::new(), process })
    }

    /// Monitors whole pages. Returns false if they could also be discarded by calls that are not
    /// reported; they are monitored nevertheless.
    ///
    /// # Errors
    /// The kernel refuses. If memory is short, some of the pages are monitored.
    pub(super) fn add(&self, start: usize, end: usize) -> io::Result<bool> {
        self.shared.uffd.register(start, end)?;
        // Inspected when it is monitored already: later changes are reported.
        Ok(mappings::is_anonymous(start, end))
    }

    /// Stops monitoring pages, mapped or not.
    pub(super) fn remove(&self, start: usize, end: usize) {
        if self.is_in_parent()
            && let Err(error) = self.shared.uffd.unregister(start, end)
        {
            log::debug!("verbs: {} bytes are still monitored: {error}", end - start);
        }
    }

    /// Whether monitored memory is being changed, with a report that [`take`](Self::take) may not
    /// return yet.
    pub(super) fn is_changing(&self) -> bool {
        self.shared.uffd.is_changing()
    }

    /// Whether there are reports to take. May lag behind `is_changing` and `take`.
    pub(super) fn has_reports(&self) -> bool {
        self.shared.has_reports.load(Ordering::Acquire)
    }

    /// The reports since the last call.
    pub(super) fn take(&mut self) -> &Reports {
        self.taken.list.clear();
        self.taken.overflowed = false;
        // Nothing is freed while the list is locked.
        let mut reports = self.shared.reports();
        if !reports.list.is_empty() {
            self.shared.has_reports.store(false, Ordering::Relaxed);
        }
        std::mem::swap(&mut self.taken, &mut reports);
        drop(reports);
        &self.taken
    }

    /// False in a forked child: its memory is not monitored, and its descriptor is the parent's.
    fn is_in_parent(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for InvalidationMonitor {
    /// All ranges must have been [removed](Self::remove): a forked child may keep the descriptor
    /// open, and a range that nobody reports for would block its next `munmap`.
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if !self.is_in_parent() {
            // The thread exists in the parent only.
            return std::mem::forget(thread);
        }
        let one = 1_u64;
        // SAFETY: the call reads the eight bytes of `one`, as an eventfd requires.
        unsafe {
            libc::write(self.shared.stop.as_raw_fd(), (&raw const one).cast(), size_of::<u64>())
        };
        if thread.join().is_err() {
            log::error!("verbs: the thread of the invalidation monitor has panicked");
        }
    }
}

/// Calls `call` with all signals blocked, so that a thread it starts handles none of the program's.
fn with_signals_blocked<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: signal sets are plain data; both are written before they are read.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let done = call();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        done
    }
}
