//! Checks the arguments of communication calls, and makes the engine's operation of them.
//!
//! All arithmetic is checked and in 64 bits: a count may be an int, but bytes may pass 2 GiB.

use std::ffi::{c_int, c_void};

use crate::engine::{Addr, LockMode, Op, OpKind, Reduction, SyncError};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::datatype::{Predefined, is_comparable, is_defined, predefined, reduction_of};
use crate::mpi::rma::call::Checked;
use crate::mpi::rma::shaped;
use crate::runtime::Window;
use crate::transport::datatype::element::reduction;
use crate::transport::shm::SystemError;

/// A buffer of the caller.
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) address: *const c_void,
    pub(crate) count: i64,
    pub(crate) datatype: MPI_Datatype,
}

impl Buffer {
    #[inline(always)]
    pub(crate) fn new(address: *const c_void, count: i64, datatype: MPI_Datatype) -> Self {
        Self { address, count, datatype }
    }
}

/// The target's side of a call.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) rank: c_int,
    pub(crate) disp: MPI_Aint,
    pub(crate) count: i64,
    pub(crate) datatype: MPI_Datatype,
}

impl Target {
    #[inline(always)]
    pub(crate) fn new(rank: c_int, disp: MPI_Aint, count: i64, datatype: MPI_Datatype) -> Self {
        Self { rank, disp, count, datatype }
    }
}

/// Checks a rank; `None` for `MPI_PROC_NULL`.
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
pub(crate) fn count(count: i64, text: &'static str) -> Checked<u64> {
    u64::try_from(count).map_err(|_| Fault::new(MPI_ERR_COUNT, text))
}

#[inline(always)]
fn bytes(datatype: &Predefined, count: u64) -> Checked<u64> {
    datatype
        .bytes(count)
        .ok_or_else(|| Fault::new(MPI_ERR_COUNT, "the count is too large for 64-bit addresses"))
}

/// Offset in the target's window of the `len` bytes at `disp`.
#[inline(always)]
fn place(window: &Window, rank: u32, disp: MPI_Aint, len: u64) -> Checked<u64> {
    let Ok(disp) = u64::try_from(disp) else {
        return Err(Fault::new(MPI_ERR_DISP, NEGATIVE_DISP));
    };
    let (size, unit) = window.port.extent_of(rank);
    match disp.checked_mul(u64::from(unit)) {
        Some(at) if at <= size && len <= size - at => Ok(at),
        _ => attached_place(window, rank, disp, len),
    }
}

/// As [`place`], in a dynamic window: displacements are addresses, and the target must have
/// attached the memory.
#[cold]
#[inline(never)]
fn attached_place(window: &Window, rank: u32, at: u64, len: u64) -> Checked<u64> {
    if window.attributes.flavor != MPI_WIN_FLAVOR_DYNAMIC {
        return Err(Fault::new(
            MPI_ERR_RMA_RANGE,
            "target_disp and target_count reach beyond the target's window",
        ));
    }
    match window.port.reaches(rank, at, len) {
        Ok(true) => Ok(at),
        Ok(false) => Err(Fault::new(
            MPI_ERR_RMA_RANGE,
            "the target has not attached all of the memory at target_disp",
        )),
        Err(unreachable) => Err(unseen(rank, unreachable)),
    }
}

/// The target's table of attached memory cannot be mapped: an error of the system, not of the call.
#[cold]
pub(crate) fn unseen(rank: u32, unreachable: SystemError) -> Fault {
    log::error!(
        "the table of memory that rank {rank} has attached cannot be mapped: {unreachable}"
    );
    let class = if unreachable.errno() == libc::ENOMEM { MPI_ERR_NO_MEM } else { MPI_ERR_OTHER };
    Fault::new(
        class,
        "the target's table of attached memory cannot be mapped; standard error gives the errno",
    )
}

#[inline(always)]
pub(crate) fn present(address: *const c_void, text: &'static str) -> Checked<Addr> {
    if address.is_null() {
        return Err(Fault::new(MPI_ERR_BUFFER, text));
    }
    Ok(Addr(address as usize))
}

