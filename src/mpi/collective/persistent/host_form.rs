//! The host's own collectives, under the names that it has them. Hosts without large counts get the
//! numbers as ints.

use std::ffi::{c_int, c_void};

use crate::mpi::abi::error::{Fault, Place, raise};
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;

/// An argument of a call, as the host takes it.
pub(super) trait HostArgument: Sized {
    type Passed;

    /// `None`: a number is too large for the host.
    ///
    /// # Safety
    /// Arrays are as MPI says of the call whose arguments `arrays` is for.
    unsafe fn pass(self, arrays: &mut Arrays) -> Option<Self::Passed>;
}

macro_rules! passed_unchanged {
    ($($type:ty)*) => {$(
        impl HostArgument for $type {
            type Passed = $type;
            unsafe fn pass(self, _: &mut Arrays) -> Option<$type> {
                Some(self)
            }
        }
    )*};
}

passed_unchanged! { c_int *const c_int *const c_void *mut c_void }
// MPICH's handles are ints.
#[cfg(mpi_host = "openmpi")]
passed_unchanged! { MPI_Datatype *const MPI_Datatype MPI_Op }
#[cfg(mpi_large_count)]
passed_unchanged! { MPI_Count *const MPI_Count }
// In MPICH, an address is a count.
#[cfg(all(mpi_large_count, mpi_host = "openmpi"))]
passed_unchanged! { *const MPI_Aint }

#[cfg(not(mpi_large_count))]
impl HostArgument for MPI_Count {
    type Passed = c_int;
    unsafe fn pass(self, _: &mut Arrays) -> Option<c_int> {
        c_int::try_from(self).ok()
    }
}

#[cfg(not(mpi_large_count))]
macro_rules! narrowed {
    ($($type:ty)*) => {$(
        impl HostArgument for *const $type {
            type Passed = *const c_int;
            unsafe fn pass(self, arrays: &mut Arrays) -> Option<*const c_int> {
                if self.is_null() {
                    return Some(std::ptr::null());
                }
                let number = |at| {
                    // SAFETY: an array of the call has that many numbers (contract of this
                    // function).
                    c_int::try_from(unsafe { self.add(at).read() }).ok()
                };
                let converted = (0..arrays.len()).map(number).collect::<Option<Vec<c_int>>>()?;
                arrays.kept.push(converted);
                arrays.kept.last().map(|kept| kept.as_ptr())
            }
        }
    )*};
}

#[cfg(not(mpi_large_count))]
narrowed! { MPI_Count }
#[cfg(all(not(mpi_large_count), mpi_host = "openmpi"))]
narrowed! { MPI_Aint }

/// What converts the arrays of one call, and keeps the converted ones.
pub(super) struct Arrays {
    comm: MPI_Comm,
    /// The call's root, if only the root has arrays.
    root: Option<c_int>,
    /// Converted arrays.
    #[cfg(not(mpi_large_count))]
    kept: Vec<Vec<c_int>>,
}

impl Arrays {
    pub(super) fn new(comm: MPI_Comm, root: Option<c_int>) -> Self {
        Arrays {
            comm,
            root,
            #[cfg(not(mpi_large_count))]
            kept: Vec::new(),
        }
    }

    /// Numbers in each array.
    pub(super) fn len(&self) -> usize {
        let (mut inter, mut me, mut size) = (0, 0, 0);
        host_calls::comm_test_inter(self.comm, &mut inter);
        host_calls::comm_rank(self.comm, &mut me);
        if inter != 0 {
            // SAFETY: a handle, and a place of ours.
            unsafe { PMPI_Comm_remote_size(self.comm, &raw mut size) };
        } else {
            host_calls::comm_size(self.comm, &mut size);
        }
        let root = if inter != 0 { MPI_ROOT } else { me };
        let has_arrays = self.root.is_none_or(|given| given == root);
        if has_arrays { usize::try_from(size).unwrap_or(0) } else { 0 }
    }
}

/// The error of a call that this host does not have.
#[cold]
pub(super) fn absent(call: &'static str, comm: MPI_Comm) -> c_int {
    const TEXT: &str = "this MPI library has no nonblocking form of the call";
    raise(call, Place::Communicator(comm), Fault::new(MPI_ERR_UNSUPPORTED_OPERATION, TEXT))
}

/// The error of a count or displacement that this host cannot take.
#[cold]
pub(super) fn too_large(call: &'static str, comm: MPI_Comm) -> c_int {
    const TEXT: &str = "a count or displacement exceeds an int, and this MPI library has no large \
                        counts";
    raise(call, Place::Communicator(comm), Fault::new(MPI_ERR_COUNT, TEXT))
}

/// The host's name of a call of MPI: `name` with a prefix, and with a suffix for large counts.
macro_rules! host_name {
    ($name:literal, $large:literal) => {
        $crate::mpi::abi::host::c_name(match $large && cfg!(mpi_large_count) {
            true => concat!("PMPI_", $name, "_c\0"),
            false => concat!("PMPI_", $name, "\0"),
        })
    };
}
pub(super) use host_name;

/// As [`host_name`], of a call that makes a persistent collective. Open MPI 4 has these in an
/// extension.
macro_rules! init_name {
    ($name:literal, $large:literal) => {
        match cfg!(mpi_persistent_collectives) {
            true => $crate::mpi::collective::persistent::host_form::host_name!($name, $large),
            false => $crate::mpi::abi::host::c_name(concat!("PMPIX_", $name, "\0")),
        }
    };
}
pub(super) use init_name;
