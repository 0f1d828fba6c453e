//! Persistent requests for tagged notifications, in every call of MPI that takes requests.
//!
//! The application holds a request of the host: a persistent receive from nobody, which is never
//! started. It is a token, so that handles can be stored, compared and converted as any; what is
//! asked about it is answered here. In a list with others, those of ours that are active are left
//! out of what the host sees, and added to what it says. One that is not active is left to the
//! host, for which it is not active either.
//!
//! So nothing of the host is needed to complete one, wherever that is noticed, and a wait for one
//! alone costs a look at a table.

#[cfg(mpi_status_lists)]
pub(crate) mod looks;

use std::ffi::c_int;

use smallvec::SmallVec;

use crate::engine::{Arrival, ExpectationId, ExpectationState};
use crate::mpi::abi::error::{Fault, Place, code_of, raise};
use crate::mpi::abi::sys::*;
use crate::mpi::progress::drive;
use crate::mpi::request;
use crate::mpi::request::direct::wait_for_request;
use crate::runtime::notices::{NotStarted, State, look};
use crate::runtime::progress::{FocusedPoll, step};
use crate::runtime::{Guard, HostHandle, WindowId, enter};

/// Makes a request that waits for what is expected on a window, or for nothing. `None`: the host
/// could not.
///
/// # Safety
/// `request` is a place for a request.
pub(crate) unsafe fn make(
    guard: &mut Guard,
    window: HostHandle,
    source: Option<(WindowId, ExpectationId)>,
    request: *mut MPI_Request,
) -> Option<()> {
    let mut made = MPI_REQUEST_NULL;
    let comm = request::comm_in_use();
    // SAFETY: no byte is received, and nothing is ever started; there is a window, so there is a
    // communicator.
    let code = unsafe {
        PMPI_Recv_init(std::ptr::null_mut(), 0, MPI_BYTE, MPI_PROC_NULL, 0, comm, &raw mut made)
    };
    if code != MPI_SUCCESS {
        return None;
    }
    guard.notices.insert(made.key(), window, source);
    // SAFETY: the caller's promise.
    unsafe { request.write(made) };
    Some(())
}

/// How a request stands, if it is one of ours and active.
fn active(request: MPI_Request) -> Option<State> {
    let guard = enter();
    guard.notices.state(&guard.windows, request.key()).filter(|state| *state != State::Idle)
}

fn is_met(request: MPI_Request) -> bool {
    !matches!(active(request), Some(State::Waiting))
}

/// Ends a request that is met or has failed, and fills a status unless it is ignored.
///
/// # Safety
/// `status` is a place for a status, or MPI_STATUS_IGNORE.
unsafe fn finish(request: MPI_Request, status: *mut MPI_Status) -> Result<(), Fault> {
    let mut guard = enter();
    let runtime = &mut *guard;
    let state = runtime.notices.state(&runtime.windows, request.key());
    let fault = if let Some(State::Failed(why)) = state { Some(Fault::broken(why)) } else { None };
    runtime.notices.rest(&mut runtime.windows, request.key());
    drop(guard);
    match state {
        // SAFETY: the caller's promise.
        Some(State::Met(arrival)) => unsafe { fill(status, arrival) },
        // SAFETY: the caller's promise.
        Some(State::Failed(_)) => unsafe { fill(status, None) },
        _ => {}
    }
    fault.map_or(Ok(()), Err)
}

/// The same for a call that completes one request: what it returns.
///
/// # Safety
/// As [`finish`].
unsafe fn finish_one(call: &'static str, request: MPI_Request, status: *mut MPI_Status) -> c_int {
    let window = enter().notices.window_of(request.key());
    // SAFETY: the caller's promise.
    match unsafe { finish(request, status) } {
        Ok(()) => MPI_SUCCESS,
        Err(fault) => raise(
            call,
            window.map_or(Place::World, |window| Place::Window(MPI_Win::of(window.0))),
            fault,
        ),
    }
}

