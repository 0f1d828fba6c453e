//! Copying between two sides, and between a side and a packed buffer.

use std::ops::Range;

use super::reduce::{Aligned, Combine, EXCHANGE_BLOCK, combine_pieces};
use super::walk::{Pair, Pieces, Runs, Side};
use crate::transport::copy;

/// Copies pieces from the first side to the second.
///
/// # Safety
/// The pieces, displaced from `from` and `to`, must be valid.
#[inline]
pub(crate) unsafe fn copy_pieces(from: *const u8, to: *mut u8, pieces: &Pieces) {
    let Pieces { at, stride, len, count } = *pieces;
    let (from, to) = (from.wrapping_offset(at[0] as isize), to.wrapping_offset(at[1] as isize));
    let (from_stride, to_stride) = (stride[0] as isize, stride[1] as isize);
    let len = len as usize;
    // SAFETY: all pieces are valid, and each lies a stride after the one before.
    unsafe {
        match len {
            8 => each::<u64>(from, from_stride, to, to_stride, count),
            4 => each::<u32>(from, from_stride, to, to_stride, count),
            16 => each::<u128>(from, from_stride, to, to_stride, count),
            2 => each::<u16>(from, from_stride, to, to_stride, count),
            1 => each::<u8>(from, from_stride, to, to_stride, count),
            _ => {
                let (mut from, mut to) = (from, to);
                for _ in 0..count {
                    copy(from, to, len);
                    (from, to) = (from.wrapping_offset(from_stride), to.wrapping_offset(to_stride));
                }
            }
        }
    }
}

/// Copies `count` words, each by one store, so that a reader never sees half of an aligned word.
///
/// # Safety
/// As [`copy_pieces`].
#[inline(always)]
unsafe fn each<T: Copy>(
    from: *const u8,
    from_stride: isize,
    to: *mut u8,
    to_stride: isize,
    count: u64,
) {
    let (mut from, mut to) = (from, to);
    for _ in 0..count {
        // SAFETY: all pieces are valid, and each lies a stride after the one before.
        unsafe { to.cast::<T>().write_unaligned(from.cast::<T>().read_unaligned()) };
        (from, to) = (from.wrapping_offset(from_stride), to.wrapping_offset(to_stride));
    }
}

/// Combines pieces of the first side into the second, and returns the second's old data in their
/// place, as [`Combine::exchange_apply`] does.
///
/// # Safety
/// As [`combine_pieces`], and the first side must be writable.
pub(crate) unsafe fn exchange_pieces(
    combine: &Combine,
    data: *mut u8,
    inout: *mut u8,
    pieces: &Pieces,
) {
    let Pieces { mut at, stride, len, count } = *pieces;
    let some = (EXCHANGE_BLOCK as u64 / len).min(count);
    if some < 2 {
        for _ in 0..count {
            let (data, inout) =
                (data.wrapping_offset(at[0] as isize), inout.wrapping_offset(at[1] as isize));
            // SAFETY: all pieces are valid and whole elements, each a stride after the one before,
            // and nobody else accesses those of `inout`.
            unsafe { combine.exchange_apply(data, inout, len as usize) };
            at = [at[0].wrapping_add(stride[0]), at[1].wrapping_add(stride[1])];
        }
        return;
    }
    let mut old = Aligned([0u8; EXCHANGE_BLOCK]);
    let old = old.0.as_mut_ptr();
    let mut left = count;
    while left > 0 {
        let (count, packed) = (some.min(left), len as i64);
        let save = Pieces { at: [at[1], 0], stride: [stride[1], packed], len, count };
        let reply = Pieces { at: [0, at[0]], stride: [packed, stride[0]], len, count };
        // SAFETY: the pieces are valid on both sides, and `count` of them fit into the block.
        unsafe {
            copy_pieces(inout, old, &save);
            combine_pieces(combine, data, inout, &Pieces { at, stride, len, count });
            copy_pieces(old, data, &reply);
        }
        let by = |side: usize| at[side].wrapping_add((count as i64).wrapping_mul(stride[side]));
        at = [by(0), by(1)];
        left -= count;
    }
}

