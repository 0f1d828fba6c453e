//! Windows with peers on other nodes, reached by active messages or RDMA.

use std::sync::{Arc, Mutex};

use mpix_rma::engine::*;

use crate::carry::RDMA;
use crate::conformance::World;
use crate::hub::Hub;
use crate::world::{Far, Near, count, end, mixed, windows};

/// Private memory of all processes, which stays where it is.
#[derive(Default)]
pub struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    pub fn add(&mut self, content: &[u8]) -> Addr {
        self.0.push(content.to_vec());
        Addr(self.0.last_mut().expect("just pushed").as_mut_ptr() as usize)
    }

    pub fn read(&self, at: Addr, len: usize) -> Vec<u8> {
        let bytes = unsafe { std::slice::from_raw_parts(at.0 as *const u8, len) };
        bytes.to_vec()
    }

    pub fn write(&mut self, at: Addr, content: &[u8]) {
        let to = at.0 as *mut u8;
        unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), to, content.len()) };
    }
}

/// A borrowed port.
pub struct Ref<'a, P>(pub &'a mut P);

impl<P: LockMemory> LockMemory for Ref<'_, P> {
    fn atomic(&mut self, home: Rank, word: LockWord, access: Atomic, ticket: LockTicket) -> Answer {
        self.0.atomic(home, word, access, ticket)
    }
    fn look(&mut self, word: LockWord) -> u64 {
        self.0.look(word)
    }
}

impl<P: Port> Port for Ref<'_, P> {
    fn signals_follow(&self, peer: Rank) -> bool {
        self.0.signals_follow(peer)
    }
    fn post(&mut self, op: &Op, ticket: Ticket) -> Posted {
        self.0.post(op, ticket)
    }
    fn signal(&mut self, peer: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        self.0.signal(peer, word, value)
    }
    fn observe(&mut self, peer: Rank, word: Word) -> u64 {
        self.0.observe(peer, word)
    }
    fn counter(&mut self, index: u32) -> u64 {
        self.0.counter(index)
    }
    fn next_arrival(&mut self) -> Option<Arrival> {
        self.0.next_arrival()
    }
    fn poll(&mut self) -> bool {
        self.0.poll()
    }
    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        self.0.next_finished()
    }
    fn next_failed(&mut self) -> Option<Ticket> {
        self.0.next_failed()
    }
    fn next_answer(&mut self) -> Option<(LockTicket, u64)> {
        self.0.next_answer()
    }
}

/// A routed window. `WAY`: over messages, over messages with processes 0 and 1 on one node, or over
/// RDMA.
pub struct Routed<const WAY: u8> {
    hub: Arc<Mutex<Hub>>,
    ports: Vec<Far>,
    memories: Vec<Vec<u8>>,
    buffers: Buffers,
}

pub type Messages = Routed<0>;
pub type OnNodes = Routed<1>;
pub type Rdma = Routed<2>;

impl<const WAY: u8> World for Routed<WAY> {
    type Port<'a> = Ref<'a, Far>;

    fn new(ranks: u32, bytes: usize, seed: u64) -> Self {
        RDMA.set(WAY == 2);
        let mut memories = vec![vec![0; bytes]; ranks as usize];
        let (hub, ports) = if WAY == 1 {
            let mut nodes = vec![vec![0, 1]];
            nodes.extend((2..ranks).map(|rank| vec![rank]));
            mixed(&nodes, &mut memories, Near::Created { cma: seed.is_multiple_of(2) }, seed)
        } else {
            windows(&mut memories, seed)
        };
        Routed { hub, ports, memories, buffers: Buffers::default() }
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
        let numbers = vec![number; self.ports.len()];
        assert!(count(&mut self.ports, &numbers, None));
    }

    fn end(self) {
        end(&self.hub, self.ports);
    }
}
