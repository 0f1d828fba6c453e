//! Flushes of many windows at once: one pass over them and one wait [FL-2].

use std::ffi::c_int;

use smallvec::SmallVec;

use crate::engine::{Outcome, RequestId};
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::{Fault, Place, boundary, raise};
use crate::mpi::abi::host::exports;
use crate::mpi::abi::sys::*;
use crate::mpi::request;
use crate::mpi::request::continuation;
use crate::mpi::rma::args;
use crate::mpi::rma::call::{admit, deliver_complete, wait_for};
use crate::mpi::rma::record;
use crate::runtime::progress::{sweep, sweep_between_calls};
use crate::runtime::{Guard, HandleState, HostHandle, Scope, WindowId, enter, with_port};
use crate::transport::shm::protocol::order_completed;

/// `MPIX_RANK_ALL` of `mpix_rma.h`. No rank or other constant of a host has this value.
const RANK_ALL: c_int = -32700;

/// What is flushed in a window: nothing, one target, or all.
#[derive(Clone, Copy)]
enum Scale {
    Nothing,
    Towards(Option<u32>),
}

/// A window of the call, checked.
struct Checks {
    window: WindowId,
    lane: u32,
    handle: MPI_Win,
    scale: Scale,
}

/// A flush that has to wait.
struct Waiting {
    window: WindowId,
    handle: MPI_Win,
    request: RequestId,
    target: Option<u32>,
}

/// A fault, and whose error handler is called.
type Refused = (Place, Fault);
type Windows = SmallVec<[Checks; 32]>;
type Pending = SmallVec<[Waiting; 8]>;

/// Checks one window. A call that is wrong for any window flushes none.
fn check(guard: &mut Guard, handle: MPI_Win, rank: c_int) -> Result<Checks, Refused> {
    let (window, lane) = match guard.windows.state(HostHandle(handle.key())) {
        Some(HandleState::Ours(id, lane)) => (id, lane),
        Some(HandleState::Host) => {
            let text = "an element of wins is left to the host MPI library (see \
                        MPIX_RMA_LOG=info for the reason); the log names its index";
            return Err((Place::Window(handle), Fault::new(MPI_ERR_UNSUPPORTED_OPERATION, text)));
        }
        Some(HandleState::Recording(_)) => {
            return Err((Place::Window(handle), record::not_allowed()));
        }
        _ => {
            let text = "an element of wins is not a window, or has been freed; the log names its \
                        index";
            return Err((Place::World, Fault::new(MPI_ERR_WIN, text)));
        }
    };
    let ours = &mut guard[window];
    let scale = match rank {
        RANK_ALL => Ok(Scale::Towards(None)),
        _ => args::rank(ours, rank, "rank is outside the group of an element of wins")
            .map(|rank| rank.map_or(Scale::Nothing, |rank| Scale::Towards(Some(rank)))),
    };
    let scale = scale.and_then(|scale| {
        if let Scale::Towards(target) = scale {
            ours.engine.may_flush(target)?;
        }
        Ok(scale)
    });
    match scale {
        Ok(scale) => Ok(Checks { window, lane, handle, scale }),
        Err(fault) => Err((Place::Window(handle), fault)),
    }
}

/// Checks all windows of a call.
///
/// # Safety
/// `wins` is NULL or has `n` handles.
unsafe fn check_all(
    guard: &mut Guard,
    n: c_int,
    wins: *const MPI_Win,
    rank: c_int,
) -> Result<Windows, Refused> {
    let refuse = |text| Err((Place::World, Fault::new(MPI_ERR_ARG, text)));
    let Ok(count) = usize::try_from(n) else { return refuse("n is negative") };
    if count == 0 {
        return Ok(Windows::new());
    }
    if wins.is_null() {
        return refuse("wins is NULL");
    }
    // SAFETY: it has `n` handles (contract of this function).
    let handles = unsafe { std::slice::from_raw_parts(wins, count) };
    let check = |(at, handle): (usize, &MPI_Win)| {
        check(guard, *handle, rank).inspect_err(|(_, fault)| {
            log::error!("element {at} of wins: {}", fault.text);
        })
    };
    handles.iter().enumerate().map(check).collect()
}

