//! What blocking lock calls wait for [EP-1, EP-10]. The engine itself never blocks: the caller
//! polls until these conditions hold.

use super::port::Rank;
use super::window::Window;

/// The lock that a blocking lock call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockHeld {
    /// The lock on this target.
    Of(Rank),
    /// The lock_all.
    OfAll,
}

impl LockHeld {
    /// What `MPI_Win_lock` waits for. If the target is reached by `load_store`, the lock may
    /// protect loads and stores, so the call waits for it. Otherwise (`None`) the call returns at
    /// once, and the next blocking lock call waits for this lock. With `many_threads` another
    /// thread may make that call, so each call waits for its own lock.
    #[must_use]
    pub fn after_lock(target: Rank, load_store: bool, many_threads: bool) -> Option<Self> {
        (load_store || many_threads).then_some(LockHeld::Of(target))
    }

    /// What `MPI_Win_lock_all` waits for. The process itself is a target, by load and store.
    #[must_use]
    pub fn after_lock_all() -> Self {
        LockHeld::OfAll
    }

    /// True if `window` holds the lock.
    #[must_use]
    pub fn is_held_in(self, window: &Window) -> bool {
        match self {
            LockHeld::Of(target) => window.holds_lock(target),
            LockHeld::OfAll => window.holds_lock_all(),
        }
    }
}

/// Whether a blocking lock call first waits until this process holds all locks that it has open, in
/// any window. Otherwise it could hold a later lock while it still waits for an earlier one, and
/// processes that all lock in the same order could deadlock [EP-10]. Threads have no common order.
#[must_use]
pub fn earlier_locks_first(many_threads: bool) -> bool {
    !many_threads
}
