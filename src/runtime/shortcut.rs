//! Puts and gets that do not enter the runtime.
//!
//! Under `MPI_THREAD_MULTIPLE` the runtime is entered by one thread at a time. But an operation
//! that the transport completes by load and store, in an epoch that is open, granted and has
//! nothing queued, changes nothing in the engine: it is a copy. So when one has gone that way, the
//! window *opens a shortcut* to its target, and threads copy by it without entering. Whatever may
//! end or replace an access epoch *closes* the window's shortcuts first, before it changes
//! anything.
//!
//! A copy that another thread makes at the same time as such a call is the application's error:
//! nothing tells which of the two came first. What must hold is that nobody ever mixes two targets
//! or two windows. A [`Lane`] is written by one thread at a time (the one that has entered), and
//! its key is written last and erased first; a reader looks at the key before and after the rest.
//! Loom checks it. Shortcuts are never given back to the system, only to the next window, so that a
//! late look meets one.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicPtr;

use crate::sync::{AtomicU64, Ordering, fence};

/// Where a target's memory is in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First byte.
    pub base: u64,
    /// Bytes.
    pub size: u64,
    /// Displacement unit in bytes.
    pub unit: u64,
}

/// One target's place, written by one thread at a time and read by any.
#[derive(Debug)]
pub struct Lane {
    /// Target + 1 in the low 32 bits, or 0; a version in the high ones.
    key: AtomicU64,
    base: AtomicU64,
    size: AtomicU64,
    unit: AtomicU64,
}

impl Default for Lane {
    fn default() -> Self {
        Self::new()
    }
}

impl Lane {
    /// A closed one.
    #[must_use]
    pub fn new() -> Self {
        Lane {
            key: AtomicU64::new(0),
            base: AtomicU64::new(0),
            size: AtomicU64::new(0),
            unit: AtomicU64::new(0),
        }
    }

    /// Opens it to `target`. By one thread at a time.
    pub fn open(&self, target: u32, place: Place) {
        let version = (self.key.load(Ordering::Relaxed) >> 32).wrapping_add(1) << 32;
        self.key.store(version, Ordering::Relaxed);
        // A reader that sees any of the following stores sees, behind its own fence, that the key
        // has changed.
        fence(Ordering::Release);
        self.base.store(place.base, Ordering::Relaxed);
        self.size.store(place.size, Ordering::Relaxed);
        self.unit.store(place.unit, Ordering::Relaxed);
        self.key.store(version | (u64::from(target) + 1), Ordering::Release);
    }

    /// Closes it. By the same thread as [`open`](Self::open), or one that comes after it.
    pub fn close(&self) {
        let key = self.key.load(Ordering::Relaxed);
        self.key.store(key & !u64::from(u32::MAX), Ordering::Relaxed);
    }

    /// The place of `target`, if the lane is open to it.
    #[inline(always)]
    pub fn look(&self, target: u32) -> Option<Place> {
        let key = self.key.load(Ordering::Acquire);
        if key & u64::from(u32::MAX) != u64::from(target) + 1 {
            return None;
        }
        let place = Place {
            base: self.base.load(Ordering::Relaxed),
            size: self.size.load(Ordering::Relaxed),
            unit: self.unit.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        (self.key.load(Ordering::Relaxed) == key).then_some(place)
    }

    fn is_open(&self) -> bool {
        self.key.load(Ordering::Relaxed) as u32 != 0
    }
}

/// Lanes of one window; targets share them.
const LANES: usize = 8;

/// The lanes of one window.
#[derive(Debug)]
pub(crate) struct Shortcut {
    /// The host's handle of the window.
    handle: AtomicU64,
    lanes: [Lane; LANES],
}

impl Shortcut {
    /// Opens the shortcut to `target`. With the guard held.
    #[inline]
    pub(crate) fn open(&self, target: u32, place: impl FnOnce() -> Option<Place>) {
        let lane = &self.lanes[target as usize % LANES];
        if lane.look(target).is_none()
            && let Some(place) = place()
        {
            lane.open(target, place);
        }
    }

    /// Closes all. With the guard held.
    #[inline]
    pub(crate) fn close(&self) {
        for lane in self.lanes.iter().filter(|lane| lane.is_open()) {
            lane.close();
        }
    }
}

/// Windows whose shortcuts can be found; two that share a place find theirs in turns.
const PLACES: usize = 64;
/// No handle of a host has all bits set.
const NOBODY: u64 = u64::MAX;

static FOUND: [AtomicPtr<Shortcut>; PLACES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; PLACES];
/// Shortcuts that no window has.
static SPARE: Mutex<Vec<&'static Shortcut>> = Mutex::new(Vec::new());

#[inline(always)]
fn place_of(handle: u64) -> &'static AtomicPtr<Shortcut> {
    &FOUND[(handle.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize % PLACES]
}

/// Gives a window a shortcut. With the guard held.
pub(crate) fn make(handle: u64) -> &'static Shortcut {
    let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let shortcut = spare.unwrap_or_else(|| {
        let lanes = std::array::from_fn(|_| Lane::new());
        Box::leak(Box::new(Shortcut { handle: AtomicU64::new(NOBODY), lanes }))
    });
    shortcut.handle.store(handle, Ordering::Release);
    place_of(handle).store(std::ptr::from_ref(shortcut).cast_mut(), Ordering::Release);
    shortcut
}

/// Takes a window's shortcut back. With the guard held.
pub(crate) fn give_back(shortcut: &'static Shortcut) {
    shortcut.close();
    shortcut.handle.store(NOBODY, Ordering::Release);
    SPARE.lock().unwrap_or_else(PoisonError::into_inner).push(shortcut);
}

/// The place of a target of the window, if a shortcut is open to it.
#[inline(always)]
pub(crate) fn look(handle: u64, target: u32) -> Option<Place> {
    let shortcut = place_of(handle).load(Ordering::Acquire);
    // SAFETY: null, or a shortcut, which lives as long as the process.
    let shortcut = unsafe { shortcut.as_ref() }?;
    let place = shortcut.lanes[target as usize % LANES].look(target)?;
    // The lanes of another window's shortcut, or of the next one that got this, are not this
    // window's.
    (shortcut.handle.load(Ordering::Acquire) == handle).then_some(place)
}
