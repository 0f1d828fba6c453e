//! Couriers between windows in one process: messages go through memory, late and in any order that
//! MPI allows.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use mpix_rma::engine::{Addr, Rank};
use mpix_rma::transport::Ballot;
use mpix_rma::transport::host_mpi::courier::{Bulk, Courier, Stream};
use mpix_rma::transport::host_mpi::wire::Packet;

type Pair = (Rank, Rank);

/// One end of a bulk message.
#[derive(Debug)]
struct End {
    memory: usize,
    len: usize,
    bulk: Bulk,
}

/// What is under way.
#[derive(Debug)]
pub struct Hub {
    rng: fastrand::Rng,
    /// How often something is not delivered yet, in eighths.
    pub delay: u8,
    packets: HashMap<Pair, VecDeque<Vec<u8>>>,
    bulks: HashMap<(Pair, Stream), (VecDeque<End>, VecDeque<End>)>,
    moved: HashMap<Rank, VecDeque<(Bulk, usize)>>,
    votes: Vec<(u32, Ballot)>,
    numbers: Vec<Vec<Option<u32>>>,
    pub ranks: u32,
    /// Packets that were sent.
    pub sent: u64,
    /// Changes packets on their way.
    pub tamper: Option<fn(Rank, &mut Vec<u8>)>,
    /// What else the processes share, for what does not go through here alone.
    #[allow(dead_code, reason = "some tests have nothing else")]
    pub beside: Option<Box<dyn std::any::Any + Send>>,
}

impl Hub {
    pub fn new(ranks: u32, seed: u64) -> Arc<Mutex<Hub>> {
        Arc::new(Mutex::new(Hub {
            rng: fastrand::Rng::with_seed(seed),
            delay: 2,
            packets: HashMap::new(),
            bulks: HashMap::new(),
            moved: HashMap::new(),
            votes: Vec::new(),
            numbers: Vec::new(),
            ranks,
            sent: 0,
            tamper: None,
            beside: None,
        }))
    }

    /// A packet, whatever it holds.
    pub fn inject(&mut self, from: Rank, to: Rank, bytes: Vec<u8>) {
        self.packets.entry((from, to)).or_default().push_back(bytes);
    }

    /// Packets that wait for a process.
    pub fn waiting_for(&self, rank: Rank) -> usize {
        self.packets.iter().filter(|(pair, _)| pair.1 == rank).map(|(_, queue)| queue.len()).sum()
    }

    /// True if nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.packets.values().all(VecDeque::is_empty)
            && self.bulks.values().all(|ends| ends.0.is_empty() && ends.1.is_empty())
    }

    fn late(&mut self) -> bool {
        self.rng.u8(0..8) < self.delay
    }

    fn meet(&mut self, pair: Pair, stream: Stream) {
        let ends = self.bulks.entry((pair, stream)).or_default();
        while !ends.0.is_empty() && !ends.1.is_empty() {
            let (sent, wanted) = (ends.0.pop_front().unwrap(), ends.1.pop_front().unwrap());
            if sent.len > 0 && sent.len <= wanted.len {
                // SAFETY: both memories are valid until the messages are told to have moved.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        sent.memory as *const u8,
                        wanted.memory as *mut u8,
                        sent.len,
                    )
                };
            }
            let bytes = if sent.len <= wanted.len { sent.len } else { usize::MAX };
            self.moved.entry(pair.0).or_default().push_back((sent.bulk, sent.len));
            self.moved.entry(pair.1).or_default().push_back((wanted.bulk, bytes));
        }
    }
}

/// One process's end.
#[derive(Debug)]
pub struct HubCourier {
    pub hub: Arc<Mutex<Hub>>,
    pub me: Rank,
    round: usize,
    gathers: usize,
}

impl HubCourier {
    pub fn new(hub: &Arc<Mutex<Hub>>, me: Rank) -> Self {
        HubCourier { hub: Arc::clone(hub), me, round: 0, gathers: 0 }
    }
}

