//! Storage with small, reusable indices. An empty slab frees its memory.

use std::num::NonZeroU32;

/// Index and generation of a slot. The key of an earlier use of the slot finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: NonZeroU32,
}

impl Key {
    /// A key that no slab ever contains.
    pub(crate) const NONE: Key = Key { index: NIL, generation: NonZeroU32::MIN };

    /// Packs the key into 64 bits, which are never 0, for code that only stores or compares it.
    #[inline(always)]
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.generation.get()) << 32 | u64::from(self.index)
    }

    /// Unpacks a key from [`to_word`](Self::to_word). `None` if `word` is no key.
    #[inline(always)]
    pub(crate) fn of_word(word: u64) -> Option<Self> {
        let generation = NonZeroU32::new((word >> 32) as u32)?;
        Some(Key { index: word as u32, generation })
    }
}

#[derive(Debug)]
enum Entry<T> {
    Used(NonZeroU32, T),
    Free(u32),
}

const NIL: u32 = u32::MAX;
/// An empty slab with more slots than this frees its memory.
const KEEP: usize = 1024;

/// Values by [`Key`].
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: u32,
    len: usize,
    /// One counter for all slots. It is never reset, so old keys stay invalid when the storage is
    /// freed. It wraps after 2^32 insertions; no stale key lives that long.
    generation: NonZeroU32,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Slab { entries: Vec::new(), free: NIL, len: 0, generation: NonZeroU32::MIN }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> Key {
        self.generation = self.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        let generation = self.generation;
        self.len += 1;
        let index = if self.free == NIL {
            self.entries.push(Entry::Used(generation, value));
            u32::try_from(self.entries.len() - 1).expect("fewer than 2^32 live entries")
        } else {
            let index = self.free;
            let slot = &mut self.entries[index as usize];
            let Entry::Free(next) = *slot else { unreachable!("the free list holds free slots") };
            self.free = next;
            *slot = Entry::Used(generation, value);
            index
        };
        Key { index, generation }
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        match self.entries.get(key.index as usize) {
            Some(Entry::Used(generation, value)) if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.entries.get_mut(key.index as usize) {
            Some(Entry::Used(generation, value)) if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    /// The key of the value at `index`, if there is one.
    #[inline]
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        match self.entries.get(index as usize) {
            Some(Entry::Used(generation, _)) => Some(Key { index, generation: *generation }),
            _ => None,
        }
    }

    /// Every live value has an index below this.
    pub(crate) fn end(&self) -> u32 {
        self.entries.len() as u32
    }

    /// All values, by index.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().filter_map(|entry| match entry {
            Entry::Used(_, value) => Some(value),
            Entry::Free(_) => None,
        })
    }

    /// Index that the next value will get.
    #[inline(always)]
    pub(super) fn next_index(&self) -> u32 {
        if self.free == NIL { self.entries.len() as u32 } else { self.free }
    }

    pub(crate) fn take(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let Entry::Used(_, value) =
            std::mem::replace(&mut self.entries[key.index as usize], Entry::Free(self.free))
        else {
            unreachable!("the key was found")
        };
        self.emptied(key.index);
        Some(value)
    }

    /// Removes the value. False if the key finds nothing.
    #[inline]
    pub(crate) fn remove(&mut self, key: Key) -> bool {
        if self.get(key).is_none() {
            return false;
        }
        self.entries[key.index as usize] = Entry::Free(self.free);
        self.emptied(key.index);
        true
    }

    #[inline(always)]
    fn emptied(&mut self, index: u32) {
        self.free = index;
        self.len -= 1;
        if self.len == 0 && self.entries.len() > KEEP {
            self.entries = Vec::new();
            self.free = NIL;
        }
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab::new()
    }
}

impl<T> std::ops::Index<Key> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, key: Key) -> &T {
        self.get(key).expect("key of a live entry")
    }
}

impl<T> std::ops::IndexMut<Key> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, key: Key) -> &mut T {
        self.get_mut(key).expect("key of a live entry")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_an_earlier_use_finds_nothing() {
        let mut slab = Slab::new();
        let a = slab.insert(1);
        assert!(slab.remove(a));
        let b = slab.insert(2);
        assert_eq!(a.index, b.index);
        assert_eq!((slab.get(a), slab.get(b)), (None, Some(&2)));
        assert!(!slab.remove(a));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn memory_returns_when_empty() {
        let mut slab = Slab::new();
        let keys: Vec<_> = (0..5000).map(|i| slab.insert(i)).collect();
        for key in &keys {
            slab.remove(*key);
        }
        assert_eq!(slab.entries.capacity(), 0);
        assert!(keys.iter().all(|k| slab.get(*k).is_none()));
        let again = slab.insert(7);
        assert_eq!(slab[again], 7);
        assert!(keys.iter().all(|k| slab.get(*k).is_none()));
    }
}
