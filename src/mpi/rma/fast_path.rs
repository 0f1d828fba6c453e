//! Puts and gets that are plain copies: the epoch is open and granted, nothing is queued, and this
//! process has mapped the target's memory (`runtime/fast_path.rs`) or copies by the kernel. They
//! leave no state in the engine, so they bypass it; with many threads, they bypass the runtime too.
//! So do notifications after such copies, flushes that have nothing to wait for, and calls that
//! fetch and change one element.
//!
//! Each function returns the code of the call. `None` means that the call must go the long way,
//! which also reports any fault of its arguments.

use std::ffi::{c_int, c_void};

use crate::engine::OpKind;
use crate::mpi::abi::error::boundary;
use crate::mpi::abi::sys::*;
use crate::mpi::datatype::{self, Predefined, is_comparable, predefined};
use crate::mpi::request::continuation;
use crate::mpi::rma::args::{self, Buffer, Target};
use crate::runtime::fast_path::{self, Access, MappedTarget, must_sweep};
use crate::runtime::process::{enter_alone, is_in_order, note_order, try_enter};
use crate::runtime::progress::sweep_between_calls;
use crate::runtime::{Guard, HostHandle, Window};
use crate::transport::copy::{copy, copy_to_peer};
use crate::transport::datatype::element::{FIRST_FOREIGN, reduction};
use crate::transport::datatype::{Combine, compare_swap};
use crate::transport::shm::accumulate::accumulate as accumulate_locked;
use crate::transport::shm::protocol::{self, AccumulateWords, order_completed, order_operations};
use crate::transport::shm::{BY_KERNEL_MIN, PlainCopy};

/// A put or get that is a copy.
///
/// # Safety
/// The arguments are those of an application's call, as MPI says of it.
#[inline(always)]
pub(crate) unsafe fn transfer(
    window: MPI_Win,
    kind: OpKind,
    origin: Buffer,
    target: Target,
) -> Option<c_int> {
    let (rank, len) = dense(origin, target)?;
    let Some(mut guard) = enter_alone() else {
        // SAFETY: the contract of this function.
        return unsafe { copy_among(window, kind, rank, len, origin.address, target.disp) };
    };
    let handle = HostHandle(window.key());
    let Some((_, memory)) = direct(&mut guard, kind, handle, rank) else {
        let local = origin.address.cast_mut().cast();
        let disp = u64::try_from(target.disp).ok()?;
        let copy = PlainCopy { kind, rank, local, disp, len };
        // SAFETY: the origin's buffer is the application's for `len` bytes.
        return unsafe { copy_otherwise(guard, handle, &copy) };
    };
    let there = reach(origin.address, target.disp, memory, len)?;
    // SAFETY: `reach` has checked that `len` bytes lie in memory that the port has mapped; the
    // origin's buffer is the application's for as many.
    unsafe { move_bytes(kind, origin.address, there, len) };
    Some(MPI_SUCCESS)
}

/// The window and the target's memory, if a put or get is a copy.
#[inline(always)]
fn direct(
    guard: &mut Guard,
    kind: OpKind,
    handle: HostHandle,
    rank: u32,
) -> Option<(&mut Window, MappedTarget)> {
    match kind {
        OpKind::Get => guard.windows.direct_to_get(handle, rank),
        _ => guard.windows.direct(handle, rank),
    }
}

