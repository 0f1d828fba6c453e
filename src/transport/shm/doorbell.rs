//! Doorbells: how a process learns which of its armed windows a peer has contacted [PR-6].
//!
//! A process may have thousands of windows that peers can contact at any time, by a channel or a
//! ring of tagged notifications. Polling all of them would make each wait pay for every window. So
//! a window without work is *armed*: nobody polls it, and its `armed` word says so. A peer that
//! publishes something for an armed window disarms it and rings the doorbell of the process, which
//! polls that one word. UCX arms workers in the same way (`ucp_worker_arm`).
//!
//! # Arming
//! The owner sets `armed`, executes a full fence, and checks once more everything that peers
//! publish. A peer publishes, executes a full fence, and reads `armed`. The side whose fence comes
//! second sees what the other wrote, so nothing published for an armed window is overlooked. A peer
//! that polls until its operation is applied (a put) may omit the fence, because a later poll sees
//! the word. A peer that publishes and may never poll again (a notification) needs the fence.
//!
//! # The doorbell
//! Two levels of bits: one bit for each of [`SLOTS`] windows, and a summary with one bit for each
//! word of those. A peer sets the window's bit before the summary's; the owner clears the summary's
//! before the window's. So a window's bit can be set without its summary bit only for the moment
//! between the peer's two writes. Windows whose numbers are equal modulo [`SLOTS`] share a bit, and
//! the owner polls all of them.
//!
//! The types borrow their words, so that loom can run them on words of its own.

use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::sync::{AtomicU32, AtomicU64, fence, fence_after_update};

/// Words of window bits.
pub const WORDS: usize = 64;
/// Window bits of a doorbell.
pub const SLOTS: u32 = 64 * WORDS as u32;

/// The bit of a window.
#[must_use]
pub fn slot(window: u32) -> u32 {
    window % SLOTS
}

/// The doorbell of one process.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell<'a> {
    /// One bit for each of `words`.
    pub summary: &'a AtomicU64,
    /// One bit for each slot.
    pub words: &'a [AtomicU64],
}

impl Doorbell<'_> {
    /// For a peer: signals that it has contacted the window of this slot.
    pub fn ring(&self, slot: u32) {
        let word = slot as usize / 64;
        self.words[word].fetch_or(1 << (slot % 64), Release);
        self.summary.fetch_or(1 << word, Release);
    }

    /// For the owner: whether anybody has rung since the last [`take`](Self::take).
    #[inline(always)]
    #[must_use]
    pub fn is_rung(&self) -> bool {
        self.summary.load(Relaxed) != 0
    }

    /// For the owner: passes each slot that was rung to `rung`, and clears it.
    pub fn take(&self, mut rung: impl FnMut(u32)) {
        let mut summary = self.summary.swap(0, Acquire);
        while summary != 0 {
            let word = summary.trailing_zeros();
            summary &= summary - 1;
            let mut bits = self.words[word as usize].swap(0, Acquire);
            while bits != 0 {
                rung(64 * word + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }
}

/// The `armed` word of one window in one process: 1 while nobody polls it.
#[derive(Clone, Copy, Debug)]
pub struct Arm<'a>(pub &'a AtomicU32);

impl Arm<'_> {
    /// For the owner: arms the window. It must then check what peers have published, and
    /// [`clear`](Self::clear) the word if there is anything.
    pub fn set(&self) {
        self.0.store(1, Relaxed);
        fence(SeqCst);
    }

    /// For the owner: disarms the window.
    pub fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// For the owner: whether the window is armed, and no peer has contacted it since.
    #[inline(always)]
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    /// For a peer that has published something and polls until it is applied: disarms the window if
    /// it is armed. True if the peer must ring.
    #[inline(always)]
    #[must_use]
    pub fn trigger(&self) -> bool {
        self.0.load(Relaxed) != 0 && self.clear_for_peer()
    }

    /// The same for a peer that may never poll again.
    #[inline(always)]
    #[must_use]
    pub fn trigger_fenced(&self) -> bool {
        fence(SeqCst);
        self.trigger()
    }

    /// The same for a peer that has announced its publication by an atomic read-modify-write of a
    /// word that the owner checks when it arms.
    #[inline(always)]
    #[must_use]
    pub fn trigger_announced(&self) -> bool {
        fence_after_update();
        self.trigger()
    }

    /// Only one of several peers rings. The owner still sees what each has published: by the
    /// doorbell, whose release sequence starts here, or by its fence when it arms the window again.
    #[cold]
    fn clear_for_peer(&self) -> bool {
        self.0.swap(0, AcqRel) != 0
    }
}
