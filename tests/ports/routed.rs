//! Windows with peers on other nodes, reached by active messages or RDMA.

use std::sync::{Arc, Mutex};

use mpix_rma::engine::*;

use crate::carry::RDMA;
use crate::hub::Hub;
use crate::real::{Ports, Real};
use crate::world::{Far, Near, count, end, mixed, windows};

/// A routed window. `WAY`: over messages, over messages with processes 0 and 1 on one node, or over
/// RDMA.
pub struct Routed<const WAY: u8>(Arc<Mutex<Hub>>);

pub type Messages = Real<Routed<0>>;
pub type OnNodes = Real<Routed<1>>;
pub type Rdma = Real<Routed<2>>;

impl<const WAY: u8> Ports for Routed<WAY> {
    type Port = Far;

    fn new(memories: &mut [Vec<u8>], seed: u64) -> (Self, Vec<Far>) {
        RDMA.set(WAY == 2);
        let (hub, ports) = if WAY == 1 {
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
