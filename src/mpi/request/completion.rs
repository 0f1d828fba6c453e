//! The calls that take requests: those with persistent requests of ours among them are answered by
//! `persistent`, and waits for generalized ones by `direct`; the others as if there were none. A
//! process that has none pays a look at two numbers.

use std::ffi::c_int;

use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::sys::*;
use crate::mpi::request;
use crate::mpi::request::direct;
use crate::mpi::request::persistent;
#[cfg(mpi_status_lists)]
use crate::mpi::request::persistent::looks;
use crate::runtime::notices::none_known;

/// What the host does, or we in its place where it has no hook.
#[cfg(mpi_host = "openmpi")]
mod plain {
    pub(crate) use crate::mpi::abi::sys::{
        PMPI_Request_get_status as MPI_Request_get_status, PMPI_Test as MPI_Test,
        PMPI_Testall as MPI_Testall, PMPI_Testany as MPI_Testany, PMPI_Testsome as MPI_Testsome,
        PMPI_Wait as MPI_Wait, PMPI_Waitall as MPI_Waitall, PMPI_Waitany as MPI_Waitany,
        PMPI_Waitsome as MPI_Waitsome,
    };
}
#[cfg(all(mpi_host = "openmpi", mpi_status_lists))]
mod plain_lists {
    pub(crate) use crate::mpi::abi::sys::{
        PMPI_Request_get_status_all as MPI_Request_get_status_all,
        PMPI_Request_get_status_any as MPI_Request_get_status_any,
        PMPI_Request_get_status_some as MPI_Request_get_status_some,
    };
}
#[cfg(mpi_host = "mpich")]
use crate::mpi::progress::blocking::waits as plain;
#[cfg(all(mpi_host = "mpich", mpi_status_lists))]
use crate::mpi::progress::blocking::waits as plain_lists;

macro_rules! completion {
    ($($name:ident($($arg:ident: $type:ty),*) => $plain:path, $ours:expr $(, else $direct:expr)? $(, one $one:ident)?
        $(, list $list:ident of $count:expr)?;)*) => {$(
        /// Interposed for persistent requests of ours.
        ///
        /// # Safety
        /// As MPI says of the call.
        #[inline(never)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            let (none_known, none_given) = (none_known(), request::none_given());
            if none_known && none_given {
                // SAFETY: the application's arguments, passed on.
                return unsafe { $plain($($arg),*) };
            }
            boundary(stringify!($name), || {
                // SAFETY: as above.
                unsafe {
                    let mut code = None;
                    $(if !none_given {
                        code = $direct;
                    })?
                    if code.is_none() && !none_known {
                        code = $ours;
                    }
                    let code = code.unwrap_or_else(|| $plain($($arg),*));
                    if code != MPI_SUCCESS {
                        $(request::set_errors($one, 1, false);)?
                        $(request::set_errors($list, $count, true);)?
                    }
                    code
                }
            })
        }
        exports! { $name($($arg: $type),*); }
    )*};
}

/// How many statuses a call has written that says so; no more than there are, since a call that was
/// wrong has said nothing.
///
/// # Safety
/// `count` is what the application gave for it.
unsafe fn written(count: *mut c_int, most: c_int) -> c_int {
    // SAFETY: the caller's promise.
    if count.is_null() { 0 } else { unsafe { *count }.min(most) }
}

