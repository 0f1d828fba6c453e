//! The calls that take requests. `persistent` answers those with active persistent requests of ours
//! in their lists, and `direct` those that wait for generalized ones. The others go on to the host,
//! or are driven if it has no hook. A process that has no requests of ours pays for three loads.

use std::ffi::c_int;

#[cfg(mpi_status_lists)]
use crate::mpi::abi::argument::input;
use crate::mpi::abi::argument::{Out, OutList, count_of, first_of, in_out, list};
use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::status::{Status, Statuses};
use crate::mpi::abi::sys::*;
use crate::mpi::progress::blocking::waits;
use crate::mpi::progress::drive;
use crate::mpi::request;
use crate::mpi::request::continuation;
use crate::mpi::request::direct;
use crate::mpi::request::host_persistent::request_free;
use crate::mpi::request::persistent;
#[cfg(mpi_status_lists)]
use crate::mpi::request::persistent::get_status;
use crate::mpi::request::task::pause;
use crate::runtime::persistent::none_known;

/// Interposes calls. An entry names the host's function, then the answer if persistent requests of
/// ours are involved; `None` means that none is active. `generalized` is the answer for generalized
/// requests, and `paused` that in a task, which it pauses. `driven` makes the call where its
/// condition holds. `error` and `errors` say
/// where the host leaves the errors of failed requests.
///
/// In an entry, `plain` is the call for requests of the host: driven, or the host's own.
macro_rules! completion {
    ($($name:ident($($arg:ident: $type:ty),*) => $host:ident, $persistent:expr
        $(, generalized $generalized:expr)? $(, paused $paused:expr)?
        $(, driven if $when:path, $driven:expr)?
        $(, error in $status:ident)?
        $(, errors in $statuses:ident[$most:ident] of $count:expr)?;)*) => {$(
        /// Interposed for persistent requests of ours.
        ///
        /// # Safety
        /// As MPI says of the call.
        #[inline(never)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            plain! { $name($($arg: $type),*) => $host $(, $when, $driven)? }
            let (none_known, none_alive) = (none_known(), request::none_alive());
            if none_known && none_alive && !pause::is_enabled() {
                // SAFETY: the application's arguments, passed on.
                return unsafe { plain($($arg),*) };
            }
            boundary(stringify!($name), || {
                // SAFETY: MPI requires of the application that each pointer is NULL, is one of
                // MPI's constants, or points to what the call's binding says: for arrays, as many
                // items as the call's count. It also forbids other threads to use them meanwhile.
                unsafe {
                    let mut code = None;
                    $(if pause::in_task() {
                        code = $paused;
                    })?
                    $(if code.is_none() && !none_alive {
                        code = $generalized;
                    })?
                    if code.is_none() && !none_known {
                        code = $persistent;
                    }
                    let code = code.unwrap_or_else(|| {
                        let code = plain($($arg),*);
                        continuation::after_call();
                        code
                    });
                    if code != MPI_SUCCESS {
                        $(_ = request::correct(Status::new($status));)?
                        $(request::correct_all(Statuses::new($statuses, $most), $count);)?
                    }
                    code
                }
            })
        }
        exports! { $name($($arg: $type),*); }
    )*};
}

/// Defines `plain` for [`completion`].
macro_rules! plain {
    ($name:ident($($arg:ident: $type:ty),*) => $host:ident) => {
        use $host as plain;
    };
    ($name:ident($($arg:ident: $type:ty),*) => $host:ident, $when:path, $driven:expr) => {
        #[inline(never)]
        unsafe extern "C" fn plain($($arg: $type),*) -> c_int {
            if drive::drives_nothing() {
                // SAFETY: the application's arguments, passed on.
                return unsafe { $host($($arg),*) };
            }
            boundary(stringify!($name), || {
                // SAFETY: the application's arguments, passed on.
                unsafe { if $when() { $driven } else { $host($($arg),*) } }
            })
        }
    };
}

