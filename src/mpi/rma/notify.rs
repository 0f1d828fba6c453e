//! Notified communication calls: the operation of the plain call, which then raises a counter of
//! its target.

use std::ffi::{c_int, c_void};

use crate::engine::{Notification, Op, OpKind};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::sys::*;
use crate::mpi::rma::args::{self, Buffer, Target};
use crate::mpi::rma::call::on_our_window;
use crate::mpi::rma::communication::{communicate, communicate_request, new_request};
use crate::mpi::rma::fast_path;
use crate::runtime::Window;

/// The target and the notification of a counter; `None` for `MPI_PROC_NULL`.
#[inline(always)]
fn notification(window: &Window, target: c_int, index: c_int) -> Result<TargetNotification, Fault> {
    let Some(rank) = args::rank(window, target, "target_rank is outside the window's group")?
    else {
        return Ok(None);
    };
    let number = window.port.counters_of(rank);
    match u32::try_from(index) {
        Ok(index) if index < number => Ok(Some((rank, Notification::counter(index)))),
        _ => Err(no_counter(number)),
    }
}

/// A target and its notification.
pub(crate) type TargetNotification = Option<(u32, Notification)>;

/// An operation with its notification, which stands alone where the call moves no data.
#[inline(always)]
pub(crate) fn notified(made: Option<Op>, notification: TargetNotification) -> Option<Op> {
    let Some((target, notification)) = notification else { return made };
    Some(match made {
        Some(op) => Op { notification: Some(notification), ..op },
        None => Op::notify(target, notification),
    })
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
                $form(guard, $(new_request!($request),)? |window| {
                    let notification = notification(window, target_rank, notification_idx)?;
                    Ok(notified(args::accumulate(window, origin, target, op)?, notification))
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
                $form(guard, $(new_request!($request),)? |window| {
                    let notification = notification(window, target_rank, notification_idx)?;
                    Ok(notified(args::get_accumulate(window, origin, result, target, op)?, notification))
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
                $form(guard, $(new_request!($request),)? |window| {
                    let notification = notification(window, target_rank, notification_idx)?;
                    Ok(notified(args::transfer(window, $kind, origin(), target())?, notification))
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
        communicate(guard, |window| {
            let notification = notification(window, target_rank, notification_idx)?;
            let made = args::fetch_and_op(
                window,
                origin_addr,
                result_addr,
                datatype,
                target_rank,
                target_disp,
                op,
            )?;
            Ok(notified(made, notification))
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
        communicate(guard, |window| {
            let notification = notification(window, target_rank, notification_idx)?;
            let buffers = [origin_addr, compare_addr, result_addr.cast_const()];
            let made = args::compare_and_swap(window, buffers, datatype, target_rank, target_disp)?;
            Ok(notified(made, notification))
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
    if fast_path::notify(win, target_rank, notification_idx) {
        return MPI_SUCCESS;
    }
    on_our_window("MPIX_Notify", win, |guard| {
        communicate(guard, |window| {
            Ok(notified(None, notification(window, target_rank, notification_idx)?))
        })
    })
}

exports! {
    MPIX_Fetch_and_op_notify(origin_addr: *const c_void, result_addr: *mut c_void, datatype: MPI_Datatype,
        target_rank: c_int, target_disp: MPI_Aint, op: MPI_Op, notification_idx: c_int, win: MPI_Win);
    MPIX_Compare_and_swap_notify(origin_addr: *const c_void, compare_addr: *const c_void, result_addr: *mut c_void,
        datatype: MPI_Datatype, target_rank: c_int, target_disp: MPI_Aint, notification_idx: c_int, win: MPI_Win);
    MPIX_Notify(target_rank: c_int, notification_idx: c_int, win: MPI_Win);
}
