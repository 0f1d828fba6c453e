//! What all calls on a window have in common: lookup of the window, errors, waits, requests.

use std::ffi::c_int;

use crate::engine::{Outcome, RequestId};
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::{Fault, Place, boundary, raise};
use crate::mpi::abi::sys::*;
use crate::mpi::request;
use crate::mpi::request::continuation;
use crate::mpi::request::task::pause;
use crate::mpi::rma::record::in_record;
use crate::runtime::process::multiple;
use crate::runtime::progress::{step, sweep, sweep_between_calls, wait_until};
use crate::runtime::registry::is_left_to_host;
use crate::runtime::{Guard, HandleState, HostHandle, Scope, Window, WindowId, enter};
use crate::transport::shm::protocol::order_completed;

/// The result of a check, or of a call of the engine.
pub(crate) type Checked<T> = Result<T, Fault>;
/// The result of a call on a window of ours.
pub(crate) type Done = Checked<()>;

/// Runs `body` if the window is ours; calls the host's function otherwise.
///
/// `body` gets the guard, and `guard.windows.called()` is the window. A wait gives up the guard;
/// after one, `body` finds the window by its `WindowId` instead. While an epoch is recorded on the
/// handle, runs `recorded` in the place of `body`.
#[inline(always)]
pub(crate) fn on_window(
    call: &'static str,
    window: MPI_Win,
    body: impl FnOnce(Guard) -> Done,
    recorded: impl FnOnce(Guard, WindowId) -> Done,
    host: impl FnOnce() -> c_int,
) -> c_int {
    if is_left_to_host(HostHandle(window.key())) {
        return host();
    }
    boundary(call, || {
        let mut guard = enter();
        if guard.windows.call(HostHandle(window.key())) {
            let code = end(call, window, body(guard));
            continuation::after_call();
            return code;
        }
        let state = guard.windows.state(HostHandle(window.key()));
        if let Some(HandleState::Recording(id, lane)) = state {
            return end(call, window, in_record(guard, (id, lane), recorded));
        }
        drop(guard);
        if state == Some(HandleState::Freed) { not_a_window(call) } else { host() }
    })
}

/// Runs `body` if the window is ours. For calls that the host does not have, so a window that is
/// left to the host is an error.
#[inline(always)]
pub(crate) fn on_our_window(
    call: &'static str,
    window: MPI_Win,
    body: impl FnOnce(Guard) -> Done,
    recorded: impl FnOnce(Guard, WindowId) -> Done,
) -> c_int {
    boundary(call, || {
        let mut guard = enter();
        if guard.windows.call(HostHandle(window.key())) {
            let code = end(call, window, body(guard));
            continuation::after_call();
            return code;
        }
        let state = guard.windows.state(HostHandle(window.key()));
        if let Some(HandleState::Recording(id, lane)) = state {
            return end(call, window, in_record(guard, (id, lane), recorded));
        }
        drop(guard);
        left_to_host(call, window, state)
    })
}

#[inline(always)]
fn end(call: &'static str, window: MPI_Win, done: Done) -> c_int {
    match done {
        Ok(()) => MPI_SUCCESS,
        Err(fault) => raise(call, Place::Window(window), fault),
    }
}

#[cold]
#[inline(never)]
fn left_to_host(call: &'static str, window: MPI_Win, state: Option<HandleState>) -> c_int {
    if state != Some(HandleState::Host) {
        return not_a_window(call);
    }
    let text = "the window is left to the host MPI library (see MPIX_RMA_LOG=info for the reason)";
    raise(call, Place::Window(window), Fault::new(MPI_ERR_UNSUPPORTED_OPERATION, text))
}

#[cold]
#[inline(never)]
fn not_a_window(call: &'static str) -> c_int {
    raise(call, Place::World, Fault::new(MPI_ERR_WIN, "win is not a window, or has been freed"))
}

/// Runs `body`, which closes an epoch or flushes, and waits until its outcome is complete. Fails if
/// an operation to `target`, or to any process if it is `None`, reached memory that is not
/// attached.
#[inline(always)]
pub(crate) fn block(
    mut guard: Guard,
    target: Option<u32>,
    body: impl FnOnce(&mut Window) -> Result<Outcome, Fault>,
) -> Done {
    let window = guard.windows.called();
    if let Outcome::Pending(request) = body(window)? {
        if multiple() {
            guard.windows.called().engine.overlap_closing(request);
        }
        let id = guard.windows.called_id();
        return wait_for(guard, id, request, target);
    }
    order_completed();
    check_reach(window, target)?;
    if guard.windows.count_call() {
        sweep_between_calls(&mut guard);
    }
    Ok(())
}

