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
use crate::mpi::request::task::pause;
use crate::mpi::rma::args;
use crate::mpi::rma::call::{admit, broken, deliver_complete, wait_for};
use crate::mpi::rma::record;
use crate::runtime::process::{State, multiple};
use crate::runtime::progress::{sweep, sweep_between_calls};
use crate::runtime::registry::Registry;
use crate::runtime::together::{Looks, flush_checked, wait_for_all};
use crate::runtime::transport::any_skipped;
use crate::runtime::{Guard, HandleState, HostHandle, Scope, Window, WindowId, enter, with_port};
use crate::transport::shm::protocol::order_completed;

/// `MPIX_RANK_ALL` of `mpix_rma.h`. No rank or other constant of a host has this value.
const RANK_ALL: c_int = -32700;

/// The target of a call whose arguments are right: `None` for all, and no process for
/// `MPI_PROC_NULL`.
fn target_of(rank: c_int) -> Option<u32> {
    if rank == RANK_ALL { None } else { Some(rank as u32) }
}

/// A flush that has to wait.
struct Waiting {
    window: WindowId,
    lane: u32,
    request: RequestId,
}

/// A fault, and whose error handler is called.
type Refused = (Place, Fault);
type Pending = SmallVec<[Waiting; 8]>;

/// Where a fault in one of our windows is raised.
fn place(ours: &Window) -> Place {
    Place::Window(MPI_Win::of(ours.handle.0))
}

/// Checks one window. A call that is wrong for any window flushes none.
fn check(guard: &mut Guard, handle: MPI_Win, rank: c_int) -> Result<(WindowId, u32), Refused> {
    let (window, lane) = match guard.windows.state(HostHandle(handle.key())) {
        Some(HandleState::Ours(id, lane)) => (id, lane),
        Some(HandleState::Host) => {
            let text = "an element of wins is left to the host MPI library (see \
                        MPIX_RMA_LOG=info for the reason); the log names its index";
            return Err((Place::Window(handle), Fault::new(MPI_ERR_UNSUPPORTED_OPERATION, text)));
        }
        Some(HandleState::Recording(..)) => {
            return Err((Place::Window(handle), record::not_allowed()));
        }
        _ => {
            let text = "an element of wins is not a window, or has been freed; the log names its \
                        index";
            return Err((Place::World, Fault::new(MPI_ERR_WIN, text)));
        }
    };
    let ours = &guard[window];
    let target = match rank {
        RANK_ALL => Ok(Some(None)),
        _ => args::rank(ours, rank, "rank is outside the group of an element of wins")
            .map(|rank| rank.map(Some)),
    };
    let checked = target.and_then(|target| match target {
        Some(target) => Ok(ours.engine.may_flush(target)?),
        None => Ok(()),
    });
    checked.map(|()| (window, lane)).map_err(|fault| (Place::Window(handle), fault))
}

/// Checks all windows of a call; [`State::checked`](crate::runtime::process::State) has them then.
///
/// # Safety
/// `wins` is NULL or has `n` handles.
unsafe fn check_all(
    guard: &mut Guard,
    n: c_int,
    wins: *const MPI_Win,
    rank: c_int,
) -> Result<(), Refused> {
    let refuse = |text| Err((Place::World, Fault::new(MPI_ERR_ARG, text)));
    let Ok(count) = usize::try_from(n) else { return refuse("n is negative") };
    let handles: &[MPI_Win] = match (count, wins.is_null()) {
        (0, _) => &[],
        (_, true) => return refuse("wins is NULL"),
        // SAFETY: it has `n` handles (contract of this function).
        _ => unsafe { std::slice::from_raw_parts(wins, count) },
    };
    if guard.checked.is(rank, handles.iter().map(|handle| HostHandle(handle.key()))) {
        return Ok(());
    }
    guard.checked.begin(rank);
    for (at, handle) in handles.iter().enumerate() {
        let (window, lane) = check(guard, *handle, rank).inspect_err(|(_, fault)| {
            log::error!("element {at} of wins: {}", fault.text);
        })?;
        let duplicated = guard[window].has_duplicates();
        guard.checked.add(HostHandle(handle.key()), (window, lane), duplicated);
    }
    guard.checked.end();
    Ok(())
}

