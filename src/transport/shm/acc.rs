//! Atomic operations on a target's memory, all under that target's one lock.
//!
//! [AT-1] Every accumulate, get_accumulate and compare_and_swap on a target takes the same lock,
//! whoever is the origin (the target itself included), whatever the datatype, reduction or count,
//! and whichever process's CPU does the work. MPI promises atomicity per element only, so long
//! operations give the lock up between pieces: how long it is held is bounded.

use crate::transport::datatype::{self, Combine, Pair, Side, compare_swap, whole};

use super::protocol::AccumulateLock;

/// Bytes combined in one hold of the lock.
pub(super) const HOLD: usize = 64 * 1024;

/// Accumulate on mapped memory; with `result`, get_accumulate.
///
/// # Safety
/// As [`Combine::apply`] and [`Combine::fetch_apply`], but others may access `target` under its
/// lock.
#[inline]
pub(super) unsafe fn accumulate(
    lock: AccumulateLock<'_>,
    combine: &Combine,
    input: *const u8,
    target: *mut u8,
    result: Option<*mut u8>,
    len: usize,
) {
    if len <= HOLD {
        let _held = lock.hold();
        // SAFETY: the caller's promise, and the lock.
        unsafe {
            match result {
                None => combine.apply(input, target, len),
                Some(result) => combine.fetch_apply(input, target, result, len),
            }
        }
        return;
    }
    let piece = whole(HOLD, combine.extent);
    let mut at = 0;
    while at < len {
        let part = piece.min(len - at);
        // SAFETY: `at + part <= len`; one piece fits one hold, so the recursion ends here.
        unsafe {
            let result = result.map(|result| result.add(at));
            accumulate(
                AccumulateLock(lock.0),
                combine,
                input.wrapping_add(at),
                target.add(at),
                result,
                part,
            );
        }
        at += part;
    }
}

/// Accumulate between sides; with `output`, get_accumulate. Without `input` it fetches only.
///
/// Each hold of the lock fetches and combines the same elements, so each of them is atomic.
///
/// # Safety
/// All bytes of each side, displaced from its address, must be valid, and divided into elements of
/// `combine`; others may access the target's under its lock.
pub(super) unsafe fn accumulate_shaped(
    lock: AccumulateLock<'_>,
    combine: &Combine,
    input: Option<(*const u8, &Side)>,
    (target, there): (*mut u8, &Side),
    output: Option<(*mut u8, &Side)>,
) {
    let unit = there.layout().map_or(combine.extent, |(layout, _)| layout.unit());
    let hold = whole(HOLD, unit) as u64;
    let mut combined = input.map(|(from, side)| (from, Pair::new(side, there, 0)));
    let mut fetched = output.map(|(to, side)| (to, Pair::new(there, side, 0)));
    let mut left = there.size();
    while left > 0 {
        let part = left.min(hold);
        let _held = lock.hold();
        let mut rest = part;
        while rest > 0
            && let Some((to, pair)) = &mut fetched
            && let Some(pieces) = pair.next_pieces(rest)
        {
            // SAFETY: the pieces lie within the sides.
            unsafe { datatype::copy_pieces(target, *to, &pieces) };
            rest -= pieces.len * pieces.count;
        }
        let mut rest = part;
        while rest > 0
            && let Some((from, pair)) = &mut combined
            && let Some(pieces) = pair.next_pieces(rest)
        {
            // SAFETY: as above, under the lock.
            unsafe { datatype::combine_pieces(combine, *from, target, &pieces) };
            rest -= pieces.len * pieces.count;
        }
        left -= part;
    }
}

/// Compare and swap on mapped memory.
///
/// # Safety
/// As [`compare_swap`], but others may access `target` under its lock.
#[inline]
pub(super) unsafe fn compare_and_swap(
    lock: AccumulateLock<'_>,
    target: *mut u8,
    compare: *const u8,
    origin: *const u8,
    result: *mut u8,
    len: usize,
) {
    let _held = lock.hold();
    // SAFETY: the caller's promise, and the lock.
    unsafe { compare_swap(target, compare, origin, result, len) }
}