/// How many statuses a call has written that reports their number. Not more than there are: a call
/// that failed may have reported nothing.
fn written(count: Out<'_, c_int>, most: c_int) -> c_int {
    count.get().map_or(0, |count| count.min(most))
}

completion! {
    MPI_Wait(request: *mut MPI_Request, status: *mut MPI_Status) => PMPI_Wait,
        persistent::wait(in_out(request), Status::new(status)),
        generalized direct::wait(in_out(request), Status::new(status)),
        paused pause::wait(in_out(request), Status::new(status)),
        driven if drive::must_drive_now, drive::until_flag(|flag| PMPI_Test(request, flag, status)),
        error in status;
    MPI_Test(
        request: *mut MPI_Request, flag: *mut c_int, status: *mut MPI_Status
    ) => PMPI_Test,
        persistent::test(in_out(request), Out::new(flag), Status::new(status)),
        generalized direct::test(in_out(request), Out::new(flag), Status::new(status)),
        driven if waits::tests_sweep, waits::step(|| PMPI_Test(request, flag, status)),
        error in status;
    MPI_Request_get_status(
        request: MPI_Request, flag: *mut c_int, status: *mut MPI_Status
    ) => PMPI_Request_get_status,
        persistent::get_status(request, Out::new(flag), Status::new(status)),
        driven if waits::tests_sweep,
            waits::step(|| PMPI_Request_get_status(request, flag, status)),
        error in status;
    MPI_Waitall(
        count: c_int, requests: *mut MPI_Request, statuses: *mut MPI_Status
    ) => PMPI_Waitall,
        persistent::wait_all(
            list(requests, count), Statuses::new(statuses, count),
            |requests, statuses| {
                let count = count_of(requests);
                plain(count, first_of(requests), statuses.as_ptr(count))
            }),
        generalized direct::wait_all(list(requests, count), Statuses::new(statuses, count)),
        paused pause::wait_all(list(requests, count), Statuses::new(statuses, count)),
        driven if waits::drives_wait_all,
            waits::wait_all(list(requests, count), count, statuses, |flag, statuses| {
                PMPI_Testall(count, requests, flag, statuses)
            }),
        errors in statuses[count] of count;
    MPI_Testall(
        count: c_int, requests: *mut MPI_Request, flag: *mut c_int, statuses: *mut MPI_Status
    ) => PMPI_Testall,
        persistent::test_all(
            list(requests, count), Out::new(flag), Statuses::new(statuses, count),
            |requests, flag, statuses| {
                let (count, first) = (count_of(requests), first_of(requests));
                plain(count, first, flag.as_ptr(), statuses.as_ptr(count))
            }),
        driven if waits::may_meet_generalized,
            waits::with_statuses(count, statuses, |statuses| {
                waits::step(|| PMPI_Testall(count, requests, flag, statuses))
            }),
        errors in statuses[count] of count;
    MPI_Waitany(
        count: c_int, requests: *mut MPI_Request, index: *mut c_int, status: *mut MPI_Status
    ) => PMPI_Waitany,
        persistent::wait_any(list(requests, count), Out::new(index), Status::new(status)),
        driven if drive::must_drive_now,
            drive::until_flag(|flag| waits::test_any(count, requests, index, flag, status)),
        error in status;
    MPI_Testany(
        count: c_int, requests: *mut MPI_Request, index: *mut c_int, flag: *mut c_int,
        status: *mut MPI_Status
    ) => PMPI_Testany,
        persistent::test_any(
            list(requests, count), Out::new(index), Out::new(flag), Status::new(status)),
        driven if waits::always_on_mpich,
            if waits::tests_sweep() {
                waits::step(|| waits::test_any(count, requests, index, flag, status))
            } else {
                waits::test_any(count, requests, index, flag, status)
            },
        error in status;
    MPI_Waitsome(
        incount: c_int, requests: *mut MPI_Request, outcount: *mut c_int, indices: *mut c_int,
        statuses: *mut MPI_Status
    ) => PMPI_Waitsome,
        persistent::wait_some(
            list(requests, incount), Out::new(outcount), OutList::new(indices, incount),
            Statuses::new(statuses, incount), true),
        driven if drive::must_drive_now,
            drive::until(|| {
                let code = PMPI_Testsome(incount, requests, outcount, indices, statuses);
                (code != MPI_SUCCESS || outcount.is_null() || *outcount != 0).then_some(code)
            }),
        errors in statuses[incount] of written(Out::new(outcount), incount);
    MPI_Testsome(
        incount: c_int, requests: *mut MPI_Request, outcount: *mut c_int, indices: *mut c_int,
        statuses: *mut MPI_Status
    ) => PMPI_Testsome,
        persistent::wait_some(
            list(requests, incount), Out::new(outcount), OutList::new(indices, incount),
            Statuses::new(statuses, incount), false),
        driven if waits::tests_sweep,
            waits::step(|| PMPI_Testsome(incount, requests, outcount, indices, statuses)),
        errors in statuses[incount] of written(Out::new(outcount), incount);
    MPI_Start(request: *mut MPI_Request) => PMPI_Start, persistent::start(in_out(request));
    MPI_Startall(
        count: c_int, requests: *mut MPI_Request
    ) => PMPI_Startall, persistent::start_all(list(requests, count));
    MPI_Request_free(
        request: *mut MPI_Request
    ) => request_free, persistent::free(in_out(request));
    MPI_Cancel(request: *mut MPI_Request) => PMPI_Cancel, persistent::cancel(in_out(request));
}

