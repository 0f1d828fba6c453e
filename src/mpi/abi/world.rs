//! `MPI_COMM_WORLD` and the environment of this process.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use super::sys::*;

pub(crate) fn look_up(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// MPI was initialised by `MPI_Init`, and is not finalised yet.
static WORLD: AtomicBool = AtomicBool::new(false);

/// `MPI_Init` has agreed on the settings with all processes.
pub(crate) fn begin() {
    WORLD.store(true, Ordering::Release);
}

/// `MPI_Finalize` has begun.
pub(crate) fn end() {
    WORLD.store(false, Ordering::Release);
}

/// True between `MPI_Init` and `MPI_Finalize`, when all processes have agreed on the settings.
pub(crate) fn has_world() -> bool {
    WORLD.load(Ordering::Acquire)
}

/// The host says that all processes of `MPI_COMM_WORLD` are on one node.
static ONE_NODE: AtomicBool = AtomicBool::new(false);

/// Notes whether the host knows of one node only.
pub(crate) fn set_on_one_node(one: bool) {
    ONE_NODE.store(one, Ordering::Release);
}

/// True if the host knows of one node only. The same in all processes of `MPI_COMM_WORLD`.
pub(crate) fn on_one_node() -> bool {
    ONE_NODE.load(Ordering::Acquire)
}

/// True if `MPI_COMM_WORLD` has all processes of `comm`. The same in all of them.
pub(crate) fn within_world(comm: MPI_Comm) -> bool {
    if !has_world() {
        return false;
    }
    let (mut group, mut world, mut size) = (MPI_GROUP_NULL, MPI_GROUP_NULL, 0);
    // SAFETY: the communicators are live, the groups are given back, and both lists have `size`
    // entries.
    unsafe {
        PMPI_Comm_group(comm, &raw mut group);
        PMPI_Comm_group(MPI_COMM_WORLD, &raw mut world);
        PMPI_Group_size(group, &raw mut size);
        let own: SmallVec<[c_int; 64]> = (0..size).collect();
        let mut there: SmallVec<[c_int; 64]> = SmallVec::from_elem(MPI_UNDEFINED, own.len());
        let status =
            PMPI_Group_translate_ranks(group, size, own.as_ptr(), world, there.as_mut_ptr());
        PMPI_Group_free(&raw mut group);
        PMPI_Group_free(&raw mut world);
        status == MPI_SUCCESS && !there.contains(&MPI_UNDEFINED)
    }
}
