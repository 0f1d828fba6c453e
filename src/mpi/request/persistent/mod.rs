//! Persistent requests of ours, in every call of MPI that takes requests: those for tagged
//! notifications, those of persistent epochs and operations, those of persistent collectives, and
//! continuation requests.
//!
//! The application holds a token: a persistent receive from `MPI_PROC_NULL` that is never started.
//! So its handle can be stored, compared and converted like any other, but this library makes the
//! calls on it. In a list with other requests, the host sees `MPI_REQUEST_NULL` in the place of our
//! active requests, and this library adds them to the host's answer. Inactive ones are left to the
//! host, for which they are inactive too.
//!
//! So completing a request takes no call of the host, and a wait for one alone costs a table
//! lookup.

pub(crate) mod collective;
#[cfg(mpi_status_lists)]
pub(crate) mod get_status;
mod recorded;

use std::cell::Cell;
use std::ffi::c_int;

use smallvec::SmallVec;

use crate::engine::{Arrival, ExpectationId, ExpectationState};
use crate::mpi::abi::argument::{Out, OutList, cells};
use crate::mpi::abi::error::{Fault, Place, code_of, raise};
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::{Status, Statuses};
use crate::mpi::abi::sys::*;
use crate::mpi::progress::drive;
use crate::mpi::request;
use crate::mpi::request::continuation;
use crate::mpi::request::direct::wait_for_request;
use crate::runtime::collectives;
use crate::runtime::continuations::{self, GroupId, GroupState, Properties};
use crate::runtime::persistent::{self, Failure, NotStarted, Source, State, state_after_look};
use crate::runtime::process;
use crate::runtime::progress::{FocusedPoll, step};
use crate::runtime::{Guard, HostHandle, WindowId, enter};

pub(crate) use recorded::make as make_recorded;

/// Makes a request for an expectation of a window, or for none if the source is `MPI_PROC_NULL`.
/// `None`: the host could not make its token.
pub(crate) fn make(
    guard: &mut Guard,
    window: HostHandle,
    source: Option<(WindowId, ExpectationId)>,
    request: Out<'_, MPI_Request>,
) -> Option<()> {
    let mut made = MPI_REQUEST_NULL;
    if host_calls::null_recv_init(request::comm_in_use(), &mut made) != MPI_SUCCESS {
        return None;
    }
    guard.persistent.insert(made.key(), window, source);
    request.write(made);
    Some(())
}

/// Makes a continuation request. `None`: the host could not make its token.
pub(crate) fn make_continuation_request(
    properties: Properties,
    request: Out<'_, MPI_Request>,
) -> Option<()> {
    let mut made = MPI_REQUEST_NULL;
    if host_calls::null_recv_init(request::comm_or_self(), &mut made) != MPI_SUCCESS {
        return None;
    }
    let group = continuations::with(|all| all.make_group(properties));
    enter().persistent.insert_continuations(made.key(), group);
    request.write(made);
    Some(())
}

/// The continuations of a request, if it is a continuation request.
fn continuations_of(request: MPI_Request) -> Option<GroupId> {
    enter().persistent.continuation_request(request.key())
}

/// The state of a request, if it is one of ours and active.
fn active(request: MPI_Request) -> Option<State> {
    active_in(&mut enter(), request)
}

fn active_in(runtime: &mut process::State, request: MPI_Request) -> Option<State> {
    let state = runtime.persistent.state(&mut runtime.windows, request.key());
    state.filter(|state| *state != State::Inactive)
}

fn is_complete(request: MPI_Request) -> bool {
    collective::test_at_host(request);
    !matches!(active(request), Some(State::Active))
}

/// Ends a request that is complete or has failed, and fills its status.
fn finish(request: MPI_Request, status: Status<'_>) -> Result<(), Fault> {
    let mut guard = enter();
    let runtime = &mut *guard;
    let state = runtime.persistent.state(&mut runtime.windows, request.key());
    runtime.persistent.deactivate(&mut runtime.windows, request.key());
    drop(guard);
    match state {
        Some(State::Complete(arrival)) => fill(status, arrival),
        // A continuation request to which another thread has just added a continuation.
        Some(State::Active) => fill(status, None),
        Some(State::Failed(failure)) => {
            fill(status, None);
            return Err(fault_of(failure));
        }
        _ => {}
    }
    Ok(())
}

