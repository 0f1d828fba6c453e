//! The invalidation monitor: reports when monitored memory is unmapped, discarded or moved, by
//! whatever call.
//!
//! The source is `userfaultfd`. A call that changes monitored memory (`munmap` or another) returns
//! only after its event was read. A thread reads the events, and holds the lock of the list to
//! which it appends them. So once the call has returned, whoever locks the list finds the report.
//!
//! Between the change and the report, another thread may already have been given the same
//! addresses. During that time either [`InvalidationMonitor::is_changing`] is true, or the event
//! was read and is in the list.
//!
//! The thread must not wait for a thread that waits for it. So it neither allocates nor frees,
//! because that may unmap memory, and nobody does so while holding the list. The thread ends when
//! the monitor is dropped.

mod mappings;
mod userfaultfd;

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

pub(super) use userfaultfd::Invalidation;
use userfaultfd::{Event, Userfaultfd};

/// Most reports that the list holds.
const MAX_REPORTS: usize = 256;
/// Most events that one call reads.
const EVENT_BATCH: usize = 16;
/// Stack of the thread, in bytes.
const STACK: usize = 64 * 1024;

/// Reports that were not taken yet.
#[derive(Debug)]
pub(super) struct Reports {
    /// In the order of the events. Has capacity for [`MAX_REPORTS`].
    pub(super) list: Vec<Invalidation>,
    /// Reports were lost because the list was full, so any memory may have changed.
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
    /// Readable when the thread has to end.
    stop: PipeReader,
    reports: Mutex<Reports>,
    /// Whether `reports` has any. May lag behind.
    has_reports: AtomicBool,
    /// Passed when the thread listens. Until then nothing is monitored, because a starting thread
    /// allocates.
    started: Barrier,
}

impl Shared {
    fn reports(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of the thread.
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
                if count == 0 {
                    break;
                }
                let invalidations = events[..count].iter().filter_map(Event::invalidation);
                invalidations.for_each(|report| reports.push(report));
                self.has_reports.store(true, Ordering::Release);
            }
            drop(reports);
            // A call that is changing memory waits until its event is read.
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
    /// The other end of [`Shared::stop`].
    stop: PipeWriter,
    thread: Option<JoinHandle<()>>,
    taken: Reports,
    /// The process that started the thread.
    process: u32,
}

impl InvalidationMonitor {
    pub(super) fn start() -> io::Result<Self> {
        let uffd = Userfaultfd::open()?;
        let (wait_for_stop, stop) = io::pipe()?;
        let shared = Arc::new(Shared {
            uffd,
            stop: wait_for_stop,
            reports: Mutex::new(Reports::new()),
            has_reports: AtomicBool::new(false),
            started: Barrier::new(2),
        });
        let of_thread = Arc::clone(&shared);
        let thread = with_signals_blocked(|| {
            let thread =
                std::thread::Builder::new().name("mpix-rma-memory".into()).stack_size(STACK);
            thread.spawn(move || of_thread.listen())
        })?;
        shared.started.wait();
        let process = std::process::id();
        let (thread, taken) = (Some(thread), Reports::new());
        Ok(InvalidationMonitor { shared, stop, thread, taken, process })
    }

    /// Monitors whole pages. Returns false if calls that the kernel does not report could discard
    /// them; they are monitored nevertheless.
    ///
    /// # Errors
    /// The kernel refuses. After `ENOMEM`, some of the pages may be monitored.
    pub(super) fn add(&self, start: usize, end: usize) -> io::Result<bool> {
        self.shared.uffd.register(start, end)?;
        // Inspected after monitoring has begun, so that all later changes are reported.
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

    /// Whether a call is changing monitored memory whose report [`take`](Self::take) may not
    /// return yet.
    pub(super) fn is_changing(&self) -> bool {
        self.shared.uffd.is_changing()
    }

    /// Whether there are reports to take. May lag behind [`is_changing`](Self::is_changing) and
    /// [`take`](Self::take).
    pub(super) fn has_reports(&self) -> bool {
        self.shared.has_reports.load(Ordering::Acquire)
    }

    /// The reports since the last call.
    pub(super) fn take(&mut self) -> &Reports {
        self.taken.list.clear();
        self.taken.overflowed = false;
        // Swapped rather than replaced: nothing may be freed while the list is locked.
        let mut reports = self.shared.reports();
        if !reports.list.is_empty() {
            self.shared.has_reports.store(false, Ordering::Relaxed);
        }
        std::mem::swap(&mut self.taken, &mut reports);
        drop(reports);
        &self.taken
    }

    /// False in a forked child. The kernel does not monitor its memory, and the descriptor that it
    /// inherited still concerns its parent's.
    fn is_in_parent(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for InvalidationMonitor {
    /// All ranges must have been [removed](Self::remove). A forked child may keep the descriptor
    /// open; then the next `munmap` of a range that is still monitored would wait forever.
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if !self.is_in_parent() {
            // The thread exists only in the parent.
            return std::mem::forget(thread);
        }
        // Closing the pipe would not wake the thread: a forked child may have it open.
        if let Err(error) = self.stop.write_all(&[1]) {
            return log::error!("verbs: the invalidation monitor cannot be stopped: {error}");
        }
        if thread.join().is_err() {
            log::error!("verbs: the thread of the invalidation monitor has panicked");
        }
    }
}

/// Calls `call` with all signals blocked, so that a thread that it starts handles none of them.
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
