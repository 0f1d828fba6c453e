//! Puts and gets of many threads at once, without entering the runtime (`runtime::shortcut`).

use std::cell::Cell;

use super::args::{Buffer, Target};
use super::datatype::predefined;
use super::rma::CALLS_PER_SWEEP;
use super::sys::*;
use crate::engine::OpKind;
use crate::runtime::HostHandle;
use crate::runtime::process::enter_alone;
use crate::runtime::shortcut;
use crate::transport::kernel::copy;

/// Calls of a thread between two that enter: a program may do nothing else for long [PR-1].
const CALLS_PER_ENTRY: u32 = 256;

thread_local! {
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Does a put or get by a shortcut, if there is one. False if nothing was done: then the call goes its usual way, and any
/// fault of its arguments is found there.
///
/// # Safety
/// The arguments are those of an application's call, as MPI says of it.
#[inline(never)]
pub(crate) unsafe fn transfer(window: MPI_Win, kind: OpKind, origin: Buffer, target: Target) -> bool {
    // SAFETY: the caller's promise.
    unsafe { copy_by(window, kind, origin, target) }.is_some()
}

/// Below `MPI_THREAD_MULTIPLE`: does a put or get that is a copy, in an epoch that is open and granted. The shortest way through: it
/// cannot panic, so nothing has to be caught, and its arguments stay in registers. False if nothing was done.
///
/// # Safety
/// As [`transfer`].
#[inline(always)]
pub(crate) unsafe fn direct(window: MPI_Win, kind: OpKind, origin: Buffer, target: Target) -> bool {
    // SAFETY: the caller's promise.
    unsafe { copy_alone(window, kind, origin, target) }.is_some()
}

/// # Safety
/// As [`transfer`].
#[inline(always)]
unsafe fn copy_alone(window: MPI_Win, kind: OpKind, origin: Buffer, target: Target) -> Option<()> {
    let datatype = predefined(origin.datatype).filter(|_| origin.datatype == target.datatype && origin.count == target.count)?;
    let rank = u32::try_from(target.rank).ok()?;
    let len = datatype.bytes(u64::try_from(target.count).ok()?)?;
    let guard = enter_alone()?;
    let mut ours = guard.windows.hot(HostHandle(window.key()))?;
    // SAFETY: found under this guard, and no other reference to it is alive.
    let ours = unsafe { ours.as_mut() };
    let calls = ours.calls.wrapping_add(1);
    if calls.is_multiple_of(CALLS_PER_SWEEP) || !ours.engine.goes_directly(rank) {
        return None;
    }
    let place = ours.port.place_of(rank)?;
    let at = u64::try_from(target.disp).ok()?.checked_mul(place.unit)?;
    if at > place.size || len > place.size - at || origin.address.is_null() {
        return None;
    }
    ours.calls = calls;
    let there = (place.base + at) as usize as *mut u8;
    let here = origin.address.cast::<u8>();
    // SAFETY: the place in the target's memory was just checked; the origin's buffer is the application's for so many bytes.
    unsafe {
        match kind {
            OpKind::Put => copy(here, there, len as usize),
            _ => copy(there, here.cast_mut(), len as usize),
        }
    }
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

/// # Safety
/// As [`transfer`].
#[inline]
unsafe fn copy_by(window: MPI_Win, kind: OpKind, origin: Buffer, target: Target) -> Option<()> {
    let alike = origin.datatype == target.datatype && origin.count == target.count;
    let datatype = predefined(origin.datatype).filter(|datatype| alike && datatype.is_dense())?;
    let rank = u32::try_from(target.rank).ok()?;
    let place = shortcut::look(window.key(), rank)?;
    let len = datatype.bytes(u64::try_from(target.count).ok()?)?;
    let at = u64::try_from(target.disp).ok()?.checked_mul(place.unit)?;
    if at > place.size || len > place.size - at || origin.address.is_null() {
        return None;
    }
    let calls = CALLS.get().wrapping_add(1);
    CALLS.set(calls);
    if calls.is_multiple_of(CALLS_PER_ENTRY) {
        return None;
    }
    let there = (place.base + at) as usize as *mut u8;
    let here = origin.address.cast::<u8>();
    // SAFETY: the place in the target's memory was just checked; the origin's buffer is the application's for so many bytes.
    unsafe {
        match kind {
            OpKind::Put => copy(here, there, len as usize),
            _ => copy(there, here.cast_mut(), len as usize),
        }
    }
    Some(())
}