#[cold]
fn fault_of(failure: Failure) -> Fault {
    match failure {
        Failure::Window(why) => Fault::broken(why),
        Failure::NotAttached => Fault::unattached(),
        Failure::Collective(failure) => Fault::new(failure.class, failure.text),
        Failure::Continuation(code) => {
            let text = "a continuation has failed; MPIX_Continue_get_failed returns its data";
            Fault::new(host_calls::class_of(code), text)
        }
    }
}

/// As [`finish`], for a call that completes one request; returns the call's code.
fn finish_one(call: &'static str, request: MPI_Request, status: Status<'_>) -> c_int {
    let place = place_of(request);
    let Err(fault) = finish(request, status) else { return MPI_SUCCESS };
    raise(call, place, fault)
}

/// Where errors of a request are raised.
fn place_of(request: MPI_Request) -> Place {
    let guard = enter();
    if let Some(Source::Collective(key)) = guard.persistent.source(request.key()) {
        let comm = collectives::comm_of(key);
        return comm.map_or(Place::World, |comm| Place::Communicator(MPI_Comm::of(comm)));
    }
    let window = guard.persistent.window_of(request.key());
    window.map_or(Place::World, |window| Place::Window(MPI_Win::of(window.0)))
}

/// Raises the error of a call that completes several requests when one of them has failed.
#[cold]
fn in_status(call: &'static str) -> c_int {
    let fault = Fault::new(MPI_ERR_IN_STATUS, "a request has failed; its status says why");
    raise(call, Place::World, fault)
}

/// Fills the status of a request that is complete; one from `MPI_PROC_NULL` has no `arrival`.
pub(crate) fn fill(status: Status<'_>, arrival: Option<Arrival>) {
    let source = arrival.map_or(MPI_PROC_NULL, |arrival| arrival.source as c_int);
    let tag = arrival.map_or(MPI_ANY_TAG, |arrival| arrival.tag as c_int);
    status.fill(source, tag);
}

/// Waits until a request is complete.
fn wait_for(request: MPI_Request) {
    let guard = enter();
    let (window, id) = match guard.persistent.source(request.key()) {
        Some(Source::Window(window, id)) => (window, id),
        Some(Source::Recorded(window, key)) => {
            drop(recorded::wait_for(guard, window, key));
            return;
        }
        Some(Source::Continuations(group)) => {
            drop(guard);
            continuation::wait(group);
            return;
        }
        Some(Source::Collective(key)) => {
            drop(guard);
            collective::wait_for(key);
            return;
        }
        Some(Source::ProcNull | Source::WindowGone) | None => return,
    };
    let mut focused = FocusedPoll::default();
    drop(wait_for_request(guard, window, |window| {
        focused.look(window, |window| {
            !matches!(state_after_look(window, id), ExpectationState::Waiting(_))
        }) || window.port.is_broken()
    }));
}

/// `MPI_Wait`. `None`, here and below: no active request of ours is involved.
pub(crate) fn wait(request: Option<&Cell<MPI_Request>>, status: Status<'_>) -> Option<c_int> {
    let ours = request?.get();
    let guard = enter();
    let (window, id) = match guard.persistent.source(ours.key())? {
        Source::Window(window, id) => (window, id),
        Source::Recorded(window, key) => {
            return recorded::wait(guard, (window, key), ours, status);
        }
        Source::Continuations(group) => {
            drop(guard);
            return wait_for_continuations(group, ours, status);
        }
        Source::Collective(key) => {
            drop(guard);
            return collective::wait(key, ours, status);
        }
        // Complete, if it is active.
        Source::ProcNull | Source::WindowGone => {
            drop(guard);
            active(ours)?;
            return Some(finish_one("MPI_Wait", ours, status));
        }
    };
    let state = guard[window].engine.expectation_state(id);
    if state == ExpectationState::Idle {
        return None;
    }
    let waits = matches!(state, ExpectationState::Waiting(_));
    if waits {
        guard[window].tag_lead.pause();
    }
    let (mut met, mut focused) = (None, FocusedPoll::default());
    drop(wait_for_request(guard, window, |window| {
        focused.look(window, |window| {
            let ExpectationState::Met(arrival) = state_after_look(window, id) else {
                return false;
            };
            if waits {
                window.tag_lead.learn(window.engine.unexpected());
            }
            window.engine.make_idle(id);
            met = Some(arrival);
            true
        }) || window.port.is_broken()
    }));
    if met.is_none() {
        return Some(finish_one("MPI_Wait", ours, status));
    }
    fill(status, met);
    Some(MPI_SUCCESS)
}

