//! Epochs in a window of one process, which waits for nobody.
//!
//! The short forms of calls whose epochs need no record ([`folded`](super::folded)). They need no
//! port, since they send nothing. Each returns false if it has done nothing: the regular call then
//! finds out what the epoch needs, or what is wrong with it.

use super::epoch::EpochKind;
use super::port::LockMode;
use super::window::{FenceView, Window};

impl Window {
    /// True if no other process or lane takes part in the epochs of this window. Then there is no
    /// pattern either.
    #[inline(always)]
    fn is_alone(&self) -> bool {
        self.size == 1 && self.lanes.is_none()
    }

    /// `MPI_Win_fence` without assertions.
    #[inline(always)]
    pub fn fence_alone(&mut self) -> bool {
        if !self.is_alone() || self.epochs.len() > 0 || self.folded.is_some() {
            return false;
        }
        self.fence_view = FenceView::Tentative;
        self.prepare_fence_route();
        true
    }

    /// `MPI_Win_lock` of the process itself. The lock is held then.
    #[inline(always)]
    pub fn lock_alone(&mut self, mode: LockMode) -> bool {
        let target = self.me;
        self.is_alone()
            && self.fold_alone(EpochKind::Lock { target, mode, nocheck: false, own: true })
    }

    /// `MPI_Win_lock_all`. The lock is held then.
    #[inline(always)]
    pub fn lock_all_alone(&mut self) -> bool {
        self.is_alone() && self.fold_alone(EpochKind::LockAll { nocheck: false })
    }

    /// `MPI_Win_unlock`, or `MPI_Win_unlock_all` if `all`. A folded epoch has nothing to wait for.
    #[inline(always)]
    pub fn unlock_alone(&mut self, all: bool) -> bool {
        if !self.is_alone() || self.folded.is_none_or(|folded| folded.is_lock_all() != all) {
            return false;
        }
        self.folded = None;
        self.route = None;
        true
    }
}
