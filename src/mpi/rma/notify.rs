//! Notified communication calls: the operation of the plain call, then one that raises a counter of
//! its target.

use std::ffi::{c_int, c_void};

use crate::engine::{Addr, Element, Op, OpKind, Reduction};
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::sys::*;
use crate::mpi::rma::args::{self, Buffer, Target};
use crate::mpi::rma::call::{Done, admit, deliver, on_our_window};
use crate::mpi::rma::communication::{issue, issue_request, new_request};
use crate::mpi::rma::fast_path;
use crate::runtime::progress::sweep_between_calls;
use crate::runtime::{Guard, Scope, Window, with_port};

/// The operation that raises a counter of a target; `None` for `MPI_PROC_NULL`.
#[inline(always)]
fn notification(window: &Window, target: c_int, index: c_int) -> Result<Option<Op>, Fault> {
    let Some(rank) = args::rank(window, target, "target_rank is outside the window's group")?
    else {
        return Ok(None);
    };
    let number = window.port.counters_of(rank);
    match u32::try_from(index) {
        Ok(index) if index < number => Ok(Some(notify_op(OpKind::Notify, rank, index))),
        _ => Err(no_counter(number)),
    }
}

/// The operation that notifies a target: `number` is a counter's index, or a tag.
#[inline(always)]
pub(crate) fn notify_op(kind: OpKind, target: u32, number: u32) -> Op {
    Op {
        origin: Addr(0),
        result: Addr(0),
        compare: Addr(0),
        disp: u64::from(number),
        len: 0,
        target,
        kind,
        element: Element(0),
        reduction: Reduction(0),
        extent: 1,
        shape: None,
    }
}

#[cold]
fn no_counter(number: u32) -> Fault {
    if number == 0 {
        return Fault::new(
            MPI_ERR_ARG,
            "the target has no counters on this window (MPIX_Win_set_num_notify)",
        );
    }
    Fault::new(
        MPI_ERR_ARG,
        "notification_idx is not below the target's number of counters (MPIX_Win_get_num_notify)",
    )
}

/// Checks and issues one operation and its notification.
#[inline(always)]
fn communicate(
    guard: Guard,
    target: c_int,
    index: c_int,
    make: impl FnOnce(&mut Window) -> Result<Option<Op>, Fault>,
) -> Done {
    with_notification(guard, |window| notification(window, target, index), make)
}

/// Checks and issues one operation and then its notification, which `behind` makes and which is
/// checked first.
#[inline(always)]
pub(crate) fn with_notification(
    mut guard: Guard,
    behind: impl FnOnce(&mut Window) -> Result<Option<Op>, Fault>,
    make: impl FnOnce(&mut Window) -> Result<Option<Op>, Fault>,
) -> Done {
    let window = guard.windows.called();
    let behind = behind(window)?;
    let made = make(window)?;
    if let (Some(op), Some(notification)) = (&made, &behind)
        && with_port!(&mut window.port, port => window.engine.issue_notified(port, op, notification))
    {
        if window.count_call() {
            sweep_between_calls(&mut guard);
        }
        return Ok(());
    }
    if let Some(op) = &behind {
        window.port.announce_notification(op.target);
    }
    if let Some(op) = made {
        issue(window, &op)?;
    }
    // The operation was issued in an open epoch, so the engine does not refuse its notification.
    if let Some(op) = behind {
        issue(window, &op)?;
    }
    if window.count_call() {
        sweep_between_calls(&mut guard);
    }
    Ok(())
}

/// As [`communicate`], with a request for the operation.
#[inline(always)]
fn communicate_request(
    guard: Guard,
    request: Out<'_, MPI_Request>,
    target: c_int,
    index: c_int,
    make: impl FnOnce(&mut Window) -> Result<Option<Op>, Fault>,
) -> Done {
    with_notification_request(guard, request, |window| notification(window, target, index), make)
}

/// As [`with_notification`], with a request for the operation.
#[inline(always)]
pub(crate) fn with_notification_request(
    mut guard: Guard,
    request: Out<'_, MPI_Request>,
    behind: impl FnOnce(&mut Window) -> Result<Option<Op>, Fault>,
    make: impl FnOnce(&mut Window) -> Result<Option<Op>, Fault>,
) -> Done {
    admit(request)?;
    let window = guard.windows.called();
    let behind = behind(window)?;
    let made = make(window)?;
    let outcome = issue_request(window, made)?;
    if let Some(op) = behind {
        issue(window, &op)?;
    }
    deliver(guard, outcome, Scope::Operation, request)
}

