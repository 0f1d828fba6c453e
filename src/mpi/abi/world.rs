//! `MPI_COMM_WORLD` and the environment of this process.

use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) fn look_up(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

static HAS_WORLD: AtomicBool = AtomicBool::new(false);

/// Notes that `MPI_Init` has agreed on the settings with all processes.
pub(crate) fn begin() {
    HAS_WORLD.store(true, Ordering::Release);
}

/// Notes that `MPI_Finalize` has begun.
pub(crate) fn end() {
    HAS_WORLD.store(false, Ordering::Release);
}

/// True between `MPI_Init` and `MPI_Finalize`, when all processes have agreed on the settings.
pub(crate) fn has_world() -> bool {
    HAS_WORLD.load(Ordering::Acquire)
}

static ON_ONE_NODE: AtomicBool = AtomicBool::new(false);

pub(crate) fn set_on_one_node(one: bool) {
    ON_ONE_NODE.store(one, Ordering::Release);
}

/// True if, according to the host, all processes of `MPI_COMM_WORLD` are on one node. All of them
/// get the same answer.
pub(crate) fn on_one_node() -> bool {
    ON_ONE_NODE.load(Ordering::Acquire)
}