/// Waits until a request of the engine is complete, as [`block`].
#[inline(never)]
pub(crate) fn wait_for(
    guard: Guard,
    id: WindowId,
    request: RequestId,
    target: Option<u32>,
) -> Done {
    let guard = if pause::in_task() { pause_for(guard, id, request) } else { guard };
    let mut guard = wait_unless_broken(guard, id, |window| !window.engine.is_pending(request))?;
    order_completed();
    check_reach(&mut guard[id], target)
}

/// Pauses the current task until a request of the engine is complete, or the window is broken. May
/// return earlier.
#[cold]
fn pause_for(mut guard: Guard, id: WindowId, awaited: RequestId) -> Guard {
    let host = guard.host;
    let window = &mut guard[id];
    if window.poll_before_request(awaited, &host) {
        return guard;
    }
    let mut handle = MPI_REQUEST_NULL;
    let Ok(number) = request::pending(Out::to(&mut handle)) else { return guard };
    window.bind(awaited, number, Scope::Operation);
    window.waiting += 1;
    request::bind(number, id, awaited);
    drop(guard);
    pause::wait_for_ours(handle);
    let mut guard = enter();
    guard[id].waiting -= 1;
    guard
}

/// Waits until `done`; fails if the window is broken before that.
#[inline(always)]
pub(crate) fn wait_unless_broken(
    guard: Guard,
    id: WindowId,
    mut done: impl FnMut(&mut Window) -> bool,
) -> Result<Guard, Fault> {
    let mut fault = None;
    let guard = wait_until(guard, id, |window| {
        let done = done(window);
        if !done && window.port.is_broken() {
            fault = Some(broken(window));
        }
        done || fault.is_some()
    });
    if let Some(fault) = fault {
        drop(guard);
        return Err(fault);
    }
    Ok(guard)
}

/// The fault of a wait in a broken window.
#[cold]
pub(crate) fn broken(window: &Window) -> Fault {
    Fault::broken(window.port.lost().map(|(_, why)| why))
}

/// Ends a test that has found nothing complete. Sweeps, since a program may make no other calls
/// [PR-1]. Fails in a broken window, like a wait, so that a loop of tests ends.
pub(crate) fn not_complete(mut guard: Guard) -> Done {
    let window = guard.windows.called();
    if window.port.is_broken() {
        return Err(broken(window));
    }
    window.count_incomplete_test();
    step(guard);
    Ok(())
}

/// Fails if an operation reached memory that its target has not attached. The call that completes
/// the operation reports it (MPI-4.1 12.2.4).
#[inline(always)]
fn check_reach(window: &mut Window, target: Option<u32>) -> Done {
    match window.port.take_fault(target) {
        None => Ok(()),
        Some(_) => Err(Fault::unattached()),
    }
}

/// Before a call that may make a pending request changes anything: refuses it if `request` is NULL
/// or too many requests are alive [RQ-3].
#[inline(always)]
pub(crate) fn admit(request: Out<'_, MPI_Request>) -> Done {
    require(request, NO_REQUEST)?;
    request::admit()
}

/// Refuses a call whose output argument is NULL; `text` says so.
#[inline(always)]
pub(crate) fn require<T: Copy>(output: Out<'_, T>, text: &'static str) -> Done {
    if output.is_null() { Err(Fault::new(MPI_ERR_ARG, text)) } else { Ok(()) }
}

pub(crate) const NO_REQUEST: &str = "request is NULL";

/// Gives the application a request for the outcome.
#[inline(always)]
pub(crate) fn deliver(
    mut guard: Guard,
    outcome: Outcome,
    scope: Scope,
    request: Out<'_, MPI_Request>,
) -> Done {
    if let Outcome::Pending(pending) = outcome {
        return deliver_pending(guard, pending, scope, request);
    }
    let window = guard.windows.called();
    if let Scope::Target(target) = scope {
        check_reach(window, target)?;
    }
    if guard.windows.count_call() {
        sweep_between_calls(&mut guard);
    }
    drop(guard);
    deliver_complete(request)
}