#[cfg(mpi_status_lists)]
completion! {
    MPI_Request_get_status_all(
        count: c_int, requests: *const MPI_Request, flag: *mut c_int, statuses: *mut MPI_Status
    ) => PMPI_Request_get_status_all,
        get_status::all(
            input(requests, count), Out::new(flag), Statuses::new(statuses, count),
            |requests, flag, statuses| {
                let (count, first) = (requests.len() as c_int, requests.as_ptr());
                PMPI_Request_get_status_all(count, first, flag.as_ptr(), statuses.as_ptr(count))
            }),
        driven if waits::tests_sweep,
            waits::step(|| PMPI_Request_get_status_all(count, requests, flag, statuses)),
        errors in statuses[count] of count;
    MPI_Request_get_status_any(
        count: c_int, requests: *const MPI_Request, index: *mut c_int, flag: *mut c_int,
        status: *mut MPI_Status
    ) => PMPI_Request_get_status_any,
        get_status::any(
            input(requests, count), Out::new(index), Out::new(flag), Status::new(status),
            |requests, index, flag, status| {
                let count = requests.len() as c_int;
                PMPI_Request_get_status_any(
                    count, requests.as_ptr(), index.as_ptr(), flag.as_ptr(), status.as_ptr())
            }),
        driven if waits::tests_sweep,
            waits::step(|| PMPI_Request_get_status_any(count, requests, index, flag, status)),
        error in status;
    MPI_Request_get_status_some(
        incount: c_int, requests: *const MPI_Request, outcount: *mut c_int, indices: *mut c_int,
        statuses: *mut MPI_Status
    ) => PMPI_Request_get_status_some,
        get_status::some(
            input(requests, incount), Out::new(outcount), OutList::new(indices, incount),
            Statuses::new(statuses, incount),
            |requests, outcount, indices, statuses| {
                let count = requests.len() as c_int;
                PMPI_Request_get_status_some(
                    count, requests.as_ptr(), outcount.as_ptr(), indices.as_ptr(count),
                    statuses.as_ptr(count))
            }),
        driven if waits::tests_sweep,
            waits::step(|| {
                PMPI_Request_get_status_some(incount, requests, outcount, indices, statuses)
            }),
        errors in statuses[incount] of written(Out::new(outcount), incount);
}