/// What a call that completes several returns when one of them has failed.
#[cold]
fn in_status(call: &'static str) -> c_int {
    raise(
        call,
        Place::World,
        Fault::new(MPI_ERR_IN_STATUS, "a request has failed; its status says why"),
    )
}

/// # Safety
/// `status` is a place for a status, or MPI_STATUS_IGNORE.
pub(crate) unsafe fn fill(status: *mut MPI_Status, arrival: Option<Arrival>) {
    if status == MPI_STATUS_IGNORE || status == MPI_STATUSES_IGNORE {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        PMPI_Status_set_elements(status, MPI_BYTE, 0);
        PMPI_Status_set_cancelled(status, 0);
        (*status).MPI_SOURCE = arrival.map_or(MPI_PROC_NULL, |arrival| arrival.source as c_int);
        (*status).MPI_TAG = arrival.map_or(MPI_ANY_TAG, |arrival| arrival.tag as c_int);
    }
}

/// The request at a place of the application, if it is one of ours and active.
///
/// # Safety
/// `request` is NULL or a place with a request.
unsafe fn at(request: *mut MPI_Request) -> Option<MPI_Request> {
    if request.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let request = unsafe { *request };
    active(request).map(|_| request)
}

/// Waits until a request is met.
fn wait_for(request: MPI_Request) {
    let guard = enter();
    let Some((window, id)) = guard.notices.waits_on(request.key()) else { return };
    let mut focused = FocusedPoll::default();
    drop(wait_for_request(guard, window, |window| {
        focused.look(window, |window| {
            look(window);
            !matches!(window.engine.expectation_state(id), ExpectationState::Waiting(_))
        }) || window.port.is_broken()
    }));
}

/// `MPI_Wait`
///
/// # Safety
/// As MPI says of the call, as of all others here.
pub(crate) unsafe fn wait(request: *mut MPI_Request, status: *mut MPI_Status) -> Option<c_int> {
    if request.is_null() {
        return None;
    }
    // SAFETY: the application's arguments.
    let ours = unsafe { *request };
    let guard = enter();
    let Some((window, id)) = guard.notices.waits_on(ours.key()) else {
        drop(guard);
        // From nobody, or of a window that is gone: complete, if it is active.
        active(ours)?;
        // SAFETY: as above.
        return Some(unsafe { finish_one("MPI_Wait", ours, status) });
    };
    if guard[window].engine.expectation_state(id) == ExpectationState::Idle {
        return None;
    }
    let (mut met, mut focused) = (None, FocusedPoll::default());
    drop(wait_for_request(guard, window, |window| {
        focused.look(window, |window| {
            look(window);
            let ExpectationState::Met(arrival) = window.engine.expectation_state(id) else {
                return false;
            };
            window.engine.make_idle(id);
            met = Some(arrival);
            true
        }) || window.port.is_broken()
    }));
    if met.is_none() {
        // SAFETY: as above.
        return Some(unsafe { finish_one("MPI_Wait", ours, status) });
    }
    // SAFETY: as above.
    unsafe { fill(status, met) };
    Some(MPI_SUCCESS)
}

/// Whether a request of ours that is active is met, after a step where it is not.
fn tested(request: MPI_Request) -> bool {
    is_met(request) || {
        step(enter());
        is_met(request)
    }
}

/// `MPI_Test`
///
/// # Safety
/// As [`wait`].
pub(crate) unsafe fn test(
    request: *mut MPI_Request,
    flag: *mut c_int,
    status: *mut MPI_Status,
) -> Option<c_int> {
    // SAFETY: the application's arguments.
    let ours = unsafe { at(request) }?;
    let met = tested(ours);
    // SAFETY: as above.
    unsafe {
        flag.write(c_int::from(met));
        Some(if met { finish_one("MPI_Test", ours, status) } else { MPI_SUCCESS })
    }
}

/// `MPI_Request_get_status`: the request stays as it is.
///
/// # Safety
/// As [`wait`].
pub(crate) unsafe fn get_status(
    request: MPI_Request,
    flag: *mut c_int,
    status: *mut MPI_Status,
) -> Option<c_int> {
    active(request)?;
    let met = tested(request);
    // SAFETY: the application's arguments.
    unsafe {
        if met && let Some(State::Met(arrival)) = active(request) {
            fill(status, arrival);
        }
        flag.write(c_int::from(met));
    }
    Some(MPI_SUCCESS)
}

