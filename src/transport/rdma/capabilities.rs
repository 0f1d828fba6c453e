//! RDMA capabilities of a window's processes, and what follows from them for the window.

use super::device::AtomicCapability;
use super::endpoint::{NicAtomics, SharedContext, lock};
use crate::transport::host_mpi::members::Table;

/// Set if the device is on InfiniBand, and not on Ethernet.
const INFINIBAND: u8 = 0x80;

/// The capability byte that a process advertises when a window is created: 0 without RDMA, else a
/// level (1: RDMA; 2: and atomics; 3: and `single_element`) and the kind of network.
/// `single_element`: all accumulates of the window are of single elements.
#[must_use]
pub fn advertise(context: Option<&SharedContext>, single_element: bool) -> u8 {
    let Some(context) = context else { return 0 };
    let context = lock(context);
    let network = if context.is_infiniband() { INFINIBAND } else { 0 };
    network
        | match context.atomics() {
            AtomicCapability::None => 1,
            AtomicCapability::Hca | AtomicCapability::Global => 2 + u8::from(single_element),
        }
}

/// Which processes this one reaches by RDMA, and what the window uses device atomics for.
#[must_use]
pub fn plan(mine: u8, capabilities: &Table<u8>) -> (Table<bool>, NicAtomics) {
    let level = |other: u8| if (other ^ mine) & INFINIBAND == 0 { other & !INFINIBAND } else { 0 };
    let levels = capabilities.map(level);
    // One process without device atomics moves all lock words to the processors, and all
    // accumulates too [LK-7].
    let all = |least: u8| levels.map(|level| level >= least) == Table::new([true]);
    let atomics = match () {
        () if all(3) => NicAtomics::LockWordsAndAccumulates,
        () if all(2) => NicAtomics::LockWords,
        () => NicAtomics::Unused,
    };
    (levels.map(|level| level > 0), atomics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_capable_process_decides_what_atomics_are_used_for() {
        let plan = |mine: u8, all: &[u8]| plan(mine, &Table::new(all.iter().copied()));
        assert_eq!(plan(3, &[3, 3, 3]), (Table::new([true]), NicAtomics::LockWordsAndAccumulates));
        assert_eq!(plan(3, &[3, 2, 3]), (Table::new([true]), NicAtomics::LockWords));
        assert_eq!(plan(3, &[3, 1, 3]), (Table::new([true]), NicAtomics::Unused));
        assert_eq!(plan(2, &[2, 0, 2]), (Table::new([true, false, true]), NicAtomics::Unused));
    }

    #[test]
    fn processes_on_another_kind_of_network_are_not_reached() {
        let all = Table::new([3, INFINIBAND | 3, INFINIBAND | 2]);
        assert_eq!(plan(3, &all), (Table::new([true, false, false]), NicAtomics::Unused));
        let reached = Table::new([false, true, true]);
        assert_eq!(plan(INFINIBAND | 3, &all), (reached, NicAtomics::Unused));
        let all = Table::new([INFINIBAND | 3, INFINIBAND | 3]);
        let reached = Table::new([true]);
        assert_eq!(plan(INFINIBAND | 3, &all), (reached, NicAtomics::LockWordsAndAccumulates));
    }
}
