//! The interposed communication calls, with int counts and, where the host has them, with large
//! ones.

use std::ffi::{c_int, c_void};

use crate::engine::{Op, OpKind, Outcome, SyncError};
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::sys::*;
use crate::mpi::rma::args::{self, Buffer, Target};
use crate::mpi::rma::call::{Done, admit, deliver, on_window};
use crate::mpi::rma::fast_path;
use crate::runtime::progress::sweep_between_calls;
use crate::runtime::{Guard, Scope, Window, with_port};

/// Issues one operation.
#[inline(always)]
fn issue(window: &mut Window, op: &Op) -> Done {
    match with_port!(&mut window.port, port => window.engine.issue(port, op)) {
        Ok(()) => Ok(()),
        Err(error) => Err(refused(window, op, error)),
    }
}

/// Issues one operation with a request. One to `MPI_PROC_NULL`, or without data, is complete at
/// once.
#[inline(always)]
fn issue_request(window: &mut Window, op: Option<Op>) -> Result<Outcome, Fault> {
    let Some(op) = &op else { return Ok(Outcome::Complete) };
    if op.len == 0 {
        return issue(window, op).map(|()| Outcome::Complete);
    }
    match with_port!(&mut window.port, port => window.engine.issue_request(port, op)) {
        Ok(outcome) => Ok(outcome),
        Err(error) => Err(refused(window, op, error)),
    }
}

/// The fault of an operation that the engine has refused; drops its shape.
#[cold]
fn refused(window: &mut Window, op: &Op, error: SyncError) -> Fault {
    if let Some(shape) = op.shape {
        window.port.drop_shape(op.target, shape);
    }
    error.into()
}

/// Checks and issues one operation.
#[inline(always)]
pub(crate) fn communicate(
    mut guard: Guard,
    make: impl FnOnce(&mut Window) -> Result<Option<Op>, Fault>,
) -> Done {
    let window = guard.windows.called();
    if let Some(op) = make(window)? {
        issue(window, &op)?;
        window.open_fast_path(op.target);
    }
    if window.count_call() {
        sweep_between_calls(&mut guard);
    }
    Ok(())
}

/// Checks and issues one operation with a request.
#[inline(always)]
pub(crate) fn communicate_request(
    mut guard: Guard,
    request: Out<'_, MPI_Request>,
    make: impl FnOnce(&mut Window) -> Result<Option<Op>, Fault>,
) -> Done {
    admit(request)?;
    let window = guard.windows.called();
    let made = make(window)?;
    let outcome = issue_request(window, made)?;
    deliver(guard, outcome, Scope::Operation, request)
}

/// The argument `request` of a call that makes one.
macro_rules! new_request {
    ($request:ident) => {
        // SAFETY: MPI requires of the application that `request` is NULL or memory for a request,
        // which no other thread uses during the call.
        unsafe { $crate::mpi::abi::argument::Out::new($request) }
    };
}
pub(crate) use new_request;