/// A list of requests with some of ours that are active.
struct Mixed {
    /// As the host is to see it: null requests in the place of ours.
    seen: SmallVec<[MPI_Request; 16]>,
    ours: SmallVec<[(usize, MPI_Request); 16]>,
}

impl Mixed {
    /// `None`: there is none of ours that is active.
    ///
    /// # Safety
    /// `requests` has `count` requests, or is NULL.
    unsafe fn of(count: c_int, requests: *const MPI_Request) -> Option<Self> {
        let len = usize::try_from(count).ok().filter(|_| !requests.is_null())?;
        // SAFETY: the caller's promise.
        let list = unsafe { std::slice::from_raw_parts(requests, len) };
        let guard = enter();
        let is_active = |request: &MPI_Request| {
            guard
                .notices
                .state(&guard.windows, request.key())
                .is_some_and(|state| state != State::Idle)
        };
        let ours: SmallVec<[_; 16]> = list
            .iter()
            .enumerate()
            .filter(|(_, request)| is_active(request))
            .map(|(at, request)| (at, *request))
            .collect();
        drop(guard);
        if ours.is_empty() {
            return None;
        }
        let mut seen = SmallVec::from_slice(list);
        ours.iter().for_each(|(at, _)| seen[*at] = MPI_REQUEST_NULL);
        Some(Mixed { seen, ours })
    }

    fn all_met(&self) -> bool {
        self.ours.iter().all(|(_, request)| is_met(*request))
    }

    /// Gives back what the host has made of its requests.
    ///
    /// # Safety
    /// `requests` is the list that this was made of.
    unsafe fn give_back(&self, requests: *mut MPI_Request) {
        let mut ours = self.ours.iter().map(|(at, _)| *at).peekable();
        for (at, request) in self.seen.iter().enumerate() {
            if ours.next_if_eq(&at).is_none() {
                // SAFETY: the caller's promise.
                unsafe { requests.add(at).write(*request) };
            }
        }
    }

    /// Ends ours, none of which waits any more, and fills their statuses in a list of all. `code`
    /// is that of the host's call; gives that of the whole.
    ///
    /// # Safety
    /// `statuses` has a status for each request, or is MPI_STATUSES_IGNORE.
    unsafe fn finish_all(
        &self,
        call: &'static str,
        code: c_int,
        statuses: *mut MPI_Status,
    ) -> c_int {
        let failed =
            self.ours.iter().any(|(_, request)| matches!(active(*request), Some(State::Failed(_))));
        if failed && code == MPI_SUCCESS && statuses != MPI_STATUSES_IGNORE {
            // SAFETY: the caller's promise.
            (0..self.seen.len())
                .for_each(|at| unsafe { (*statuses.add(at)).MPI_ERROR = MPI_SUCCESS });
        }
        for (at, request) in &self.ours {
            // SAFETY: the caller's promise.
            unsafe { finish_in(*request, failed || code != MPI_SUCCESS, statuses, *at) };
        }
        if failed && code == MPI_SUCCESS { in_status(call) } else { code }
    }
}

/// Ends a request and fills its status in a list; `each`: every status has an error of its own.
///
/// # Safety
/// `statuses` has a status at this place, or is MPI_STATUSES_IGNORE.
unsafe fn finish_in(request: MPI_Request, each: bool, statuses: *mut MPI_Status, at: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if statuses == MPI_STATUSES_IGNORE {
            _ = finish(request, MPI_STATUS_IGNORE);
            return;
        }
        let status = statuses.add(at);
        let met = finish(request, status);
        if each {
            (*status).MPI_ERROR =
                met.map_or_else(|fault| code_of("a persistent request", fault), |()| MPI_SUCCESS);
        }
    }
}