/// Which side of a transfer sends. Its data must fit into the other side, which may be larger
/// (MPI-4.1 12.3.1 to 12.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The origin buffer; the target receives.
    Origin,
    /// The target; the origin buffer of a get receives.
    Target,
    /// The target; the result buffer receives.
    TargetToResult,
}

impl Sender {
    #[inline(always)]
    pub(crate) fn of(kind: OpKind) -> Self {
        if kind == OpKind::Put { Sender::Origin } else { Sender::Target }
    }

    /// Bytes that are moved, from the sizes of the caller's buffer (`near`) and of the target's
    /// data. `None` is a size that overflows.
    pub(crate) fn moves(self, near: Option<u64>, there: Option<u64>) -> Checked<u64> {
        let (Some(near), Some(there)) = (near, there) else {
            return Err(Fault::new(MPI_ERR_COUNT, "the count is too large for 64-bit addresses"));
        };
        let (sent, room, text) = match self {
            Sender::Origin => {
                (near, there, "the origin's data is larger than target_count of target_datatype")
            }
            Sender::Target => {
                (there, near, "the target's data is larger than origin_count of origin_datatype")
            }
            Sender::TargetToResult => {
                (there, near, "the target's data is larger than result_count of result_datatype")
            }
        };
        if sent > room { Err(Fault::new(MPI_ERR_TRUNCATE, text)) } else { Ok(sent) }
    }
}

/// Checks that both sides agree. Returns the length of the target's memory, from the first to the
/// last byte that the transfer moves.
#[inline(always)]
fn agree(
    sender: Sender,
    near: &Buffer,
    target: &Target,
    from: &Predefined,
    to: &Predefined,
) -> Checked<u64> {
    if near.datatype == target.datatype && near.count == target.count {
        let count = count(near.count, "origin_count is negative")?;
        return bytes(from, count);
    }
    agree_apart(sender, near, target, from, to)
}

/// As [`agree`], for sides of different datatypes or counts. `MPI_BYTE` matches every datatype.
#[inline(never)]
fn agree_apart(
    sender: Sender,
    near: &Buffer,
    target: &Target,
    from: &Predefined,
    to: &Predefined,
) -> Checked<u64> {
    let near_count = count(near.count, "origin_count is negative")?;
    let target_count = count(target.count, "target_count is negative")?;
    let size = |count: u64, datatype: &Predefined| count.checked_mul(u64::from(datatype.size));
    let moved = sender.moves(size(near_count, from), size(target_count, to))?;
    // Datatypes with padding are moved as whole elements; both sides have the same one here.
    if to.is_dense() { Ok(moved) } else { bytes(to, moved / u64::from(to.size)) }
}

pub(crate) fn op(kind: OpKind, target: u32, disp: u64, len: u64, datatype: &Predefined) -> Op {
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
        notification: None,
    }
}

pub(crate) const BEYOND: &str = "target_rank is outside the window's group";

/// Checks a call that moves no data, and returns no operation. Such a call needs an epoch, but it
/// accesses nothing, so any nonnegative displacement is valid.
#[cold]
pub(crate) fn nothing_at(window: &Window, rank: u32, disp: MPI_Aint) -> Checked<Option<Op>> {
    if disp < 0 {
        return Err(Fault::new(MPI_ERR_DISP, NEGATIVE_DISP));
    }
    match window.covering(rank) {
        Ok(()) => Ok(None),
        Err(SyncError::NotLearned) => Err(Fault::not_learned(rank)),
        Err(error) => Err(error.into()),
    }
}

pub(crate) const NEGATIVE_DISP: &str = "target_disp is negative";

