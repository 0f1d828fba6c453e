//! What blocking locks wait for. The engine never waits itself: the caller of a blocking form asks
//! here [EP-1, EP-10].

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
    /// What `MPI_Win_lock` waits for. A lock may protect loads and stores, so it must be held if
    /// the target is reached by `load_store`. Otherwise (`None`) the call returns at once, and the
    /// next blocking lock call waits for this lock. With `many_threads` that call may be another
    /// thread's, so each call waits for its own lock.
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

/// Whether a blocking lock call first waits until every open lock of its process is held, in any
/// window. A program whose processes all lock in the same order must not deadlock [EP-10]; it could
/// if a later lock were held while an earlier one is waited for. Threads have no common order.
#[must_use]
pub fn earlier_locks_first(many_threads: bool) -> bool {
    !many_threads
}