impl Courier for HubCourier {
    fn packet(&mut self) -> Packet {
        Packet::new()
    }

    fn send(&mut self, peer: Rank, packet: Packet) {
        let mut hub = self.hub.lock().unwrap();
        hub.sent += 1;
        let mut bytes = packet.bytes;
        if let Some(tamper) = hub.tamper {
            tamper(self.me, &mut bytes);
        }
        hub.inject(self.me, peer, bytes);
    }

    fn is_busy(&self) -> bool {
        self.hub.lock().unwrap().rng.u8(0..16) == 0
    }

    fn receive(&mut self) -> Option<(Rank, Packet)> {
        let mut hub = self.hub.lock().unwrap();
        if hub.late() {
            return None;
        }
        let mut from: Vec<Rank> = hub
            .packets
            .iter()
            .filter(|(pair, queue)| pair.1 == self.me && !queue.is_empty())
            .map(|(pair, _)| pair.0)
            .collect();
        from.sort_unstable();
        let from = *from.get(hub.rng.usize(0..from.len().max(1)))?;
        let bytes = hub.packets.get_mut(&(from, self.me))?.pop_front()?;
        Some((from, Packet { bytes }))
    }

    fn give_back(&mut self, _: Packet) {}

    fn drive(&mut self) {}

    unsafe fn send_bulk(&mut self, peer: Rank, stream: Stream, from: Addr, len: usize, bulk: Bulk) {
        let mut hub = self.hub.lock().unwrap();
        let pair = (self.me, peer);
        hub.bulks.entry((pair, stream)).or_default().0.push_back(End { memory: from.0, len, bulk });
        hub.meet(pair, stream);
    }

    unsafe fn receive_bulk(
        &mut self,
        peer: Rank,
        stream: Stream,
        to: Addr,
        len: usize,
        bulk: Bulk,
    ) {
        let mut hub = self.hub.lock().unwrap();
        let pair = (peer, self.me);
        hub.bulks.entry((pair, stream)).or_default().1.push_back(End { memory: to.0, len, bulk });
        hub.meet(pair, stream);
    }

    fn next_bulk(&mut self) -> Option<(Bulk, usize)> {
        let mut hub = self.hub.lock().unwrap();
        if hub.late() {
            return None;
        }
        hub.moved.get_mut(&self.me)?.pop_front()
    }

    fn cancel_bulks(&mut self) {
        let mut hub = self.hub.lock().unwrap();
        let me = self.me;
        for ((pair, _), ends) in &mut hub.bulks {
            if pair.1 == me {
                ends.1.clear();
            }
        }
    }

    fn next_failure(&mut self) -> Option<String> {
        None
    }

    fn vote(&mut self, ballot: Ballot) {
        let mut hub = self.hub.lock().unwrap();
        if hub.votes.len() <= self.round {
            hub.votes.push((0, Ballot::Ready));
        }
        let votes = &mut hub.votes[self.round];
        (votes.0, votes.1) = (votes.0 + 1, votes.1.max(ballot));
    }

    fn verdict(&mut self) -> Option<Ballot> {
        let hub = self.hub.lock().unwrap();
        let (votes, highest) = *hub.votes.get(self.round)?;
        if votes < hub.ranks {
            return None;
        }
        drop(hub);
        self.round += 1;
        Some(highest)
    }

    fn gather(&mut self, number: u32) {
        let mut hub = self.hub.lock().unwrap();
        if hub.numbers.len() <= self.gathers {
            let all = vec![None; hub.ranks as usize];
            hub.numbers.push(all);
        }
        hub.numbers[self.gathers][self.me as usize] = Some(number);
    }

    fn gathered(&mut self) -> Option<Result<Vec<u32>, String>> {
        let hub = self.hub.lock().unwrap();
        let all = hub.numbers[self.gathers].iter().copied().collect::<Option<Vec<u32>>>()?;
        drop(hub);
        self.gathers += 1;
        Some(Ok(all))
    }

    fn is_quiet(&mut self) -> bool {
        true
    }

    fn release(&mut self, _: bool) {}
}
