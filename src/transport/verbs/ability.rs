//! What the processes of a window can do, each with its own device, and what they do of it
//! together.

use super::direct::{Domain, Shared, lock};
use super::nic::Atomics;
use crate::transport::host_mpi::members::Table;

/// Set in the ability of a process whose device is on InfiniBand, and not on Ethernet.
const INFINIBAND: u8 = 0x80;

/// What a process says of itself when a window is made: nothing, RDMA, RDMA with atomics, or those
/// and accumulates of `single` elements only; and on which kind of network.
#[must_use]
pub fn ability(fabric: Option<&Shared>, single: bool) -> u8 {
    let Some(fabric) = fabric else { return 0 };
    let fabric = lock(fabric);
    let network = if fabric.is_infiniband() { INFINIBAND } else { 0 };
    network
        | match fabric.atomics() {
            Atomics::None => 1,
            Atomics::Interface | Atomics::Everything => 2 + u8::from(single),
        }
}

/// Who is reached, and what atomics are used for, by a process of this ability.
#[must_use]
pub fn plan(mine: u8, abilities: &Table<u8>) -> (Table<bool>, Domain) {
    let level =
        |ability: u8| if (ability ^ mine) & INFINIBAND == 0 { ability & !INFINIBAND } else { 0 };
    let levels = abilities.map(level);
    // [LK-7]: one process that cannot is enough for all lock words to be the processors'; and so
    // for accumulates.
    let all = |least: u8| levels.map(|level| level >= least) == Table::new([true]);
    let domain = match () {
        () if all(3) => Domain::Singles,
        () if all(2) => Domain::Locks,
        () => Domain::Nothing,
    };
    (levels.map(|level| level > 0), domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_able_process_decides_what_atomics_are_used_for() {
        let plan = |mine: u8, all: &[u8]| plan(mine, &Table::new(all.iter().copied()));
        assert_eq!(plan(3, &[3, 3, 3]), (Table::new([true]), Domain::Singles));
        assert_eq!(plan(3, &[3, 2, 3]), (Table::new([true]), Domain::Locks));
        assert_eq!(plan(3, &[3, 1, 3]), (Table::new([true]), Domain::Nothing));
        assert_eq!(plan(2, &[2, 0, 2]), (Table::new([true, false, true]), Domain::Nothing));
    }

    #[test]
    fn another_kind_of_network_is_not_reached() {
        let all = Table::new([3, INFINIBAND | 3, INFINIBAND | 2]);
        assert_eq!(plan(3, &all), (Table::new([true, false, false]), Domain::Nothing));
        assert_eq!(plan(INFINIBAND | 3, &all), (Table::new([false, true, true]), Domain::Nothing));
        let all = Table::new([INFINIBAND | 3, INFINIBAND | 3]);
        assert_eq!(plan(INFINIBAND | 3, &all), (Table::new([true]), Domain::Singles));
    }
}
