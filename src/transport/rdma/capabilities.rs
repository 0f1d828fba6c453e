//! The RDMA capabilities of a window's processes, and how the window uses RDMA accordingly.

use super::device::AtomicCapability;
use super::endpoint::{NicAtomics, SharedContext};
use crate::transport::members::RankTable;

/// Bit that is set if the device is on InfiniBand rather than Ethernet.
const INFINIBAND: u8 = 0x80;

/// The capability byte that a process advertises when a window is created: 0 without RDMA, else the
/// kind of network and a level (1: RDMA; 2: also atomics; 3: also `single_element`).
/// `single_element`: all accumulates in the window are of single elements.
#[must_use]
pub fn advertise(context: Option<&SharedContext>, single_element: bool) -> u8 {
    let Some(context) = context else { return 0 };
    let context = context.borrow();
    // Ethernet ports have no LID.
    let network = if context.address().lid != 0 { INFINIBAND } else { 0 };
    let level = match context.limits.atomics {
        AtomicCapability::None => 1,
        AtomicCapability::Hca | AtomicCapability::Global => 2 + u8::from(single_element),
    };
    network | level
}

/// Which processes this one reaches by RDMA, and what device atomics are used for in the window.
/// `mine` is this process's capability byte.
#[must_use]
pub fn plan(mine: u8, capabilities: &RankTable<u8>) -> (RankTable<bool>, NicAtomics) {
    let level = |other: u8| if (other ^ mine) & INFINIBAND == 0 { other & !INFINIBAND } else { 0 };
    let levels = capabilities.map(level);
    // If one process has no device atomics, the processors access all lock words, and execute all
    // accumulates [LK-7].
    let all = |least: u8| levels.map(|level| level >= least) == RankTable::new([true]);
    let atomics = match () {
        () if all(3) => NicAtomics::LockWordsAndAccumulates,
        () if all(2) => NicAtomics::LockWords,
        () => NicAtomics::Unused,
    };
    (levels.map(|level| level > 0), atomics)
}
