//! A list that grows without moving what is in it: doubling a large list copies it, and touches as much new memory again.

use std::ops::{Index, IndexMut};

/// Values in one chunk. The first chunk grows as any `Vec` does, so that a short list is small and found in one step.
const CHUNK: usize = 1024;

/// Values by index, pushed at the end.
#[derive(Debug)]
pub(crate) struct Chunks<T> {
    first: Vec<T>,
    /// Each with room for [`CHUNK`]; all but the last are full.
    more: Vec<Vec<T>>,
}

impl<T> Chunks<T> {
    pub(crate) const fn new() -> Self {
        Chunks { first: Vec::new(), more: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        match self.more.last() {
            None => self.first.len(),
            Some(last) => self.more.len() * CHUNK + last.len(),
        }
    }

    /// Adds a value; gives its index.
    #[inline]
    pub(crate) fn push(&mut self, value: T) -> usize {
        if self.first.len() < CHUNK {
            self.first.push(value);
            return self.first.len() - 1;
        }
        self.push_far(value)
    }

    fn push_far(&mut self, value: T) -> usize {
        if self.more.last().is_none_or(|last| last.len() == CHUNK) {
            self.more.push(Vec::with_capacity(CHUNK));
        }
        let chunks = self.more.len();
        let last = self.more.last_mut().expect("one was made");
        last.push(value);
        chunks * CHUNK + last.len() - 1
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        match self.first.get(index) {
            // Fails in `checked_sub` where the first chunk is not full.
            None => self.more.get((index / CHUNK).checked_sub(1)?)?.get(index % CHUNK),
            found => found,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        match self.first.get_mut(index) {
            None => self.more.get_mut((index / CHUNK).checked_sub(1)?)?.get_mut(index % CHUNK),
            found => found,
        }
    }

    /// Gives the memory back if the list is longer than one chunk; values are dropped then.
    pub(crate) fn clear_if_long(&mut self) -> bool {
        let long = !self.more.is_empty();
        if long {
            *self = Self::new();
        }
        long
    }

    /// Values for which there is room.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.first.capacity() + self.more.iter().map(Vec::capacity).sum::<usize>()
    }
}

impl<T> Index<usize> for Chunks<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: usize) -> &T {
        self.get(index).expect("an index that was given out")
    }
}

impl<T> IndexMut<usize> for Chunks<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        self.get_mut(index).expect("an index that was given out")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_where_they_are() {
        let mut list = Chunks::new();
        assert_eq!((list.len(), list.get(0)), (0, None));
        let mut places: Vec<*const usize> = Vec::new();
        for i in 0..5 * CHUNK {
            assert_eq!(list.push(i), i);
            assert_eq!((list.len(), list.get(i + 1)), (i + 1, None));
            if i >= CHUNK - 1 {
                places.push(&raw const list[i]);
            }
        }
        for (i, place) in (CHUNK - 1..5 * CHUNK).zip(places) {
            assert_eq!((list[i], &raw const list[i]), (i, place));
        }
        list[CHUNK] = 7;
        assert_eq!(list.get_mut(CHUNK), Some(&mut 7));
        assert!(list.capacity() <= 5 * CHUNK);
        assert!(list.clear_if_long());
        assert_eq!((list.len(), list.capacity(), list.clear_if_long()), (0, 0, false));
    }
}
