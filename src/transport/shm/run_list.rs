//! The payload of a slot whose target bytes are not contiguous: strided runs, then packed data.
//!
//! ```text
//! number of entries | entries | padding to a cache line | data
//! ```

use crate::engine::OpKind;
use crate::transport::datatype::{self, Combine, Pieces};

use super::channel::Tag;

/// Runs of the target's memory, a constant stride apart.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct StridedRun {
    /// Displacement of the first run from the base of the target's memory, in bytes.
    pub(super) disp: u64,
    /// Bytes from one run to the next.
    pub(super) stride: i64,
    /// Bytes of one run.
    pub(super) len: u32,
    /// Number of runs.
    pub(super) count: u32,
}

/// Maximum entries in one slot. With the longest piece they take a sixth of the payload area.
pub(super) const RUNS_MAX: usize = 256;

const LINE: usize = 64;

/// Bytes before the data of a list with `entries` entries.
pub(super) fn header_len(entries: usize) -> usize {
    (size_of::<u64>() + entries * size_of::<StridedRun>()).next_multiple_of(LINE)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RunList<'a> {
    pub(super) entries: &'a [StridedRun],
    pub(super) data: *mut u8,
}

impl<'a> RunList<'a> {
    /// Writes the entries; returns the address for the data.
    ///
    /// # Safety
    /// The caller may write the payload, which has [`header_len`] bytes, aligned to a cache line.
    pub(super) unsafe fn write(payload: *mut u8, entries: &[StridedRun]) -> *mut u8 {
        // SAFETY: count and entries fit the payload, and a cache line is aligned for both.
        unsafe {
            payload.cast::<u64>().write(entries.len() as u64);
            let to = payload.add(size_of::<u64>()).cast::<StridedRun>();
            std::ptr::copy_nonoverlapping(entries.as_ptr(), to, entries.len());
            payload.add(header_len(entries.len()))
        }
    }

    /// # Safety
    /// [`write`](Self::write) wrote the payload, and its entries do not change during `'a`.
    pub(super) unsafe fn read(payload: *mut u8) -> Self {
        // SAFETY: `write` put the count, that many entries and then the data there.
        unsafe {
            let count = payload.cast::<u64>().read() as usize;
            let first = payload.add(size_of::<u64>()).cast::<StridedRun>();
            let entries = std::slice::from_raw_parts(first, count);
            RunList { entries, data: payload.add(header_len(count)) }
        }
    }

    /// Each run: displacement, length, address of its data.
    pub(super) fn runs(self) -> impl Iterator<Item = (u64, usize, *mut u8)> + 'a {
        let mut data = self.data;
        self.entries
            .iter()
            .flat_map(|entry| (0..i64::from(entry.count)).map(move |at| (entry, at)))
            .map(move |(entry, at)| {
                let disp = entry.disp.wrapping_add_signed(at.wrapping_mul(entry.stride));
                let run = (disp, entry.len as usize, data);
                data = data.wrapping_add(entry.len as usize);
                run
            })
    }

    /// Applies an operation to memory at `base`. The bytes that it fetches replace the data.
    ///
    /// # Safety
    /// All runs lie in the memory at `base`, and nobody else uses the list. For atomic operations
    /// the caller holds the accumulate lock of the memory.
    pub(super) unsafe fn apply(self, kind: OpKind, combine: &Combine, base: *mut u8) {
        let mut at = 0;
        for entry in self.entries {
            let pieces = |from_target: bool| {
                let (target, packed) =
                    ((entry.disp as i64, entry.stride), (at, i64::from(entry.len)));
                let [one, other] = if from_target { [target, packed] } else { [packed, target] };
                let (len, count) = (u64::from(entry.len), u64::from(entry.count));
                Pieces { at: [one.0, other.0], stride: [one.1, other.1], len, count }
            };
            // SAFETY: the entry's runs lie in the memory and in the packed data, which nobody else
            // uses; the accumulate lock is held where the operation is atomic.
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
                    OpKind::CompareAndSwap => debug_assert!(false, "one element"),
                }
            }
            at += i64::from(entry.len) * i64::from(entry.count);
        }
    }
}

/// Combines a list's data into `packed`, the target's elements without gaps.
///
/// # Safety
/// `packed` is as long as the data, and nobody else uses either.
pub(super) unsafe fn combine_packed(
    list: RunList<'_>,
    tag: Tag,
    combine: &Combine,
    packed: *mut u8,
) {
    for (_, len, data) in list.runs() {
        let at = data.addr() - list.data.addr();
        // SAFETY: the run, whole elements, lies at the same offset in both buffers.
        unsafe {
            match tag.kind {
                OpKind::GetAccumulate => combine.exchange_apply(data, packed.add(at), len),
                _ => combine.apply(data, packed.add(at), len),
            }
        }
    }
}
