//! The constructors as programs call them.

use std::ffi::{c_int, c_void};

use super::{Made, Wanted, create, leave_to_host};
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::sys::*;

/// Makes a window, of ours or by the constructor of the `host`. `baseptr`: it gets the address of
/// memory that the window allocates.
///
/// # Safety
/// Each is NULL or memory, `win` for a handle and `baseptr` for an address, that no other thread
/// accesses during the call.
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

/// The constructors that give windows memory of their own, and `MPI_Win_create`, for one type of
/// displacement unit.
macro_rules! constructors {
    ($unit:ty; $create:ident => $host_create:ident, $($(#[$doc:meta])* $allocate:ident => $host_allocate:ident as $flavor:expr),*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As MPI says of the call.
            #[inline(never)]
            pub unsafe extern "C" fn $allocate(
                size: MPI_Aint,
                disp_unit: $unit,
                info: MPI_Info,
                comm: MPI_Comm,
                baseptr: *mut c_void,
                win: *mut MPI_Win,
            ) -> c_int {
                let wanted = Wanted {
                    call: stringify!($allocate),
                    base: std::ptr::null_mut(),
                    size: size as i64,
                    disp_unit: disp_unit as i64,
                    info,
                    comm,
                    flavor: $flavor,
                };
                // SAFETY: the application's arguments, passed on.
                unsafe { construct(&wanted, win, Some(baseptr), || $host_allocate(size, disp_unit, info, comm, baseptr, win)) }
            }
        )*

        /// Makes a window of the application's memory.
        ///
        /// # Safety
        /// As MPI says of the call.
        #[inline(never)]
        pub unsafe extern "C" fn $create(
            base: *mut c_void,
            size: MPI_Aint,
            disp_unit: $unit,
            info: MPI_Info,
            comm: MPI_Comm,
            win: *mut MPI_Win,
        ) -> c_int {
            let wanted = Wanted {
                call: stringify!($create),
                base,
                size: size as i64,
                disp_unit: disp_unit as i64,
                info,
                comm,
                flavor: MPI_WIN_FLAVOR_CREATE,
            };
            // SAFETY: the application's arguments, passed on.
            unsafe { construct(&wanted, win, None, || $host_create(base, size, disp_unit, info, comm, win)) }
        }

        exports! {
            $create(base: *mut c_void, size: MPI_Aint, disp_unit: $unit, info: MPI_Info, comm: MPI_Comm, win: *mut MPI_Win);
            $($allocate(size: MPI_Aint, disp_unit: $unit, info: MPI_Info, comm: MPI_Comm, baseptr: *mut c_void, win: *mut MPI_Win);)*
        }
    };
}

constructors! {
    c_int; MPI_Win_create => PMPI_Win_create,
    /// Makes a window with memory of its own: shared between the processes of a node.
    MPI_Win_allocate => PMPI_Win_allocate as MPI_WIN_FLAVOR_ALLOCATE,
    /// Makes a window with memory of its own that its processes reach by load and store.
    MPI_Win_allocate_shared => PMPI_Win_allocate_shared as MPI_WIN_FLAVOR_SHARED
}

#[cfg(mpi_large_count)]
constructors! {
    MPI_Aint; MPI_Win_create_c => PMPI_Win_create_c,
    /// As [`MPI_Win_allocate`], with a large displacement unit.
    MPI_Win_allocate_c => PMPI_Win_allocate_c as MPI_WIN_FLAVOR_ALLOCATE,
    /// As [`MPI_Win_allocate_shared`], with a large displacement unit.
    MPI_Win_allocate_shared_c => PMPI_Win_allocate_shared_c as MPI_WIN_FLAVOR_SHARED
}

/// Makes a window without memory: it is attached later.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Win_create_dynamic(
    info: MPI_Info,
    comm: MPI_Comm,
    win: *mut MPI_Win,
) -> c_int {
    let wanted = Wanted {
        call: "MPI_Win_create_dynamic",
        base: std::ptr::null_mut(),
        size: 0,
        disp_unit: 1,
        info,
        comm,
        flavor: MPI_WIN_FLAVOR_DYNAMIC,
    };
    // SAFETY: the application's arguments, passed on.
    unsafe { construct(&wanted, win, None, || PMPI_Win_create_dynamic(info, comm, win)) }
}

exports! { MPI_Win_create_dynamic(info: MPI_Info, comm: MPI_Comm, win: *mut MPI_Win); }
