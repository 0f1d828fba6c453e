//! Arguments of communication calls, checked before anything moves, and the engine's record made of them.
//!
//! All arithmetic is in 64 bits and checked: a count is an int, but bytes may pass 2 GiB.

use std::ffi::{c_int, c_void};

use super::datatype::{Predefined, is_comparable, is_defined, predefined, reduction_of};
use super::error::Fault;
use super::shaped;
use super::sys::*;
use crate::engine::{Addr, Op, OpKind, Reduction};
use crate::runtime::Window;
use crate::transport::element::reduction;

/// A buffer of the caller.
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) address: *const c_void,
    pub(crate) count: i64,
    pub(crate) datatype: MPI_Datatype,
}

/// The target's side of a call.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) rank: c_int,
    pub(crate) disp: MPI_Aint,
    pub(crate) count: i64,
    pub(crate) datatype: MPI_Datatype,
}

type Checked<T> = Result<T, Fault>;

/// The window's rank of `rank`; nothing for `MPI_PROC_NULL`.
#[inline(always)]
pub(crate) fn rank(window: &Window, rank: c_int, text: &'static str) -> Checked<Option<u32>> {
    if (rank as u32) < window.size && rank >= 0 {
        return Ok(Some(rank as u32));
    }
    if rank == MPI_PROC_NULL {
        return Ok(None);
    }
    Err(Fault::new(MPI_ERR_RANK, text))
}

/// Both datatypes, if both are predefined.
#[inline(always)]
fn plain(
    origin: MPI_Datatype,
    target: MPI_Datatype,
) -> Option<(&'static Predefined, &'static Predefined)> {
    let from = predefined(origin)?;
    if origin == target { Some((from, from)) } else { Some((from, predefined(target)?)) }
}

#[inline(always)]
pub(super) fn count(count: i64, text: &'static str) -> Checked<u64> {
    u64::try_from(count).map_err(|_| Fault::new(MPI_ERR_COUNT, text))
}

#[inline(always)]
fn bytes(datatype: &Predefined, count: u64) -> Checked<u64> {
    datatype
        .bytes(count)
        .ok_or_else(|| Fault::new(MPI_ERR_COUNT, "the count is too large for 64-bit addresses"))
}

/// First byte in the target's window of `len` bytes at `disp`.
#[inline(always)]
fn place(window: &Window, rank: u32, disp: MPI_Aint, len: u64) -> Checked<u64> {
    let Ok(disp) = u64::try_from(disp) else {
        return Err(Fault::new(MPI_ERR_DISP, "target_disp is negative"));
    };
    let (size, unit) = window.port.extent_of(rank);
    match disp.checked_mul(u64::from(unit)) {
        Some(at) if at <= size && len <= size - at => Ok(at),
        _ => attached_place(window, rank, disp, len),
    }
}

/// As [`place`], in a dynamic window: displacements are addresses, and the target must have attached what is there.
#[cold]
#[inline(never)]
fn attached_place(window: &Window, rank: u32, at: u64, len: u64) -> Checked<u64> {
    if window.attributes.flavor != MPI_WIN_FLAVOR_DYNAMIC {
        return Err(Fault::new(
            MPI_ERR_RMA_RANGE,
            "target_disp and target_count reach beyond the target's window",
        ));
    }
    if !window.port.reaches(rank, at, len) {
        return Err(Fault::new(
            MPI_ERR_RMA_RANGE,
            "the target has not attached all of the memory at target_disp",
        ));
    }
    Ok(at)
}

#[inline(always)]
pub(super) fn present(address: *const c_void, text: &'static str) -> Checked<Addr> {
    if address.is_null() {
        return Err(Fault::new(MPI_ERR_BUFFER, text));
    }
    Ok(Addr(address as usize))
}

/// Bytes on both sides of a transfer, as the target counts them.
#[inline(always)]
fn agree(origin: &Buffer, target: &Target, from: &Predefined, to: &Predefined) -> Checked<u64> {
    if origin.datatype == target.datatype && origin.count == target.count {
        let count = count(origin.count, "origin_count is negative")?;
        return bytes(from, count);
    }
    agree_apart(origin, target, from, to)
}

/// Sides that are written differently: equal sizes are accepted, since MPI_BYTE matches everything.
#[inline(never)]
fn agree_apart(
    origin: &Buffer,
    target: &Target,
    from: &Predefined,
    to: &Predefined,
) -> Checked<u64> {
    let origin_count = count(origin.count, "origin_count is negative")?;
    let target_count = count(target.count, "target_count is negative")?;
    same_size(
        origin_count.checked_mul(u64::from(from.size)),
        target_count.checked_mul(u64::from(to.size)),
    )?;
    bytes(to, target_count)
}

