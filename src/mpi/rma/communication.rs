//! Communication calls: those of MPI, and their forms that notify the target with a counter or a
//! tag. Calls with counts have forms with int and with large counts; MPI's own large-count forms
//! exist only where the host has them.

use std::ffi::{c_int, c_void};

use crate::engine::{Op, OpKind, Outcome, SyncError};
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::rma::args::{self, Buffer, Target};
use crate::mpi::rma::call::{Checked, Done, admit, deliver, window_calls};
use crate::mpi::rma::fast_path;
use crate::mpi::rma::notify::{by_window, notified, with_counter, with_tag};
use crate::mpi::rma::record::{persistent, recording};
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

/// Issues one operation with a request, which is complete at once without data or a target.
#[inline(always)]
fn issue_request(window: &mut Window, op: Option<Op>) -> Checked<Outcome> {
    let Some(op) = &op else { return Ok(Outcome::Complete) };
    if op.len == 0 {
        return issue(window, op).map(|()| Outcome::Complete);
    }
    match with_port!(&mut window.port, port => window.engine.issue_request(port, op)) {
        Ok(outcome) => Ok(outcome),
        Err(error) => Err(refused(window, op, error)),
    }
}

/// Drops the shape of an operation that the engine has refused, and returns the fault.
#[cold]
fn refused(window: &mut Window, op: &Op, error: SyncError) -> Fault {
    if let Some(shape) = op.shape {
        window.port.take_shape(op.target, shape);
    }
    if error == SyncError::NotLearned {
        return Fault::not_learned(op.target);
    }
    error.into()
}

/// Checks and issues one operation.
#[inline(always)]
pub(crate) fn communicate(
    mut guard: Guard,
    make: impl FnOnce(&mut Window) -> Checked<Option<Op>>,
) -> Done {
    let window = guard.windows.called();
    if let Some(op) = make(window)? {
        issue(window, &op)?;
        window.count_operation();
        window.update_fast_path(op.target);
        guard.windows.end_operation(op.target);
    }
    if guard.windows.count_call() {
        sweep_between_calls(&mut guard);
    }
    Ok(())
}

/// Checks and issues one operation with a request.
#[inline(always)]
pub(crate) fn communicate_request(
    mut guard: Guard,
    request: Out<'_, MPI_Request>,
    make: impl FnOnce(&mut Window) -> Checked<Option<Op>>,
) -> Done {
    admit(request)?;
    let window = guard.windows.called();
    let made = make(window)?;
    let target = made.as_ref().map(|op| op.target);
    let outcome = issue_request(window, made)?;
    if let Some(target) = target {
        window.count_operation();
        window.update_fast_path(target);
    }
    deliver(guard, outcome, Scope::Operation, request)
}

/// As [`communicate_request`], for a call that is allowed in lock and lock_all epochs only [RQ-6].
#[inline(always)]
fn communicate_passively(
    guard: Guard,
    request: Out<'_, MPI_Request>,
    make: impl FnOnce(&mut Window) -> Checked<Option<Op>>,
) -> Done {
    communicate_request(guard, request, |window| {
        let made = make(window)?;
        match &made {
            Some(op) if !window.engine.covers_passively(op.target) => {
                Err(SyncError::NoPassiveEpoch.into())
            }
            _ => Ok(made),
        }
    })
}

