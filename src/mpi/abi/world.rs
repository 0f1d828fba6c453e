//! `MPI_COMM_WORLD` and the environment of this process.

use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) fn look_up(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// `MPI_Init` has been called, and `MPI_Finalize` has not.
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

/// According to the host, all processes of `MPI_COMM_WORLD` are on one node.
static ONE_NODE: AtomicBool = AtomicBool::new(false);

/// Sets whether all processes of `MPI_COMM_WORLD` are on one node.
pub(crate) fn set_on_one_node(one: bool) {
    ONE_NODE.store(one, Ordering::Release);
}

/// True if all processes of `MPI_COMM_WORLD` are on one node. The same in all of them.
pub(crate) fn on_one_node() -> bool {
    ONE_NODE.load(Ordering::Acquire)
}