/// The rest of [`transfer`], if the window's operations raise a counter, or the target's memory is
/// not mapped.
///
/// # Safety
/// The buffer in this process is valid for the operation.
#[inline(never)]
unsafe fn copy_otherwise(mut guard: Guard, handle: HostHandle, copy: &PlainCopy) -> Option<c_int> {
    if copy.kind == OpKind::Get {
        guard.windows.admit_gets();
    }
    let disp = MPI_Aint::try_from(copy.disp).ok()?;
    if let Some(memory) = guard.windows.mapped(handle, copy.rank)
        && let Some(there) = reach(copy.local.cast(), disp, memory, copy.len)
        && guard.windows.opens_fence_epoch(copy.rank)
    {
        // SAFETY: `reach` has checked that `len` bytes lie in memory that the port has mapped; the
        // buffer is valid for as many (contract of this function).
        unsafe { move_bytes(copy.kind, copy.local.cast(), there, copy.len) };
        return Some(MPI_SUCCESS);
    }
    if guard.windows.called_before(handle)?.hints.puts_counter.is_some() {
        // SAFETY: the buffer is valid for the operation (contract of this function).
        return unsafe { counted(guard, handle, copy) };
    }
    if copy.len < BY_KERNEL_MIN || copy.local.is_null() {
        return None;
    }
    let window = guard.windows.unmapped(handle, copy.rank)?;
    // SAFETY: the buffer is valid for the operation (contract of this function).
    unsafe { window.port.copy_by_kernel(copy) }.then_some(MPI_SUCCESS)
}

/// What a call may do at a target without entering the runtime, under `MPI_THREAD_MULTIPLE`.
#[inline(always)]
fn look(handle: HostHandle, target: u32) -> Option<Access> {
    if must_sweep() {
        drive();
    }
    fast_path::look(handle, target)
}

/// Makes progress [PR-1], unless another thread is in the runtime and makes some.
#[cold]
#[inline(never)]
fn drive() {
    boundary("a call that moves data", || {
        let Some(mut guard) = try_enter() else { return MPI_SUCCESS };
        sweep_between_calls(&mut guard);
        drop(guard);
        continuation::after_call();
        MPI_SUCCESS
    });
}

/// As [`transfer`], under `MPI_THREAD_MULTIPLE`: if the window has opened a fast path to the
/// target.
///
/// # Safety
/// As [`transfer`]; `len` is the size of the origin's buffer.
#[inline(never)]
unsafe fn copy_among(
    window: MPI_Win,
    kind: OpKind,
    rank: u32,
    len: u64,
    origin: *const c_void,
    disp: MPI_Aint,
) -> Option<c_int> {
    let memory = look(HostHandle(window.key()), rank)?.memory;
    let there = reach(origin, disp, memory, len)?;
    // SAFETY: `reach` has checked that `len` bytes lie in memory that the window's port has mapped;
    // the origin's buffer is the application's for as many.
    unsafe { move_bytes(kind, origin, there, len) };
    Some(MPI_SUCCESS)
}

/// A put or get that is a copy, and then raises a counter of the target.
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
) -> Option<c_int> {
    let (rank, len) = dense(origin, target)?;
    let index = u32::try_from(index).ok()?;
    let handle = HostHandle(window.key());
    let Some(mut guard) = enter_alone() else {
        // SAFETY: the contract of this function.
        return unsafe {
            notified_among(handle, kind, (rank, len), (origin.address, target.disp), index)
        };
    };
    let (ours, memory) = direct(&mut guard, kind, handle, rank)?;
    let there = reach(origin.address, target.disp, memory, len)?;
    let Some(counter) = ours.last_counter.get(rank, index) else {
        // SAFETY: `reach` has checked that `len` bytes lie in memory that the port has mapped; the
        // origin's buffer is the application's for as many.
        return unsafe { notified_first(ours, kind, (rank, len), (origin.address, there), index) };
    };
    // SAFETY: `reach` has checked that `len` bytes lie in memory that the port has mapped; the
    // origin's buffer is the application's for as many.
    unsafe { move_bytes(kind, origin.address, there, len) };
    // SAFETY: the window forgets the counter when its counters are replaced, and this thread holds
    // the guard.
    unsafe { counter.raise(len, std::mem::take(&mut ours.answers)) };
    Some(MPI_SUCCESS)
}