/// `MPI_Wait` for a continuation request.
fn wait_for_continuations(
    group: GroupId,
    request: MPI_Request,
    status: Status<'_>,
) -> Option<c_int> {
    match continuation::wait(group) {
        GroupState::Inactive => return None,
        GroupState::Active | GroupState::Failed(_) => {
            return Some(finish_one("MPI_Wait", request, status));
        }
        GroupState::Complete => {}
    }
    continuations::with(|all| all.deactivate(group));
    fill(status, None);
    Some(MPI_SUCCESS)
}

/// Whether an active request of ours is complete, at once or after a sweep.
fn tested(request: MPI_Request) -> bool {
    if let Some(group) = continuations_of(request) {
        continuation::test(group);
        return is_complete(request);
    }
    is_complete(request) || {
        step(enter());
        is_complete(request)
    }
}

/// `MPI_Test`
pub(crate) fn test(
    request: Option<&Cell<MPI_Request>>,
    flag: Out<'_, c_int>,
    status: Status<'_>,
) -> Option<c_int> {
    let ours = request?.get();
    active(ours)?;
    let complete = tested(ours);
    flag.write(c_int::from(complete));
    Some(if complete { finish_one("MPI_Test", ours, status) } else { MPI_SUCCESS })
}

/// `MPI_Request_get_status`: the request stays as it is.
pub(crate) fn get_status(
    request: MPI_Request,
    flag: Out<'_, c_int>,
    status: Status<'_>,
) -> Option<c_int> {
    active(request)?;
    let complete = tested(request);
    if complete && let Some(State::Complete(arrival)) = active(request) {
        fill(status, arrival);
    }
    flag.write(c_int::from(complete));
    Some(MPI_SUCCESS)
}

/// A list of requests, of which some are ours and active.
struct Mixed {
    /// The list for the host: MPI_REQUEST_NULL in the place of ours.
    shown: SmallVec<[MPI_Request; 16]>,
    ours: SmallVec<[(usize, MPI_Request); 16]>,
}

impl Mixed {
    /// `None`: none of the requests is ours and active.
    fn of(requests: impl Iterator<Item = MPI_Request>) -> Option<Self> {
        let mut guard = enter();
        let mut shown: SmallVec<[MPI_Request; 16]> = requests.collect();
        let is_active =
            |(_, request): &(usize, MPI_Request)| active_in(&mut guard, *request).is_some();
        let ours: SmallVec<[_; 16]> = shown.iter().copied().enumerate().filter(is_active).collect();
        drop(guard);
        if ours.is_empty() {
            return None;
        }
        ours.iter().for_each(|(at, _)| shown[*at] = MPI_REQUEST_NULL);
        Some(Mixed { shown, ours })
    }

    fn all_complete(&self) -> bool {
        self.ours.iter().all(|(_, request)| is_complete(*request))
    }

    /// Whether all of ours are complete, at once or after one step of progress.
    fn all_complete_after_step(&self) -> bool {
        self.run_continuations();
        self.all_complete() || {
            step(enter());
            self.all_complete()
        }
    }

    /// Runs continuations for the continuation requests among ours.
    fn run_continuations(&self) {
        self.ours
            .iter()
            .filter_map(|(_, request)| continuations_of(*request))
            .for_each(continuation::test);
    }

    fn first_complete(&self) -> Option<(usize, MPI_Request)> {
        self.ours.iter().copied().find(|(_, request)| is_complete(*request))
    }

    /// Copies the host's requests, which its call may have changed, to the application's list.
    fn give_back(&self, requests: &[Cell<MPI_Request>]) {
        let mut ours = self.ours.iter().map(|(at, _)| *at).peekable();
        for (at, (shown, request)) in self.shown.iter().zip(requests).enumerate() {
            if ours.next_if_eq(&at).is_none() {
                request.set(*shown);
            }
        }
    }