completion! {
    MPI_Wait(request: *mut MPI_Request, status: *mut MPI_Status) => plain::MPI_Wait, persistent::wait(request, status),
        else direct::wait(request, status),
        one status;
    MPI_Test(request: *mut MPI_Request, flag: *mut c_int, status: *mut MPI_Status) => plain::MPI_Test,
        persistent::test(request, flag, status), else direct::test(request, flag, status),
        one status;
    MPI_Request_get_status(request: MPI_Request, flag: *mut c_int, status: *mut MPI_Status) => plain::MPI_Request_get_status,
        persistent::get_status(request, flag, status),
        one status;
    MPI_Waitall(count: c_int, requests: *mut MPI_Request, statuses: *mut MPI_Status) => plain::MPI_Waitall,
        persistent::wait_all(count, requests, statuses, |count, requests, statuses| {
            plain::MPI_Waitall(count, requests, statuses)
        }), else direct::wait_all(count, requests, statuses),
        list statuses of count;
    MPI_Testall(count: c_int, requests: *mut MPI_Request, flag: *mut c_int, statuses: *mut MPI_Status) => plain::MPI_Testall,
        persistent::test_all(count, requests, flag, statuses, |count, requests, flag, statuses| {
            plain::MPI_Testall(count, requests, flag, statuses)
        }),
        list statuses of count;
    MPI_Waitany(count: c_int, requests: *mut MPI_Request, index: *mut c_int, status: *mut MPI_Status) => plain::MPI_Waitany,
        persistent::wait_any(count, requests, index, status, |count, requests, index, flag, status| {
            PMPI_Testany(count, requests, index, flag, status)
        }),
        one status;
    MPI_Testany(count: c_int, requests: *mut MPI_Request, index: *mut c_int, flag: *mut c_int, status: *mut MPI_Status)
        => plain::MPI_Testany,
        persistent::test_any(count, requests, index, flag, status, |count, requests, index, flag, status| {
            PMPI_Testany(count, requests, index, flag, status)
        }),
        one status;
    MPI_Waitsome(incount: c_int, requests: *mut MPI_Request, outcount: *mut c_int, indices: *mut c_int, statuses: *mut MPI_Status)
        => plain::MPI_Waitsome,
        persistent::wait_some(incount, requests, outcount, (indices, statuses), true, |count, requests, number, indices, statuses| {
            PMPI_Testsome(count, requests, number, indices, statuses)
        }),
        list statuses of written(outcount, incount);
    MPI_Testsome(incount: c_int, requests: *mut MPI_Request, outcount: *mut c_int, indices: *mut c_int, statuses: *mut MPI_Status)
        => plain::MPI_Testsome,
        persistent::wait_some(incount, requests, outcount, (indices, statuses), false, |count, requests, number, indices, statuses| {
            PMPI_Testsome(count, requests, number, indices, statuses)
        }),
        list statuses of written(outcount, incount);
    MPI_Start(request: *mut MPI_Request) => PMPI_Start, persistent::start(request);
    MPI_Startall(count: c_int, requests: *mut MPI_Request) => PMPI_Startall, persistent::start_all(count, requests);
    MPI_Request_free(request: *mut MPI_Request) => PMPI_Request_free, persistent::free(request);
    MPI_Cancel(request: *mut MPI_Request) => PMPI_Cancel, persistent::cancel(request);
}

#[cfg(mpi_status_lists)]
completion! {
    MPI_Request_get_status_all(count: c_int, requests: *const MPI_Request, flag: *mut c_int, statuses: *mut MPI_Status)
        => plain_lists::MPI_Request_get_status_all,
        looks::all(count, requests, flag, statuses, |requests| PMPI_Request_get_status_all(count, requests, flag, statuses)),
        list statuses of count;
    MPI_Request_get_status_any(
        count: c_int, requests: *const MPI_Request, index: *mut c_int, flag: *mut c_int, status: *mut MPI_Status
    ) => plain_lists::MPI_Request_get_status_any,
        looks::any(count, requests, index, flag, status, |requests| {
            PMPI_Request_get_status_any(count, requests, index, flag, status)
        }),
        one status;
    MPI_Request_get_status_some(
        incount: c_int, requests: *const MPI_Request, outcount: *mut c_int, indices: *mut c_int, statuses: *mut MPI_Status
    ) => plain_lists::MPI_Request_get_status_some,
        looks::some(incount, requests, outcount, indices, statuses, |requests| {
            PMPI_Request_get_status_some(incount, requests, outcount, indices, statuses)
        }),
        list statuses of written(outcount, incount);
}
