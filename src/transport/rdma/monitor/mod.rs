//! Tells when memory that is watched is unmapped, given back or moved, whoever does it and by
//! whatever call.
//!
//! The kernel tells it (`userfaultfd`): the call that does it, `munmap` or another, returns only
//! after its message was read. A thread reads it, under the lock of the list that it writes it to.
//! So once the call has returned, whoever takes the list finds it there.
//!
//! Between the change and the message another thread may have got the same addresses already. Then
//! [`Watch::is_changing`] is true, or the message has been read, and is in the list for whoever
//! takes that afterwards.
//!
//! The thread must not wait for anything that waits for it: it neither allocates nor frees (which
//! may unmap), and nobody does while holding the list. It ends when nothing is watched any more.

mod mappings;
mod userfaultfd;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

pub(super) use userfaultfd::Invalidation;
use userfaultfd::{Message, Userfaultfd};

/// Changes that the list holds until they are taken; of more it is only known that there were some.
const ROOM: usize = 256;
/// Messages that are read at a time.
const BATCH: usize = 16;
/// Stack of the thread.
const STACK: usize = 64 * 1024;

/// What has been told and not been taken.
#[derive(Debug)]
pub(super) struct Invalidations {
    schedule: [Invalidation; ROOM],
    count: usize,
    /// There was more than it holds: anything may have changed.
    pub(super) too_many: bool,
}

impl Invalidations {
    const fn new() -> Self {
        Invalidations { schedule: [Invalidation::Unmapped(0, 0); ROOM], count: 0, too_many: false }
    }

    /// The changes, in order.
    pub(super) fn changes(&self) -> &[Invalidation] {
        &self.schedule[..self.count]
    }

    fn is_empty(&self) -> bool {
        self.count == 0 && !self.too_many
    }

    fn clear(&mut self) {
        (self.count, self.too_many) = (0, false);
    }

    fn push(&mut self, change: Invalidation) {
        if self.changes().last() == Some(&change) {
            return;
        }
        match self.schedule.get_mut(self.count) {
            Some(place) => {
                *place = change;
                self.count += 1;
            }
            None => self.too_many = true,
        }
    }

    fn copy_from(&mut self, other: &Invalidations) {
        self.schedule[..other.count].copy_from_slice(other.changes());
        (self.count, self.too_many) = (other.count, other.too_many);
    }
}

/// What the thread shares with its owner.
#[derive(Debug)]
struct Shared {
    uffd: Userfaultfd,
    /// Readable when the thread is to end.
    end: OwnedFd,
    told: Mutex<Invalidations>,
    /// There is something in the list: for those who only want to tidy up.
    some: AtomicBool,
    /// A thread that starts allocates: nothing is watched until it listens.
    started: Barrier,
}

impl Shared {
    fn told(&self) -> MutexGuard<'_, Invalidations> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread.
    fn listen(&self) {
        self.started.wait();
        let mut messages = [Message::default(); BATCH];
        loop {
            let mut polled = [self.uffd.fd(), self.end.as_raw_fd()].map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            });
            // SAFETY: two entries.
            unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) };
            let mut told = self.told();
            loop {
                let count = self.uffd.read(&mut messages);
                messages[..count]
                    .iter()
                    .filter_map(Message::change)
                    .for_each(|change| told.push(change));
                if count == 0 {
                    break;
                }
                self.some.store(true, Ordering::Release);
            }
            drop(told);
            // Who was in such a call when it was told to end has still to be answered.
            if polled[1].revents != 0 && !self.uffd.is_changing() {
                return;
            }
        }
    }
}

/// The watch over some memory of this process.
#[derive(Debug)]
pub(super) struct InvalidationMonitor {
    common: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    taken: Box<Invalidations>,
    process: u32,
}

impl InvalidationMonitor {
    /// Starts a watch.
    ///
    /// # Errors
    /// The kernel has nothing of the kind, or does not let this process have it, or there is no
    /// thread for it.
    pub(super) fn start() -> io::Result<Self> {
        let uffd = Userfaultfd::open()?;
        // SAFETY: a call with numbers.
        let end = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if end < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and nobody else's.
        let end = unsafe { OwnedFd::from_raw_fd(end) };
        let (told, some) = (Mutex::new(Invalidations::new()), AtomicBool::new(false));
        let common = Arc::new(Shared { uffd, end, told, some, started: Barrier::new(2) });
        let shared = Arc::clone(&common);
        let thread = without_signals(|| {
            let thread =
                std::thread::Builder::new().name("mpix-rma-memory".into()).stack_size(STACK);
            thread.spawn(move || shared.listen())
        })?;
        common.started.wait();
        Ok(InvalidationMonitor {
            common,
            thread: Some(thread),
            taken: Box::new(Invalidations::new()),
            process: std::process::id(),
        })
    }

    /// Watches whole pages. False if they may be given back by other calls than those that are
    /// told; they are watched nevertheless.
    ///
    /// # Errors
    /// They cannot be watched. If it is for want of memory, some of them are.
    pub(super) fn add(&self, at: usize, end: usize) -> io::Result<bool> {
        self.common.uffd.watch(at, end)?;
        // Looked at when it is watched already: what changes after this is told.
        Ok(mappings::is_anonymous(at, end))
    }

    /// Watches them no more. What is not mapped is left alone.
    pub(super) fn leave(&self, at: usize, end: usize) {
        if self.is_own()
            && let Err(error) = self.common.uffd.leave(at, end)
        {
            log::debug!("{} bytes are still watched: {error}", end - at);
        }
    }

    /// True while memory is being changed and [`take`](Self::take) may not yet give it.
    pub(super) fn is_changing(&self) -> bool {
        self.common.uffd.is_changing()
    }

    /// True if there is something to take; it may come later than what `is_changing` and `take`
    /// say.
    pub(super) fn has_some(&self) -> bool {
        self.common.some.load(Ordering::Acquire)
    }

    /// What was told since the last time.
    pub(super) fn take(&mut self) -> &Invalidations {
        self.taken.clear();
        // Nothing is freed while it is held.
        let mut told = self.common.told();
        if !told.is_empty() {
            self.taken.copy_from(&told);
            told.clear();
            self.common.some.store(false, Ordering::Relaxed);
        }
        drop(told);
        &self.taken
    }

    /// False in a child, whose memory is not watched: the descriptor that it has is its parent's.
    fn is_own(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for InvalidationMonitor {
    /// What is watched must have been [left](Self::leave): a child may have the descriptor as well,
    /// and so keep it open.
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if !self.is_own() {
            // There is no thread.
            return std::mem::forget(thread);
        }
        let one = 1_u64;
        // SAFETY: eight bytes, as an eventfd takes them.
        unsafe {
            libc::write(self.common.end.as_raw_fd(), (&raw const one).cast(), size_of::<u64>())
        };
        if thread.join().is_err() {
            log::error!("the thread that watches memory has panicked");
        }
    }
}

/// Calls with all signals blocked: a thread made there has none of the program's.
fn without_signals<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: sets of signals, which are written before they are read.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let done = call();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        done
    }
}