/// Gives the application a request that is complete.
#[inline(always)]
pub(crate) fn deliver_complete(request: Out<'_, MPI_Request>) -> Done {
    order_completed();
    if request::completed(request) != MPI_SUCCESS {
        return Err(Fault::new(MPI_ERR_INTERN, "the host could not make a request"));
    }
    Ok(())
}

#[inline(never)]
fn deliver_pending(
    mut guard: Guard,
    pending: RequestId,
    scope: Scope,
    request: Out<'_, MPI_Request>,
) -> Done {
    let (host, id) = (guard.host, guard.windows.called_id());
    let window = guard.windows.called();
    let awaits_counters = window.engine.watch_of(pending).is_some();
    // A call that waits for counters has looked at them.
    if !awaits_counters && window.poll_before_request(pending, &host) {
        match scope {
            Scope::Operation if window.has_failed(pending) => return Err(Fault::unattached()),
            Scope::Operation => {}
            Scope::Target(target) => check_reach(window, target)?,
        }
        drop(guard);
        return deliver_complete(request);
    }
    match request::pending(request) {
        Ok(number) => {
            window.bind(pending, number, scope);
            request::bind(number, id, pending);
            // A call of ours drives everything [PR-1]; one that waits for counters has done so.
            if !awaits_counters {
                sweep(&mut guard);
            }
            Ok(())
        }
        Err(status) => {
            // The epoch is closed and cannot be opened again: the call becomes the blocking one.
            log::warn!(
                "the host could not make a generalized request (error {status}); waiting instead"
            );
            let target = if let Scope::Target(target) = scope { target } else { None };
            wait_for(guard, id, pending, target)?;
            deliver_complete(request)
        }
    }
}

/// Whether to pass a call on before anything else. On Open MPI alone, whose calls on windows take
/// as little as ten nanoseconds. On MPICH they take ten times as long; and since its handles are
/// ints, compilers pass one on the stack anew after a look at it, which calls on our windows would
/// pay for.
#[inline(always)]
pub(crate) fn passes(window: MPI_Win) -> bool {
    cfg!(mpi_host = "openmpi") && is_left_to_host(HostHandle(window.key()))
}

