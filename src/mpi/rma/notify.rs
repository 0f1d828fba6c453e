//! Notifications: after its data have arrived, an operation raises a counter of its target or
//! delivers a tag to it.

use std::ffi::c_int;
use std::num::NonZeroU32;

use crate::engine::{Notification, Op};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::rma::args;
use crate::mpi::rma::call::Checked;
use crate::runtime::Window;

/// A target and what it is notified of, if anything.
type TargetNotification = Option<(u32, Notification)>;

/// The notification of a call that names none: that of all operations on the window, if it has the
/// info key `mpix_rma_notify_puts` [NA-6].
#[inline(always)]
pub(crate) fn by_window(window: &Window, target: c_int) -> Checked<TargetNotification> {
    match window.hints.puts_counter {
        None => Ok(None),
        Some(number) => counted(window, target, number),
    }
}

#[inline(never)]
fn counted(window: &Window, target: c_int, number: NonZeroU32) -> Checked<TargetNotification> {
    let rank = args::rank(window, target, args::BEYOND)?;
    if let Some(rank) = rank
        && window.lane() != 0
        && number.get() > window.port.counters_of(rank)
    {
        // Only this process knows that operations on the duplicate raise that counter [DU-4].
        return Err(no_counter(window.port.counters_of(rank)));
    }
    Ok(rank.map(|rank| (rank, Notification::counter(number.get() - 1))))
}

/// The notification of a call that raises a counter.
#[inline(always)]
pub(crate) fn with_counter(
    window: &Window,
    target: c_int,
    index: c_int,
) -> Checked<TargetNotification> {
    let Some(rank) = args::rank(window, target, args::BEYOND)? else { return Ok(None) };
    let number = window.port.counters_of(rank);
    match u32::try_from(index) {
        Ok(index) if index < number => Ok(Some((rank, Notification::counter(index)))),
        _ => Err(no_counter(number)),
    }
}

/// The notification of a call that delivers a tag.
#[inline(always)]
pub(crate) fn with_tag(window: &Window, target: c_int, tag: c_int) -> Checked<TargetNotification> {
    let tag = tag_of(tag)?;
    let Some(rank) = args::rank(window, target, args::BEYOND)? else { return Ok(None) };
    Ok(Some((rank, Notification::tag(tag))))
}

/// Checks the tag of a notification: any int from 0 on, which is more than `MPI_TAG_UB` of some
/// hosts.
#[inline(always)]
pub(crate) fn tag_of(tag: c_int) -> Checked<u32> {
    u32::try_from(tag).map_err(|_| Fault::new(MPI_ERR_TAG, "tag is negative"))
}

/// Adds the notification to the operation; a call that moves no data sends the notification alone.
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
        "notification_idx, or the info key mpix_rma_notify_puts of a duplicate, is not below the \
         target's number of counters (MPIX_Win_get_num_notify)",
    )
}