/// The forms of one type of count.
macro_rules! counted {
    ($count:ty; $($put:ident $get:ident $accumulate:ident $get_accumulate:ident $short:path, $form:ident ($($request:ident: $type:ty)?);)*) => {$(
        counted! { @transfer $put OpKind::Put, *const c_void, $count, $short, $form ($($request: $type)?) }
        counted! { @transfer $get OpKind::Get, *mut c_void, $count, $short, $form ($($request: $type)?) }
        /// Reduces data into a target's window and notifies the target.
        ///
        /// # Safety
        /// As MPI says of the plain call.
        #[inline(never)]
        pub unsafe extern "C" fn $accumulate(
            origin_addr: *const c_void, origin_count: $count, origin_datatype: MPI_Datatype, target_rank: c_int,
            target_disp: MPI_Aint, target_count: $count, target_datatype: MPI_Datatype, op: MPI_Op, notification_idx: c_int,
            win: MPI_Win $(, $request: $type)?
        ) -> c_int {
            let origin = Buffer { address: origin_addr, count: origin_count as i64, datatype: origin_datatype };
            let target = Target { rank: target_rank, disp: target_disp, count: target_count as i64, datatype: target_datatype };
            on_our_window(stringify!($accumulate), win, |guard| {
                $form(guard, $(new_request!($request),)? target_rank, notification_idx, |window| {
                    args::accumulate(window, origin, target, op)
                })
            })
        }
        /// Fetches a target's data, reduces the origin's into it and notifies the target.
        ///
        /// # Safety
        /// As MPI says of the plain call.
        #[inline(never)]
        pub unsafe extern "C" fn $get_accumulate(
            origin_addr: *const c_void, origin_count: $count, origin_datatype: MPI_Datatype, result_addr: *mut c_void,
            result_count: $count, result_datatype: MPI_Datatype, target_rank: c_int, target_disp: MPI_Aint,
            target_count: $count, target_datatype: MPI_Datatype, op: MPI_Op, notification_idx: c_int, win: MPI_Win
            $(, $request: $type)?
        ) -> c_int {
            let origin = Buffer { address: origin_addr, count: origin_count as i64, datatype: origin_datatype };
            let result = Buffer { address: result_addr, count: result_count as i64, datatype: result_datatype };
            let target = Target { rank: target_rank, disp: target_disp, count: target_count as i64, datatype: target_datatype };
            on_our_window(stringify!($get_accumulate), win, |guard| {
                $form(guard, $(new_request!($request),)? target_rank, notification_idx, |window| {
                    args::get_accumulate(window, origin, result, target, op)
                })
            })
        }
        exports! {
            $accumulate(
                origin_addr: *const c_void, origin_count: $count, origin_datatype: MPI_Datatype, target_rank: c_int,
                target_disp: MPI_Aint, target_count: $count, target_datatype: MPI_Datatype, op: MPI_Op, notification_idx: c_int,
                win: MPI_Win $(, $request: $type)?);
            $get_accumulate(
                origin_addr: *const c_void, origin_count: $count, origin_datatype: MPI_Datatype, result_addr: *mut c_void,
                result_count: $count, result_datatype: MPI_Datatype, target_rank: c_int, target_disp: MPI_Aint,
                target_count: $count, target_datatype: MPI_Datatype, op: MPI_Op, notification_idx: c_int, win: MPI_Win
                $(, $request: $type)?);
        }
    )*};
    (@transfer $name:ident $kind:expr, $pointer:ty, $count:ty, $short:path, $form:ident ($($request:ident: $type:ty)?)) => {
        /// Moves data between this process and a target's window and notifies the target.
        ///
        /// # Safety
        /// As MPI says of the plain call.
        #[inline(never)]
        pub unsafe extern "C" fn $name(
            origin_addr: $pointer, origin_count: $count, origin_datatype: MPI_Datatype, target_rank: c_int,
            target_disp: MPI_Aint, target_count: $count, target_datatype: MPI_Datatype, notification_idx: c_int, win: MPI_Win
            $(, $request: $type)?
        ) -> c_int {
            // Made twice, where they are used: kept in between they would go through memory.
            let origin = || Buffer { address: origin_addr.cast(), count: origin_count as i64, datatype: origin_datatype };
            let target =
                || Target { rank: target_rank, disp: target_disp, count: target_count as i64, datatype: target_datatype };
            // SAFETY: the arguments are those of the application's call.
            if unsafe { $short(win, $kind, origin(), target(), notification_idx) } {
                return MPI_SUCCESS;
            }
            on_our_window(stringify!($name), win, |guard| {
                $form(guard, $(new_request!($request),)? target_rank, notification_idx, |window| {
                    args::transfer(window, $kind, origin(), target())
                })
            })
        }
        exports! {
            $name(origin_addr: $pointer, origin_count: $count, origin_datatype: MPI_Datatype, target_rank: c_int,
                  target_disp: MPI_Aint, target_count: $count, target_datatype: MPI_Datatype, notification_idx: c_int,
                  win: MPI_Win $(, $request: $type)?);
        }
    };
}

