//! Long accumulates by reference: the slot has the address of the origin's buffer, and the target
//! reads the data by cross-memory attach.
//!
//! Through the channel, each byte crosses twice between the caches of the two processors. Here the
//! target reads a piece of the origin's data, and combines it with its own memory under the
//! accumulate lock [AT-1]: 64 KB take 4.9 µs instead of 8.6. The slot is applied in its turn like
//! any other, so the operations of one origin keep their order [AT-2]. If the target does not poll,
//! the origin applies the slot in its place (`cma_consumer.rs`).
//!
//! Through the channel, both processors share the work. That is faster for data that are in no
//! cache (from 1 MB on), so the faster way is learned for each length. Operations that fetch always
//! go through the channel: 64 KB take 8.5 µs there, and 10 to 14 by reference.
//!
//! Whoever holds the consumer lock applies pieces, and says after each how far it has come. If the
//! kernel refuses, the origin sends what is left through the channel. Until the slot is applied,
//! the origin sends nothing else, so nothing overtakes what is left.

use std::io;

use crate::engine::{Op, OpKind};
use crate::sync::Ordering::Relaxed;
use crate::transport::datatype::whole;

use super::accumulate::LOCK_HOLD_BYTES;
use super::channel::{Channel, PublishedSlot};
use super::cma::{self, Direction};
use super::context::Context;
use super::reference::{REFERENCE_MAX, Reference};

/// Shortest operation by reference.
pub(super) const ACCUMULATE_MIN: u64 = 16 * 1024;
/// Bytes of a piece: enough to hide the cost of a system call, and few enough for the caches.
const PIECE: usize = 32 * 1024;
const _: () = assert!(PIECE <= LOCK_HOLD_BYTES);
/// Pieces that the target applies in one poll, so that a call that does not wait returns soon.
const PIECES_PER_POLL: usize = 16;

/// Whether an operation may go by reference.
pub(super) fn suits(op: &Op) -> bool {
    op.kind == OpKind::Accumulate
        && (ACCUMULATE_MIN..=REFERENCE_MAX).contains(&op.len)
        && op.shape.is_none()
        && op.notification.is_none()
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Bytes that are applied, from the first on.
    pub(super) applied: usize,
    /// The kernel refuses to let the target access this process.
    pub(super) refused: bool,
}

/// For the origin: how far the operation at `position` has come.
///
/// # Safety
/// The slot is by reference, and the origin has not written it since it published it.
pub(super) unsafe fn progress(channel: &Channel, position: u64) -> Progress {
    // SAFETY: the contract of this function.
    let reference = unsafe { Reference::at(channel, position) };
    Progress {
        applied: reference.claimed.load(Relaxed) as usize,
        refused: reference.failed.load(Relaxed) != 0,
    }
}

/// The next piece of a slot: its first byte, and its number of bytes. `None` if all is applied.
///
/// # Safety
/// The slot is by reference and published, and the caller holds the consumer lock.
pub(super) unsafe fn next_piece(slot: &PublishedSlot) -> Option<(&Reference, usize, usize)> {
    // SAFETY: the payload is a reference, which stays as it is while the consumer lock is held.
    let reference = unsafe { &*slot.data.cast::<Reference>() };
    let at = reference.claimed.load(Relaxed) as usize;
    (at < slot.len).then(|| (reference, at, whole(PIECE, slot.tag.extent).min(slot.len - at)))
}

/// For the target: applies some pieces. False if there are more. Clears `attaches` if the kernel
/// refuses; the target then leaves this and all later operations by reference.
///
/// # Safety
/// The slot is by reference and published, the caller holds the consumer lock, and the slot's
/// target bytes lie in the window memory. `origin` is the process that published it.
#[inline(never)]
pub(super) unsafe fn apply(
    slot: &PublishedSlot,
    context: &Context,
    origin: i32,
    attaches: &mut bool,
    scratch: &mut Vec<u8>,
) -> bool {
    for _ in 0..PIECES_PER_POLL {
        // SAFETY: the slot is by reference and published, and the consumer lock is held.
        let Some((reference, at, len)) = (unsafe { next_piece(slot) }) else { return true };
        let result = match *attaches {
            // SAFETY: the contract of this function; the piece lies in the slot's bytes.
            true => unsafe { apply_piece(slot, context, origin, (reference, at, len), scratch) },
            false => Err(io::ErrorKind::PermissionDenied.into()),
        };
        if let Err(error) = result {
            if std::mem::replace(attaches, false) {
                log::warn!(
                    "cross-memory attach to the origin failed ({error}); \
                     in this window, this process leaves the copying to origins"
                );
            }
            // Made visible by the head that passes this slot.
            reference.failed.store(1, Relaxed);
            return true;
        }
        reference.claimed.store((at + len) as u64, Relaxed);
        // The origin must not take this process for one that does not poll.
        let polls = &context.parts.rank(context.me).polls.0;
        polls.store(polls.load(Relaxed).wrapping_add(1), Relaxed);
    }
    // SAFETY: as in the loop.
    unsafe { next_piece(slot) }.is_none()
}

/// Applies `len` bytes from byte `at` on.
///
/// # Safety
/// As [`apply`], with a piece of the slot.
unsafe fn apply_piece(
    slot: &PublishedSlot,
    context: &Context,
    origin: i32,
    (reference, at, len): (&Reference, usize, usize),
    scratch: &mut Vec<u8>,
) -> io::Result<()> {
    scratch.resize(scratch.len().max(len), 0);
    let data = scratch.as_mut_ptr();
    // SAFETY: the scratch buffer has room for the piece.
    unsafe { cma::transfer(Direction::Read, origin, data, reference.address + at as u64, len) }?;
    let disp = slot.disp + at as u64;
    let _held = context.parts.rank(context.me).accumulate_lock.lock(disp, len as u64);
    let target = context.base.wrapping_add(disp as usize);
    // SAFETY: the bytes lie in the window memory (contract of this function), and the accumulate
    // lock is held [AT-1]. The scratch buffer has the input.
    unsafe { slot.tag.combine(context.foreign).apply(data, target, len) };
    Ok(())
}