    /// Ends ours, which are all complete or have failed, and fills their statuses. `code` is the
    /// code of the host's call; returns that of the whole call.
    fn finish_all(&self, call: &'static str, code: c_int, statuses: Statuses<'_>) -> c_int {
        let failed =
            self.ours.iter().any(|(_, request)| matches!(active(*request), Some(State::Failed(_))));
        if failed && code == MPI_SUCCESS {
            statuses.first(self.shown.len()).for_each(|status| status.set_error(MPI_SUCCESS));
        }
        for (at, request) in &self.ours {
            finish_in(*request, failed || code != MPI_SUCCESS, statuses.at(*at));
        }
        if failed && code == MPI_SUCCESS { in_status(call) } else { code }
    }
}

/// Ends a request and fills its status in a list; with `each`, also the error of the status.
fn finish_in(request: MPI_Request, each: bool, status: Status<'_>) {
    let finished = finish(request, status);
    if each && !status.is_ignored() {
        status.set_error(
            finished.map_or_else(|fault| code_of("a persistent request", fault), |()| MPI_SUCCESS),
        );
    }
}

/// `MPI_Waitall`: waits for ours first, which drives the host too. `host` makes the call without
/// ours.
pub(crate) fn wait_all(
    requests: Option<&[Cell<MPI_Request>]>,
    statuses: Statuses<'_>,
    host: impl FnOnce(&[Cell<MPI_Request>], Statuses<'_>) -> c_int,
) -> Option<c_int> {
    let requests = requests?;
    let mut mixed = Mixed::of(requests.iter().map(Cell::get))?;
    mixed.ours.iter().for_each(|(_, request)| wait_for(*request));
    let code = host(cells(&mut mixed.shown), statuses);
    mixed.give_back(requests);
    Some(mixed.finish_all("MPI_Waitall", code, statuses))
}

/// `MPI_Testall`
pub(crate) fn test_all(
    requests: Option<&[Cell<MPI_Request>]>,
    flag: Out<'_, c_int>,
    statuses: Statuses<'_>,
    host: impl FnOnce(&[Cell<MPI_Request>], Out<'_, c_int>, Statuses<'_>) -> c_int,
) -> Option<c_int> {
    let requests = requests?;
    let mut mixed = Mixed::of(requests.iter().map(Cell::get))?;
    if !mixed.all_complete_after_step() {
        flag.write(0);
        return Some(MPI_SUCCESS);
    }
    let mut complete = 0;
    let code = host(cells(&mut mixed.shown), Out::to(&mut complete), statuses);
    flag.write(complete);
    mixed.give_back(requests);
    if code != MPI_SUCCESS || complete != 0 {
        return Some(mixed.finish_all("MPI_Testall", code, statuses));
    }
    Some(code)
}

/// One poll of `call`, `MPI_Waitany` or `MPI_Testany`: of ours in `mixed`, then of the host's.
/// Returns the call's code when one is complete.
fn any(
    call: &'static str,
    mixed: &mut Mixed,
    requests: &[Cell<MPI_Request>],
    index: Out<'_, c_int>,
    status: Status<'_>,
) -> Option<c_int> {
    if let Some((at, request)) = mixed.first_complete() {
        index.write(at as c_int);
        return Some(finish_one(call, request, status));
    }
    let (mut found, mut flag) = (MPI_UNDEFINED, 0);
    let code = host_calls::test_any(cells(&mut mixed.shown), &mut found, &mut flag, status);
    if code == MPI_SUCCESS && (flag == 0 || found == MPI_UNDEFINED) {
        // The host sees no active request, but ours are.
        return None;
    }
    mixed.give_back(requests);
    index.write(found);
    Some(code)
}

/// `MPI_Waitany`
pub(crate) fn wait_any(
    requests: Option<&[Cell<MPI_Request>]>,
    index: Out<'_, c_int>,
    status: Status<'_>,
) -> Option<c_int> {
    let requests = requests?;
    let mut mixed = Mixed::of(requests.iter().map(Cell::get))?;
    Some(drive::until(|| {
        mixed.run_continuations();
        any("MPI_Waitany", &mut mixed, requests, index, status)
    }))
}

/// `MPI_Testany`
pub(crate) fn test_any(
    requests: Option<&[Cell<MPI_Request>]>,
    index: Out<'_, c_int>,
    flag: Out<'_, c_int>,
    status: Status<'_>,
) -> Option<c_int> {
    let requests = requests?;
    let mut mixed = Mixed::of(requests.iter().map(Cell::get))?;
    step(enter());
    mixed.run_continuations();
    let code = any("MPI_Testany", &mut mixed, requests, index, status);
    flag.write(c_int::from(code.is_some()));
    if code.is_none() {
        index.write(MPI_UNDEFINED);
    }
    Some(code.unwrap_or(MPI_SUCCESS))
}

/// One poll of `call`, `MPI_Waitsome` or `MPI_Testsome`: of the host's requests, then of ours in
/// `mixed`. Returns how many are complete, and the call's code.
fn some(
    call: &'static str,
    mixed: &mut Mixed,
    requests: &[Cell<MPI_Request>],
    indices: OutList<'_, c_int>,
    statuses: Statuses<'_>,
) -> (c_int, c_int) {
    let mut number = 0;
    let mut code = host_calls::test_some(cells(&mut mixed.shown), &mut number, indices, statuses);
    if number == MPI_UNDEFINED {
        number = 0;
    }
    if number > 0 || code != MPI_SUCCESS {
        mixed.give_back(requests);
    }
    let ended: SmallVec<[(usize, MPI_Request); 16]> =
        mixed.ours.iter().copied().filter(|(_, request)| is_complete(*request)).collect();
    if code == MPI_SUCCESS
        && ended.iter().any(|(_, request)| matches!(active(*request), Some(State::Failed(_))))
    {
        code = in_status(call);
        statuses.first(number as usize).for_each(|status| status.set_error(MPI_SUCCESS));
    }
    for (at, request) in ended {
        indices.at(number as usize).write(at as c_int);
        finish_in(request, code != MPI_SUCCESS, statuses.at(number as usize));
        number += 1;
    }
    (number, code)
}

/// `MPI_Waitsome`, or `MPI_Testsome` unless it `waits`.
pub(crate) fn wait_some(
    requests: Option<&[Cell<MPI_Request>]>,
    outcount: Out<'_, c_int>,
    indices: OutList<'_, c_int>,
    statuses: Statuses<'_>,
    waits: bool,
) -> Option<c_int> {
    let requests = requests?;
    let mut mixed = Mixed::of(requests.iter().map(Cell::get))?;
    let call = if waits { "MPI_Waitsome" } else { "MPI_Testsome" };
    if !waits {
        step(enter());
    }
    let (number, code) = drive::until(|| {
        mixed.run_continuations();
        let (number, code) = some(call, &mut mixed, requests, indices, statuses);
        (number > 0 || code != MPI_SUCCESS || !waits).then_some((number, code))
    });
    outcount.write(number);
    Some(code)
}

/// Reports that a request of ours cannot be started.
#[cold]
fn refuse(call: &'static str, request: MPI_Request, reason: NotStarted) -> c_int {
    let place = place_of(request);
    let fault = match reason {
        NotStarted::Active => Fault::new(MPI_ERR_REQUEST, "the request is active already"),
        NotStarted::WindowGone => {
            Fault::new(MPI_ERR_REQUEST, "the window of the request has been freed or is broken")
        }
        NotStarted::Recording => Fault::new(
            MPI_ERR_RMA_SYNC,
            "an epoch is being recorded on the window of the request (MPIX_Win_epoch_init)",
        ),
        NotStarted::Sync(error) => error.into(),
        NotStarted::NotLearned(target) => Fault::not_learned(target),
        NotStarted::NotInPattern(target) => Fault::not_in_pattern(target),
        NotStarted::Dead => {
            Fault::new(MPI_ERR_REQUEST, "the collective has failed, and cannot be started again")
        }
    };
    let place = if reason == NotStarted::WindowGone { Place::World } else { place };
    raise(call, place, fault)
}

/// Starts all requests of a list: ours here, the others at the host. None is started if one of ours
/// cannot be.
fn start_list(call: &'static str, list: &[Cell<MPI_Request>]) -> Option<c_int> {
    let mut guard = enter();
    let ours: SmallVec<[bool; 16]> =
        list.iter().map(|request| guard.persistent.is_known(request.get().key())).collect();
    if !ours.contains(&true) {
        return None;
    }
    let runtime = &mut *guard;
    let refused = list.iter().zip(&ours).filter(|(_, ours)| **ours).find_map(|(request, _)| {
        let may_start = runtime.persistent.may_start(&mut runtime.windows, request.get().key());
        may_start.err().map(|reason| (request.get(), reason))
    });
    drop(guard);
    if let Some((request, reason)) = refused {
        return Some(refuse(call, request, reason));
    }
    for (request, ours) in list.iter().zip(ours) {
        if ours {
            let request = request.get();
            let mut guard = enter();
            let runtime = &mut *guard;
            let source = runtime.persistent.source(request.key());
            let started = if let Some(Source::Recorded(window, key)) = source {
                recorded::start(guard, (window, key))
            } else if let Some(Source::Collective(key)) = source {
                drop(guard);
                collectives::start(key);
                Ok(())
            } else {
                let started = runtime.persistent.start(&mut runtime.windows, request.key());
                if let Some(Source::Window(window, _)) = source {
                    // So that calls of the host drive the window.
                    runtime.windows.attend(window);
                }
                drop(guard);
                started
            };
            if let Err(reason) = started {
                return Some(refuse(call, request, reason));
            }
            continue;
        }
        let code = host_calls::start(request);
        if code != MPI_SUCCESS {
            return Some(code);
        }
    }
    Some(MPI_SUCCESS)
}

/// `MPI_Start`
pub(crate) fn start(request: Option<&Cell<MPI_Request>>) -> Option<c_int> {
    const CALL: &str = "MPI_Start";
    let request = request?;
    let ours = request.get();
    let mut guard = enter();
    let (window, id) = match guard.persistent.source(ours.key())? {
        Source::Window(window, id) => (window, id),
        Source::Recorded(window, key) => {
            let started = recorded::start(guard, (window, key));
            return Some(
                started.map_or_else(|reason| refuse(CALL, ours, reason), |()| MPI_SUCCESS),
            );
        }
        Source::Continuations(group) => {
            drop(guard);
            if continuations::with(|all| all.start(group)) {
                return Some(MPI_SUCCESS);
            }
            return Some(refuse(CALL, ours, NotStarted::Active));
        }
        Source::Collective(key) => {
            drop(guard);
            if collectives::start(key) {
                return Some(MPI_SUCCESS);
            }
            return start_list(CALL, std::slice::from_ref(request));
        }
        Source::ProcNull | Source::WindowGone => {
            drop(guard);
            return start_list(CALL, std::slice::from_ref(request));
        }
    };
    let found = &mut guard[window];
    if found.engine.expectation_state(id) != ExpectationState::Idle {
        drop(guard);
        return Some(refuse(CALL, ours, NotStarted::Active));
    }
    persistent::start(found, id);
    // So that calls of the host drive the window.
    guard.windows.attend(window);
    Some(MPI_SUCCESS)
}

/// `MPI_Startall`
pub(crate) fn start_all(requests: Option<&[Cell<MPI_Request>]>) -> Option<c_int> {
    start_list("MPI_Startall", requests?)
}

/// `MPI_Request_free`: an active one still takes the notifications that it waits for. An active
/// persistent collective is refused.
pub(crate) fn free(request: Option<&Cell<MPI_Request>>) -> Option<c_int> {
    let request = request?;
    let mut guard = enter();
    let runtime = &mut *guard;
    let source = runtime.persistent.source(request.get().key())?;
    if let Source::Collective(key) = source
        && let Err(fault) = collective::may_free(key)
    {
        drop(guard);
        return Some(raise("MPI_Request_free", place_of(request.get()), fault));
    }
    if !runtime.persistent.remove(&mut runtime.windows, request.get().key()) {
        return None;
    }
    drop(guard);
    if let Source::Collective(key) = source {
        collective::freed(key);
    }
    Some(host_calls::request_free(request))
}

/// `MPI_Cancel`: without effect, as on the other requests of this library.
pub(crate) fn cancel(request: Option<&Cell<MPI_Request>>) -> Option<c_int> {
    active(request?.get()).map(|_| MPI_SUCCESS)
}