/// The sizes of two sides. `None`: it passes what can be.
pub(super) fn same_size(sent: Option<u64>, room: Option<u64>) -> Checked<u64> {
    let (Some(sent), Some(room)) = (sent, room) else {
        return Err(Fault::new(MPI_ERR_COUNT, "the count is too large for 64-bit addresses"));
    };
    if sent > room {
        return Err(Fault::new(
            MPI_ERR_TRUNCATE,
            "the origin's data is larger than target_count of target_datatype",
        ));
    }
    if sent < room {
        return Err(Fault::new(
            MPI_ERR_TYPE,
            "the origin's data is smaller than target_count of target_datatype",
        ));
    }
    Ok(room)
}

pub(super) fn op(kind: OpKind, target: u32, disp: u64, len: u64, datatype: &Predefined) -> Op {
    Op {
        origin: Addr(0),
        result: Addr(0),
        compare: Addr(0),
        disp,
        len,
        target,
        kind,
        element: datatype.element,
        reduction: reduction::REPLACE,
        extent: datatype.extent,
        shape: None,
    }
}

pub(super) const BEYOND: &str = "target_rank is outside the window's group";

/// `MPI_Put` and `MPI_Get`. Nothing if nothing is to be moved.
#[inline(always)]
pub(crate) fn transfer(
    window: &mut Window,
    kind: OpKind,
    origin: Buffer,
    target: Target,
) -> Checked<Option<Op>> {
    // Padding, of pairs, is not theirs to move.
    let dense = |(from, to): &(&Predefined, &Predefined)| from.is_dense() && to.is_dense();
    let Some((from, datatype)) = plain(origin.datatype, target.datatype).filter(dense) else {
        return shaped::transfer(window, kind, origin, target);
    };
    let rank = rank(window, target.rank, BEYOND)?;
    let len = agree(&origin, &target, from, datatype)?;
    let Some(rank) = rank else { return Ok(None) };
    let at = place(window, rank, target.disp, len)?;
    if len == 0 {
        return Ok(None);
    }
    let address = present(origin.address, "origin_addr is NULL")?;
    let mut made = op(kind, rank, at, len, datatype);
    if kind == OpKind::Put {
        made.origin = address;
    } else {
        made.result = address;
    }
    Ok(Some(made))
}

#[inline(always)]
pub(super) fn defined(handle: MPI_Op, datatype: &Predefined) -> Checked<Reduction> {
    let Some(code) = reduction_of(handle) else {
        return Err(Fault::new(MPI_ERR_OP, "op is not a predefined operation"));
    };
    if !is_defined(code, datatype) {
        return Err(Fault::new(MPI_ERR_OP, "op is not defined for this datatype"));
    }
    Ok(code)
}

/// The same, where nothing is reduced: any datatype will do then, as with both hosts.
#[inline(always)]
fn defined_for(len: u64, handle: MPI_Op, datatype: &Predefined) -> Checked<Reduction> {
    match reduction_of(handle) {
        Some(code) if len == 0 => Ok(code),
        _ => defined(handle, datatype),
    }
}

/// `MPI_Accumulate`.
#[inline(always)]
pub(crate) fn accumulate(
    window: &mut Window,
    origin: Buffer,
    target: Target,
    handle: MPI_Op,
) -> Checked<Option<Op>> {
    let Some((from, datatype)) = plain(origin.datatype, target.datatype) else {
        return shaped::accumulate(window, origin, target, handle);
    };
    let rank = rank(window, target.rank, BEYOND)?;
    let len = agree_elements(&origin, &target, from, datatype)?;
    let code = changing(handle, datatype)?;
    let Some(rank) = rank else { return Ok(None) };
    let at = place(window, rank, target.disp, len)?;
    if len == 0 {
        return Ok(None);
    }
    let mut made = op(OpKind::Accumulate, rank, at, len, datatype);
    made.origin = present(origin.address, "origin_addr is NULL")?;
    made.reduction = code;
    Ok(Some(made))
}

/// A reduction for a call that does not fetch.
#[inline(always)]
pub(super) fn changing(handle: MPI_Op, datatype: &Predefined) -> Checked<Reduction> {
    match defined(handle, datatype)? {
        reduction::NO_OP => {
            Err(Fault::new(MPI_ERR_OP, "op is MPI_NO_OP, which only calls that fetch accept"))
        }
        code => Ok(code),
    }
}

