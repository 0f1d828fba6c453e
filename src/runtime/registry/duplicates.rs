//! Duplicates of windows [DU-1]: handles that share a window, each with a lane of its own.

use super::{HandleState, Registry, WindowId};
use crate::runtime::window::{Hints, HostHandle, Window};

impl Registry {
    /// Has the next calls on a window be those on the handle of this lane; on the original, if that
    /// handle is gone.
    pub(crate) fn select(&mut self, id: WindowId, lane: u32) {
        let Some(window) = self.windows.get_mut(id) else { return };
        if window.lane() != lane && (window.select(lane) || window.select(0)) {
            // Which is found by its handle.
            self.windows.forget_last(id);
        }
    }

    /// A window, for calls on the handle of this lane.
    pub(crate) fn on_lane(&mut self, id: WindowId, lane: u32) -> &mut Window {
        self.select(id, lane);
        &mut self[id]
    }

    /// Adds a duplicate of a window that we serve. False if the window has been freed, or has too
    /// many.
    pub(crate) fn insert_duplicate(
        &mut self,
        id: WindowId,
        handle: HostHandle,
        hints: Hints,
    ) -> bool {
        let window = self.windows.get_mut(id);
        let Some(lane) = window.and_then(|window| window.add_duplicate(handle, hints)) else {
            return false;
        };
        self.set(handle, HandleState::Ours(id, lane));
        true
    }

    /// Removes a duplicate. Its handle is remembered as freed.
    pub(crate) fn remove_duplicate(&mut self, id: WindowId, handle: HostHandle, lane: u32) {
        self.windows.forget_last(id);
        if let Some(window) = self.windows.get_mut(id) {
            window.remove_duplicate(lane);
        }
        self.mark_freed(handle, HandleState::Ours(id, lane));
    }
}
