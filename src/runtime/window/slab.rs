//! Storage of the windows of this process, by number.

use std::num::NonZeroU64;

use crate::engine::slab::{Key, Slab};

use super::Window;

/// A window of this process, by number.
///
/// The number of a freed window finds nothing, also when its slot is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowId(NonZeroU64);

impl WindowId {
    /// The number of no window.
    const NONE: WindowId = WindowId(NonZeroU64::MAX);

    /// A number is compared in every call, so it is one word.
    fn of(key: Key) -> Self {
        Self::of_word(key.to_word())
    }

    /// The number as a word, for those who only pass it on.
    pub(crate) fn word(self) -> u64 {
        self.0.get()
    }

    /// The number that [`word`](Self::word) has given.
    pub(crate) fn of_word(word: u64) -> Self {
        WindowId(NonZeroU64::new(word).unwrap_or(Self::NONE.0))
    }

    fn key(self) -> Key {
        Key::of_word(self.0.get()).unwrap_or(Key::NONE)
    }
}

/// No host handle has all bits set.
const NO_HANDLE: u64 = u64::MAX;

/// Windows by [`WindowId`].
///
/// Most calls are on the window of the call before. That window is kept out of the slab, so finding
/// it by its handle or its number is one comparison.
pub(crate) struct WindowSlab {
    last_handle: u64,
    last_id: WindowId,
    last: Option<Box<Window>>,
    /// A slot is empty while its window is [`last`](Self::last).
    slots: Slab<Option<Box<Window>>>,
}

impl WindowSlab {
    pub(crate) const fn new() -> Self {
        Self { last_handle: NO_HANDLE, last_id: WindowId::NONE, last: None, slots: Slab::new() }
    }

    /// Number of windows.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The window with this number.
    #[inline(always)]
    pub(crate) fn get(&self, id: WindowId) -> Option<&Window> {
        if id == self.last_id { self.last.as_deref() } else { self.slots.get(id.key())?.as_deref() }
    }

    /// The window with this number.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: WindowId) -> Option<&mut Window> {
        if id == self.last_id {
            self.last.as_deref_mut()
        } else {
            self.slots.get_mut(id.key())?.as_deref_mut()
        }
    }

    /// The window that was called last, if this is its handle.
    #[inline(always)]
    pub(crate) fn last(&mut self, handle: u64) -> Option<&mut Window> {
        if handle == self.last_handle { self.last.as_deref_mut() } else { None }
    }

    /// The window that was called last.
    #[inline(always)]
    pub(crate) fn any_last(&mut self) -> Option<&mut Window> {
        self.last.as_deref_mut()
    }

    /// The number of the window that was called last.
    #[inline(always)]
    pub(crate) fn last_id(&self) -> WindowId {
        self.last_id
    }

    /// Makes this window the one that was called last.
    pub(crate) fn set_last(&mut self, id: WindowId) {
        self.clear_last();
        let Some(window) = self.slots.get_mut(id.key()).and_then(Option::take) else { return };
        (self.last_handle, self.last_id) = (window.handle.0, id);
        self.last = Some(window);
    }

    /// Puts the window that was called last back into its slot.
    pub(crate) fn clear_last(&mut self) {
        if let Some(window) = self.last.take()
            && let Some(slot) = self.slots.get_mut(self.last_id.key())
        {
            *slot = Some(window);
        }
        (self.last_handle, self.last_id) = (NO_HANDLE, WindowId::NONE);
    }

    pub(crate) fn insert(&mut self, window: Box<Window>) -> WindowId {
        WindowId::of(self.slots.insert(Some(window)))
    }

    pub(crate) fn remove(&mut self, id: WindowId) -> Option<Box<Window>> {
        self.clear_last();
        self.slots.take(id.key()).flatten()
    }

    /// The first window at or behind this slot, and its slot; from the beginning behind the last.
    pub(crate) fn next_from(&self, slot: u32) -> Option<(u32, WindowId)> {
        let end = self.slots.end();
        (slot..end)
            .chain(0..slot.min(end))
            .find_map(|slot| Some((slot, WindowId::of(self.slots.key_at(slot)?))))
    }

    /// All windows.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Window> {
        self.clear_last();
        self.slots.iter_mut().filter_map(|slot| slot.as_deref_mut())
    }
}
