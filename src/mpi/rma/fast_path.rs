//! Puts and gets that are copies. They leave nothing behind in the engine, so they need not go
//! through it: an epoch that is open and granted, with nothing queued, on memory that this process
//! has mapped. With many threads they do not enter the runtime either (`runtime/fast_path.rs`).

use std::cell::Cell;
use std::ffi::c_int;

use crate::engine::OpKind;
use crate::mpi::abi::sys::*;
use crate::mpi::datatype::predefined;
use crate::mpi::rma::args::{Buffer, Target};
use crate::runtime::fast_path::{self, MappedTarget};
use crate::runtime::process::{enter_alone, multiple};
use crate::runtime::{Guard, HostHandle, Window};
use crate::transport::copy;

/// Calls of a thread between two that enter: a program may do nothing else for long [PR-1].
const CALLS_PER_ENTRY: u32 = 256;

thread_local! {
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Does a put or get without entering the runtime in the usual way, if it is a copy into an epoch
/// that is open and granted. False if nothing was done: then the call goes its usual way, and any
/// fault of its arguments is found there.
///
/// # Safety
/// The arguments are those of an application's call, as MPI says of it.
#[inline(always)]
pub(crate) unsafe fn transfer(
    window: MPI_Win,
    kind: OpKind,
    origin: Buffer,
    target: Target,
) -> bool {
    // SAFETY: the arguments are those of the application's call.
    unsafe {
        if multiple() {
            copy_among(window, kind, origin, target)
        } else {
            copy_alone(window, kind, origin, target)
        }
    }
    .is_some()
}

/// A put or get that is a copy, as [`transfer`] does below `MPI_THREAD_MULTIPLE`, and then a
/// counter of the target is raised.
///
/// # Safety
/// As [`transfer`].
#[inline(always)]
pub(crate) unsafe fn notified(
    window: MPI_Win,
    kind: OpKind,
    origin: Buffer,
    target: Target,
    index: c_int,
) -> bool {
    // SAFETY: the arguments are those of the application's call.
    !multiple() && unsafe { copy_and_raise(window, kind, origin, target, index) }.is_some()
}

/// # Safety
/// As [`transfer`].
#[inline(always)]
unsafe fn copy_and_raise(
    window: MPI_Win,
    kind: OpKind,
    origin: Buffer,
    target: Target,
    index: c_int,
) -> Option<()> {
    let (rank, len) = dense(origin, target)?;
    let index = u32::try_from(index).ok()?;
    let mut guard = enter_alone()?;
    let (ours, memory) = direct(&mut guard, window, rank)?;
    let counter = ours.port.counter_of(rank, index)?;
    // SAFETY: the arguments are those of the application's call, and the port has mapped `memory`.
    unsafe { carry(kind, origin, target, memory, len) }?;
    counter.raise();
    _ = ours.count_call();
    Some(())
}

/// Raises a counter of the target where a put to it would be a copy. False if nothing was done.
#[inline(always)]
pub(crate) fn notify(window: MPI_Win, target: c_int, index: c_int) -> bool {
    !multiple() && raise(window, target, index).is_some()
}

#[inline(always)]
fn raise(window: MPI_Win, target: c_int, index: c_int) -> Option<()> {
    let (rank, index) = (u32::try_from(target).ok()?, u32::try_from(index).ok()?);
    let mut guard = enter_alone()?;
    let (ours, _) = direct(&mut guard, window, rank)?;
    ours.port.counter_of(rank, index)?.raise();
    _ = ours.count_call();
    Some(())
}

/// Bytes up to which the place for a notification is claimed before the copy. Claiming is an atomic
/// operation, which waits for all stores before it: behind the copy it would wait until the
/// target's memory has come, and the notification's own way would begin only then. Those behind a
/// claimed place wait for it, so a long copy goes first.
const CLAIMED_FIRST: u64 = 512;

/// As [`notified`], with a tag in place of a counter. If there is no room for the tag in the end,
/// the call begins anew on the long way.
///
/// # Safety
/// As [`transfer`].
#[inline(always)]
pub(crate) unsafe fn tagged_transfer(
    window: MPI_Win,
    kind: OpKind,
    origin: Buffer,
    target: Target,
    tag: c_int,
) -> bool {
    // SAFETY: the arguments are those of the application's call.
    !multiple() && unsafe { copy_and_deliver_tag(window, kind, origin, target, tag) }.is_some()
}

/// # Safety
/// As [`transfer`].
#[inline(always)]
unsafe fn copy_and_deliver_tag(
    window: MPI_Win,
    kind: OpKind,
    origin: Buffer,
    target: Target,
    tag: c_int,
) -> Option<()> {
    let (rank, len) = dense(origin, target)?;
    let tag = u32::try_from(tag).ok()?;
    let mut guard = enter_alone()?;
    let (ours, memory) = direct(&mut guard, window, rank)?;
    let there = reach(origin, target, memory, len)?;
    let early = if len <= CLAIMED_FIRST { Some(ours.port.claim_tag(rank, tag)?) } else { None };
    // SAFETY: `reach` has checked that `len` bytes lie in memory that the port has mapped; the
    // origin's buffer is the application's for as many.
    unsafe { move_bytes(kind, origin, there, len) };
    match early {
        Some(claimed) => claimed.publish(),
        None => ours.port.claim_tag(rank, tag)?.publish(),
    }
    _ = ours.count_call();
    Some(())
}

/// For calls that have none.
///
/// # Safety
/// None is needed.
#[inline(always)]
pub(crate) unsafe fn none(_: MPI_Win, _: OpKind, _: Buffer, _: Target) -> bool {
    false
}

/// For notifying calls that have none.
///
/// # Safety
/// None is needed.
#[inline(always)]
pub(crate) unsafe fn not_notified(_: MPI_Win, _: OpKind, _: Buffer, _: Target, _: c_int) -> bool {
    false
}

/// Under `MPI_THREAD_MULTIPLE`: by the fast path that the window has opened to the target, if any.
///
/// # Safety
/// As [`transfer`].
#[inline(never)]
unsafe fn copy_among(window: MPI_Win, kind: OpKind, origin: Buffer, target: Target) -> Option<()> {
    let (rank, len) = dense(origin, target)?;
    let place = fast_path::look(window.key(), rank)?;
    let calls = CALLS.get().wrapping_add(1);
    CALLS.set(calls);
    if calls.is_multiple_of(CALLS_PER_ENTRY) {
        return None;
    }
    // SAFETY: the arguments are those of the application's call, and the window has opened the fast
    // path to memory that its port has mapped.
    unsafe { carry(kind, origin, target, place, len) }
}

/// Below `MPI_THREAD_MULTIPLE`.
///
/// # Safety
/// As [`transfer`].
#[inline(always)]
unsafe fn copy_alone(window: MPI_Win, kind: OpKind, origin: Buffer, target: Target) -> Option<()> {
    let (rank, len) = dense(origin, target)?;
    let mut guard = enter_alone()?;
    let (ours, memory) = direct(&mut guard, window, rank)?;
    // SAFETY: the arguments are those of the application's call, and the port has mapped `memory`.
    unsafe { carry(kind, origin, target, memory, len) }?;
    _ = ours.count_call();
    Some(())
}

/// A window whose operations to `rank` are copies just now, and that target's memory. `None` also
/// if it is time to sweep. This is the shortest way through: it cannot panic, so nothing has to be
/// caught.
#[inline(always)]
fn direct(guard: &mut Guard, window: MPI_Win, rank: u32) -> Option<(&mut Window, MappedTarget)> {
    let ours = guard.windows.last(HostHandle(window.key()))?;
    if ours.sweep_is_due()
        || !(ours.engine.has_direct_route(rank) || goes_directly_from_now(ours, rank))
    {
        return None;
    }
    let memory = ours.mapped_target(rank)?;
    Some((ours, memory))
}

/// For the first operation of an epoch to a target, and where operations are no copies.
#[inline(never)]
fn goes_directly_from_now(window: &mut Window, rank: u32) -> bool {
    window.mapped_target(rank).is_some() && window.engine.finds_direct_route(rank)
}

/// Target and bytes of an operation that moves as many elements of one predefined datatype without
/// padding as it finds.
#[inline(always)]
fn dense(origin: Buffer, target: Target) -> Option<(u32, u64)> {
    let alike = origin.datatype == target.datatype && origin.count == target.count;
    let datatype = predefined(origin.datatype).filter(|datatype| alike && datatype.is_dense())?;
    Some((u32::try_from(target.rank).ok()?, datatype.bytes(u64::try_from(target.count).ok()?)?))
}

/// Copies `len` bytes between the origin's buffer and the target's memory. Nothing if they would
/// not lie within it.
///
/// # Safety
/// As [`transfer`]; `place` is the target's memory, mapped here.
#[inline(always)]
unsafe fn carry(
    kind: OpKind,
    origin: Buffer,
    target: Target,
    place: MappedTarget,
    len: u64,
) -> Option<()> {
    let there = reach(origin, target, place, len)?;
    // SAFETY: the place in the target's memory was just checked; the origin's buffer is the
    // application's for so many bytes.
    unsafe { move_bytes(kind, origin, there, len) };
    Some(())
}

/// Where the target's bytes are. Nothing if they would not lie within its memory.
#[inline(always)]
fn reach(origin: Buffer, target: Target, place: MappedTarget, len: u64) -> Option<*mut u8> {
    let at = u64::try_from(target.disp).ok()?.checked_mul(place.unit)?;
    if at > place.size || len > place.size - at || origin.address.is_null() {
        return None;
    }
    Some((place.base + at) as usize as *mut u8)
}

/// # Safety
/// Both sides are valid for so many bytes.
#[inline(always)]
unsafe fn move_bytes(kind: OpKind, origin: Buffer, there: *mut u8, len: u64) {
    let here = origin.address.cast::<u8>();
    // SAFETY: both sides are valid for `len` bytes (contract of this function).
    unsafe {
        match kind {
            OpKind::Put => copy(here, there, len as usize),
            _ => copy(there, here.cast_mut(), len as usize),
        }
    }
}