/// Calls that issue an operation. A form names `communicate` or, with the argument `request`,
/// `communicate_request`; `$make` checks the arguments and makes the operation.
macro_rules! operations {
    ($win:ident; $(
        $(#[$doc:meta])* $name:ident $arguments:tt $(=> $host:ident)?,
        $form:ident $(($request:ident))?, $make:expr $(, unless $first:expr)?;
    )*) => {
        window_calls! { $win; $(
            $(#[$doc])* $name $arguments $(=> $host)?,
                |guard| $form(guard, $($request,)? $make)
                $(, unless $first)?,
                recorded |guard, id| recording::$form(guard, id, $($request,)? $make);
        )* }
    };
}

/// `MPI_Put` and `MPI_Get` and their forms, for one of the two and one type of count. A form names
/// `communicate` or, with the argument `request`, `communicate_request`; what gives its
/// notification, and from which argument; and its fast path, if it has one.
macro_rules! transfers {
    ($kind:ident($pointer:ty), $count:ty; $(
        $name:ident $(=> $host:ident)?, $form:ident $(($request:ident))?,
        $notification:ident $(($extra:ident))? $(, unless $fast:ident($($also:ident)?))?;
    )*) => {
        operations! { win; $(
            /// Moves data between this process and a target's window, and may notify the target.
            $name(
                origin_addr: $pointer, origin_count: $count, origin_datatype: MPI_Datatype,
                target_rank: c_int, target_disp: MPI_Aint, target_count: $count,
                target_datatype: MPI_Datatype, $($extra: c_int,)? win: MPI_Win
                $(; $request: MPI_Request)?
            ) $(=> $host)?,
                $form $(($request))?, |window| {
                    let notification = $notification(window, target_rank $(, $extra)?)?;
                    let made = args::transfer(
                        window,
                        OpKind::$kind,
                        Buffer::new(origin_addr, origin_count as i64, origin_datatype),
                        Target::new(target_rank, target_disp, target_count as i64, target_datatype),
                    )?;
                    Ok(notified(made, notification))
                }
                // The same values as above. Passed from here to there, they would go through
                // memory.
                $(, unless {
                    let origin = Buffer::new(origin_addr, origin_count as i64, origin_datatype);
                    let target =
                        Target::new(target_rank, target_disp, target_count as i64, target_datatype);
                    // SAFETY: the arguments are those of the application's call.
                    unsafe { fast_path::$fast(win, OpKind::$kind, origin, target $(, $also)?) }
                })?;
        )* }
    };
}

/// As [`transfers`], of `MPI_Accumulate`.
macro_rules! accumulates {
    ($count:ty; $(
        $name:ident $(=> $host:ident)?, $form:ident $(($request:ident))?,
        $notification:ident $(($extra:ident))? $(, unless $fast:ident)?;
    )*) => {
        operations! { win; $(
            /// Reduces data into a target's window, and may notify the target.
            $name(
                origin_addr: *const c_void, origin_count: $count, origin_datatype: MPI_Datatype,
                target_rank: c_int, target_disp: MPI_Aint, target_count: $count,
                target_datatype: MPI_Datatype, op: MPI_Op, $($extra: c_int,)? win: MPI_Win
                $(; $request: MPI_Request)?
            ) $(=> $host)?,
                $form $(($request))?, |window| {
                    let notification = $notification(window, target_rank $(, $extra)?)?;
                    let made = args::accumulate(
                        window,
                        Buffer::new(origin_addr, origin_count as i64, origin_datatype),
                        Target::new(target_rank, target_disp, target_count as i64, target_datatype),
                        op,
                    )?;
                    Ok(notified(made, notification))
                }
                $(, unless {
                    let origin = Buffer::new(origin_addr, origin_count as i64, origin_datatype);
                    let target =
                        Target::new(target_rank, target_disp, target_count as i64, target_datatype);
                    // SAFETY: the arguments are those of the application's call.
                    unsafe { fast_path::$fast(win, origin, target, op) }
                })?;
        )* }
    };
}

/// As [`transfers`], of `MPI_Get_accumulate`.
macro_rules! get_accumulates {
    ($count:ty; $(
        $name:ident $(=> $host:ident)?, $form:ident $(($request:ident))?,
        $notification:ident $(($extra:ident))?;
    )*) => {
        operations! { win; $(
            /// Fetches a target's data and reduces ours into it, and may notify the target.
            $name(
                origin_addr: *const c_void, origin_count: $count, origin_datatype: MPI_Datatype,
                result_addr: *mut c_void, result_count: $count, result_datatype: MPI_Datatype,
                target_rank: c_int, target_disp: MPI_Aint, target_count: $count,
                target_datatype: MPI_Datatype, op: MPI_Op, $($extra: c_int,)? win: MPI_Win
                $(; $request: MPI_Request)?
            ) $(=> $host)?,
                $form $(($request))?, |window| {
                    let notification = $notification(window, target_rank $(, $extra)?)?;
                    let made = args::get_accumulate(
                        window,
                        Buffer::new(origin_addr, origin_count as i64, origin_datatype),
                        Buffer::new(result_addr, result_count as i64, result_datatype),
                        Target::new(target_rank, target_disp, target_count as i64, target_datatype),
                        op,
                    )?;
                    Ok(notified(made, notification))
                };
        )* }
    };
}

transfers! { Put(*const c_void), c_int;
    MPI_Put => PMPI_Put, communicate, by_window, unless transfer();
    MPI_Rput => PMPI_Rput, communicate_request(request), by_window;
    MPIX_Put_notify, communicate, with_counter(notification_idx), unless notified(notification_idx);
    MPIX_Rput_notify, communicate_request(request), with_counter(notification_idx);
    MPIX_Put_tagged, communicate, with_tag(tag), unless tagged(tag);
    MPIX_Rput_tagged, communicate_request(request), with_tag(tag);
}
transfers! { Get(*mut c_void), c_int;
    MPI_Get => PMPI_Get, communicate, by_window, unless transfer();
    MPI_Rget => PMPI_Rget, communicate_request(request), by_window;
    MPIX_Get_notify, communicate, with_counter(notification_idx), unless notified(notification_idx);
    MPIX_Rget_notify, communicate_request(request), with_counter(notification_idx);
    MPIX_Get_tagged, communicate, with_tag(tag), unless tagged(tag);
    MPIX_Rget_tagged, communicate_request(request), with_tag(tag);
}
accumulates! { c_int;
    MPI_Accumulate => PMPI_Accumulate, communicate, by_window, unless accumulate;
    MPI_Raccumulate => PMPI_Raccumulate, communicate_request(request), by_window;
    MPIX_Accumulate_notify, communicate, with_counter(notification_idx);
    MPIX_Raccumulate_notify, communicate_request(request), with_counter(notification_idx);
}
get_accumulates! { c_int;
    MPI_Get_accumulate => PMPI_Get_accumulate, communicate, by_window;
    MPI_Rget_accumulate => PMPI_Rget_accumulate, communicate_request(request), by_window;
    MPIX_Get_accumulate_notify, communicate, with_counter(notification_idx);
    MPIX_Rget_accumulate_notify, communicate_request(request), with_counter(notification_idx);
}

transfers! { Put(*const c_void), c_int;
    MPIX_Put_init, persistent(request), by_window;
    MPIX_Put_notify_init, persistent(request), with_counter(notification_idx);
}
transfers! { Get(*mut c_void), c_int;
    MPIX_Get_init, persistent(request), by_window;
    MPIX_Get_notify_init, persistent(request), with_counter(notification_idx);
}
accumulates! { c_int;
    MPIX_Accumulate_init, persistent(request), by_window;
    MPIX_Accumulate_notify_init, persistent(request), with_counter(notification_idx);
}

#[cfg(mpi_large_count)]
transfers! { Put(*const c_void), MPI_Count;
    MPI_Put_c => PMPI_Put_c, communicate, by_window, unless transfer();
    MPI_Rput_c => PMPI_Rput_c, communicate_request(request), by_window;
}
#[cfg(mpi_large_count)]
transfers! { Get(*mut c_void), MPI_Count;
    MPI_Get_c => PMPI_Get_c, communicate, by_window, unless transfer();
    MPI_Rget_c => PMPI_Rget_c, communicate_request(request), by_window;
}
#[cfg(mpi_large_count)]
accumulates! { MPI_Count;
    MPI_Accumulate_c => PMPI_Accumulate_c, communicate, by_window, unless accumulate;
    MPI_Raccumulate_c => PMPI_Raccumulate_c, communicate_request(request), by_window;
}
#[cfg(mpi_large_count)]
get_accumulates! { MPI_Count;
    MPI_Get_accumulate_c => PMPI_Get_accumulate_c, communicate, by_window;
    MPI_Rget_accumulate_c => PMPI_Rget_accumulate_c, communicate_request(request), by_window;
}

transfers! { Put(*const c_void), MPI_Count;
    MPIX_Put_init_c, persistent(request), by_window;
    MPIX_Put_notify_init_c, persistent(request), with_counter(notification_idx);
    MPIX_Put_notify_c, communicate, with_counter(notification_idx),
        unless notified(notification_idx);
    MPIX_Rput_notify_c, communicate_request(request), with_counter(notification_idx);
    MPIX_Put_tagged_c, communicate, with_tag(tag), unless tagged(tag);
    MPIX_Rput_tagged_c, communicate_request(request), with_tag(tag);
}
transfers! { Get(*mut c_void), MPI_Count;
    MPIX_Get_init_c, persistent(request), by_window;
    MPIX_Get_notify_init_c, persistent(request), with_counter(notification_idx);
    MPIX_Get_notify_c, communicate, with_counter(notification_idx),
        unless notified(notification_idx);
    MPIX_Rget_notify_c, communicate_request(request), with_counter(notification_idx);
    MPIX_Get_tagged_c, communicate, with_tag(tag), unless tagged(tag);
    MPIX_Rget_tagged_c, communicate_request(request), with_tag(tag);
}
accumulates! { MPI_Count;
    MPIX_Accumulate_init_c, persistent(request), by_window;
    MPIX_Accumulate_notify_init_c, persistent(request), with_counter(notification_idx);
    MPIX_Accumulate_notify_c, communicate, with_counter(notification_idx);
    MPIX_Raccumulate_notify_c, communicate_request(request), with_counter(notification_idx);
}
get_accumulates! { MPI_Count;
    MPIX_Get_accumulate_notify_c, communicate, with_counter(notification_idx);
    MPIX_Rget_accumulate_notify_c, communicate_request(request), with_counter(notification_idx);
}

/// Calls on one element of a target, of one form and with the argument of their notification; see
/// [`transfers`].
macro_rules! on_one_element {
    ($form:ident $(($request:ident))?, $notification:ident $(($extra:ident))?;
     $fetch:ident $(=> $host_fetch:ident, unless $fast_fetch:ident)?;
     $swap:ident $(=> $host_swap:ident, unless $fast_swap:ident)?) => {
        operations! { win;
            /// Fetches one element of a target and reduces ours into it, and may notify the target.
            $fetch(
                origin_addr: *const c_void, result_addr: *mut c_void, datatype: MPI_Datatype,
                target_rank: c_int, target_disp: MPI_Aint, op: MPI_Op, $($extra: c_int,)?
                win: MPI_Win $(; $request: MPI_Request)?
            ) $(=> $host_fetch)?,
                $form $(($request))?, |window| {
                    let notification = $notification(window, target_rank $(, $extra)?)?;
                    let buffers = [origin_addr, result_addr.cast_const()];
                    let made = args::fetch_and_op(
                        window, buffers, datatype, target_rank, target_disp, op)?;
                    Ok(notified(made, notification))
                }
                $(, unless {
                    let buffers = [origin_addr, result_addr.cast_const()];
                    let place = (target_rank, target_disp);
                    // SAFETY: the arguments are those of the application's call.
                    unsafe { fast_path::$fast_fetch(win, buffers, datatype, place, op) }
                })?;
            /// Replaces one element of a target if it is what the caller expects, and fetches it
            /// either way. May notify the target.
            $swap(
                origin_addr: *const c_void, compare_addr: *const c_void, result_addr: *mut c_void,
                datatype: MPI_Datatype, target_rank: c_int, target_disp: MPI_Aint,
                $($extra: c_int,)? win: MPI_Win $(; $request: MPI_Request)?
            ) $(=> $host_swap)?,
                $form $(($request))?, |window| {
                    let notification = $notification(window, target_rank $(, $extra)?)?;
                    let buffers = [origin_addr, compare_addr, result_addr.cast_const()];
                    let made = args::compare_and_swap(
                        window, buffers, datatype, target_rank, target_disp)?;
                    Ok(notified(made, notification))
                }
                $(, unless {
                    let buffers = [origin_addr, compare_addr, result_addr.cast_const()];
                    let place = (target_rank, target_disp);
                    // SAFETY: the arguments are those of the application's call.
                    unsafe { fast_path::$fast_swap(win, buffers, datatype, place) }
                })?;
        }
    };
}

on_one_element! { communicate, by_window;
    MPI_Fetch_and_op => PMPI_Fetch_and_op, unless fetch_and_op;
    MPI_Compare_and_swap => PMPI_Compare_and_swap, unless compare_and_swap
}
on_one_element! { communicate, with_counter(notification_idx);
    MPIX_Fetch_and_op_notify; MPIX_Compare_and_swap_notify
}
on_one_element! { communicate_passively(request), by_window;
    MPIX_Rfetch_and_op; MPIX_Rcompare_and_swap
}

operations! { win;
    /// Notifies the target.
    MPIX_Notify(target_rank: c_int, notification_idx: c_int, win: MPI_Win),
        communicate, |window| {
            Ok(notified(None, with_counter(window, target_rank, notification_idx)?))
        },
        // SAFETY: MPI demands of the call that the window exists.
        unless unsafe { fast_path::notify(win, target_rank, notification_idx) };
}
