//! RDMA capabilities of a window's processes, and what follows from them for the window.

use super::device::AtomicCapability;
use super::endpoint::{NicAtomics, SharedContext};
use crate::transport::members::RankTable;

/// Set if the device is on InfiniBand, and not on Ethernet.
const INFINIBAND: u8 = 0x80;

/// The capability byte that a process advertises when a window is created: 0 without RDMA, else a
/// level (1: RDMA; 2: and atomics; 3: and `single_element`) and the kind of network.
/// `single_element`: all accumulates of the window are of single elements.
#[must_use]
pub fn advertise(context: Option<&SharedContext>, single_element: bool) -> u8 {
    let Some(context) = context else { return 0 };
    let context = context.borrow();
    let network = if context.is_infiniband() { INFINIBAND } else { 0 };
    network
        | match context.limits().atomics {
            AtomicCapability::None => 1,
            AtomicCapability::Hca | AtomicCapability::Global => 2 + u8::from(single_element),
        }
}

/// Which processes this one reaches by RDMA, and what the window uses device atomics for.
#[must_use]
pub fn plan(mine: u8, capabilities: &RankTable<u8>) -> (RankTable<bool>, NicAtomics) {
    let level = |other: u8| if (other ^ mine) & INFINIBAND == 0 { other & !INFINIBAND } else { 0 };
    let levels = capabilities.map(level);
    // One process without device atomics moves all lock words to the processors, and all
    // accumulates too [LK-7].
    let all = |least: u8| levels.map(|level| level >= least) == RankTable::new([true]);
    let atomics = match () {
        () if all(3) => NicAtomics::LockWordsAndAccumulates,
        () if all(2) => NicAtomics::LockWords,
        () => NicAtomics::Unused,
    };
    (levels.map(|level| level > 0), atomics)
}