/// `MPI_Waitall`: ours first, and the host is driven meanwhile; then its own, by `host`.
///
/// # Safety
/// As [`wait`]; `host` is the call without ours.
pub(crate) unsafe fn wait_all(
    count: c_int,
    requests: *mut MPI_Request,
    statuses: *mut MPI_Status,
    host: impl FnOnce(c_int, *mut MPI_Request, *mut MPI_Status) -> c_int,
) -> Option<c_int> {
    // SAFETY: the application's arguments.
    let mut mixed = unsafe { Mixed::of(count, requests) }?;
    mixed.ours.iter().for_each(|(_, request)| wait_for(*request));
    let code = host(count, mixed.seen.as_mut_ptr(), statuses);
    // SAFETY: as above.
    unsafe {
        mixed.give_back(requests);
        Some(mixed.finish_all("MPI_Waitall", code, statuses))
    }
}

/// `MPI_Testall`
///
/// # Safety
/// As [`wait_all`].
pub(crate) unsafe fn test_all(
    count: c_int,
    requests: *mut MPI_Request,
    flag: *mut c_int,
    statuses: *mut MPI_Status,
    host: impl FnOnce(c_int, *mut MPI_Request, *mut c_int, *mut MPI_Status) -> c_int,
) -> Option<c_int> {
    // SAFETY: the application's arguments.
    let mut mixed = unsafe { Mixed::of(count, requests) }?;
    if !mixed.all_met() {
        step(enter());
        if !mixed.all_met() {
            // SAFETY: as above.
            unsafe { flag.write(0) };
            return Some(MPI_SUCCESS);
        }
    }
    let code = host(count, mixed.seen.as_mut_ptr(), flag, statuses);
    // SAFETY: as above.
    unsafe {
        mixed.give_back(requests);
        if code != MPI_SUCCESS || *flag != 0 {
            return Some(mixed.finish_all("MPI_Testall", code, statuses));
        }
    }
    Some(code)
}

/// One look of `MPI_Waitany` and `MPI_Testany`: ours, then the host's. True with the call's code
/// when one is complete.
///
/// # Safety
/// As [`wait_all`]; the list is `mixed`.
unsafe fn any(
    mixed: &mut Mixed,
    requests: *mut MPI_Request,
    index: *mut c_int,
    status: *mut MPI_Status,
    host: &mut impl FnMut(c_int, *mut MPI_Request, *mut c_int, *mut c_int, *mut MPI_Status) -> c_int,
) -> Option<c_int> {
    if let Some((at, request)) = mixed.ours.iter().find(|(_, request)| is_met(*request)) {
        // SAFETY: the caller's promise.
        unsafe {
            index.write(*at as c_int);
            return Some(finish_one("MPI_Waitany", *request, status));
        }
    }
    let (mut found, mut flag) = (MPI_UNDEFINED, 0);
    let code = host(
        mixed.seen.len() as c_int,
        mixed.seen.as_mut_ptr(),
        &raw mut found,
        &raw mut flag,
        status,
    );
    if code == MPI_SUCCESS && (flag == 0 || found == MPI_UNDEFINED) {
        // Ours are active, if the host's are not.
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        mixed.give_back(requests);
        index.write(found);
    }
    Some(code)
}

/// `MPI_Waitany`; `host` is `MPI_Testany`.
///
/// # Safety
/// As [`wait_all`].
pub(crate) unsafe fn wait_any(
    count: c_int,
    requests: *mut MPI_Request,
    index: *mut c_int,
    status: *mut MPI_Status,
    mut host: impl FnMut(c_int, *mut MPI_Request, *mut c_int, *mut c_int, *mut MPI_Status) -> c_int,
) -> Option<c_int> {
    // SAFETY: the application's arguments.
    let mut mixed = unsafe { Mixed::of(count, requests) }?;
    // SAFETY: as above.
    Some(drive::until(|| unsafe { any(&mut mixed, requests, index, status, &mut host) }))
}