/// As [`notified`], in a window whose operations all raise a counter [NA-6].
///
/// # Safety
/// The buffer in this process is valid for the operation.
unsafe fn counted(mut guard: Guard, handle: HostHandle, copy: &PlainCopy) -> Option<c_int> {
    let PlainCopy { kind, rank, local, disp, len } = *copy;
    let (ours, memory, index) = guard.windows.counted(handle, rank)?;
    let local: *const c_void = local.cast();
    let there = reach(local, MPI_Aint::try_from(disp).ok()?, memory, len)?;
    let Some(counter) = ours.last_counter.get(rank, index) else {
        // SAFETY: `reach` has checked that `len` bytes lie in memory that the port has mapped; the
        // buffer is valid for as many (contract of this function).
        return unsafe { notified_first(ours, kind, (rank, len), (local, there), index) };
    };
    // SAFETY: as above. The window forgets the counter when its counters are replaced, and this
    // thread holds the guard.
    unsafe {
        move_bytes(kind, local, there, len);
        counter.raise(len, std::mem::take(&mut ours.answers));
    }
    Some(MPI_SUCCESS)
}

/// The rest of [`notified`], if the counter is not the one that was raised last.
///
/// # Safety
/// Both sides are valid for `len` bytes.
#[inline(never)]
unsafe fn notified_first(
    ours: &mut Window,
    kind: OpKind,
    (rank, len): (u32, u64),
    (origin, there): (*const c_void, *mut u8),
    index: u32,
) -> Option<c_int> {
    let counter = ours.port.counter_of(rank, index)?;
    // SAFETY: both sides are valid for `len` bytes (contract of this function).
    unsafe { move_bytes(kind, origin, there, len) };
    let raised = counter.raise(len, std::mem::take(&mut ours.answers));
    ours.last_counter.set(rank, index, raised);
    Some(MPI_SUCCESS)
}

/// As [`notified`], under `MPI_THREAD_MULTIPLE`: if the window has opened a fast path to the
/// target.
///
/// # Safety
/// As [`notified`]; `len` is the size of the origin's buffer.
#[inline(never)]
unsafe fn notified_among(
    handle: HostHandle,
    kind: OpKind,
    (rank, len): (u32, u64),
    (origin, disp): (*const c_void, MPI_Aint),
    index: u32,
) -> Option<c_int> {
    let access = look(handle, rank)?;
    // SAFETY: the window exists (contract of this function), so its counters are mapped.
    let counter = unsafe { access.counters.get(index) }?;
    let there = reach(origin, disp, access.memory, len)?;
    // SAFETY: `reach` has checked that `len` bytes lie in memory that the port has mapped; the
    // origin's buffer is the application's for as many.
    unsafe { move_bytes(kind, origin, there, len) };
    counter.raise(len, false);
    Some(MPI_SUCCESS)
}

/// Raises a counter of the target where a put to it would be a copy.
///
/// # Safety
/// The window exists, as MPI demands of the call.
#[inline(always)]
pub(crate) unsafe fn notify(window: MPI_Win, target: c_int, index: c_int) -> Option<c_int> {
    let (rank, index) = (u32::try_from(target).ok()?, u32::try_from(index).ok()?);
    let handle = HostHandle(window.key());
    let Some(mut guard) = enter_alone() else {
        // SAFETY: the window exists (contract of this function), so its counters are mapped.
        unsafe { look(handle, rank)?.counters.get(index) }?.raise(0, false);
        return Some(MPI_SUCCESS);
    };
    let (ours, _) = guard.windows.direct(handle, rank)?;
    let answers = std::mem::take(&mut ours.answers);
    if let Some(counter) = ours.last_counter.get(rank, index) {
        // SAFETY: the window forgets the counter when its counters are replaced, and this thread
        // holds the guard.
        unsafe { counter.raise(0, answers) };
    } else {
        let raised = ours.port.counter_of(rank, index)?.raise(0, answers);
        ours.last_counter.set(rank, index, raised);
    }
    Some(MPI_SUCCESS)
}

/// What a call may use at a target, beside its memory.
enum Reached<'a> {
    /// This thread holds the guard.
    Guarded(&'a mut Window, u32),
    /// Under `MPI_THREAD_MULTIPLE`, without the guard: the fast path to the target is open.
    Open(Access),
}