counted! { c_int;
    MPIX_Put_notify MPIX_Get_notify MPIX_Accumulate_notify MPIX_Get_accumulate_notify fast_path::notified, communicate ();
    MPIX_Rput_notify MPIX_Rget_notify MPIX_Raccumulate_notify MPIX_Rget_accumulate_notify fast_path::not_notified, communicate_request (request: *mut MPI_Request);
}

counted! { MPI_Count;
    MPIX_Put_notify_c MPIX_Get_notify_c MPIX_Accumulate_notify_c MPIX_Get_accumulate_notify_c fast_path::notified, communicate ();
    MPIX_Rput_notify_c MPIX_Rget_notify_c MPIX_Raccumulate_notify_c MPIX_Rget_accumulate_notify_c fast_path::not_notified, communicate_request (request: *mut MPI_Request);
}

/// Fetches one element of a target, reduces the origin's into it and notifies the target.
///
/// # Safety
/// As MPI says of the plain call.
#[inline(never)]
pub unsafe extern "C" fn MPIX_Fetch_and_op_notify(
    origin_addr: *const c_void,
    result_addr: *mut c_void,
    datatype: MPI_Datatype,
    target_rank: c_int,
    target_disp: MPI_Aint,
    op: MPI_Op,
    notification_idx: c_int,
    win: MPI_Win,
) -> c_int {
    on_our_window("MPIX_Fetch_and_op_notify", win, |guard| {
        communicate(guard, target_rank, notification_idx, |window| {
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
    })
}

/// Compares and swaps one element of a target, fetches it, and notifies the target.
///
/// # Safety
/// As MPI says of the plain call.
#[inline(never)]
pub unsafe extern "C" fn MPIX_Compare_and_swap_notify(
    origin_addr: *const c_void,
    compare_addr: *const c_void,
    result_addr: *mut c_void,
    datatype: MPI_Datatype,
    target_rank: c_int,
    target_disp: MPI_Aint,
    notification_idx: c_int,
    win: MPI_Win,
) -> c_int {
    on_our_window("MPIX_Compare_and_swap_notify", win, |guard| {
        communicate(guard, target_rank, notification_idx, |window| {
            let buffers = [origin_addr, compare_addr, result_addr.cast_const()];
            args::compare_and_swap(window, buffers, datatype, target_rank, target_disp)
        })
    })
}

/// Notifies the target.
///
/// # Safety
/// `win` is a window handle.
#[inline(never)]
pub unsafe extern "C" fn MPIX_Notify(
    target_rank: c_int,
    notification_idx: c_int,
    win: MPI_Win,
) -> c_int {
    on_our_window("MPIX_Notify", win, |guard| {
        communicate(guard, target_rank, notification_idx, |_| Ok(None))
    })
}

exports! {
    MPIX_Fetch_and_op_notify(origin_addr: *const c_void, result_addr: *mut c_void, datatype: MPI_Datatype,
        target_rank: c_int, target_disp: MPI_Aint, op: MPI_Op, notification_idx: c_int, win: MPI_Win);
    MPIX_Compare_and_swap_notify(origin_addr: *const c_void, compare_addr: *const c_void, result_addr: *mut c_void,
        datatype: MPI_Datatype, target_rank: c_int, target_disp: MPI_Aint, notification_idx: c_int, win: MPI_Win);
    MPIX_Notify(target_rank: c_int, notification_idx: c_int, win: MPI_Win);
}