/// All calls that have counts, for one type of count.
macro_rules! communication {
    ($count:ty; $($name:ident => $host:ident,)*) => { communication! { @ $count; $($name $host)* } };
    (@ $count:ty;
     $put:ident $host_put:ident $get:ident $host_get:ident $acc:ident $host_acc:ident $getacc:ident $host_getacc:ident
     $rput:ident $host_rput:ident $rget:ident $host_rget:ident $racc:ident $host_racc:ident
     $rgetacc:ident $host_rgetacc:ident) => {
        communication! { @transfer $put $host_put OpKind::Put, *const c_void, $count, communicate, fast_path::transfer, }
        communication! { @transfer $get $host_get OpKind::Get, *mut c_void, $count, communicate, fast_path::transfer, }
        communication! { @transfer $rput $host_rput OpKind::Put, *const c_void, $count, communicate_request, fast_path::none, request: *mut MPI_Request }
        communication! { @transfer $rget $host_rget OpKind::Get, *mut c_void, $count, communicate_request, fast_path::none, request: *mut MPI_Request }
        communication! { @accumulate $acc $host_acc $count, communicate, }
        communication! { @accumulate $racc $host_racc $count, communicate_request, request: *mut MPI_Request }
        communication! { @get_accumulate $getacc $host_getacc $count, communicate, }
        communication! { @get_accumulate $rgetacc $host_rgetacc $count, communicate_request, request: *mut MPI_Request }
    };
    (@transfer $name:ident $host:ident $kind:expr, $pointer:ty, $count:ty, $form:ident, $short:path,
     $($request:ident: $type:ty)?) => {
        /// Moves data between this process and a target's window.
        ///
        /// # Safety
        /// As MPI says of the call.
        #[inline(never)]
        pub unsafe extern "C" fn $name(
            origin_addr: $pointer, origin_count: $count, origin_datatype: MPI_Datatype, target_rank: c_int,
            target_disp: MPI_Aint, target_count: $count, target_datatype: MPI_Datatype, win: MPI_Win,
            $($request: $type)?
        ) -> c_int {
            // Made twice, where they are used: kept in between they would go through memory.
            let origin = || Buffer { address: origin_addr.cast(), count: origin_count as i64, datatype: origin_datatype };
            let target =
                || Target { rank: target_rank, disp: target_disp, count: target_count as i64, datatype: target_datatype };
            // SAFETY: the arguments are those of the application's call.
            if unsafe { $short(win, $kind, origin(), target()) } {
                return MPI_SUCCESS;
            }
            on_window(
                stringify!($name),
                win,
                |guard| $form(guard, $(new_request!($request),)? |window| args::transfer(window, $kind, origin(), target())),
                // SAFETY: the application's arguments, passed on.
                || unsafe {
                    $host(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                          target_datatype, win, $($request)?)
                },
            )
        }
        exports! {
            $name(origin_addr: $pointer, origin_count: $count, origin_datatype: MPI_Datatype, target_rank: c_int,
                  target_disp: MPI_Aint, target_count: $count, target_datatype: MPI_Datatype, win: MPI_Win
                  $(, $request: $type)?);
        }
    };
    (@accumulate $name:ident $host:ident $count:ty, $form:ident, $($request:ident: $type:ty)?) => {
        /// Reduces data into a target's window.
        ///
        /// # Safety
        /// As MPI says of the call.
        #[inline(never)]
        pub unsafe extern "C" fn $name(
            origin_addr: *const c_void, origin_count: $count, origin_datatype: MPI_Datatype, target_rank: c_int,
            target_disp: MPI_Aint, target_count: $count, target_datatype: MPI_Datatype, op: MPI_Op, win: MPI_Win,
            $($request: $type)?
        ) -> c_int {
            on_window(
                stringify!($name),
                win,
                |guard| $form(guard, $(new_request!($request),)? |window| args::accumulate(
                    window,
                    Buffer { address: origin_addr, count: origin_count as i64, datatype: origin_datatype },
                    Target { rank: target_rank, disp: target_disp, count: target_count as i64, datatype: target_datatype },
                    op,
                )),
                // SAFETY: the application's arguments, passed on.
                || unsafe {
                    $host(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                          target_datatype, op, win, $($request)?)
                },
            )
        }
        exports! {
            $name(origin_addr: *const c_void, origin_count: $count, origin_datatype: MPI_Datatype, target_rank: c_int,
                  target_disp: MPI_Aint, target_count: $count, target_datatype: MPI_Datatype, op: MPI_Op, win: MPI_Win
                  $(, $request: $type)?);
        }
    };
    (@get_accumulate $name:ident $host:ident $count:ty, $form:ident, $($request:ident: $type:ty)?) => {
        /// Fetches a target's data and reduces ours into it.
        ///
        /// # Safety
        /// As MPI says of the call.
        #[inline(never)]
        pub unsafe extern "C" fn $name(
            origin_addr: *const c_void, origin_count: $count, origin_datatype: MPI_Datatype, result_addr: *mut c_void,
            result_count: $count, result_datatype: MPI_Datatype, target_rank: c_int, target_disp: MPI_Aint,
            target_count: $count, target_datatype: MPI_Datatype, op: MPI_Op, win: MPI_Win, $($request: $type)?
        ) -> c_int {
            on_window(
                stringify!($name),
                win,
                |guard| $form(guard, $(new_request!($request),)? |window| args::get_accumulate(
                    window,
                    Buffer { address: origin_addr, count: origin_count as i64, datatype: origin_datatype },
                    Buffer { address: result_addr, count: result_count as i64, datatype: result_datatype },
                    Target { rank: target_rank, disp: target_disp, count: target_count as i64, datatype: target_datatype },
                    op,
                )),
                // SAFETY: the application's arguments, passed on.
                || unsafe {
                    $host(origin_addr, origin_count, origin_datatype, result_addr, result_count, result_datatype,
                          target_rank, target_disp, target_count, target_datatype, op, win, $($request)?)
                },
            )
        }
        exports! {
            $name(origin_addr: *const c_void, origin_count: $count, origin_datatype: MPI_Datatype,
                  result_addr: *mut c_void, result_count: $count, result_datatype: MPI_Datatype, target_rank: c_int,
                  target_disp: MPI_Aint, target_count: $count, target_datatype: MPI_Datatype, op: MPI_Op, win: MPI_Win
                  $(, $request: $type)?);
        }
    };
}