/// `MPI_Put` and `MPI_Get`. `None` for a transfer of no bytes.
#[inline(always)]
pub(crate) fn transfer(
    window: &mut Window,
    kind: OpKind,
    origin: Buffer,
    target: Target,
) -> Checked<Option<Op>> {
    // The padding of pairs must not be moved.
    let dense = |(from, to): &(&Predefined, &Predefined)| from.is_dense() && to.is_dense();
    let Some((from, datatype)) = plain(origin.datatype, target.datatype).filter(dense) else {
        return shaped::transfer(window, kind, origin, target);
    };
    let rank = rank(window, target.rank, BEYOND)?;
    let len = agree(Sender::of(kind), &origin, &target, from, datatype)?;
    let Some(rank) = rank else { return Ok(None) };
    if len == 0 {
        return nothing_at(window, rank, target.disp);
    }
    let at = place(window, rank, target.disp, len)?;
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
pub(crate) fn defined(handle: MPI_Op, datatype: &Predefined) -> Checked<Reduction> {
    let Some(code) = reduction_of(handle) else {
        return Err(Fault::new(MPI_ERR_OP, "op is not a predefined operation"));
    };
    if !is_defined(code, datatype) {
        return Err(Fault::new(MPI_ERR_OP, "op is not defined for this datatype"));
    }
    if !datatype.supports(code) {
        return Err(Fault::new(
            MPI_ERR_OP,
            "the host MPI library cannot carry out op on this datatype",
        ));
    }
    Ok(code)
}

/// As [`defined`], but without elements accepts every datatype, as both hosts do.
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
    let len = agree_elements(Sender::Origin, &origin, &target, from, datatype)?;
    let code = changing(handle, datatype)?;
    let Some(rank) = rank else { return Ok(None) };
    if len == 0 {
        return nothing_at(window, rank, target.disp);
    }
    let at = place(window, rank, target.disp, len)?;
    let mut made = op(OpKind::Accumulate, rank, at, len, datatype);
    made.origin = present(origin.address, "origin_addr is NULL")?;
    made.reduction = code;
    Ok(Some(made))
}

/// The mode of a lock of this type. `None` if it is neither of the two.
#[inline(always)]
pub(crate) fn lock_mode(kind: c_int) -> Option<LockMode> {
    if kind == MPI_LOCK_SHARED {
        Some(LockMode::Shared)
    } else {
        (kind == MPI_LOCK_EXCLUSIVE).then_some(LockMode::Exclusive)
    }
}

/// A reduction for a call that does not fetch.
#[inline(always)]
pub(crate) fn changing(handle: MPI_Op, datatype: &Predefined) -> Checked<Reduction> {
    match defined(handle, datatype)? {
        reduction::NO_OP => {
            Err(Fault::new(MPI_ERR_OP, "op is MPI_NO_OP, which only calls that fetch accept"))
        }
        code => Ok(code),
    }
}

/// As [`agree`], for reductions: unless empty, both sides must have the same elements.
#[inline(always)]
fn agree_elements(
    sender: Sender,
    near: &Buffer,
    target: &Target,
    from: &Predefined,
    to: &Predefined,
) -> Checked<u64> {
    let len = agree(sender, near, target, from, to)?;
    if len != 0 && from.element != to.element {
        return Err(unlike());
    }
    Ok(len)
}

#[cold]
pub(crate) fn unlike() -> Fault {
    Fault::new(
        MPI_ERR_TYPE,
        "origin_datatype and target_datatype are not the same predefined datatype",
    )
}

/// Rewords the fault of an origin buffer for a result buffer.
pub(crate) fn of_result(fault: Fault) -> Fault {
    match fault.text {
        "origin_count is negative" => Fault::new(fault.class, "result_count is negative"),
        _ => fault,
    }
}

/// `MPI_Get_accumulate`. With `MPI_NO_OP` the origin buffer is ignored.
///
/// The result buffer receives all of the target's data, which must fit. The origin's data must fit
/// into the target's, and may be less (MPI-4.1 12.3.4): then the first elements of the target are
/// changed, and the rest is fetched only. Open MPI does the same; MPICH 4.0 reads past the end of
/// the origin buffer.
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
    let len = agree_elements(Sender::TargetToResult, &result, &target, back, datatype)
        .map_err(of_result)?;
    let sent = if fetches_only {
        len
    } else {
        agree_elements(Sender::Origin, &origin, &target, from, datatype)?
    };
    if sent < len {
        return shaped::get_accumulate(window, origin, result, target, handle);
    }
    let code = defined_for(len, handle, datatype)?;
    let Some(rank) = rank else { return Ok(None) };
    if len == 0 {
        return nothing_at(window, rank, target.disp);
    }
    let at = place(window, rank, target.disp, len)?;
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
    [origin, result]: [*const c_void; 2],
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