/// Starts the flushes. Returns those that have to wait; all are under way then.
fn start(guard: &mut Guard, windows: &Windows) -> Result<Pending, Refused> {
    let mut pending = Pending::new();
    let mut fault = None;
    for Checks { window, lane, handle, scale } in windows {
        let Scale::Towards(target) = *scale else { continue };
        let ours = guard.windows.on_lane(*window, *lane);
        let flushed = with_port!(&mut ours.port, port => ours.engine.flush(port, target));
        match flushed.map(|outcome| ours.poll_while_moving(outcome)) {
            Ok(Outcome::Complete) if ours.port.take_fault(target).is_some() => {
                fault = fault.or(Some((Place::Window(*handle), Fault::unattached())));
            }
            Ok(Outcome::Complete) => {}
            Ok(Outcome::Pending(request)) => {
                pending.push(Waiting { window: *window, handle: *handle, request, target });
            }
            Err(error) => fault = fault.or(Some((Place::Window(*handle), error.into()))),
        }
    }
    for waiting in &pending {
        guard.windows.attend(waiting.window);
    }
    // After a fault nothing is handed out, and the other flushes end by themselves.
    fault.map_or(Ok(pending), Err)
}

/// Waits for flushes, which proceed together.
fn wait(mut guard: Guard, pending: Pending) -> Result<(), Refused> {
    // None of the windows is freed meanwhile.
    pending.iter().for_each(|waiting| guard[waiting.window].waiting += 1);
    let mut result = Ok(());
    for Waiting { window, handle, request, target } in pending {
        let done = wait_for(guard, window, request, target);
        guard = enter();
        guard[window].waiting -= 1;
        result = result.and(done.map_err(|fault| (Place::Window(handle), fault)));
    }
    result
}

/// Gives the application one request for several flushes.
fn deliver(
    mut guard: Guard,
    pending: Pending,
    request: Out<'_, MPI_Request>,
) -> Result<(), Refused> {
    let of_world = |fault| (Place::World, fault);
    if pending.is_empty() {
        if guard.windows.count_call() {
            sweep_between_calls(&mut guard);
        }
        drop(guard);
        return deliver_complete(request).map_err(of_world);
    }
    match request::pending(request) {
        Ok(number) => {
            request::expect_parts(number, pending.len() as u32);
            for Waiting { window, request, target, .. } in &pending {
                guard[*window].bind(*request, number, Scope::Target(*target));
            }
            // A request of several flushes has no window of its own, which a call could wait for.
            if let [Waiting { window, request, .. }] = pending[..] {
                request::bind(number, window, request);
            }
            sweep(&mut guard);
            Ok(())
        }
        Err(status) => {
            log::warn!(
                "the host could not make a generalized request (error {status}); waiting instead"
            );
            wait(guard, pending)?;
            deliver_complete(request).map_err(of_world)
        }
    }
}

fn end(call: &'static str, done: Result<(), Refused>) -> c_int {
    let code = match done {
        Ok(()) => MPI_SUCCESS,
        Err((place, fault)) => raise(call, place, fault),
    };
    continuation::after_call();
    code
}

/// Complete when the operations to `rank` on all of `n` windows that were called before are.
///
/// # Safety
/// `wins` is NULL or has `n` handles; `request` is NULL or memory for a request.
#[inline(never)]
pub unsafe extern "C" fn MPIX_Win_iflush_wins(
    n: c_int,
    wins: *const MPI_Win,
    rank: c_int,
    request: *mut MPI_Request,
) -> c_int {
    const CALL: &str = "MPIX_Win_iflush_wins";
    boundary(CALL, || {
        // SAFETY: the contract of this call says so.
        let request = unsafe { Out::new(request) };
        let flush = || {
            admit(request).map_err(|fault| (Place::World, fault))?;
            let mut guard = enter();
            // SAFETY: the contract of this call says so.
            let windows = unsafe { check_all(&mut guard, n, wins, rank) }?;
            let pending = start(&mut guard, &windows)?;
            deliver(guard, pending, request)
        };
        end(CALL, flush())
    })
}

/// Completes the operations to `rank` on `n` windows, at origin and target.
///
/// # Safety
/// `wins` is NULL or has `n` handles.
#[inline(never)]
pub unsafe extern "C" fn MPIX_Win_flush_wins(n: c_int, wins: *const MPI_Win, rank: c_int) -> c_int {
    const CALL: &str = "MPIX_Win_flush_wins";
    boundary(CALL, || {
        let flush = || {
            let mut guard = enter();
            // SAFETY: the contract of this call says so.
            let windows = unsafe { check_all(&mut guard, n, wins, rank) }?;
            let pending = start(&mut guard, &windows)?;
            if pending.is_empty() && guard.windows.count_call() {
                sweep_between_calls(&mut guard);
            }
            wait(guard, pending)?;
            order_completed();
            Ok(())
        };
        end(CALL, flush())
    })
}

exports! {
    MPIX_Win_iflush_wins(
        n: c_int, wins: *const MPI_Win, rank: c_int, request: *mut MPI_Request);
    MPIX_Win_flush_wins(n: c_int, wins: *const MPI_Win, rank: c_int);
}
