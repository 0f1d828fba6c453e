//! Windows with the production ports, over memory of this process.

use mpix_rma::engine::*;

use crate::conformance::World;

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
    fn order(&mut self, target: Rank) -> Result<(), NoResource> {
        self.0.order(target)
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

/// How the ports of a window are made, used and ended.
pub trait Ports: Sized {
    type Port: Port;

    /// Creates the ports of processes with these memories, which are zeroed.
    fn new(memories: &mut [Vec<u8>], seed: u64) -> (Self, Vec<Self::Port>);

    /// First byte of a process's window memory.
    fn base(port: &Self::Port) -> Addr;

    /// Gives each process this number of notification counters.
    fn make_counters(ports: &mut [Self::Port], number: u32);

    /// Ends the window.
    fn end(self, ports: Vec<Self::Port>);
}

/// A window whose ports are of the kind `P`.
pub struct Real<P: Ports> {
    maker: P,
    ports: Vec<P::Port>,
    /// The memory of windows that have not allocated theirs.
    memories: Vec<Vec<u8>>,
    buffers: Buffers,
}

impl<P: Ports> World for Real<P> {
    type Port<'a>
        = Ref<'a, P::Port>
    where
        P: 'a;

    fn new(ranks: u32, bytes: usize, seed: u64) -> Self {
        let mut memories = vec![vec![0; bytes]; ranks as usize];
        let (maker, ports) = P::new(&mut memories, seed);
        let mut buffers = Buffers::default();
        // Memory that a window has allocated may hold data of an earlier window.
        ports.iter().for_each(|port| buffers.write(P::base(port), &vec![0; bytes]));
        Real { maker, ports, memories, buffers }
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
        self.buffers.read(P::base(&self.ports[me as usize]), self.memories[me as usize].len())
    }

    fn set_memory(&mut self, me: Rank, disp: usize, content: &[u8]) {
        let base = P::base(&self.ports[me as usize]);
        self.buffers.write(Addr(base.0 + disp), content);
    }

    fn make_counters(&mut self, number: u32) {
        P::make_counters(&mut self.ports, number);
    }

    fn end(self) {
        self.maker.end(self.ports);
    }
}
