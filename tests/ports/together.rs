//! Shared memory: all processes on one node.

use mpix_rma::engine::*;
use mpix_rma::transport::Proposal;
use mpix_rma::transport::shm::{CounterStep, ShmWindow};

use crate::real::{Ports, Real};
use crate::world::{Near, node};

/// A window over shared memory, whose processes reach each other like `NEAR`.
pub struct Together<const NEAR: u8>;

/// Memory that the window has allocated.
pub type Allocated = Real<Together<0>>;
/// Memory of the application, reached through channels.
pub type Created = Real<Together<1>>;
/// Memory of the application, reached by cross-memory attach.
pub type CreatedWithCma = Real<Together<2>>;

impl<const NEAR: u8> Ports for Together<NEAR> {
    type Port = ShmWindow;

    fn new(memories: &mut [Vec<u8>], _: u64) -> (Self, Vec<ShmWindow>) {
        let near = [Near::Allocated, Near::Created { cma: false }, Near::Created { cma: true }];
        (Together, node(memories.iter_mut().collect(), near[usize::from(NEAR)]))
    }

    fn base(port: &ShmWindow) -> Addr {
        port.base()
    }

    fn make_counters(ports: &mut [ShmWindow], number: u32) {
        for step in [CounterStep::Want, CounterStep::Create, CounterStep::Map] {
            for port in &mut *ports {
                port.make_counters(step, number).unwrap();
                port.propose(Proposal::Ready);
            }
            for port in &mut *ports {
                assert_eq!(port.decision(), Some(Proposal::Ready));
            }
        }
        ports.iter_mut().for_each(|port| port.counters_made(true));
    }

    fn end(self, ports: Vec<ShmWindow>) {
        ports.into_iter().for_each(ShmWindow::release);
    }
}
