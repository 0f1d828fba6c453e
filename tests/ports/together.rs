//! Shared memory: all processes on one node.

use mpix_rma::engine::*;
use mpix_rma::transport::Proposal;
use mpix_rma::transport::shm::{CounterStep, ShmWindow};

use crate::conformance::World;
use crate::routed::{Buffers, Ref};
use crate::world::{Near, node};

/// A window over shared memory, whose processes reach each other like `NEAR`.
pub struct Together<const NEAR: u8> {
    ports: Vec<ShmWindow>,
    /// The memory of created windows.
    memories: Vec<Vec<u8>>,
    buffers: Buffers,
}

/// Memory that the window has allocated.
pub type Allocated = Together<0>;
/// Memory of the application, reached through channels.
pub type Created = Together<1>;
/// Memory of the application, reached by cross-memory attach.
pub type CreatedWithCma = Together<2>;

impl<const NEAR: u8> World for Together<NEAR> {
    type Port<'a> = Ref<'a, ShmWindow>;

    fn new(ranks: u32, bytes: usize, _: u64) -> Self {
        let near = [Near::Allocated, Near::Created { cma: false }, Near::Created { cma: true }];
        let mut memories = vec![vec![0; bytes]; ranks as usize];
        let each: Vec<&mut Vec<u8>> = memories.iter_mut().collect();
        let ports = node(each, near[usize::from(NEAR)]);
        let mut buffers = Buffers::default();
        // The memory of an allocated window may have been another one's.
        ports.iter().for_each(|port| buffers.write(port.base(), &vec![0; bytes]));
        Together { ports, memories, buffers }
    }

    fn port(&mut self, me: Rank) -> Self::Port<'_> {
        Ref(&mut self.ports[me as usize])
    }

    fn step(&mut self) {
        self.ports.iter_mut().for_each(|port| _ = port.poll());
    }

    fn buffer(&mut self, _: Rank, content: &[u8]) -> Addr {
        self.buffers.add(content)
    }

    fn read(&self, _: Rank, at: Addr, len: usize) -> Vec<u8> {
        self.buffers.read(at, len)
    }

    fn write(&mut self, _: Rank, at: Addr, content: &[u8]) {
        self.buffers.write(at, content);
    }

    fn memory(&self, me: Rank) -> Vec<u8> {
        self.buffers.read(self.ports[me as usize].base(), self.memories[me as usize].len())
    }

    fn make_counters(&mut self, number: u32) {
        for step in [CounterStep::Want, CounterStep::Create, CounterStep::Map] {
            for port in &mut self.ports {
                port.make_counters(step, number).unwrap();
                port.propose(Proposal::Ready);
            }
            for port in &mut self.ports {
                assert_eq!(port.decision(), Some(Proposal::Ready));
            }
        }
        self.ports.iter_mut().for_each(|port| port.counters_made(true));
    }

    fn end(self) {
        self.ports.into_iter().for_each(ShmWindow::release);
    }
}
