//! Windows with peers on other nodes, reached by active messages or RDMA.

use std::sync::{Arc, Mutex};

use mpix_rma::engine::*;
use mpix_rma::transport::rdma::NicAtomics;
use mpix_rma::transport::rdma::device::AtomicCapability;

use crate::carry::{ADAPTERS, Adapter, NIC_ATOMICS, RDMA};
use crate::hub::Hub;
use crate::real::{Ports, Real};
use crate::world::{Far, Near, count, end, mixed, windows};

/// A routed window. `WAY` is one of those below.
pub struct Routed<const WAY: u8>(Arc<Mutex<Hub>>);

const MESSAGES: u8 = 0;
const ON_NODES: u8 = 1;
const ONE_ADAPTER: u8 = 2;
const ACCUMULATES: u8 = 3;
const WITHOUT_ATOMICS: u8 = 4;
const GLOBAL_ATOMICS: u8 = 5;
const MIXED: u8 = 6;

/// Over messages; with processes 0 and 1 on one node.
pub type Messages = Real<Routed<MESSAGES>>;
pub type OnNodes = Real<Routed<ON_NODES>>;
/// Over RDMA with lock words in the devices.
pub type Rdma = Real<Routed<ONE_ADAPTER>>;
/// The same with 8-byte accumulates in the devices.
pub type RdmaAccumulates = Real<Routed<ACCUMULATES>>;
/// Over devices that have no atomics, or atomics that are also atomic with the processors.
pub type RdmaWithoutAtomics = Real<Routed<WITHOUT_ATOMICS>>;
pub type RdmaGlobalAtomics = Real<Routed<GLOBAL_ATOMICS>>;
/// Each process has another adapter or none, on either kind of network.
pub type RdmaMixed = Real<Routed<MIXED>>;

/// The adapter of a process in a job with mixed ones.
fn any_adapter(rank: Rank, seed: u64) -> Option<Adapter> {
    let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(1000) + u64::from(rank));
    let kinds = [AtomicCapability::None, AtomicCapability::Hca, AtomicCapability::Global];
    // In some jobs, all are of one network, or all have atomics.
    let infiniband = rng.bool() && seed.is_multiple_of(3);
    let atomics = *rng.choice(&kinds[(seed % 2) as usize..]).unwrap();
    (seed % 4 < 2 || rng.u8(0..4) > 0).then_some(Adapter { infiniband, ..Adapter::with(atomics) })
}

impl<const WAY: u8> Ports for Routed<WAY> {
    type Port = Far;

    fn new(memories: &mut [Vec<u8>], seed: u64) -> (Self, Vec<Far>) {
        RDMA.set(WAY >= ONE_ADAPTER);
        ADAPTERS.set(match WAY {
            WITHOUT_ATOMICS => |_, _| Some(Adapter::with(AtomicCapability::None)),
            GLOBAL_ATOMICS => |_, _| Some(Adapter::with(AtomicCapability::Global)),
            MIXED => any_adapter,
            _ => |_, _| Some(Adapter::with(AtomicCapability::Hca)),
        });
        let single = WAY == ACCUMULATES || WAY > ACCUMULATES && seed.is_multiple_of(2);
        NIC_ATOMICS.set(if single {
            NicAtomics::LockWordsAndAccumulates
        } else {
            NicAtomics::LockWords
        });
        let on_nodes = match WAY {
            ON_NODES => true,
            GLOBAL_ATOMICS | MIXED => seed % 5 < 2,
            _ => false,
        };
        let (hub, ports) = if on_nodes {
            let mut nodes = vec![vec![0, 1]];
            nodes.extend((2..memories.len() as u32).map(|rank| vec![rank]));
            mixed(&nodes, memories, Near::Created { cma: seed.is_multiple_of(2) }, seed)
        } else {
            windows(memories, seed)
        };
        (Routed(hub), ports)
    }

    fn base(port: &Far) -> Addr {
        port.base()
    }

    fn make_counters(ports: &mut [Far], number: u32) {
        let numbers = vec![number; ports.len()];
        assert!(count(ports, &numbers, None));
    }

    fn end(self, ports: Vec<Far>) {
        end(&self.0, ports);
    }
}
