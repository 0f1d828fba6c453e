//! The payload of a slot whose target bytes are not one run: a list of places, then the data,
//! packed.
//!
//! ```text
//! number of places | places | padding to a cache line | data
//! ```

use crate::transport::datatype::{self, Combine, Pieces};

use super::channel::Tag;
use crate::engine::OpKind;

/// Runs of the target's memory, at equal distances.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Bytes from the base of the target's memory to the first run.
    pub(super) disp: u64,
    /// From one run to the next.
    pub(super) stride: i64,
    /// Bytes of a run.
    pub(super) len: u32,
    /// How many runs.
    pub(super) count: u32,
}

/// Places in one slot at most: with the longest piece they take a sixth of the channel.
pub(super) const PLACES_MAX: usize = 256;

const LINE: usize = 64;

/// Bytes of a list before the data.
pub(super) fn head(places: usize) -> usize {
    (size_of::<u64>() + places * size_of::<Place>()).next_multiple_of(LINE)
}

/// A list as it lies in a payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct List<'a> {
    pub(super) places: &'a [Place],
    pub(super) data: *mut u8,
}

impl<'a> List<'a> {
    /// Writes the places; gives where the data go.
    ///
    /// # Safety
    /// The payload is the caller's to write, aligned to a cache line, and has room for [`head`]
    /// bytes.
    pub(super) unsafe fn write(payload: *mut u8, places: &[Place]) -> *mut u8 {
        // SAFETY: the caller's promise; a cache line is enough of an alignment.
        unsafe {
            payload.cast::<u64>().write(places.len() as u64);
            let to = payload.add(size_of::<u64>()).cast::<Place>();
            std::ptr::copy_nonoverlapping(places.as_ptr(), to, places.len());
            payload.add(head(places.len()))
        }
    }

    /// # Safety
    /// The payload was written by [`write`](Self::write), and is not changed as long as the result
    /// is used; its data may be.
    pub(super) unsafe fn read(payload: *mut u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let count = payload.cast::<u64>().read() as usize;
            let places =
                std::slice::from_raw_parts(payload.add(size_of::<u64>()).cast::<Place>(), count);
            List { places, data: payload.add(head(count)) }
        }
    }

    /// Each run: displacement, length, and its data.
    pub(super) fn runs(self) -> impl Iterator<Item = (u64, usize, *mut u8)> + 'a {
        let mut data = self.data;
        self.places
            .iter()
            .flat_map(|place| (0..i64::from(place.count)).map(move |at| (place, at)))
            .map(move |(place, at)| {
                let run = (
                    place.disp.wrapping_add_signed(at.wrapping_mul(place.stride)),
                    place.len as usize,
                    data,
                );
                data = data.wrapping_add(place.len as usize);
                run
            })
    }

    /// Applies an operation to memory at `base`; what it fetches takes the place of the data.
    ///
    /// # Safety
    /// The places lie in the memory; the list is the caller's alone, and so is the memory, for
    /// atomic operations, by its lock.
    pub(super) unsafe fn apply(self, kind: OpKind, combine: &Combine, base: *mut u8) {
        let mut at = 0;
        for place in self.places {
            let pieces = |from_target: bool| {
                let (target, packed) =
                    ((place.disp as i64, place.stride), (at, i64::from(place.len)));
                let [one, other] = if from_target { [target, packed] } else { [packed, target] };
                let (len, count) = (u64::from(place.len), u64::from(place.count));
                Pieces { at: [one.0, other.0], stride: [one.1, other.1], len, count }
            };
            // SAFETY: the caller's promise.
            unsafe {
                match kind {
                    OpKind::Put => datatype::copy_pieces(self.data, base, &pieces(false)),
                    OpKind::Get => datatype::copy_pieces(base, self.data, &pieces(true)),
                    OpKind::Accumulate => {
                        datatype::combine_pieces(combine, self.data, base, &pieces(false))
                    }
                    OpKind::GetAccumulate => {
                        datatype::exchange_pieces(combine, self.data, base, &pieces(false))
                    }
                    OpKind::CompareAndSwap | OpKind::Notify | OpKind::NotifyTagged => {
                        debug_assert!(false, "one element")
                    }
                }
            }
            at += i64::from(place.len) * i64::from(place.count);
        }
    }
}

/// Combines a list's data with packed elements of the target, which take on their new values.
///
/// # Safety
/// As [`List::apply`], where the memory is `packed`, as long as the data.
pub(super) unsafe fn combine_packed(list: List<'_>, tag: Tag, combine: &Combine, packed: *mut u8) {
    for (_, len, data) in list.runs() {
        let at = data.addr() - list.data.addr();
        // SAFETY: the caller's promise; runs are whole elements.
        unsafe {
            match tag.kind {
                OpKind::GetAccumulate => combine.exchange_apply(data, packed.add(at), len),
                _ => combine.apply(data, packed.add(at), len),
            }
        }
    }
}