/// `MPI_Testany`
///
/// # Safety
/// As [`wait_all`].
pub(crate) unsafe fn test_any(
    count: c_int,
    requests: *mut MPI_Request,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut MPI_Status,
    mut host: impl FnMut(c_int, *mut MPI_Request, *mut c_int, *mut c_int, *mut MPI_Status) -> c_int,
) -> Option<c_int> {
    // SAFETY: the application's arguments.
    let mut mixed = unsafe { Mixed::of(count, requests) }?;
    step(enter());
    // SAFETY: as above.
    unsafe {
        let code = any(&mut mixed, requests, index, status, &mut host);
        flag.write(c_int::from(code.is_some()));
        if code.is_none() {
            index.write(MPI_UNDEFINED);
        }
        Some(code.unwrap_or(MPI_SUCCESS))
    }
}

/// One look of `MPI_Waitsome` and `MPI_Testsome`: the host's, then ours behind them. Gives how many
/// are complete, and the call's code.
///
/// # Safety
/// As [`wait_all`]; the list is `mixed`.
unsafe fn some(
    mixed: &mut Mixed,
    requests: *mut MPI_Request,
    indices: *mut c_int,
    statuses: *mut MPI_Status,
    host: &mut impl FnMut(c_int, *mut MPI_Request, *mut c_int, *mut c_int, *mut MPI_Status) -> c_int,
) -> (c_int, c_int) {
    let mut number = 0;
    let mut code = host(
        mixed.seen.len() as c_int,
        mixed.seen.as_mut_ptr(),
        &raw mut number,
        indices,
        statuses,
    );
    if number == MPI_UNDEFINED {
        number = 0;
    }
    // SAFETY: the caller's promise; there are no more than requests.
    unsafe {
        if number > 0 || code != MPI_SUCCESS {
            mixed.give_back(requests);
        }
        let ended: SmallVec<[(usize, MPI_Request); 16]> =
            mixed.ours.iter().copied().filter(|(_, request)| is_met(*request)).collect();
        if code == MPI_SUCCESS
            && ended.iter().any(|(_, request)| matches!(active(*request), Some(State::Failed(_))))
        {
            code = in_status("MPI_Waitsome");
            if statuses != MPI_STATUSES_IGNORE {
                (0..number as usize).for_each(|at| (*statuses.add(at)).MPI_ERROR = MPI_SUCCESS);
            }
        }
        for (at, request) in ended {
            indices.add(number as usize).write(at as c_int);
            finish_in(request, code != MPI_SUCCESS, statuses, number as usize);
            number += 1;
        }
    }
    (number, code)
}

/// `MPI_Waitsome`, and `MPI_Testsome` if it does not wait; `host` is the latter.
///
/// # Safety
/// As [`wait_all`].
pub(crate) unsafe fn wait_some(
    count: c_int,
    requests: *mut MPI_Request,
    outcount: *mut c_int,
    (indices, statuses): (*mut c_int, *mut MPI_Status),
    waits: bool,
    mut host: impl FnMut(c_int, *mut MPI_Request, *mut c_int, *mut c_int, *mut MPI_Status) -> c_int,
) -> Option<c_int> {
    // SAFETY: the application's arguments.
    let mut mixed = unsafe { Mixed::of(count, requests) }?;
    if !waits {
        step(enter());
    }
    let (number, code) = drive::until(|| {
        // SAFETY: as above.
        let (number, code) = unsafe { some(&mut mixed, requests, indices, statuses, &mut host) };
        (number > 0 || code != MPI_SUCCESS || !waits).then_some((number, code))
    });
    // SAFETY: as above.
    unsafe { outcount.write(number) };
    Some(code)
}

/// Says that a request of ours cannot be started.
#[cold]
fn refuse(call: &'static str, request: MPI_Request, reason: NotStarted) -> c_int {
    let window = enter().notices.window_of(request.key());
    let fault = Fault::new(
        MPI_ERR_REQUEST,
        match reason {
            NotStarted::Active => "the request is active already",
            NotStarted::Gone => "the window of the request has been freed or has broken off",
        },
    );
    let place = match (reason, window) {
        (NotStarted::Active, Some(window)) => Place::Window(MPI_Win::of(window.0)),
        _ => Place::World,
    };
    raise(call, place, fault)
}

