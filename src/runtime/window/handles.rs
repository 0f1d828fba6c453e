//! The handles of a window in this process: the original and its duplicates [DU-1].
//!
//! What a handle has of its own is in the [`Window`] while calls on that handle are made, and here
//! otherwise. So calls need not know which handle was given.

use super::{FastPath, Hints, HostHandle, KnownTargets, Window};
use crate::runtime::fast_path;
use crate::runtime::process::multiple;

/// What a handle has of its own.
#[derive(Debug)]
struct Own {
    handle: HostHandle,
    hints: Hints,
    only_copies: bool,
    fast_path: Option<&'static FastPath>,
}

/// The handles of a window that has been duplicated, by their lanes in the engine.
#[derive(Debug, Default)]
pub(super) struct Handles {
    /// The lane of the handle that is in the window.
    lane: u32,
    /// The other handles. Empty: the lane is free, or that handle is in the window.
    others: Vec<Option<Own>>,
}

impl Handles {
    fn others(&self) -> impl Iterator<Item = &Own> {
        self.others.iter().flatten()
    }

    fn free_lane(&self) -> usize {
        let mut free = (0..self.others.len()).filter(|lane| self.others[*lane].is_none());
        free.find(|lane| *lane != self.lane as usize).unwrap_or(self.others.len())
    }
}

/// Whether operations with these hints bypass the engine where they are copies.
pub(super) fn only_copies(hints: &Hints) -> bool {
    hints.fast_path && hints.puts_counter.is_none()
}

impl Window {
    /// The lane of the handle whose calls are being made: 0 for the original.
    #[inline]
    pub(crate) fn lane(&self) -> u32 {
        self.handles.as_ref().map_or(0, |handles| handles.lane)
    }

    /// Whether a duplicate has not been freed.
    pub(crate) fn has_duplicates(&self) -> bool {
        // One handle is in the window. If it is a duplicate, the original is among the others.
        self.handles.as_ref().is_some_and(|handles| handles.others().next().is_some())
    }

    /// Begins calls on another handle. False if no handle has this lane.
    pub(in crate::runtime) fn select(&mut self, lane: u32) -> bool {
        if lane == self.lane() {
            return true;
        }
        let Some(handles) = &mut self.handles else { return false };
        let found = handles.others.get_mut(lane as usize).and_then(Option::take);
        let Some(own) = found else { return false };
        if self.only_copies != own.only_copies {
            self.known_targets = KnownTargets::default();
        }
        let before = Own {
            handle: std::mem::replace(&mut self.handle, own.handle),
            hints: std::mem::replace(&mut self.hints, own.hints),
            only_copies: std::mem::replace(&mut self.only_copies, own.only_copies),
            fast_path: std::mem::replace(&mut self.fast_path, own.fast_path),
        };
        handles.others[handles.lane as usize] = Some(before);
        handles.lane = lane;
        self.engine.select_lane(lane);
        true
    }

    /// Adds a duplicate. Returns its lane, or `None` if the window has too many.
    pub(in crate::runtime) fn add_duplicate(
        &mut self,
        handle: HostHandle,
        hints: Hints,
    ) -> Option<u32> {
        let only_copies = only_copies(&hints);
        let handles = self.handles.get_or_insert_default();
        let lane = handles.free_lane().max(1);
        let number = u32::try_from(lane).ok().filter(|lane| *lane < self.engine.most_lanes())?;
        if handles.others.len() <= lane {
            handles.others.resize_with(lane + 1, || None);
        }
        let fast_path =
            (multiple() && only_copies && self.port.is_mapped()).then(|| fast_path::make(handle.0));
        handles.others[lane] = Some(Own { handle, hints, only_copies, fast_path });
        Some(number)
    }

    /// Removes a duplicate. Calls are on the original afterwards, if they were on the duplicate.
    pub(in crate::runtime) fn remove_duplicate(&mut self, lane: u32) {
        if self.lane() == lane {
            self.select(0);
        }
        let Some(handles) = &mut self.handles else { return };
        if let Some(own) = handles.others.get_mut(lane as usize).and_then(Option::take)
            && let Some(fast_path) = own.fast_path
        {
            fast_path::give_back(fast_path);
        }
    }

    /// Closes the fast paths of the other handles.
    #[cold]
    pub(super) fn close_other_fast_paths(&self) {
        for own in self.handles.iter().flat_map(|handles| handles.others()) {
            if let Some(fast_path) = own.fast_path {
                fast_path.close();
            }
        }
    }

    /// The number of counters that a process must keep, because operations on some handle raise
    /// them.
    pub(crate) fn counters_in_use(&self) -> u32 {
        let others = self.handles.iter().flat_map(|handles| handles.others());
        let hints = others.map(|own| &own.hints).chain([&self.hints]);
        hints.filter_map(|hints| hints.puts_counter).map(|number| number.get()).max().unwrap_or(0)
    }
}
