//! Where the memory of allocated windows lies in this process, so that peers can name it to each
//! other: for reads in place outside of any epoch.
//!
//! A place is a segment's id, the same in all processes that have mapped it, and an offset.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::process::lock;
use super::segment::Segment;

/// A byte of a segment of an allocated window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPlace {
    /// Id of the segment, not 0.
    pub segment: u64,
    /// Offset of the byte.
    pub offset: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    id: u64,
    len: u64,
}

/// The mappings by their addresses.
static MAPPINGS: Mutex<BTreeMap<usize, Mapping>> = Mutex::new(BTreeMap::new());
/// Mappings that have ended.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// The listing of a window's segment, from its set-up to its end.
#[derive(Debug)]
pub(super) struct Listing {
    start: usize,
}

impl Listing {
    /// Lists a segment that stays mapped as long as the listing lives.
    pub(super) fn new(id: u64, segment: &Segment) -> Self {
        let (start, len) = (segment.base().addr(), segment.len());
        lock(&MAPPINGS).insert(start, Mapping { id, len });
        Listing { start }
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        lock(&MAPPINGS).remove(&self.start);
        ENDED.fetch_add(1, Ordering::Release);
    }
}

/// The place of `len` bytes at `address`, if they lie in memory of an allocated window.
#[must_use]
pub fn place_of(address: usize, len: u64) -> Option<WindowPlace> {
    let mappings = lock(&MAPPINGS);
    let (start, mapping) = mappings.range(..=address).next_back()?;
    let offset = (address - start) as u64;
    (offset.checked_add(len)? <= mapping.len).then_some(WindowPlace { segment: mapping.id, offset })
}

/// The address of `len` bytes at a place. `None`: this process has not mapped them.
#[must_use]
pub fn address_of(place: WindowPlace, len: u64) -> Option<usize> {
    let mappings = lock(&MAPPINGS);
    let mut found = mappings.iter().filter(|(_, mapping)| mapping.id == place.segment);
    let (start, mapping) = found.next()?;
    (place.offset.checked_add(len)? <= mapping.len).then(|| start + place.offset as usize)
}

/// How many mappings have ended: unless it changes, addresses of places stay valid.
#[must_use]
pub fn mappings_ended() -> u64 {
    ENDED.load(Ordering::Acquire)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::segment;
    use super::*;

    #[test]
    fn places_are_found_while_their_segment_is_listed() {
        let file = segment::create().unwrap();
        let segment = Segment::map(&file, 8192, 1).unwrap();
        let again = Segment::map(&file, 8192, 1).unwrap();
        let start = segment.base().addr();
        assert_eq!(place_of(start, 1), None);
        let listing = Listing::new(u64::MAX, &segment);
        let place = place_of(start + 100, 8092).unwrap();
        assert_eq!(place, WindowPlace { segment: u64::MAX, offset: 100 });
        assert_eq!(place_of(start + 100, 8093), None);
        assert_eq!(place_of(again.base().addr(), 1), None);
        assert_eq!(address_of(place, 8092), Some(start + 100));
        assert_eq!(address_of(place, 8093), None);
        assert_eq!(address_of(WindowPlace { segment: 1, ..place }, 1), None);
        let ended = mappings_ended();
        drop(listing);
        assert!(mappings_ended() > ended && place_of(start, 1).is_none());
        assert_eq!(address_of(place, 1), None);
    }
}
