//! Persistent requests of the host, which the host itself does not tell apart from others: the
//! handles that the `*_init` calls have made. Continuations refuse them [CO-1].

use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::sys::*;

/// Whether there are any, for readers without the lock.
static ANY: AtomicBool = AtomicBool::new(false);

fn handles() -> MutexGuard<'static, Option<HashSet<u64>>> {
    static HANDLES: Mutex<Option<HashSet<u64>>> = Mutex::new(None);
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the host has made this request as a persistent one.
pub(super) fn is_persistent(request: MPI_Request) -> bool {
    ANY.load(Ordering::Acquire)
        && handles().as_ref().is_some_and(|handles| handles.contains(&request.key()))
}

fn remember(request: MPI_Request) {
    handles().get_or_insert_default().insert(request.key());
    ANY.store(true, Ordering::Release);
}

/// The host's `MPI_Request_free`, which this forgets a persistent request for.
///
/// # Safety
/// As MPI says of the call.
pub(super) unsafe extern "C" fn request_free(request: *mut MPI_Request) -> c_int {
    if ANY.load(Ordering::Acquire) && !request.is_null() {
        let mut handles = handles();
        if let Some(handles) = &mut *handles {
            // SAFETY: not NULL, so MPI requires that it points to a handle.
            handles.remove(&unsafe { *request }.key());
            ANY.store(!handles.is_empty(), Ordering::Release);
        }
    }
    // SAFETY: the application's argument, passed on.
    unsafe { PMPI_Request_free(request) }
}

/// Interposes calls that make persistent requests, with counts and buffers of these types.
macro_rules! makers {
    ($count:ty; $($name:ident($buffer:ty) => $host:ident;)*) => {
        $(
            /// Interposed to know the host's persistent requests.
            ///
            /// # Safety
            /// As MPI says of the call.
            #[inline(never)]
            #[allow(clippy::too_many_arguments, reason = "those of the call")]
            pub unsafe extern "C" fn $name(
                buf: $buffer,
                count: $count,
                datatype: MPI_Datatype,
                rank: c_int,
                tag: c_int,
                comm: MPI_Comm,
                request: *mut MPI_Request,
            ) -> c_int {
                boundary(stringify!($name), || {
                    // SAFETY: the application's arguments, passed on; after success, MPI has
                    // written a handle.
                    unsafe {
                        let code = $host(buf, count, datatype, rank, tag, comm, request);
                        if code == MPI_SUCCESS {
                            remember(*request);
                        }
                        code
                    }
                })
            }
        )*
        exports! {
            $($name(
                buf: $buffer, count: $count, datatype: MPI_Datatype, rank: c_int, tag: c_int,
                comm: MPI_Comm, request: *mut MPI_Request
            );)*
        }
    };
}

makers! {
    c_int;
    MPI_Send_init(*const c_void) => PMPI_Send_init;
    MPI_Bsend_init(*const c_void) => PMPI_Bsend_init;
    MPI_Rsend_init(*const c_void) => PMPI_Rsend_init;
    MPI_Ssend_init(*const c_void) => PMPI_Ssend_init;
    MPI_Recv_init(*mut c_void) => PMPI_Recv_init;
}

#[cfg(mpi_large_count)]
makers! {
    MPI_Count;
    MPI_Send_init_c(*const c_void) => PMPI_Send_init_c;
    MPI_Bsend_init_c(*const c_void) => PMPI_Bsend_init_c;
    MPI_Rsend_init_c(*const c_void) => PMPI_Rsend_init_c;
    MPI_Ssend_init_c(*const c_void) => PMPI_Ssend_init_c;
    MPI_Recv_init_c(*mut c_void) => PMPI_Recv_init_c;
}
