//! Continuations in terms of the host: which requests a continuation waits for [CO-1].
//!
//! Those that are pending requests of ours are told of to the request table; the others are
//! requests of the host, which calls test in turns (`at_host`). `run` calls the callbacks. The
//! bookkeeping between the two is [`continuations`].

mod at_host;
mod run;

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::status::Statuses;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::hook;
use crate::mpi::request::attached::Attached;
use crate::mpi::request::{self, AttachedTo, host_persistent};
use crate::runtime::continuations::{self, Callback, GroupId, Properties};
use crate::runtime::{Guard, enter, thread};

pub(crate) use at_host::turns;
pub(crate) use run::{after_call, is_running, test, wait};

/// A callback as the application passes it.
pub(crate) type Function = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;

// The flags, with the values that `mpix_continue.h` gives them.
pub(crate) const REQUESTS_FREE: c_int = 1 << 1;
const POLL_ONLY: c_int = 1 << 2;
const DEFER_COMPLETE: c_int = 1 << 3;
pub(crate) const INVOKE_FAILED: c_int = 1 << 4;

/// Makes a continuation request.
pub(crate) fn init(
    flags: c_int,
    max_poll: c_int,
    on_any_thread: bool,
    made: Out<'_, MPI_Request>,
) -> Result<(), Fault> {
    if made.is_null() {
        return Err(Fault::new(MPI_ERR_ARG, "cont_req is NULL"));
    }
    if flags & !POLL_ONLY != 0 {
        return Err(Fault::new(MPI_ERR_ARG, "flags has bits other than MPIX_CONT_POLL_ONLY"));
    }
    let Ok(max_poll) = u32::try_from(max_poll) else {
        return Err(Fault::new(MPI_ERR_ARG, "max_poll is negative"));
    };
    let properties = Properties {
        poll_only: flags & POLL_ONLY != 0,
        on_any_thread,
        most_per_test: (max_poll > 0).then_some(max_poll),
    };
    set_up();
    if request::persistent::make_continuation_request(properties, made).is_none() {
        return Err(Fault::new(MPI_ERR_INTERN, "the host could not make a persistent request"));
    }
    hook::turn_on();
    Ok(())
}

/// Prepares for the first continuation.
fn set_up() {
    continuations::set_runner(run::run);
    request::compare_completed();
}

/// What a continuation belongs to.
#[derive(Clone, Copy)]
pub(crate) enum Owner {
    Request(MPI_Request),
    /// This library's own callbacks, which any thread may run.
    Library,
    /// The same, run in tasks only, by [`poll_tasks`] and [`run_ready_tasks`].
    Tasks,
}

static LIBRARY: OnceLock<GroupId> = OnceLock::new();
static TASKS: OnceLock<GroupId> = OnceLock::new();

/// The continuations of this library's own callbacks, always started.
fn own_group(group: &OnceLock<GroupId>, poll_only: bool) -> GroupId {
    *group.get_or_init(|| {
        set_up();
        let properties =
            Properties { on_any_thread: !poll_only, poll_only, ..Properties::default() };
        let group = continuations::with(|all| {
            let group = all.make_group(properties);
            all.start(group);
            group
        });
        hook::turn_on();
        group
    })
}

/// Makes progress, and runs callbacks of [`Owner::Tasks`]. True if there was one.
pub(crate) fn poll_tasks() -> bool {
    TASKS.get().is_some_and(|group| {
        let before = continuations::with(|all| all.pending(*group));
        test(*group);
        continuations::with(|all| all.pending(*group)) < before
    })
}

/// Runs callbacks of [`Owner::Tasks`] that are ready, without making progress. To be called in a
/// task. True if more are still to be run.
pub(crate) fn run_ready_tasks() -> bool {
    if let Some(group) = TASKS.get() {
        run::run_ready(*group, PER_BIND);
    }
    tasks_wait()
}

/// Most callbacks that a call runs which binds a task to requests.
const PER_BIND: u32 = 4;

/// Whether a callback of [`Owner::Tasks`] is still to be run.
pub(crate) fn tasks_wait() -> bool {
    TASKS.get().is_some_and(|group| continuations::with(|all| all.pending(*group)) != 0)
}

/// The continuation request behind a handle.
fn group_of(guard: &Guard, request: MPI_Request) -> Result<GroupId, Fault> {
    guard.persistent.continuation_request(request.key()).ok_or_else(|| {
        let text = "cont_req is not a request of MPIX_Continue_init, or has been freed";
        Fault::new(MPI_ERR_REQUEST, text)
    })
}

