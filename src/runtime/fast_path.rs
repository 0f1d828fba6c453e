//! Puts, gets, notifications, flushes and reductions of single elements that do not enter the
//! runtime.
//!
//! Under `MPI_THREAD_MULTIPLE` one thread at a time is in the runtime. But an operation that the
//! transport completes by load and store, in an epoch that is open, granted and has nothing queued,
//! changes nothing in the engine: it is a copy, and perhaps raises a counter, or a reduction under
//! the target's lock. When such an operation has succeeded, the window *opens a fast path* to its
//! target, and other threads copy without entering. While nothing is outstanding at the target, a
//! flush of it does nothing, so the slot permits that too. Any call that opens or closes an access
//! epoch closes the window's fast path first, before it changes anything. Each call that issues an
//! operation inside the runtime updates the target's slot before it returns.
//!
//! A copy that races with such a call is an error of the application, since nothing orders the two.
//! But even then no thread may mix two targets or two windows. A [`TargetSlot`] has one writer at a
//! time (the thread in the runtime), which writes the key last and erases it first. A reader checks
//! the key before and after it reads the rest. Loom checks this. A fast path is never freed, only
//! reused for another window, so a late reader never follows a dangling pointer.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicPtr;

use super::registry::NO_HANDLE;
use super::window::HostHandle;
use crate::engine::Rank;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::transport::shm::CounterTable;
use crate::transport::shm::protocol::AccumulateAddress;

/// A target's memory as this process has mapped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedTarget {
    /// First byte.
    pub base: u64,
    /// Bytes.
    pub size: u64,
    /// Displacement unit in bytes.
    pub unit: u64,
}

/// What a call may do at a target without entering the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Put and get are copies.
    pub memory: MappedTarget,
    /// Counters that may be raised after a copy.
    pub counters: CounterTable,
    /// Single elements are reduced under this lock.
    pub accumulates: AccumulateAddress,
    /// A flush has nothing to wait for.
    pub flushes: bool,
}

/// One target, written by one thread at a time and read by any.
#[derive(Debug, Default)]
pub struct TargetSlot {
    /// Target + 1 in the low 32 bits, or 0; a version in the high ones.
    key: AtomicU64,
    base: AtomicU64,
    size: AtomicU64,
    unit: AtomicU64,
    counters: [AtomicU64; 2],
    accumulates: AtomicU64,
    flushes: AtomicU64,
}

impl TargetSlot {
    /// A closed slot.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the slot to `target`. For one thread at a time.
    pub fn open(&self, target: u32, access: Access) {
        let version = (self.key.load(Ordering::Relaxed) >> 32).wrapping_add(1) << 32;
        self.key.store(version, Ordering::Relaxed);
        // A reader that sees any of the following stores also sees, after its own fence, that the
        // key has changed.
        fence(Ordering::Release);
        self.base.store(access.memory.base, Ordering::Relaxed);
        self.size.store(access.memory.size, Ordering::Relaxed);
        self.unit.store(access.memory.unit, Ordering::Relaxed);
        for (word, value) in self.counters.iter().zip(access.counters.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.accumulates.store(access.accumulates.to_word(), Ordering::Relaxed);
        self.flushes.store(access.flushes.into(), Ordering::Relaxed);
        self.key.store(version | (u64::from(target) + 1), Ordering::Release);
    }

    /// Closes the slot. Must not run at the same time as [`open`](Self::open).
    pub fn close(&self) {
        let key = self.key.load(Ordering::Relaxed);
        self.key.store(key & !u64::from(u32::MAX), Ordering::Relaxed);
    }

    /// What may be done at `target`, if the slot is open to it.
    #[inline(always)]
    pub fn look(&self, target: u32) -> Option<Access> {
        let key = self.key.load(Ordering::Acquire);
        if key & u64::from(u32::MAX) != u64::from(target) + 1 {
            return None;
        }
        let memory = MappedTarget {
            base: self.base.load(Ordering::Relaxed),
            size: self.size.load(Ordering::Relaxed),
            unit: self.unit.load(Ordering::Relaxed),
        };
        let counters = self.counters.each_ref().map(|word| word.load(Ordering::Relaxed));
        let counters = CounterTable::of_words(counters);
        let accumulates = AccumulateAddress::of_word(self.accumulates.load(Ordering::Relaxed));
        let flushes = self.flushes.load(Ordering::Relaxed) != 0;
        fence(Ordering::Acquire);
        let access = Access { memory, counters, accumulates, flushes };
        (self.key.load(Ordering::Relaxed) == key).then_some(access)
    }

    fn is_open(&self) -> bool {
        self.key.load(Ordering::Relaxed) as u32 != 0
    }
}

/// Slots of one window. Targets with the same rank modulo this number share a slot.
const SLOTS: usize = 8;

/// The slots of one window.
#[derive(Debug)]
pub(crate) struct FastPath {
    /// The host's handle of the window.
    handle: AtomicU64,
    slots: [TargetSlot; SLOTS],
}

impl FastPath {
    /// Opens the fast path to `target` for what is permitted now; closes it if nothing is. The
    /// caller holds the guard.
    #[inline]
    pub(crate) fn update(&self, target: u32, permitted: Option<Access>) {
        let slot = &self.slots[target as usize % SLOTS];
        let before = slot.look(target);
        match permitted {
            Some(access) if before != permitted => slot.open(target, access),
            None if before.is_some() => slot.close(),
            _ => {}
        }
    }