/// Defines calls on a window, exported under both names. `$win` is the name of their argument for
/// the window.
///
/// A call names the host's function (`=> PMPI_*`), unless only this library has it. Its output
/// arguments follow a semicolon, with the types of what they point to, and `$body` gets them as
/// [`Out`]. `unless` is tried first: if it is `Some`, that is the call's code. `before` is tried
/// before that, by a function that needs no stack. `given` makes a check without the guard: `Ok`
/// has a value for `$body`, `Err` the call's code. `recorded` is the call while an epoch is
/// recorded on the window; without it, the call is refused then.
macro_rules! window_calls {
    ($win:ident; $(
        $(#[$doc:meta])* $name:ident $arguments:tt $(=> $host:ident)?, $body:expr
        $(, unless $first:expr)? $(, before $at_once:expr)? $(, given $value:ident = $check:expr)?
        $(, recorded $recorded:expr)?;
    )*) => {$(
        window_calls! { @define $win; $(#[$doc])* $name $arguments
            [[$($host)?] [$($recorded)?]] $(before $at_once,)? $body,
            $($first)? $(given $value = $check)? }
    )*};
    // What is tried before is inlined into the exported functions, which end with a jump.
    (@define $win:ident; $(#[$doc:meta])* $name:ident ($($arg:ident: $type:ty),* $(,)?)
     $host:tt before $at_once:expr, $body:expr, $($first:tt)*) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As MPI, or `mpix_rma.h` of this library's own, says of the call.
        #[inline(always)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
            #[inline(never)]
            unsafe extern "C" fn otherwise($($arg: $type),*) -> std::ffi::c_int {
                window_calls! { @body $win, $name, $host ($($arg: $type),*) $body, $($first)* }
            }
            if let Some(code) = $at_once {
                return code;
            }
            // SAFETY: the application's arguments, passed on.
            unsafe { otherwise($($arg),*) }
        }
        window_calls! { @export $win, $name, $host ($($arg: $type),*) }
    };
    (@define $win:ident; $(#[$doc:meta])* $name:ident
     ($($arg:ident: $type:ty),* $(,)? $(; $($out:ident: $result:ty),*)?)
     $host:tt $body:expr, $($first:tt)*) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As MPI, or `mpix_rma.h` of this library's own, says of the call: each output argument is
        /// NULL or memory for its type, which no other thread uses during the call, and buffers
        /// stay the library's until their operations are complete [EP-8].
        #[inline(never)]
        #[allow(clippy::too_many_arguments, reason = "those of the call")]
        pub unsafe extern "C" fn $name(
            $($arg: $type,)* $($($out: *mut $result),*)?
        ) -> std::ffi::c_int {
            window_calls! { @body $win, $name, $host
                ($($arg: $type),* $(; $($out: $result),*)?) $body, $($first)* }
        }
        window_calls! { @export $win, $name, $host
            ($($arg: $type),* $(; $($out: *mut $result),*)?) }
    };
    (@export $win:ident, $name:ident, [[$host:ident] $recorded:tt]
     ($($arg:ident: $type:ty),* $(; $($out:ident: $result:ty),*)?)) => {
        $crate::mpi::abi::host::exports! {
            $name($($arg: $type,)* $($($out: $result),*)?)
            else if $crate::mpi::rma::call::passes($win),
            // SAFETY: the application's arguments, passed on.
            unsafe { $host($($arg,)* $($($out.cast()),*)?) };
        }
    };
    (@export $win:ident, $name:ident, [[] $recorded:tt]
     ($($arg:ident: $type:ty),* $(; $($out:ident: $result:ty),*)?)) => {
        $crate::mpi::abi::host::exports! { $name($($arg: $type,)* $($($out: $result),*)?); }
    };
    (@body $win:ident, $name:ident, $host:tt
     ($($arg:ident: $type:ty),* $(; $($out:ident: $result:ty),*)?) $body:expr,) => {{
        $($(
            // SAFETY: the contract of this call says so of each output argument.
            let $out = unsafe { $crate::mpi::abi::argument::Out::new($out) };
        )*)?
        window_calls! { @on $win, $name, $host ($($arg),* $(; $($out),*)?) $body }
    }};
    (@body $win:ident, $name:ident, $host:tt $arguments:tt $body:expr,
     given $value:ident = $check:expr) => {{
        let $value = match $check {
            Ok(value) => value,
            Err(code) => return code,
        };
        window_calls! { @body $win, $name, $host $arguments $body, }
    }};
    // The rest is a function of its own: a call that `$first` completes does not pay for it.
    (@body $win:ident, $name:ident, $host:tt
     ($($arg:ident: $type:ty),* $(; $($out:ident: $result:ty),*)?) $body:expr, $first:expr) => {{
        #[inline(never)]
        #[allow(clippy::too_many_arguments, reason = "those of the call")]
        unsafe extern "C" fn rest(
            $($arg: $type,)* $($($out: *mut $result),*)?
        ) -> std::ffi::c_int {
            window_calls! { @body $win, $name, $host
                ($($arg: $type),* $(; $($out: $result),*)?) $body, }
        }
        if let Some(code) = $first {
            return code;
        }
        // SAFETY: the application's arguments, passed on.
        unsafe { rest($($arg,)* $($($out),*)?) }
    }};
    (@on $win:ident, $name:ident, [$host:tt []] $arguments:tt $body:expr) => {
        window_calls! { @on $win, $name, [$host [$crate::mpi::rma::record::refused]]
            $arguments $body }
    };
    (@on $win:ident, $name:ident, [[$host:ident] [$recorded:expr]]
     ($($arg:ident),* $(; $($out:ident),*)?) $body:expr) => {
        $crate::mpi::rma::call::on_window(
            stringify!($name),
            $win,
            $body,
            $recorded,
            // SAFETY: the application's arguments, passed on.
            || unsafe { $host($($arg,)* $($($out.as_ptr().cast()),*)?) },
        )
    };
    (@on $win:ident, $name:ident, [[] [$recorded:expr]] $arguments:tt $body:expr) => {
        $crate::mpi::rma::call::on_our_window(stringify!($name), $win, $body, $recorded)
    };
}
pub(crate) use window_calls;
