//! Persistent requests for tagged notifications, and probes for notifications.

use std::ffi::c_int;

use crate::engine::{Arrival, Wanted};
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::mpi::request::persistent;
use crate::mpi::rma::call::{
    Checked, Done, NO_REQUEST, not_complete, require, wait_unless_broken, window_calls,
};
use crate::mpi::rma::notify::tag_of;
use crate::runtime::{Guard, Window, with_port};

/// The source and tag to match; `None` for `MPI_PROC_NULL`.
fn wanted(window: &Window, source: c_int, tag: c_int) -> Checked<Option<Wanted>> {
    let tag = if tag == MPI_ANY_TAG { None } else { Some(tag_of(tag)?) };
    let source = match u32::try_from(source) {
        Ok(rank) if rank < window.size => Some(rank),
        _ if source == MPI_ANY_SOURCE => None,
        _ if source == MPI_PROC_NULL => return Ok(None),
        _ => return Err(Fault::new(MPI_ERR_RANK, "source is outside the window's group")),
    };
    Ok(Some(Wanted { source, tag }))
}

/// Makes a persistent request.
fn init(
    mut guard: Guard,
    source: c_int,
    tag: c_int,
    expected: MPI_Count,
    request: Out<'_, MPI_Request>,
) -> Done {
    require(request, NO_REQUEST)?;
    let id = guard.windows.called_id();
    let ours = guard.windows.called();
    let wanted = wanted(ours, source, tag)?;
    let Some(expected) = u64::try_from(expected).ok().filter(|expected| *expected > 0) else {
        return Err(Fault::new(MPI_ERR_COUNT, "expected_count is not positive"));
    };
    let handle = ours.handle;
    let expectation = wanted.map(|wanted| ours.engine.expect(wanted, expected));
    let source = expectation.map(|expectation| (id, expectation));
    if persistent::make(&mut guard, handle, source, request).is_none() {
        if let Some(expectation) = expectation {
            guard[id].engine.abandon(expectation);
        }
        return Err(Fault::new(MPI_ERR_INTERN, "the host could not make a persistent request"));
    }
    Ok(())
}

/// The oldest matching notification that no request has taken. One from `MPI_PROC_NULL` is always
/// there.
fn probed(window: &mut Window, wanted: Option<Wanted>) -> Option<Option<Arrival>> {
    let Some(wanted) = wanted else { return Some(None) };
    with_port!(&mut window.port, port => window.engine.probe(port, wanted)).map(Some)
}

/// Tests for a matching notification.
fn test(
    mut guard: Guard,
    source: c_int,
    tag: c_int,
    flag: Out<'_, c_int>,
    status: Status<'_>,
) -> Done {
    require(flag, "flag is NULL")?;
    let ours = guard.windows.called();
    let wanted = wanted(ours, source, tag)?;
    let found = probed(ours, wanted);
    if found.is_none() {
        not_complete(guard)?;
    }
    flag.write(c_int::from(found.is_some()));
    if let Some(arrival) = found {
        persistent::fill(status, arrival);
    }
    Ok(())
}

/// Waits for a matching notification.
fn wait(guard: Guard, source: c_int, tag: c_int, status: Status<'_>) -> Done {
    let id = guard.windows.called_id();
    let wanted = wanted(&guard[id], source, tag)?;
    let mut found = None;
    drop(wait_unless_broken(guard, id, |window| {
        found = probed(window, wanted);
        found.is_some()
    })?);
    if let Some(arrival) = found {
        persistent::fill(status, arrival);
    }
    Ok(())
}

window_calls! { win;
    /// Makes a persistent request for `expected_count` tagged notifications from `source` with
    /// `tag`, either of which may be a wildcard.
    MPIX_Notify_init(
        win: MPI_Win, source: c_int, tag: c_int, expected_count: MPI_Count; request: MPI_Request
    ),
        |guard| init(guard, source, tag, expected_count, request);
    /// Tests for a matching notification that no request has taken, and leaves it there. `status`
    /// is a place for a status or ignored.
    MPIX_Notify_iprobe(
        win: MPI_Win, source: c_int, tag: c_int, flag: *mut c_int, status: *mut MPI_Status
    ),
        |guard| {
            // SAFETY: the contract of this call says so of `flag` and `status`.
            let (flag, status) = unsafe { (Out::new(flag), Status::new(status)) };
            test(guard, source, tag, flag, status)
        };
    /// Waits for a matching notification that no request has taken, and leaves it there. `status`
    /// is a place for a status or ignored.
    MPIX_Notify_probe(win: MPI_Win, source: c_int, tag: c_int, status: *mut MPI_Status),
        |guard| {
            // SAFETY: the contract of this call says so of `status`.
            let status = unsafe { Status::new(status) };
            wait(guard, source, tag, status)
        };
}
