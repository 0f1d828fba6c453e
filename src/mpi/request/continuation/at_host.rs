//! Requests of the host that continuations wait for.
//!
//! The host tells nobody when its requests complete, so calls that make progress test them: a
//! bounded number per turn, the oldest first, so that the cost of a turn does not depend on how
//! many there are.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_int;

use smallvec::SmallVec;

use crate::mpi::abi::argument::{OutList, cells};
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::{Status, Statuses, blank};
use crate::mpi::abi::sys::*;
use crate::mpi::request::attached::Attached;
use crate::mpi::request::correct;
use crate::runtime::continuations::note_at_host;
use crate::runtime::process::Own;

/// Requests tested per turn.
const PER_TURN: usize = 16;
/// The memory is freed when nothing waits, unless it is for at most so many requests.
const KEPT: usize = 1024;

type Waiting = VecDeque<(MPI_Request, Attached)>;

/// The requests, next turn first.
// SAFETY: the host's handles may be used in any thread, and the application's memory written.
static WAITING: Own<Waiting> = unsafe { Own::new(VecDeque::new()) };

fn with<R>(body: impl FnOnce(&mut Waiting) -> R) -> R {
    WAITING.with(|waiting| {
        let result = body(waiting);
        note_at_host(waiting.len());
        result
    })
}

/// Waits for a request of the host, which may be complete already.
pub(super) fn attach(request: MPI_Request, attached: Attached) {
    if !test_one(request, attached) {
        with(|waiting| waiting.push_back((request, attached)));
    }
}

/// Tests one request. True if it is complete.
fn test_one(request: MPI_Request, attached: Attached) -> bool {
    let (request, mut flag, mut status) = (Cell::new(request), 0, blank());
    let code = host_calls::test(&request, &mut flag, Status::to(&mut status));
    if code == MPI_SUCCESS && flag == 0 {
        return false;
    }
    complete(attached, code, status, request.get());
    true
}

/// A request is complete, with this code and status. `left` is what the host has left of it.
fn complete(attached: Attached, code: c_int, mut status: MPI_Status, left: MPI_Request) {
    let code =
        if code == MPI_SUCCESS { code } else { correct(Status::to(&mut status)).unwrap_or(code) };
    attached.complete(code, Some(status), left);
}

/// Tests the requests whose turn it is. True if one is complete.
pub(super) fn take_turn() -> bool {
    let turn: SmallVec<[(MPI_Request, Attached); PER_TURN]> = with(|waiting| {
        let number = waiting.len().min(PER_TURN);
        waiting.drain(..number).collect()
    });
    if turn.is_empty() {
        return false;
    }
    let mut requests = [MPI_REQUEST_NULL; PER_TURN];
    for (place, (request, _)) in requests.iter_mut().zip(&turn) {
        *place = *request;
    }
    let requests = &mut requests[..turn.len()];
    let (mut indices, mut statuses) = ([0; PER_TURN], [blank(); PER_TURN]);
    let mut number = 0;
    let code = host_calls::test_some(
        cells(requests),
        &mut number,
        OutList::to(&mut indices),
        Statuses::to(&mut statuses),
    );
    let mut done = [false; PER_TURN];
    if code == MPI_SUCCESS || is_in_status(code) {
        // MPI_UNDEFINED is negative.
        let number = usize::try_from(number).unwrap_or(0);
        for (index, status) in indices.iter().zip(statuses).take(number) {
            let at = *index as usize;
            done[at] = true;
            let code = if code == MPI_SUCCESS { code } else { status.MPI_ERROR };
            complete(turn[at].1, code, status, requests[at]);
        }
    } else {
        // The call says nothing about single requests.
        for (at, (request, attached)) in turn.iter().enumerate() {
            done[at] = test_one(*request, *attached);
        }
    }
    with(|waiting| {
        let rest = turn.iter().zip(done).filter(|(_, done)| !done);
        waiting.extend(rest.map(|(entry, _)| *entry));
        if waiting.is_empty() && waiting.capacity() > KEPT {
            *waiting = Waiting::new();
        }
    });
    done.contains(&true)
}

/// Number of turns until each request has had one.
pub(crate) fn turns() -> u32 {
    with(|waiting| waiting.len().div_ceil(PER_TURN) as u32)
}

fn is_in_status(code: c_int) -> bool {
    host_calls::class_of(code) == MPI_ERR_IN_STATUS
}
