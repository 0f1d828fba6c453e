//! The window that was called last, if this process is its only one.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{NO_HANDLE, Registry};
use crate::runtime::window::{HostHandle, Window};

/// The handle of such a window. Calls compare it before they enter the runtime, so windows of more
/// processes pay for this comparison alone.
static ALONE: AtomicU64 = AtomicU64::new(NO_HANDLE);

/// Whether this may be such a window; [`Registry::alone`] says whether it is.
#[inline(always)]
pub(crate) fn is_alone(handle: HostHandle) -> bool {
    ALONE.load(Ordering::Relaxed) == handle.0
}

/// A window becomes the one that was called last.
pub(super) fn note(window: &Window) {
    let handle = if window.size == 1 { window.handle.0 } else { NO_HANDLE };
    ALONE.store(handle, Ordering::Relaxed);
}

/// No window is the one that was called last.
pub(super) fn forget() {
    ALONE.store(NO_HANDLE, Ordering::Relaxed);
}

impl Registry {
    /// The window of a handle, if the call before was on the same window, and the present one need
    /// not sweep. Counts the call.
    #[inline(always)]
    pub(crate) fn alone(&mut self, handle: HostHandle) -> Option<&mut Window> {
        if self.sweeps_next() {
            return None;
        }
        let window = self.windows.last(handle.0)?;
        self.calls += 1;
        Some(window)
    }

    /// Whether no other window may be waiting for a lock [EP-10].
    #[inline(always)]
    pub(crate) fn attends_no_other(&self) -> bool {
        match self.attended[..] {
            [] => true,
            [only] => only == self.windows.last_id,
            _ => false,
        }
    }
}
