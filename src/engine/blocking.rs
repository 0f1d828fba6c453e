//! What the blocking forms of lock and lock_all wait for. The engine never waits; whoever makes a
//! blocking call asks here when it must [EP-1, EP-10].

use super::port::Rank;
use super::window::Window;

/// What a blocking lock call must see before it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockHeld {
    /// The lock of this target.
    Of(Rank),
    /// The locks of all targets.
    OfAll,
}

impl LockHeld {
    /// What `MPI_Win_lock` waits for: the lock may protect loads and stores, so it must be held
    /// where the target is reached by them. `None`: the call returns at once, and the next blocking
    /// lock waits for this one. With `many_threads` that may be another thread's, which this one
    /// must not hold up, so each call waits for its own.
    #[must_use]
    pub fn after_lock(target: Rank, load_store: bool, many_threads: bool) -> Option<Self> {
        (load_store || many_threads).then_some(LockHeld::Of(target))
    }

    /// What `MPI_Win_lock_all` waits for: the process itself is one of the targets.
    #[must_use]
    pub fn after_lock_all() -> Self {
        LockHeld::OfAll
    }

    /// Whether a window shows it.
    #[must_use]
    pub fn is_held_in(self, window: &Window) -> bool {
        match self {
            LockHeld::Of(target) => window.holds_lock(target),
            LockHeld::OfAll => window.holds_lock_all(),
        }
    }
}

/// Whether a blocking lock call first waits until every open lock of its process is held, in
/// whichever window: a program whose processes all lock in one order must end, and would not if a
/// later lock were held while an earlier one is waited for. Threads lock in no common order.
#[must_use]
pub fn earlier_locks_first(many_threads: bool) -> bool {
    !many_threads
}