/// Whether no flush of the checked windows has anything to wait for, or a fault to report.
#[inline]
fn needs_nothing(guard: &mut Guard, target: Option<u32>) -> bool {
    let nobody = target == Some(MPI_PROC_NULL as u32);
    // A window that has nothing in flight may still have to report a fault.
    nobody || (!any_skipped() && guard.windows.nothing_to_flush())
}

/// Counts a call that did not wait [PR-1].
fn sweep_at_times(guard: &mut Guard) {
    if guard.windows.count_call() {
        sweep_between_calls(guard);
    }
}

/// Whether the flush of a checked window has anything to wait for, or perhaps a fault to report.
fn is_concerned(ours: &Window) -> bool {
    !ours.engine.has_nothing_to_flush() || any_skipped()
}

/// Flushes the checked windows, which have no duplicates.
#[inline(never)]
fn flush_alone(guard: Guard, target: Option<u32>) -> Result<(), Refused> {
    let (mut guard, ids) = flush_checked(guard, target, is_concerned);
    let faults = ids.iter().filter_map(|id| {
        let ours = &mut guard[*id];
        let flushed = ours.engine.is_flushed(target);
        fault_of(ours, flushed, target)
    });
    // Takes the faults of all windows.
    faults.reduce(|first, _| first).map_or(Ok(()), Err)
}

/// Starts the flushes of the checked windows. Returns those that have to wait; all are under way
/// then.
fn start(guard: &mut Guard, target: Option<u32>) -> Result<Pending, Refused> {
    let needs_nothing = needs_nothing(guard, target);
    let pending = if needs_nothing { Pending::new() } else { start_each(guard, target)? };
    if pending.is_empty() {
        sweep_at_times(guard);
    }
    Ok(pending)
}

#[inline(never)]
fn start_each(guard: &mut Guard, target: Option<u32>) -> Result<Pending, Refused> {
    let State { windows, checked, network, .. } = &mut **guard;
    let mut pending = Pending::new();
    let mut fault = None;
    network.hold();
    for (id, lane) in checked.windows() {
        if !is_concerned(&windows[*id]) {
            continue;
        }
        let ours = windows.on_lane(*id, *lane);
        let flushed = with_port!(&mut ours.port, port => ours.engine.flush(port, target));
        match flushed.map(|outcome| ours.poll_while_moving(outcome)) {
            Ok(Outcome::Complete) if ours.port.take_fault(target).is_some() => {
                fault = fault.or(Some((place(ours), Fault::unattached())));
            }
            Ok(Outcome::Complete) => {}
            Ok(Outcome::Pending(request)) => {
                pending.push(Waiting { window: *id, lane: *lane, request });
            }
            Err(error) => fault = fault.or(Some((place(ours), error.into()))),
        }
    }
    network.send_held();
    for waiting in &pending {
        windows.attend(waiting.window);
    }
    // After a fault nothing is handed out, and the other flushes end by themselves.
    fault.map_or(Ok(pending), Err)
}

fn windows_of(pending: &Pending) -> SmallVec<[WindowId; 8]> {
    pending.iter().map(|waiting| waiting.window).collect()
}

/// Whether the flushes from `first` on have ended. Moves `first` behind those that have.
fn have_ended(windows: &Registry, pending: &Pending, first: &mut usize) -> bool {
    while let Some(Waiting { window, request, .. }) = pending.get(*first) {
        let ours = &windows[*window];
        if ours.engine.is_pending(*request) && !ours.port.is_broken() {
            return false;
        }
        *first += 1;
    }
    true
}

/// The fault of a flush that has ended: in a broken window, it may not be complete.
fn fault_of(ours: &mut Window, complete: bool, target: Option<u32>) -> Option<Refused> {
    let fault = match () {
        () if !complete => broken(ours),
        () if ours.port.take_fault(target).is_some() => Fault::unattached(),
        () => return None,
    };
    Some((place(ours), fault))
}

