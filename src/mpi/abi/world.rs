//! `MPI_COMM_WORLD` and the environment of this process.

use std::sync::atomic::{AtomicBool, Ordering};

use super::host_calls;
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
    host_calls::comm_group(comm, &mut group);
    host_calls::comm_group(MPI_COMM_WORLD, &mut world);
    host_calls::group_size(group, &mut size);
    let ranks = host_calls::ranks_within(group, size, world);
    host_calls::group_free(&mut group);
    host_calls::group_free(&mut world);
    ranks.is_some_and(|ranks| !ranks.contains(&MPI_UNDEFINED))
}