    /// Closes all slots. The caller holds the guard.
    #[inline]
    pub(crate) fn close(&self) {
        for slot in self.slots.iter().filter(|slot| slot.is_open()) {
            slot.close();
        }
    }
}

/// Entries of the table by window handle. If two windows share one, it belongs to the newer window.
const ENTRIES: usize = 1024;
/// Every so many calls of a thread, one makes progress [PR-1]: some 30 us of puts. A thread in the
/// runtime takes its memory out of the caches of the others, so less would cost them much.
const CALLS_PER_SWEEP: u32 = 4096;

thread_local! {
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

static ENTRY_OF: [AtomicPtr<FastPath>; ENTRIES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; ENTRIES];
/// Fast paths of freed windows, for new windows.
static FREE: Mutex<Vec<&'static FastPath>> = Mutex::new(Vec::new());

#[inline(always)]
fn slot_of(handle: u64) -> &'static AtomicPtr<FastPath> {
    &ENTRY_OF[(handle.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize % ENTRIES]
}

/// A fast path for the window of this handle, closed. The caller holds the guard.
pub(crate) fn make(handle: u64) -> &'static FastPath {
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let fast_path = free.unwrap_or_else(|| {
        Box::leak(Box::new(FastPath { handle: AtomicU64::new(NO_HANDLE), slots: <_>::default() }))
    });
    fast_path.handle.store(handle, Ordering::Release);
    slot_of(handle).store(std::ptr::from_ref(fast_path).cast_mut(), Ordering::Release);
    fast_path
}

/// Takes back the fast path of a freed window. The caller holds the guard.
pub(crate) fn give_back(fast_path: &'static FastPath) {
    fast_path.close();
    fast_path.handle.store(NO_HANDLE, Ordering::Release);
    FREE.lock().unwrap_or_else(PoisonError::into_inner).push(fast_path);
}

/// What a call may do at a target of the window, if the window's fast path is open to it.
#[inline(always)]
pub(crate) fn look(handle: HostHandle, target: Rank) -> Option<Access> {
    let fast_path = slot_of(handle.0).load(Ordering::Acquire);
    // SAFETY: null, or a fast path that `make` leaked, so it is never freed.
    let fast_path = unsafe { fast_path.as_ref() }?;
    let access = fast_path.slots[target as usize % SLOTS].look(target)?;
    // Another window may share the entry, or may have been given this fast path meanwhile.
    if fast_path.handle.load(Ordering::Acquire) != handle.0 {
        return None;
    }
    Some(access)
}

/// Counts a call that need not enter the runtime. True if it must make progress first.
#[inline(always)]
pub(crate) fn must_sweep() -> bool {
    let calls = CALLS.get().wrapping_add(1);
    CALLS.set(calls);
    calls.is_multiple_of(CALLS_PER_SWEEP)
}