/// The arguments of a call that adds a continuation.
pub(crate) struct Arguments<'a> {
    /// `None`: the array is NULL, or the count negative.
    pub(crate) requests: Option<&'a [Cell<MPI_Request>]>,
    pub(crate) function: Option<Function>,
    pub(crate) data: *mut c_void,
    pub(crate) flags: c_int,
    pub(crate) statuses: Statuses<'a>,
    pub(crate) owner: Owner,
}

/// Adds a continuation that waits for requests.
pub(crate) fn attach(arguments: &Arguments<'_>) -> Result<(), Fault> {
    let Arguments { requests, function, data, flags, statuses, owner } = *arguments;
    let Some(requests) = requests else {
        return Err(Fault::new(MPI_ERR_COUNT, "count is negative, or requests is NULL"));
    };
    let Some(function) = function else { return Err(Fault::new(MPI_ERR_ARG, "cb is NULL")) };
    if flags & !(REQUESTS_FREE | DEFER_COMPLETE | INVOKE_FAILED) != 0 {
        return Err(Fault::new(MPI_ERR_ARG, "flags has unknown bits"));
    }
    let group = check(owner, requests)?;
    let callback = Callback { function, data };
    if let [request] = requests
        && flags & DEFER_COMPLETE == 0
        && request::is_made_complete(request.get())
        && run::at_once(group, callback, request, statuses.at(0))
    {
        return Ok(());
    }
    // One more than there are requests, so that the continuation waits until all are attached.
    let holds = requests.len() != 1;
    let awaited = requests.len() + usize::from(holds);
    let despite_errors = flags & INVOKE_FAILED != 0;
    let added = continuations::with(|all| {
        let added = all.add(group, callback, awaited, despite_errors)?;
        Some((added, all.is_alone()))
    });
    let Some((continuation, alone)) = added else {
        return Err(Fault::new(MPI_ERR_REQUEST, "cont_req has been freed"));
    };
    if alone {
        thread::wake();
    }
    for (at, request) in requests.iter().enumerate() {
        let handle = request.get();
        let status = statuses.at(at);
        let kept = if flags & REQUESTS_FREE == 0 { request.as_ptr() } else { std::ptr::null_mut() };
        if kept.is_null() {
            request.set(MPI_REQUEST_NULL);
        }
        attach_one(handle, Attached { continuation, handle: kept, status: status.as_ptr() });
    }
    if holds {
        continuations::with(|all| all.request_completed(continuation, MPI_SUCCESS));
    }
    if flags & DEFER_COMPLETE == 0 {
        after_call();
    }
    Ok(())
}

/// What a new continuation belongs to. Refuses requests that no continuation can wait for.
fn check(owner: Owner, requests: &[Cell<MPI_Request>]) -> Result<GroupId, Fault> {
    let refuse = |text| Err(Fault::new(MPI_ERR_REQUEST, text));
    // Registers a hook of the host, so not under the guard.
    let own = match owner {
        Owner::Request(_) => None,
        Owner::Library => Some(own_group(&LIBRARY, false)),
        Owner::Tasks => Some(own_group(&TASKS, true)),
    };
    let guard = enter();
    let group = match (owner, own) {
        (Owner::Request(request), _) => group_of(&guard, request)?,
        (Owner::Library | Owner::Tasks, own) => own.expect("made above"),
    };
    for request in requests.iter().map(Cell::get) {
        if request::is_made_complete(request) {
            continue;
        }
        if request == MPI_REQUEST_NULL {
            // Tasks may wait for lists in which some requests are complete.
            if own.is_some() {
                continue;
            }
            return refuse("a request is MPI_REQUEST_NULL");
        }
        match request::attachable(request) {
            AttachedTo::Pending => continue,
            AttachedTo::Nothing => return refuse("a request has a continuation already"),
            AttachedTo::Host => {}
        }
        if guard.persistent.is_known(request.key()) || host_persistent::is_persistent(request) {
            return refuse("a request is persistent");
        }
    }
    Ok(group)
}

fn attach_one(request: MPI_Request, attached: Attached) {
    match request::attach(request, attached) {
        AttachedTo::Pending => {}
        // Given twice in one call: complete when the first is.
        AttachedTo::Nothing => attached.complete(MPI_SUCCESS, None, MPI_REQUEST_NULL),
        AttachedTo::Host => at_host::attach(request, attached),
    }
}

/// Takes at most `most` continuations that have failed; calls `give` with the data of each. Returns
/// their number.
pub(crate) fn take_failed(
    continuation_request: MPI_Request,
    most: c_int,
    mut give: impl FnMut(usize, *mut c_void),
) -> Result<c_int, Fault> {
    let group = group_of(&enter(), continuation_request)?;
    let mut number = 0;
    while number < most {
        let Some(failed) = continuations::with(|all| all.take_failed(group)) else { break };
        give(number as usize, failed.data);
        number += 1;
    }
    Ok(number)
}