/// Starts the first `count` requests of a list, ours here and the others at the host; none if one
/// of ours cannot be started. `None`: none is ours.
///
/// # Safety
/// `requests` has `count` requests, or is NULL; as MPI says of the call.
unsafe fn start_list(
    call: &'static str,
    count: c_int,
    requests: *mut MPI_Request,
) -> Option<c_int> {
    let len = usize::try_from(count).ok().filter(|_| !requests.is_null())?;
    // SAFETY: the caller's promise.
    let list = unsafe { std::slice::from_raw_parts_mut(requests, len) };
    let guard = enter();
    let ours: SmallVec<[bool; 16]> =
        list.iter().map(|request| guard.notices.is_known(request.key())).collect();
    if !ours.contains(&true) {
        return None;
    }
    let refused = list.iter().zip(&ours).filter(|(_, ours)| **ours).find_map(|(request, _)| {
        guard
            .notices
            .may_start(&guard.windows, request.key())
            .err()
            .map(|reason| (*request, reason))
    });
    drop(guard);
    if let Some((request, reason)) = refused {
        return Some(refuse(call, request, reason));
    }
    for (request, ours) in list.iter_mut().zip(ours) {
        if ours {
            let mut guard = enter();
            let runtime = &mut *guard;
            let started = runtime.notices.start(&mut runtime.windows, request.key());
            if let Some((window, _)) = runtime.notices.waits_on(request.key()) {
                // For the calls of the host, which drive what waits.
                runtime.windows.attend(window);
            }
            drop(guard);
            if let Err(reason) = started {
                return Some(refuse(call, *request, reason));
            }
            continue;
        }
        // SAFETY: the application's request.
        let code = unsafe { PMPI_Start(request) };
        if code != MPI_SUCCESS {
            return Some(code);
        }
    }
    Some(MPI_SUCCESS)
}

/// `MPI_Start`
///
/// # Safety
/// As [`wait`].
pub(crate) unsafe fn start(request: *mut MPI_Request) -> Option<c_int> {
    const CALL: &str = "MPI_Start";
    if request.is_null() {
        return None;
    }
    // SAFETY: the application's arguments.
    let ours = unsafe { *request };
    let mut guard = enter();
    let Some((window, id)) = guard.notices.waits_on(ours.key()) else {
        drop(guard);
        // SAFETY: as above.
        return unsafe { start_list(CALL, 1, request) };
    };
    let found = &mut guard[window];
    if found.engine.expectation_state(id) != ExpectationState::Idle {
        drop(guard);
        return Some(refuse(CALL, ours, NotStarted::Active));
    }
    look(found);
    found.engine.start_expecting(id);
    // For the calls of the host, which drive what waits.
    guard.windows.attend(window);
    Some(MPI_SUCCESS)
}

/// `MPI_Startall`
///
/// # Safety
/// As [`wait`].
pub(crate) unsafe fn start_all(count: c_int, requests: *mut MPI_Request) -> Option<c_int> {
    // SAFETY: the application's arguments.
    unsafe { start_list("MPI_Startall", count, requests) }
}

/// `MPI_Request_free`: one that is active still takes what it waits for.
///
/// # Safety
/// As [`wait`].
pub(crate) unsafe fn free(request: *mut MPI_Request) -> Option<c_int> {
    if request.is_null() {
        return None;
    }
    let mut guard = enter();
    let runtime = &mut *guard;
    // SAFETY: the application's arguments.
    unsafe {
        if !runtime.notices.remove(&mut runtime.windows, (*request).key()) {
            return None;
        }
        drop(guard);
        Some(PMPI_Request_free(request))
    }
}

/// `MPI_Cancel`: without effect, as on the other requests of this library.
///
/// # Safety
/// As [`wait`].
pub(crate) unsafe fn cancel(request: *mut MPI_Request) -> Option<c_int> {
    // SAFETY: the application's arguments.
    unsafe { at(request) }.map(|_| MPI_SUCCESS)
}
