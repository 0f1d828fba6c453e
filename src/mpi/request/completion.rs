//! The calls that take requests: those with persistent requests of ours among them are answered by
//! `persistent`, and waits for generalized ones by `direct`; the others as if there were none. A
//! process that has none pays a look at two numbers.

use std::ffi::c_int;

#[cfg(mpi_status_lists)]
use crate::mpi::abi::argument::input;
use crate::mpi::abi::argument::{Out, OutList, count_of, first_of, in_out, list};
use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::status::{Status, Statuses};
use crate::mpi::abi::sys::*;
use crate::mpi::request;
use crate::mpi::request::direct;
use crate::mpi::request::persistent;
#[cfg(mpi_status_lists)]
use crate::mpi::request::persistent::get_status;
use crate::runtime::persistent::none_known;

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
    ($($name:ident($($arg:ident: $type:ty),*) => $plain:path, $ours:expr
        $(, else $direct:expr)? $(, one $one:ident)?
        $(, list $list:ident [$most:ident] of $count:expr)?;)*) => {$(
        /// Interposed for persistent requests of ours.
        ///
        /// # Safety
        /// As MPI says of the call.
        #[inline(never)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            let (none_known, none_alive) = (none_known(), request::none_alive());
            if none_known && none_alive {
                // SAFETY: the application's arguments, passed on.
                return unsafe { $plain($($arg),*) };
            }
            boundary(stringify!($name), || {
                // SAFETY: MPI requires of the application that each pointer is NULL, is one of
                // MPI's constants, or points to what the call's binding says: for arrays, as many
                // items as the call's count. It also forbids other threads to use them meanwhile.
                unsafe {
                    let mut code = None;
                    $(if !none_alive {
                        code = $direct;
                    })?
                    if code.is_none() && !none_known {
                        code = $ours;
                    }
                    let code = code.unwrap_or_else(|| $plain($($arg),*));
                    if code != MPI_SUCCESS {
                        $(request::set_error(Status::new($one));)?
                        $(request::set_errors(Statuses::new($list, $most), $count);)?
                    }
                    code
                }
            })
        }
        exports! { $name($($arg: $type),*); }
    )*};
}

/// How many statuses a call has written that reports their number; no more than there are, since a
/// call that was wrong has reported nothing.
fn written(count: Out<'_, c_int>, most: c_int) -> c_int {
    count.get().map_or(0, |count| count.min(most))
}

