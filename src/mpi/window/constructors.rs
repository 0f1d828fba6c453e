//! The window constructors that programs call.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::{Made, Wanted, create, leave_to_host};
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::sys::*;

/// Makes a window of ours, or lets the `host` make one. `baseptr` gets the address of the memory
/// that the window allocates.
///
/// # Safety
/// Each pointer is NULL or memory, `win` for a handle and `baseptr` for an address, that no other
/// thread accesses during the call.
unsafe fn construct(
    wanted: &Wanted,
    win: *mut MPI_Win,
    baseptr: Option<*mut c_void>,
    host: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the contract of this function.
    let (window, baseptr) =
        unsafe { (Out::new(win), baseptr.map(|baseptr| Out::new(baseptr.cast::<*mut c_void>()))) };
    boundary(wanted.call, || {
        if window.is_null() || baseptr.is_some_and(Out::is_null) {
            return host();
        }
        match create(wanted) {
            Made::Ours(handle, base) => {
                window.write(handle);
                if let Some(baseptr) = baseptr {
                    baseptr.write(base.0 as *mut c_void);
                }
                MPI_SUCCESS
            }
            Made::Host => leave_to_host(wanted.comm, win, host),
            Made::Failed(code) => code,
        }
    })
}

/// A constructor, exported under both names. Its output arguments follow the semicolon; `$base`,
/// `$size` and `$unit` describe the memory.
macro_rules! constructor {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*; $win:ident $(, $baseptr:ident)?)
     => $host:ident, $flavor:expr, $base:expr, $size:expr, $unit:expr, $info:ident,
     $comm:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As MPI says of the call.
        #[inline(never)]
        pub unsafe extern "C" fn $name(
            $($arg: $type,)* $($baseptr: *mut c_void,)? $win: *mut MPI_Win
        ) -> c_int {
            let wanted = Wanted {
                call: stringify!($name),
                base: $base,
                size: $size as i64,
                disp_unit: $unit as i64,
                info: $info,
                comm: $comm,
                flavor: $flavor,
                is_own: false,
            };
            let baseptr = None $(.or(Some($baseptr)))?;
            // SAFETY: the application's arguments, passed on.
            unsafe { construct(&wanted, $win, baseptr, || $host($($arg,)* $($baseptr,)? $win)) }
        }
        exports! { $name($($arg: $type,)* $($baseptr: *mut c_void,)? $win: *mut MPI_Win); }
    };
}

/// The constructors that take a displacement unit, with that of type `$unit`.
macro_rules! constructors {
    ($unit:ty; $create:ident => $host_create:ident, $allocate:ident => $host_allocate:ident,
     $shared:ident => $host_shared:ident) => {
        constructor! {
            /// Makes a window of the application's memory.
            $create(
                base: *mut c_void, size: MPI_Aint, disp_unit: $unit, info: MPI_Info,
                comm: MPI_Comm; win
            ) => $host_create, MPI_WIN_FLAVOR_CREATE, base, size, disp_unit, info, comm
        }
        constructor! {
            /// Makes a window that allocates its memory.
            $allocate(
                size: MPI_Aint, disp_unit: $unit, info: MPI_Info, comm: MPI_Comm; win, baseptr
            ) => $host_allocate, MPI_WIN_FLAVOR_ALLOCATE, null_mut(), size, disp_unit, info, comm
        }
        constructor! {
            /// Makes a window that allocates memory which all its processes can load and store.
            $shared(
                size: MPI_Aint, disp_unit: $unit, info: MPI_Info, comm: MPI_Comm; win, baseptr
            ) => $host_shared, MPI_WIN_FLAVOR_SHARED, null_mut(), size, disp_unit, info, comm
        }
    };
}

constructors! {
    c_int; MPI_Win_create => PMPI_Win_create, MPI_Win_allocate => PMPI_Win_allocate,
    MPI_Win_allocate_shared => PMPI_Win_allocate_shared
}

#[cfg(mpi_large_count)]
constructors! {
    MPI_Aint; MPI_Win_create_c => PMPI_Win_create_c, MPI_Win_allocate_c => PMPI_Win_allocate_c,
    MPI_Win_allocate_shared_c => PMPI_Win_allocate_shared_c
}

constructor! {
    /// Makes a window without memory. Memory is attached later.
    MPI_Win_create_dynamic(info: MPI_Info, comm: MPI_Comm; win) => PMPI_Win_create_dynamic,
        MPI_WIN_FLAVOR_DYNAMIC, null_mut(), 0, 1, info, comm
}