/// A target to which a put is a copy, and its memory.
#[inline(always)]
fn mapped(
    guard: &mut Option<Guard>,
    window: MPI_Win,
    rank: u32,
) -> Option<(Reached<'_>, MappedTarget)> {
    let handle = HostHandle(window.key());
    if let Some(guard) = guard {
        let (ours, memory) = guard.windows.direct(handle, rank)?;
        return Some((Reached::Guarded(ours, rank), memory));
    }
    let access = look(handle, rank)?;
    Some((Reached::Open(access), access.memory))
}

impl<'a> Reached<'a> {
    /// If single elements are reduced by load and store: the target's accumulate lock, or `None` if
    /// this thread alone accesses the window.
    ///
    /// # Safety
    /// The window exists.
    #[inline(always)]
    unsafe fn accumulate_lock(self) -> Option<Option<&'a AccumulateWords>> {
        match self {
            Reached::Guarded(ours, rank) => {
                let lock = ours.port.accumulate_lock(rank)?;
                Some((ours.size > 1).then_some(lock))
            }
            // SAFETY: the window exists (contract of this function), so its segment is mapped.
            Reached::Open(access) => Some(Some(unsafe { access.accumulates.get() }?)),
        }
    }
}

/// `MPI_Accumulate` on memory that is mapped, between the same elements without padding.
///
/// # Safety
/// The arguments are those of an application's call, as MPI says of it.
#[inline(always)]
pub(crate) unsafe fn accumulate(
    window: MPI_Win,
    origin: Buffer,
    target: Target,
    op: MPI_Op,
) -> Option<c_int> {
    let (element_type, rank, len) = dense_elements(origin, target)?;
    if len == 0 || element_type.element.0 >= FIRST_FOREIGN {
        return None;
    }
    let reduction = args::changing(op, element_type).ok()?;
    let mut guard = enter_alone();
    let (reached, memory) = mapped(&mut guard, window, rank)?;
    // SAFETY: the window exists (contract of this function).
    let lock = unsafe { reached.accumulate_lock() }?;
    let there = reach(origin.address, target.disp, memory, len)?;
    let Predefined { element, extent, .. } = *element_type;
    let combine = Combine { element, reduction, extent, foreign: datatype::reduce };
    let there = (there, there as u64 - memory.base);
    // SAFETY: `reach` has checked that `len` bytes lie in memory that the port has mapped; the
    // origin's buffer is the application's for as many.
    unsafe {
        accumulate_locked(lock, &combine, origin.address.cast(), there, None, len as usize);
    }
    Some(MPI_SUCCESS)
}

/// `MPI_Fetch_and_op` on memory that is mapped.
///
/// # Safety
/// The arguments are those of an application's call, as MPI says of it.
#[inline(always)]
pub(crate) unsafe fn fetch_and_op(
    window: MPI_Win,
    [origin, result]: [*const c_void; 2],
    datatype: MPI_Datatype,
    (rank, disp): (c_int, MPI_Aint),
    op: MPI_Op,
) -> Option<c_int> {
    let element_type = predefined(datatype).filter(|known| known.element.0 < FIRST_FOREIGN)?;
    let reduction = args::defined(op, element_type).ok()?;
    if origin.is_null() && reduction != reduction::NO_OP {
        return None;
    }
    let mut guard = enter_alone();
    let (reached, memory) = mapped(&mut guard, window, u32::try_from(rank).ok()?)?;
    // SAFETY: the window exists (contract of this function).
    let lock = unsafe { reached.accumulate_lock() }?;
    let Predefined { element, extent, span, .. } = *element_type;
    let len = u64::from(span);
    let there = reach(result, disp, memory, len)?;
    let combine = Combine { element, reduction, extent, foreign: datatype::reduce };
    let there = (there, there as u64 - memory.base);
    let result = result.cast_mut().cast();
    // SAFETY: `reach` has checked that `len` bytes lie in memory that the port has mapped; the
    // buffers are the application's for one element.
    unsafe { accumulate_locked(lock, &combine, origin.cast(), there, Some(result), len as usize) };
    Some(MPI_SUCCESS)
}