completion! {
    MPI_Wait(request: *mut MPI_Request, status: *mut MPI_Status) => plain::MPI_Wait,
        persistent::wait(in_out(request), Status::new(status)),
        else direct::wait(in_out(request), Status::new(status)),
        one status;
    MPI_Test(
        request: *mut MPI_Request, flag: *mut c_int, status: *mut MPI_Status
    ) => plain::MPI_Test,
        persistent::test(in_out(request), Out::new(flag), Status::new(status)),
        else direct::test(in_out(request), Out::new(flag), Status::new(status)),
        one status;
    MPI_Request_get_status(
        request: MPI_Request, flag: *mut c_int, status: *mut MPI_Status
    ) => plain::MPI_Request_get_status,
        persistent::get_status(request, Out::new(flag), Status::new(status)),
        one status;
    MPI_Waitall(
        count: c_int, requests: *mut MPI_Request, statuses: *mut MPI_Status
    ) => plain::MPI_Waitall,
        persistent::wait_all(
            list(requests, count), Statuses::new(statuses, count),
            |requests, statuses| {
                let count = count_of(requests);
                plain::MPI_Waitall(count, first_of(requests), statuses.as_ptr(count))
            }),
        else direct::wait_all(list(requests, count), Statuses::new(statuses, count)),
        list statuses [count] of count;
    MPI_Testall(
        count: c_int, requests: *mut MPI_Request, flag: *mut c_int, statuses: *mut MPI_Status
    ) => plain::MPI_Testall,
        persistent::test_all(
            list(requests, count), Out::new(flag), Statuses::new(statuses, count),
            |requests, flag, statuses| {
                let (count, first) = (count_of(requests), first_of(requests));
                plain::MPI_Testall(count, first, flag.as_ptr(), statuses.as_ptr(count))
            }),
        list statuses [count] of count;
    MPI_Waitany(
        count: c_int, requests: *mut MPI_Request, index: *mut c_int, status: *mut MPI_Status
    ) => plain::MPI_Waitany,
        persistent::wait_any(list(requests, count), Out::new(index), Status::new(status)),
        one status;
    MPI_Testany(
        count: c_int, requests: *mut MPI_Request, index: *mut c_int, flag: *mut c_int,
        status: *mut MPI_Status
    )
        => plain::MPI_Testany,
        persistent::test_any(
            list(requests, count), Out::new(index), Out::new(flag), Status::new(status)),
        one status;
    MPI_Waitsome(
        incount: c_int, requests: *mut MPI_Request, outcount: *mut c_int, indices: *mut c_int,
        statuses: *mut MPI_Status
    )
        => plain::MPI_Waitsome,
        persistent::wait_some(
            list(requests, incount), Out::new(outcount), OutList::new(indices, incount),
            Statuses::new(statuses, incount), true),
        list statuses [incount] of written(Out::new(outcount), incount);
    MPI_Testsome(
        incount: c_int, requests: *mut MPI_Request, outcount: *mut c_int, indices: *mut c_int,
        statuses: *mut MPI_Status
    )
        => plain::MPI_Testsome,
        persistent::wait_some(
            list(requests, incount), Out::new(outcount), OutList::new(indices, incount),
            Statuses::new(statuses, incount), false),
        list statuses [incount] of written(Out::new(outcount), incount);
    MPI_Start(request: *mut MPI_Request) => PMPI_Start, persistent::start(in_out(request));
    MPI_Startall(
        count: c_int, requests: *mut MPI_Request
    ) => PMPI_Startall, persistent::start_all(list(requests, count));
    MPI_Request_free(
        request: *mut MPI_Request
    ) => PMPI_Request_free, persistent::free(in_out(request));
    MPI_Cancel(request: *mut MPI_Request) => PMPI_Cancel, persistent::cancel(in_out(request));
}

#[cfg(mpi_status_lists)]
completion! {
    MPI_Request_get_status_all(
        count: c_int, requests: *const MPI_Request, flag: *mut c_int, statuses: *mut MPI_Status
    )
        => plain_lists::MPI_Request_get_status_all,
        get_status::all(
            input(requests, count), Out::new(flag), Statuses::new(statuses, count),
            |requests, flag, statuses| {
                let (count, first) = (requests.len() as c_int, requests.as_ptr());
                PMPI_Request_get_status_all(count, first, flag.as_ptr(), statuses.as_ptr(count))
            }),
        list statuses [count] of count;
    MPI_Request_get_status_any(
        count: c_int, requests: *const MPI_Request, index: *mut c_int, flag: *mut c_int,
        status: *mut MPI_Status
    ) => plain_lists::MPI_Request_get_status_any,
        get_status::any(
            input(requests, count), Out::new(index), Out::new(flag), Status::new(status),
            |requests, index, flag, status| {
                let count = requests.len() as c_int;
                PMPI_Request_get_status_any(
                    count, requests.as_ptr(), index.as_ptr(), flag.as_ptr(), status.as_ptr())
            }),
        one status;
    MPI_Request_get_status_some(
        incount: c_int, requests: *const MPI_Request, outcount: *mut c_int, indices: *mut c_int,
        statuses: *mut MPI_Status
    ) => plain_lists::MPI_Request_get_status_some,
        get_status::some(
            input(requests, incount), Out::new(outcount), OutList::new(indices, incount),
            Statuses::new(statuses, incount),
            |requests, outcount, indices, statuses| {
                let count = requests.len() as c_int;
                PMPI_Request_get_status_some(
                    count, requests.as_ptr(), outcount.as_ptr(), indices.as_ptr(count),
                    statuses.as_ptr(count))
            }),
        list statuses [incount] of written(Out::new(outcount), incount);
}