/// Waits for flushes, which proceed together.
fn wait(guard: Guard, pending: &Pending, target: Option<u32>) -> Result<(), Refused> {
    if pause::in_task() {
        return wait_in_task(guard, pending, target);
    }
    let mut first = 0;
    let done = |windows: &mut Registry| have_ended(windows, pending, &mut first);
    let mut guard = wait_for_all(guard, &windows_of(pending), false, done);
    let faults = pending.iter().filter_map(|Waiting { window, lane, request }| {
        let ours = guard.windows.on_lane(*window, *lane);
        let complete = !ours.engine.is_pending(*request);
        fault_of(ours, complete, target)
    });
    // Takes the faults of all windows.
    faults.reduce(|first, _| first).map_or(Ok(()), Err)
}

/// As [`wait`], and pauses the task.
#[cold]
fn wait_in_task(mut guard: Guard, pending: &Pending, target: Option<u32>) -> Result<(), Refused> {
    // None of the windows is freed meanwhile.
    pending.iter().for_each(|waiting| guard[waiting.window].waiting += 1);
    let mut result = Ok(());
    for Waiting { window, lane, request } in pending {
        let place = place(guard.windows.on_lane(*window, *lane));
        let done = wait_for(guard, *window, *request, target);
        guard = enter();
        guard[*window].waiting -= 1;
        result = result.and(done.map_err(|fault| (place, fault)));
    }
    result
}

/// Looks a few times whether the flushes end, before a request of the host is made.
fn poll_before_request(guard: &mut Guard, pending: &Pending) -> bool {
    const LOOKS: u32 = 4;
    let (mut looks, mut first) = (Looks::at(&guard.windows, &windows_of(pending)), 0);
    (0..LOOKS).any(|_| {
        looks.look(guard, |_| ());
        have_ended(&guard.windows, pending, &mut first)
    })
}

/// Gives the application one request for several flushes.
fn deliver(
    mut guard: Guard,
    pending: Pending,
    target: Option<u32>,
    request: Out<'_, MPI_Request>,
) -> Result<(), Refused> {
    let of_world = |fault| (Place::World, fault);
    if poll_before_request(&mut guard, &pending) {
        wait(guard, &pending, target)?;
        return deliver_complete(request).map_err(of_world);
    }
    // Nobody else reports the faults of those that have ended meanwhile.
    let (pending, ended): (Pending, Pending) = pending
        .into_iter()
        .partition(|waiting| guard[waiting.window].engine.is_pending(waiting.request));
    for Waiting { window, lane, .. } in ended {
        if let Some(refused) = fault_of(guard.windows.on_lane(window, lane), true, target) {
            return Err(refused);
        }
    }
    match request::pending(request) {
        Ok(number) => {
            for Waiting { window, request, .. } in &pending {
                guard[*window].bind(*request, number, Scope::Target(target));
            }
            request::bind_all(number, &windows_of(&pending), pending[0].request);
            sweep(&mut guard);
            Ok(())
        }
        Err(status) => {
            log::warn!(
                "the host could not make a generalized request (error {status}); waiting instead"
            );
            wait(guard, &pending, target)?;
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
            unsafe { check_all(&mut guard, n, wins, rank) }?;
            let target = target_of(rank);
            let pending = start(&mut guard, target)?;
            if pending.is_empty() {
                return deliver_complete(request).map_err(|fault| (Place::World, fault));
            }
            deliver(guard, pending, target, request)
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
            unsafe { check_all(&mut guard, n, wins, rank) }?;
            let target = target_of(rank);
            if multiple() || pause::in_task() || guard.checked.any_duplicated() {
                let pending = start(&mut guard, target)?;
                wait(guard, &pending, target)?;
            } else if needs_nothing(&mut guard, target) {
                sweep_at_times(&mut guard);
            } else {
                flush_alone(guard, target)?;
            }
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