/// `MPI_Compare_and_swap` on memory that is mapped.
///
/// # Safety
/// The arguments are those of an application's call, as MPI says of it.
#[inline(always)]
pub(crate) unsafe fn compare_and_swap(
    window: MPI_Win,
    [origin, compare, result]: [*const c_void; 3],
    datatype: MPI_Datatype,
    (rank, disp): (c_int, MPI_Aint),
) -> Option<c_int> {
    let datatype = predefined(datatype).filter(|datatype| is_comparable(datatype))?;
    if origin.is_null() || compare.is_null() {
        return None;
    }
    let mut guard = enter_alone();
    let (reached, memory) = mapped(&mut guard, window, u32::try_from(rank).ok()?)?;
    // SAFETY: the window exists (contract of this function).
    let lock = unsafe { reached.accumulate_lock() }?;
    let len = u64::from(datatype.span);
    let there = reach(result, disp, memory, len)?;
    let (new, expected, result) = (origin.cast(), compare.cast(), result.cast_mut().cast());
    let _held = lock.map(|lock| lock.lock(there as u64 - memory.base, len));
    // SAFETY: `reach` has checked that `len` bytes lie in memory that the port has mapped; the
    // buffers are the application's for one element. The accumulate lock is held, if others may
    // access the window.
    unsafe { compare_swap(there, expected, new, result, len as usize) };
    Some(MPI_SUCCESS)
}

/// A wait for a counter that the call before has seen to be high enough.
#[inline(always)]
pub(crate) fn threshold(window: MPI_Win, index: c_int, expected: MPI_Count) -> Option<c_int> {
    let (index, expected) = (u32::try_from(index).ok()?, u64::try_from(expected).ok()?);
    let mut guard = enter_alone()?;
    let ours = guard.windows.called_before(HostHandle(window.key()))?;
    // The call that read the counter has acquired what came before the notifications.
    ours.engine.had_counted(index, expected).then_some(MPI_SUCCESS)
}

/// A flush that has nothing to wait for.
#[inline(always)]
pub(crate) fn flush(window: MPI_Win, target: c_int) -> Option<c_int> {
    let (handle, rank) = (HostHandle(window.key()), u32::try_from(target).ok()?);
    let Some(mut guard) = enter_alone() else { return flush_among(handle, rank) };
    let (ours, _) = guard.windows.direct(handle, rank)?;
    if !ours.engine.flushes_at_once(rank) {
        return None;
    }
    order_completed();
    Some(MPI_SUCCESS)
}

/// A flush of all targets that has nothing to wait for.
#[inline(always)]
pub(crate) fn flush_all(window: MPI_Win) -> Option<c_int> {
    let mut guard = enter_alone()?;
    if !guard.windows.flushes_all(HostHandle(window.key())) {
        return None;
    }
    order_completed();
    Some(MPI_SUCCESS)
}

/// As [`flush`], under `MPI_THREAD_MULTIPLE`.
#[inline(never)]
fn flush_among(handle: HostHandle, rank: u32) -> Option<c_int> {
    if !look(handle, rank)?.flushes {
        return None;
    }
    order_completed();
    Some(MPI_SUCCESS)
}

/// An order after which only copies have been made since the last one.
#[inline(always)]
pub(crate) fn order_again(window: MPI_Win, target: c_int) -> Option<c_int> {
    if !is_in_order(HostHandle(window.key()), target as u32) {
        return None;
    }
    order_completed();
    Some(MPI_SUCCESS)
}

/// An order behind operations that are complete.
#[inline(always)]
pub(crate) fn order(window: MPI_Win, target: c_int) -> Option<c_int> {
    let (handle, rank) = (HostHandle(window.key()), u32::try_from(target).ok()?);
    let Some(mut guard) = enter_alone() else { return order_among(handle, rank) };
    let (ours, _) = guard.windows.direct(handle, rank)?;
    if !ours.engine.is_ordered(rank) {
        return None;
    }
    order_operations();
    guard.windows.order_gets();
    note_order(handle, rank);
    Some(MPI_SUCCESS)
}

