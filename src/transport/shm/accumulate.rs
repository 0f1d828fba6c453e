//! Atomic operations on a target's memory, under the target's accumulate lock.
//!
//! [AT-1] Every accumulate, get_accumulate and compare_and_swap takes the lock of the bytes that it
//! accesses, by their displacement in the target's memory, whichever process is the origin (the
//! target included) or applies it, and whatever the datatype, reduction or count. MPI promises
//! atomicity per element only. So long operations release the lock between pieces, which bounds the
//! time for which it is held.

use crate::transport::datatype::{self, Combine, Pair, Side, whole};

use super::protocol::AccumulateWords;

/// Bytes combined in one hold of the lock.
pub(super) const LOCK_HOLD_BYTES: usize = 64 * 1024;

/// Accumulate on mapped memory at displacement `disp`; get_accumulate if there is a `result`. No
/// `lock`: this thread alone accesses the memory of the window.
///
/// # Safety
/// As [`Combine::fetch_apply`], but others may access `target` under its lock.
#[inline(always)]
pub(crate) unsafe fn accumulate(
    lock: Option<&AccumulateWords>,
    combine: &Combine,
    input: *const u8,
    (target, disp): (*mut u8, u64),
    result: Option<*mut u8>,
    len: usize,
) {
    let piece = if len <= LOCK_HOLD_BYTES { len } else { whole(LOCK_HOLD_BYTES, combine.extent) };
    let mut at = 0;
    loop {
        let part = piece.min(len - at);
        let _held = lock.map(|lock| lock.lock(disp.wrapping_add(at as u64), part as u64));
        // SAFETY: `at + part <= len`, so the parts lie in the buffers, which are valid by this
        // function's contract. The lock keeps others from `target`.
        unsafe {
            let (input, target) = (input.wrapping_add(at), target.add(at));
            match result {
                None => combine.apply(input, target, part),
                Some(result) => combine.fetch_apply(input, target, result.add(at), part),
            }
        }
        at += part;
        if at >= len {
            return;
        }
    }
}

/// Accumulate between sides: get_accumulate with an `output`, and only a fetch without `input`.
///
/// Fetches and combines each element in one hold of the lock, so each is updated atomically.
///
/// # Safety
/// All bytes of each side, displaced from its address, must be valid and consist of elements of
/// `combine`. Others may access the target's under its lock.
pub(super) unsafe fn accumulate_shaped(
    lock: &AccumulateWords,
    combine: &Combine,
    input: Option<(*const u8, &Side)>,
    (target, there): (*mut u8, &Side),
    output: Option<(*mut u8, &Side)>,
) {
    let unit = there.layout().map_or(combine.extent, |(layout, _)| layout.unit());
    let hold = whole(LOCK_HOLD_BYTES, unit) as u64;
    let mut combined = input.map(|(from, side)| (from, Pair::new(side, there, 0)));
    let mut fetched = output.map(|(to, side)| (to, Pair::new(there, side, 0)));
    let mut left = there.size();
    while left > 0 {
        let part = left.min(hold);
        let _held = lock.lock_all();
        let mut rest = part;
        while rest > 0
            && let Some((to, pair)) = &mut fetched
            && let Some(pieces) = pair.next_pieces(rest)
        {
            // SAFETY: the pieces lie within the sides, and the lock keeps others from the target's.
            unsafe { datatype::copy_pieces(target, *to, &pieces) };
            rest -= pieces.len * pieces.count;
        }
        let mut rest = part;
        while rest > 0
            && let Some((from, pair)) = &mut combined
            && let Some(pieces) = pair.next_pieces(rest)
        {
            // SAFETY: whole elements within the sides; the lock keeps others from the target's.
            unsafe { datatype::combine_pieces(combine, *from, target, &pieces) };
            rest -= pieces.len * pieces.count;
        }
        left -= part;
    }
}
