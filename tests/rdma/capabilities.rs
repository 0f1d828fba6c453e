//! Selection of ports, and what the capabilities of a window's processes allow.

use mpix_rma::transport::members::RankTable;
use mpix_rma::transport::rdma::NicAtomics;
use mpix_rma::transport::rdma::capabilities::plan;
use mpix_rma::transport::rdma::ibverbs::PortSelection;

/// The bit of processes on InfiniBand.
const INFINIBAND: u8 = 0x80;

#[test]
fn the_least_capable_process_decides_what_atomics_are_used_for() {
    let plan = |mine: u8, all: &[u8]| plan(mine, &RankTable::new(all.iter().copied()));
    assert_eq!(plan(3, &[3, 3, 3]), (RankTable::new([true]), NicAtomics::LockWordsAndAccumulates));
    assert_eq!(plan(3, &[3, 2, 3]), (RankTable::new([true]), NicAtomics::LockWords));
    assert_eq!(plan(3, &[3, 1, 3]), (RankTable::new([true]), NicAtomics::Unused));
    assert_eq!(plan(2, &[2, 0, 2]), (RankTable::new([true, false, true]), NicAtomics::Unused));
}

#[test]
fn processes_on_another_kind_of_network_are_not_reached() {
    let all = RankTable::new([3, INFINIBAND | 3, INFINIBAND | 2]);
    assert_eq!(plan(3, &all), (RankTable::new([true, false, false]), NicAtomics::Unused));
    let reached = RankTable::new([false, true, true]);
    assert_eq!(plan(INFINIBAND | 3, &all), (reached, NicAtomics::Unused));
    let all = RankTable::new([INFINIBAND | 3, INFINIBAND | 3]);
    let reached = RankTable::new([true]);
    assert_eq!(plan(INFINIBAND | 3, &all), (reached, NicAtomics::LockWordsAndAccumulates));
}

#[test]
fn a_device_setting_has_up_to_three_parts() {
    let none = PortSelection::default();
    let named = PortSelection { device: Some("mlx5_0"), ..none };
    assert_eq!(PortSelection::read("mlx5_0"), Ok(named));
    assert_eq!(PortSelection::read("mlx5_0:2"), Ok(PortSelection { port: Some(2), ..named }));
    assert_eq!(
        PortSelection::read("mlx5_0:1:3"),
        Ok(PortSelection { port: Some(1), gid: Some(3), ..named })
    );
    assert_eq!(PortSelection::read(""), Ok(none));
    for wrong in ["mlx5_0:", "mlx5_0:x", "mlx5_0:1:256", "mlx5_0:1:2:3"] {
        let reason = PortSelection::read(wrong).expect_err(wrong).to_string();
        assert!(reason.starts_with(wrong), "{reason}");
    }
}