/// As [`agree`], for reductions: both sides have elements of one kind, if any.
#[inline(always)]
fn agree_elements(
    origin: &Buffer,
    target: &Target,
    from: &Predefined,
    to: &Predefined,
) -> Checked<u64> {
    let len = agree(origin, target, from, to)?;
    if len != 0 && from.element != to.element {
        return Err(unlike());
    }
    Ok(len)
}

#[cold]
pub(super) fn unlike() -> Fault {
    Fault::new(
        MPI_ERR_TYPE,
        "origin_datatype and target_datatype are not the same predefined datatype",
    )
}

/// The faults of the result buffer are told with its name.
pub(super) fn of_result(fault: Fault) -> Fault {
    match fault.text {
        "origin_count is negative" => Fault::new(fault.class, "result_count is negative"),
        _ => fault,
    }
}

/// `MPI_Get_accumulate`, and `MPI_Fetch_and_op` with one element. With `MPI_NO_OP` the origin is not looked at.
pub(crate) fn get_accumulate(
    window: &mut Window,
    origin: Buffer,
    result: Buffer,
    target: Target,
    handle: MPI_Op,
) -> Checked<Option<Op>> {
    let fetches_only = reduction_of(handle) == Some(reduction::NO_OP);
    let both = plain(result.datatype, target.datatype);
    let sent = if fetches_only { both } else { plain(origin.datatype, target.datatype) };
    let (Some((back, datatype)), Some((from, _))) = (both, sent) else {
        return shaped::get_accumulate(window, origin, result, target, handle);
    };
    let rank = rank(window, target.rank, BEYOND)?;
    let len = agree_elements(&result, &target, back, datatype).map_err(of_result)?;
    if !fetches_only {
        agree_elements(&origin, &target, from, datatype)?;
    }
    let code = defined_for(len, handle, datatype)?;
    let Some(rank) = rank else { return Ok(None) };
    let at = place(window, rank, target.disp, len)?;
    if len == 0 {
        return Ok(None);
    }
    let mut made = op(OpKind::GetAccumulate, rank, at, len, datatype);
    made.result = present(result.address, "result_addr is NULL")?;
    if !fetches_only {
        made.origin = present(origin.address, "origin_addr is NULL")?;
    }
    made.reduction = code;
    Ok(Some(made))
}

/// `MPI_Fetch_and_op`.
#[inline(always)]
pub(crate) fn fetch_and_op(
    window: &Window,
    origin: *const c_void,
    result: *const c_void,
    datatype: MPI_Datatype,
    target_rank: c_int,
    disp: MPI_Aint,
    handle: MPI_Op,
) -> Checked<Option<Op>> {
    let rank = rank(window, target_rank, BEYOND)?;
    let datatype = one_type(datatype)?;
    let code = defined(handle, datatype)?;
    let Some(rank) = rank else { return Ok(None) };
    let len = u64::from(datatype.span);
    let at = place(window, rank, disp, len)?;
    let mut made = op(OpKind::GetAccumulate, rank, at, len, datatype);
    made.result = present(result, "result_addr is NULL")?;
    if code != reduction::NO_OP {
        made.origin = present(origin, "origin_addr is NULL")?;
    }
    made.reduction = code;
    Ok(Some(made))
}

/// `MPI_Compare_and_swap`.
pub(crate) fn compare_and_swap(
    window: &Window,
    [origin, compare, result]: [*const c_void; 3],
    datatype: MPI_Datatype,
    target_rank: c_int,
    disp: MPI_Aint,
) -> Checked<Option<Op>> {
    let rank = rank(window, target_rank, BEYOND)?;
    let datatype = one_type(datatype)?;
    if !is_comparable(datatype) {
        return Err(Fault::new(
            MPI_ERR_TYPE,
            "datatype is not an integer, logical, multi-language or byte type",
        ));
    }
    let Some(rank) = rank else { return Ok(None) };
    let len = u64::from(datatype.span);
    let at = place(window, rank, disp, len)?;
    let mut made = op(OpKind::CompareAndSwap, rank, at, len, datatype);
    made.origin = present(origin, "origin_addr is NULL")?;
    made.compare = present(compare, "compare_addr is NULL")?;
    made.result = present(result, "result_addr is NULL")?;
    Ok(Some(made))
}

#[inline(always)]
fn one_type(datatype: MPI_Datatype) -> Checked<&'static Predefined> {
    predefined(datatype).ok_or_else(|| {
        if datatype == MPI_DATATYPE_NULL {
            Fault::new(MPI_ERR_TYPE, "datatype is MPI_DATATYPE_NULL")
        } else {
            Fault::new(MPI_ERR_TYPE, "datatype is not predefined")
        }
    })
}