/// Copies all data of one side to another of the same size.
///
/// # Safety
/// The bytes of both sides, displaced from `from` and `to`, must be valid.
#[inline]
pub unsafe fn transfer(from: *const u8, source: &Side, to: *mut u8, sink: &Side) {
    // SAFETY: the contract of this function.
    unsafe { transfer_from(from, source, to, sink, 0) };
}

/// As [`transfer`], without the first `at` bytes of data.
///
/// # Safety
/// As [`transfer`].
#[inline]
pub(super) unsafe fn transfer_from(
    from: *const u8,
    source: &Side,
    to: *mut u8,
    sink: &Side,
    at: u64,
) {
    let mut pair = Pair::new(source, sink, at);
    while let Some(pieces) = pair.next_pieces(u64::MAX) {
        // SAFETY: the pieces lie within both sides, whose bytes are valid.
        unsafe { copy_pieces(from, to, &pieces) };
    }
}

/// Calls `f` with pieces of `len` bytes of a side's data from offset `at` on, and of a packed
/// buffer.
#[inline(always)]
fn packed_pieces(side: &Side, at: u64, len: usize, mut f: impl FnMut(Pieces)) {
    let mut cursor = side.walk(at);
    let mut done = 0;
    while done < len
        && let Some(runs) = cursor.next_runs((len - done) as u64)
    {
        let (at, stride) = ([runs.at, done as i64], [runs.stride, runs.len as i64]);
        f(Pieces { at, stride, len: runs.len, count: runs.count });
        done += (runs.len * runs.count) as usize;
    }
    debug_assert_eq!(done, len);
}

/// Packs `len` bytes of a side's data, from offset `at` on.
///
/// # Safety
/// The side has at least `at + len` bytes. Its bytes, displaced from `from`, and `len` bytes at
/// `to` must be valid.
pub unsafe fn pack(from: *const u8, side: &Side, at: u64, to: *mut u8, len: usize) {
    packed_pieces(side, at, len, |pieces| {
        // SAFETY: the pieces lie within the side and the packed bytes, both of which are valid.
        unsafe { copy_pieces(from, to, &pieces) }
    });
}

/// Inverse of [`pack`].
///
/// # Safety
/// As [`pack`], with the two buffers exchanged.
pub unsafe fn unpack(from: *const u8, to: *mut u8, side: &Side, at: u64, len: usize) {
    packed_pieces(side, at, len, |pieces| {
        let Pieces { at: [there, here], stride: [far, near], len, count } = pieces;
        let pieces = Pieces { at: [here, there], stride: [near, far], len, count };
        // SAFETY: the pieces lie within the side and the packed bytes, both of which are valid.
        unsafe { copy_pieces(from, to, &pieces) }
    });
}

/// Calls `f` with the byte range of each run of a side, in a buffer in which the side starts at
/// `base`.
fn each_run(side: &Side, base: usize, mut f: impl FnMut(Range<usize>)) {
    let mut cursor = side.walk(0);
    while let Some(Runs { at, stride, len, count }) = cursor.next_runs(u64::MAX) {
        for run in 0..count as i64 {
            let start = base as i64 + at + run * stride;
            let start = usize::try_from(start).expect("the side lies in the memory");
            f(start..start + len as usize);
        }
    }
}

/// Packs all data of a side that starts at `base` of a buffer.
///
/// # Panics
/// If the side does not lie in the buffer.
#[must_use]
pub fn gathered(memory: &[u8], base: usize, side: &Side) -> Vec<u8> {
    let mut packed = Vec::with_capacity(side.size() as usize);
    each_run(side, base, |run| packed.extend_from_slice(&memory[run]));
    packed
}

/// Unpacks data into a buffer in which the side starts at `base`.
///
/// # Panics
/// If the side does not lie in the buffer, or has more data than `packed`.
pub fn scatter(packed: &[u8], memory: &mut [u8], base: usize, side: &Side) {
    let mut rest = packed;
    each_run(side, base, |run| {
        let (data, behind) = rest.split_at(run.len());
        memory[run].copy_from_slice(data);
        rest = behind;
    });
}
