//! What the processes of a window can do, each with its own device, and what they do of it
//! together.

use super::device::AtomicCapability;
use super::endpoint::{NicAtomics, SharedContext, lock};
use crate::transport::host_mpi::members::Table;

/// Set in the ability of a process whose device is on InfiniBand, and not on Ethernet.
const INFINIBAND: u8 = 0x80;

/// What a process says of itself when a window is made: nothing, RDMA, RDMA with atomics, or those
/// and accumulates of `single` elements only; and on which kind of network.
#[must_use]
pub fn advertise(context: Option<&SharedContext>, single: bool) -> u8 {
    let Some(context) = context else { return 0 };
    let context = lock(context);
    let network = if context.is_infiniband() { INFINIBAND } else { 0 };
    network
        | match context.atomics() {
            AtomicCapability::None => 1,
            AtomicCapability::Hca | AtomicCapability::Global => 2 + u8::from(single),
        }
}

/// Who is reached, and what atomics are used for, by a process of this ability.
#[must_use]
pub fn plan(mine: u8, abilities: &Table<u8>) -> (Table<bool>, NicAtomics) {
    let level =
        |ability: u8| if (ability ^ mine) & INFINIBAND == 0 { ability & !INFINIBAND } else { 0 };
    let levels = abilities.map(level);
    // [LK-7]: one process that cannot is enough for all lock words to be the processors'; and so
    // for accumulates.
    let all = |least: u8| levels.map(|level| level >= least) == Table::new([true]);
    let domain = match () {
        () if all(3) => NicAtomics::LockWordsAndAccumulates,
        () if all(2) => NicAtomics::LockWords,
        () => NicAtomics::Unused,
    };
    (levels.map(|level| level > 0), domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_able_process_decides_what_atomics_are_used_for() {
        let plan = |mine: u8, all: &[u8]| plan(mine, &Table::new(all.iter().copied()));
        assert_eq!(plan(3, &[3, 3, 3]), (Table::new([true]), NicAtomics::LockWordsAndAccumulates));
        assert_eq!(plan(3, &[3, 2, 3]), (Table::new([true]), NicAtomics::LockWords));
        assert_eq!(plan(3, &[3, 1, 3]), (Table::new([true]), NicAtomics::Unused));
        assert_eq!(plan(2, &[2, 0, 2]), (Table::new([true, false, true]), NicAtomics::Unused));
    }

    #[test]
    fn another_kind_of_network_is_not_reached() {
        let all = Table::new([3, INFINIBAND | 3, INFINIBAND | 2]);
        assert_eq!(plan(3, &all), (Table::new([true, false, false]), NicAtomics::Unused));
        assert_eq!(
            plan(INFINIBAND | 3, &all),
            (Table::new([false, true, true]), NicAtomics::Unused)
        );
        let all = Table::new([INFINIBAND | 3, INFINIBAND | 3]);
        assert_eq!(
            plan(INFINIBAND | 3, &all),
            (Table::new([true]), NicAtomics::LockWordsAndAccumulates)
        );
    }
}
