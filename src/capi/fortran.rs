//! The calls of `MPIX_*` for Fortran: every argument by address, handles as integers, an error code at the end. Programs with `mpif.h`
//! or `use mpi` call these names; the module `mpix_rma_f08` (mpix-headers) gives them the types of `mpi_f08`.

use std::ffi::c_int;

use super::*;

/// Fortran's default integer, as the hosts are built.
type Fint = c_int;

/// From Fortran's handle to the host's, and back.
#[cfg(mpi_host = "mpich")]
mod handles {
    use super::*;

    // MPICH's handles are the same numbers in both languages.
    pub(super) unsafe fn window(win: Fint) -> MPI_Win {
        win
    }
    pub(super) unsafe fn group(group: Fint) -> MPI_Group {
        group
    }
    pub(super) unsafe fn request(request: MPI_Request) -> Fint {
        request
    }
}

/// From Fortran's handle to the host's, and back.
#[cfg(mpi_host = "openmpi")]
mod handles {
    use super::*;

    pub(super) unsafe fn window(win: Fint) -> MPI_Win {
        // SAFETY: the host answers a wrong number with a handle that is none.
        unsafe { PMPI_Win_f2c(win) }
    }
    pub(super) unsafe fn group(group: Fint) -> MPI_Group {
        // SAFETY: as above.
        unsafe { PMPI_Group_f2c(group) }
    }
    pub(super) unsafe fn request(request: MPI_Request) -> Fint {
        // SAFETY: a request of the host.
        unsafe { PMPI_Request_c2f(request) }
    }
}

/// An argument as the C call wants it.
macro_rules! argument {
    ($arg:ident int) => {
        *$arg
    };
    ($arg:ident group) => {
        handles::group(*$arg)
    };
}

/// Exports a call of Fortran under the names that compilers make of it.
macro_rules! fortran {
    ($($call:ident $name:literal $bare:literal ($($arg:ident $kind:ident),*);)*) => {$(
        const _: () = {
            /// # Safety
            /// As Fortran calls it: each argument is there, but for an error code that is not wanted.
            #[inline(always)]
            unsafe fn body($($arg: *const Fint,)* win: *const Fint, request: *mut Fint, ierror: *mut Fint) {
                let mut made = MPI_REQUEST_NULL;
                // SAFETY: as the caller says.
                unsafe {
                    let code = $call($(argument!($arg $kind),)* handles::window(*win), &raw mut made);
                    if code == MPI_SUCCESS {
                        request.write(handles::request(made));
                    }
                    if !ierror.is_null() {
                        ierror.write(code);
                    }
                }
            }
            #[unsafe(export_name = $name)]
            unsafe extern "C" fn underscored($($arg: *const Fint,)* win: *const Fint, request: *mut Fint, ierror: *mut Fint) {
                // SAFETY: the caller's arguments.
                unsafe { body($($arg,)* win, request, ierror) }
            }
            #[unsafe(export_name = $bare)]
            unsafe extern "C" fn bare($($arg: *const Fint,)* win: *const Fint, request: *mut Fint, ierror: *mut Fint) {
                // SAFETY: the caller's arguments.
                unsafe { body($($arg,)* win, request, ierror) }
            }
        };
    )*};
}

fortran! {
    MPIX_Win_ipost "mpix_win_ipost_" "mpix_win_ipost" (members group, assert int);
    MPIX_Win_istart "mpix_win_istart_" "mpix_win_istart" (members group, assert int);
    MPIX_Win_icomplete "mpix_win_icomplete_" "mpix_win_icomplete" ();
    MPIX_Win_iwait "mpix_win_iwait_" "mpix_win_iwait" ();
    MPIX_Win_ifence "mpix_win_ifence_" "mpix_win_ifence" (assert int);
    MPIX_Win_ilock "mpix_win_ilock_" "mpix_win_ilock" (lock_type int, rank int, assert int);
    MPIX_Win_iunlock "mpix_win_iunlock_" "mpix_win_iunlock" (rank int);
    MPIX_Win_ilock_all "mpix_win_ilock_all_" "mpix_win_ilock_all" (assert int);
    MPIX_Win_iunlock_all "mpix_win_iunlock_all_" "mpix_win_iunlock_all" ();
    MPIX_Win_iflush "mpix_win_iflush_" "mpix_win_iflush" (rank int);
    MPIX_Win_iflush_local "mpix_win_iflush_local_" "mpix_win_iflush_local" (rank int);
    MPIX_Win_iflush_all "mpix_win_iflush_all_" "mpix_win_iflush_all" ();
    MPIX_Win_iflush_local_all "mpix_win_iflush_local_all_" "mpix_win_iflush_local_all" ();
}