/// An order of all targets behind operations that are complete.
#[inline(always)]
pub(crate) fn order_all(window: MPI_Win) -> Option<c_int> {
    let mut guard = enter_alone()?;
    if !guard.windows.flushes_all(HostHandle(window.key())) {
        return None;
    }
    order_operations();
    guard.windows.order_gets();
    Some(MPI_SUCCESS)
}

/// As [`order`], under `MPI_THREAD_MULTIPLE`.
#[inline(never)]
fn order_among(handle: HostHandle, rank: u32) -> Option<c_int> {
    if !look(handle, rank)?.flushes {
        return None;
    }
    protocol::order_all();
    Some(MPI_SUCCESS)
}

/// Bytes up to which the slot for a tag is claimed before the copy. The claim is an atomic
/// operation, which waits for all earlier stores: after the copy, it would wait for the target's
/// cache lines, and the tag could be stored only then. Later tags wait for a claimed slot, so a
/// longer copy comes before the claim.
const CLAIMED_FIRST: u64 = 8192;

/// As [`notified`], with a tag in place of a counter, and not under `MPI_THREAD_MULTIPLE`. If there
/// is no room for the tag after the copy, the call starts over on the long way.
///
/// # Safety
/// As [`transfer`].
#[inline(always)]
pub(crate) unsafe fn tagged(
    window: MPI_Win,
    kind: OpKind,
    origin: Buffer,
    target: Target,
    tag: c_int,
) -> Option<c_int> {
    let (rank, len) = dense(origin, target)?;
    let mut guard = enter_alone()?;
    let tag = u32::try_from(tag).ok()?;
    let (ours, memory) = direct(&mut guard, kind, HostHandle(window.key()), rank)?;
    let there = reach(origin.address, target.disp, memory, len)?;
    let early = if len <= CLAIMED_FIRST { Some(ours.port.claim_tag(rank, tag)?) } else { None };
    // SAFETY: `reach` has checked that `len` bytes lie in memory that the port has mapped; the
    // origin's buffer is the application's for as many.
    unsafe { move_bytes(kind, origin.address, there, len) };
    match early {
        Some(claimed) => claimed.publish(there),
        None => ours.port.claim_tag(rank, tag)?.publish(there),
    }
    Some(MPI_SUCCESS)
}

/// Target and bytes of an operation with the same count and the same predefined datatype, without
/// padding, on both sides.
#[inline(always)]
fn dense(origin: Buffer, target: Target) -> Option<(u32, u64)> {
    dense_elements(origin, target).map(|(_, rank, len)| (rank, len))
}

/// As [`dense`], with the datatype.
#[inline(always)]
fn dense_elements(origin: Buffer, target: Target) -> Option<(&'static Predefined, u32, u64)> {
    let alike = origin.datatype == target.datatype && origin.count == target.count;
    let datatype = predefined(origin.datatype).filter(|datatype| alike && datatype.is_dense())?;
    let len = datatype.bytes(u64::try_from(target.count).ok()?)?;
    Some((datatype, u32::try_from(target.rank).ok()?, len))
}

/// Address of the target's bytes. `None` if they do not lie within its memory.
#[inline(always)]
fn reach(origin: *const c_void, disp: MPI_Aint, place: MappedTarget, len: u64) -> Option<*mut u8> {
    let at = u64::try_from(disp).ok()?.checked_mul(place.unit)?;
    if at > place.size || len > place.size - at || origin.is_null() {
        return None;
    }
    Some((place.base + at) as usize as *mut u8)
}

/// # Safety
/// Both sides are valid for `len` bytes.
#[inline(always)]
unsafe fn move_bytes(kind: OpKind, origin: *const c_void, there: *mut u8, len: u64) {
    let here = origin.cast::<u8>();
    // SAFETY: both sides are valid for `len` bytes (contract of this function).
    unsafe {
        match kind {
            OpKind::Put => copy_to_peer(here, there, len as usize),
            _ => copy(there, here.cast_mut(), len as usize),
        }
    }
}