communication! { c_int;
    MPI_Put => PMPI_Put, MPI_Get => PMPI_Get,
    MPI_Accumulate => PMPI_Accumulate, MPI_Get_accumulate => PMPI_Get_accumulate,
    MPI_Rput => PMPI_Rput, MPI_Rget => PMPI_Rget,
    MPI_Raccumulate => PMPI_Raccumulate, MPI_Rget_accumulate => PMPI_Rget_accumulate,
}

#[cfg(mpi_large_count)]
communication! { MPI_Count;
    MPI_Put_c => PMPI_Put_c, MPI_Get_c => PMPI_Get_c,
    MPI_Accumulate_c => PMPI_Accumulate_c, MPI_Get_accumulate_c => PMPI_Get_accumulate_c,
    MPI_Rput_c => PMPI_Rput_c, MPI_Rget_c => PMPI_Rget_c,
    MPI_Raccumulate_c => PMPI_Raccumulate_c, MPI_Rget_accumulate_c => PMPI_Rget_accumulate_c,
}

/// Fetches one element of a target and reduces ours into it.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Fetch_and_op(
    origin_addr: *const c_void,
    result_addr: *mut c_void,
    datatype: MPI_Datatype,
    target_rank: c_int,
    target_disp: MPI_Aint,
    op: MPI_Op,
    win: MPI_Win,
) -> c_int {
    on_window(
        "MPI_Fetch_and_op",
        win,
        |guard| {
            communicate(guard, |window| {
                args::fetch_and_op(
                    window,
                    origin_addr,
                    result_addr,
                    datatype,
                    target_rank,
                    target_disp,
                    op,
                )
            })
        },
        // SAFETY: the application's arguments, passed on.
        || unsafe {
            PMPI_Fetch_and_op(origin_addr, result_addr, datatype, target_rank, target_disp, op, win)
        },
    )
}

/// Replaces one element of a target if it is what the caller expects, and fetches it either way.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Compare_and_swap(
    origin_addr: *const c_void,
    compare_addr: *const c_void,
    result_addr: *mut c_void,
    datatype: MPI_Datatype,
    target_rank: c_int,
    target_disp: MPI_Aint,
    win: MPI_Win,
) -> c_int {
    on_window(
        "MPI_Compare_and_swap",
        win,
        |guard| {
            communicate(guard, |window| {
                let buffers = [origin_addr, compare_addr, result_addr.cast_const()];
                args::compare_and_swap(window, buffers, datatype, target_rank, target_disp)
            })
        },
        // SAFETY: the application's arguments, passed on.
        || unsafe {
            PMPI_Compare_and_swap(
                origin_addr,
                compare_addr,
                result_addr,
                datatype,
                target_rank,
                target_disp,
                win,
            )
        },
    )
}

exports! {
    MPI_Fetch_and_op(
        origin_addr: *const c_void, result_addr: *mut c_void, datatype: MPI_Datatype, target_rank: c_int,
        target_disp: MPI_Aint, op: MPI_Op, win: MPI_Win);
    MPI_Compare_and_swap(
        origin_addr: *const c_void, compare_addr: *const c_void, result_addr: *mut c_void, datatype: MPI_Datatype,
        target_rank: c_int, target_disp: MPI_Aint, win: MPI_Win);
}
