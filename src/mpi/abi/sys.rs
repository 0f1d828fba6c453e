//! The contents of `mpi.h`: the host's types and `PMPI_*` functions (bindgen), and the constants
//! that only a C compiler can evaluate (`shim.c`), under the names that they have in C. `host` says
//! how a function is called.
#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    dead_code,
    missing_docs,
    unreachable_pub
)]
#![allow(clippy::all, clippy::pedantic, unsafe_op_in_unsafe_fn)]

use std::ffi::{c_int, c_void};

use crate::mpi::abi::host::host_functions;

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// One predefined datatype: `struct mpix_type` of `shim.c`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ListedType {
    pub handle: MPI_Datatype,
    pub kind: c_int,
    pub quad: c_int,
}

/// The same on all hosts (MPI-4.1 9.4), so no call loads it from memory.
pub const MPI_SUCCESS: c_int = 0;

/// Declares constants of `shim.c`.
macro_rules! constants {
    ($($kind:ty: $($name:ident)*;)*) => {
        unsafe extern "C" {
            $($(
                #[link_name = concat!("mpix_k_", stringify!($name))]
                pub safe static $name: $kind;
            )*)*
        }
    };
}

constants! {
    MPI_Comm: MPI_COMM_NULL MPI_COMM_WORLD MPI_COMM_SELF;
    MPI_Win: MPI_WIN_NULL;
    MPI_Info: MPI_INFO_NULL;
    MPI_Group: MPI_GROUP_NULL;
    MPI_Request: MPI_REQUEST_NULL;
    MPI_Datatype: MPI_DATATYPE_NULL MPI_BYTE MPI_INT MPI_PACKED;
    MPI_Op: MPI_MAX MPI_BOR MPI_OP_NULL;
    MPI_Errhandler: MPI_ERRORS_ARE_FATAL MPI_ERRORS_ABORT MPI_ERRORS_RETURN;
    *mut MPI_Status: MPI_STATUS_IGNORE MPI_STATUSES_IGNORE;
    *mut c_void: MPI_IN_PLACE;
    c_int: MPI_ANY_SOURCE MPI_ANY_TAG MPI_PROC_NULL MPI_ROOT MPI_UNDEFINED MPI_COMM_TYPE_SHARED
        MPI_THREAD_MULTIPLE MPI_CART MPI_GRAPH MPI_DIST_GRAPH
        MPI_MODE_NOCHECK MPI_MODE_NOSTORE MPI_MODE_NOPUT MPI_MODE_NOPRECEDE MPI_MODE_NOSUCCEED
        MPI_LOCK_SHARED MPI_LOCK_EXCLUSIVE
        MPI_WIN_BASE MPI_WIN_SIZE MPI_WIN_DISP_UNIT MPI_WIN_CREATE_FLAVOR MPI_WIN_MODEL
        MPI_WIN_FLAVOR_CREATE MPI_WIN_FLAVOR_ALLOCATE MPI_WIN_FLAVOR_DYNAMIC MPI_WIN_FLAVOR_SHARED
        MPI_WIN_UNIFIED
        MPI_COMBINER_NAMED MPI_COMBINER_DUP MPI_COMBINER_CONTIGUOUS MPI_COMBINER_VECTOR
        MPI_COMBINER_HVECTOR MPI_COMBINER_INDEXED MPI_COMBINER_HINDEXED MPI_COMBINER_INDEXED_BLOCK
        MPI_COMBINER_HINDEXED_BLOCK MPI_COMBINER_STRUCT MPI_COMBINER_SUBARRAY MPI_COMBINER_DARRAY
        MPI_COMBINER_RESIZED MPI_COMBINER_F90_REAL MPI_COMBINER_F90_COMPLEX MPI_COMBINER_F90_INTEGER
        MPI_COMBINER_HVECTOR_INTEGER MPI_COMBINER_HINDEXED_INTEGER MPI_COMBINER_STRUCT_INTEGER
        MPI_ORDER_FORTRAN MPI_DISTRIBUTE_BLOCK MPI_DISTRIBUTE_CYCLIC MPI_DISTRIBUTE_DFLT_DARG
        MPI_KEYVAL_INVALID
        MPI_ERR_ARG MPI_ERR_ASSERT MPI_ERR_BUFFER MPI_ERR_COMM MPI_ERR_COUNT MPI_ERR_DISP
        MPI_ERR_GROUP MPI_ERR_INFO MPI_ERR_INFO_VALUE MPI_ERR_INTERN MPI_ERR_LOCKTYPE MPI_ERR_NO_MEM
        MPI_ERR_OP MPI_ERR_OTHER MPI_ERR_RANK MPI_ERR_RMA_ATTACH
        MPI_ERR_RMA_FLAVOR MPI_ERR_RMA_RANGE MPI_ERR_RMA_SYNC MPI_ERR_SIZE
        MPI_ERR_TRUNCATE MPI_ERR_TYPE MPI_ERR_UNSUPPORTED_OPERATION MPI_ERR_WIN MPI_ERR_TAG
        MPI_ERR_REQUEST MPI_ERR_ROOT MPI_ERR_IN_STATUS MPI_ERR_TOPOLOGY;
}

/// Declares arrays of `shim.c` and their lengths.
macro_rules! arrays {
    ($($(#[$doc:meta])* $name:ident: [$item:ty] = $array:ident, $len:ident;)*) => {
        unsafe extern "C" {
            $(
                static $array: [$item; 0];
                safe static $len: usize;
            )*
        }
        $(
            $(#[$doc])*
            pub fn $name() -> &'static [$item] {
                // SAFETY: `shim.c` defines a constant array with that number of items.
                unsafe { std::slice::from_raw_parts((&raw const $array).cast(), $len) }
            }
        )*
    };
}

arrays! {
    /// Predefined datatypes.
    listed_types: [ListedType] = mpix_types, mpix_types_len;
    /// Predefined datatypes for which `MPI_Type_create_f90_*` has other handles.
    listed_f90_types: [ListedType] = mpix_f90_types, mpix_f90_types_len;
    /// Reductions, by their codes.
    listed_ops: [MPI_Op] = mpix_ops, mpix_ops_len;
}

/// Converts a handle of the host to and from a number: MPICH's are integers, Open MPI's pointers.
pub trait Handle: Copy {
    fn key(self) -> u64;
    /// The handle whose [`Handle::key`] this is.
    fn of(key: u64) -> Self;
}

#[cfg(mpi_host = "mpich")]
impl Handle for c_int {
    #[inline(always)]
    fn key(self) -> u64 {
        u64::from(self as u32)
    }
    #[inline(always)]
    fn of(key: u64) -> Self {
        key as u32 as c_int
    }
}

#[cfg(mpi_host = "openmpi")]
impl<T> Handle for *mut T {
    #[inline(always)]
    fn key(self) -> u64 {
        self as usize as u64
    }
    #[inline(always)]
    fn of(key: u64) -> Self {
        key as usize as *mut T
    }
}
