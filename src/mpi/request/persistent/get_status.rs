//! `MPI_Request_get_status_all` and its kin (MPI-4.1 3.7.6), which do not change requests.

use std::ffi::c_int;

use super::{Mixed, active, fill, is_complete};
use crate::mpi::abi::argument::{Out, OutList};
use crate::mpi::abi::status::{Status, Statuses};
use crate::mpi::abi::sys::*;
use crate::runtime::enter;
use crate::runtime::persistent::State;
use crate::runtime::progress::step;

/// Fills the status of a request that is complete or has failed.
fn report(request: MPI_Request, status: Status<'_>) {
    let arrival = if let Some(State::Complete(arrival)) = active(request) { arrival } else { None };
    fill(status, arrival);
}

/// `MPI_Request_get_status_all`. Here and below, `host` makes the call without ours.
pub(in crate::mpi) fn all(
    requests: Option<&[MPI_Request]>,
    flag: Out<'_, c_int>,
    statuses: Statuses<'_>,
    host: impl FnOnce(&[MPI_Request], Out<'_, c_int>, Statuses<'_>) -> c_int,
) -> Option<c_int> {
    let mixed = Mixed::of(requests?.iter().copied())?;
    if !mixed.all_complete_after_step() {
        flag.write(0);
        return Some(MPI_SUCCESS);
    }
    let mut complete = 0;
    let code = host(&mixed.shown, Out::to(&mut complete), statuses);
    flag.write(complete);
    if code == MPI_SUCCESS && complete != 0 {
        mixed.ours.iter().for_each(|(at, request)| report(*request, statuses.at(*at)));
    }
    Some(code)
}

/// `MPI_Request_get_status_any`
pub(in crate::mpi) fn any(
    requests: Option<&[MPI_Request]>,
    index: Out<'_, c_int>,
    flag: Out<'_, c_int>,
    status: Status<'_>,
    host: impl FnOnce(&[MPI_Request], Out<'_, c_int>, Out<'_, c_int>, Status<'_>) -> c_int,
) -> Option<c_int> {
    let mixed = Mixed::of(requests?.iter().copied())?;
    step(enter());
    if let Some((at, request)) = mixed.first_complete() {
        flag.write(1);
        index.write(at as c_int);
        report(request, status);
        return Some(MPI_SUCCESS);
    }
    let (mut found, mut complete) = (MPI_UNDEFINED, 0);
    let code = host(&mixed.shown, Out::to(&mut found), Out::to(&mut complete), status);
    index.write(found);
    // The host sees no active request, but ours are.
    let only_ours = code == MPI_SUCCESS && found == MPI_UNDEFINED;
    flag.write(if only_ours { 0 } else { complete });
    Some(code)
}

/// `MPI_Request_get_status_some`: the host's, then ours behind them.
pub(in crate::mpi) fn some(
    requests: Option<&[MPI_Request]>,
    outcount: Out<'_, c_int>,
    indices: OutList<'_, c_int>,
    statuses: Statuses<'_>,
    host: impl FnOnce(&[MPI_Request], Out<'_, c_int>, OutList<'_, c_int>, Statuses<'_>) -> c_int,
) -> Option<c_int> {
    let mixed = Mixed::of(requests?.iter().copied())?;
    step(enter());
    let mut number = 0;
    let code = host(&mixed.shown, Out::to(&mut number), indices, statuses);
    if code != MPI_SUCCESS {
        outcount.write(number);
        return Some(code);
    }
    if number == MPI_UNDEFINED {
        number = 0;
    }
    for (at, request) in mixed.ours.iter().filter(|(_, request)| is_complete(*request)) {
        indices.at(number as usize).write(*at as c_int);
        report(*request, statuses.at(number as usize));
        number += 1;
    }
    outcount.write(number);
    Some(MPI_SUCCESS)
}
