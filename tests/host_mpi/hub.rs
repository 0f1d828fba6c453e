//! Channels between windows in one process. Messages are delivered in memory, with delays, and in
//! any order that MPI allows.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use mpix_rma::engine::{Addr, Rank};
use mpix_rma::transport::Proposal;
use mpix_rma::transport::am::channel::{Channel, TransferId, TransferTag};
use mpix_rma::transport::am::wire::Packet;

type Pair = (Rank, Rank);

/// One end of a rendezvous transfer.
#[derive(Debug)]
struct End {
    memory: usize,
    len: usize,
    transfer: TransferId,
}

/// Everything in flight between the processes.
#[derive(Debug)]
pub struct Hub {
    rng: fastrand::Rng,
    /// Probability that a delivery is delayed, in eighths.
    pub delay: u8,
    packets: HashMap<Pair, VecDeque<Vec<u8>>>,
    transfers: HashMap<(Pair, TransferTag), (VecDeque<End>, VecDeque<End>)>,
    moved: HashMap<Rank, VecDeque<(TransferId, usize)>>,
    proposals: Vec<(u32, Proposal)>,
    numbers: Vec<Vec<Option<u32>>>,
    pub ranks: u32,
    /// Number of packets sent.
    pub sent: u64,
    /// Modifies packets before delivery.
    pub tamper: Option<fn(Rank, &mut Vec<u8>)>,
    /// State that the processes share beside the hub: in-memory devices and their network.
    #[allow(dead_code, reason = "only tests with RDMA use it")]
    pub beside: Option<Box<dyn std::any::Any + Send>>,
}

impl Hub {
    pub fn new(ranks: u32, seed: u64) -> Arc<Mutex<Hub>> {
        Arc::new(Mutex::new(Hub {
            rng: fastrand::Rng::with_seed(seed),
            delay: 2,
            packets: HashMap::new(),
            transfers: HashMap::new(),
            moved: HashMap::new(),
            proposals: Vec::new(),
            numbers: Vec::new(),
            ranks,
            sent: 0,
            tamper: None,
            beside: None,
        }))
    }

    /// Queues a packet with any content.
    pub fn inject(&mut self, from: Rank, to: Rank, bytes: Vec<u8>) {
        self.packets.entry((from, to)).or_default().push_back(bytes);
    }

    /// Number of packets queued for a process.
    pub fn waiting_for(&self, rank: Rank) -> usize {
        self.packets.iter().filter(|(pair, _)| pair.1 == rank).map(|(_, queue)| queue.len()).sum()
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.packets.values().all(VecDeque::is_empty)
            && self.transfers.values().all(|ends| ends.0.is_empty() && ends.1.is_empty())
    }

    fn is_delayed(&mut self) -> bool {
        self.rng.u8(0..8) < self.delay
    }

    /// Matches sends with receives in order, and copies.
    fn match_transfers(&mut self, pair: Pair, tag: TransferTag) {
        let ends = self.transfers.entry((pair, tag)).or_default();
        while !ends.0.is_empty() && !ends.1.is_empty() {
            let (sent, wanted) = (ends.0.pop_front().unwrap(), ends.1.pop_front().unwrap());
            if sent.len > 0 && sent.len <= wanted.len {
                // SAFETY: both ends stay valid until `next_transfer` has returned them, and the
                // receiver has room for `sent.len` bytes.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        sent.memory as *const u8,
                        wanted.memory as *mut u8,
                        sent.len,
                    )
                };
            }
            let bytes = if sent.len <= wanted.len { sent.len } else { usize::MAX };
            self.moved.entry(pair.0).or_default().push_back((sent.transfer, sent.len));
            self.moved.entry(pair.1).or_default().push_back((wanted.transfer, bytes));
        }
    }
}

/// The channel of one process.
#[derive(Debug)]
pub struct HubChannel {
    pub hub: Arc<Mutex<Hub>>,
    pub me: Rank,
    round: usize,
    gathers: usize,
    /// Tags in use.
    tags: HashSet<u32>,
    /// Polls what a process's windows share, and says whether that has moved anything.
    pub shared: Option<Shared>,
    /// As the runtime does it, the host is polled now and then, or when messages are due and
    /// nothing else has moved.
    expects: bool,
    polls: u32,
    delivers: bool,
}

pub struct Shared(pub Box<dyn FnMut() -> bool + Send>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl HubChannel {
    pub fn new(hub: &Arc<Mutex<Hub>>, me: Rank) -> Self {
        HubChannel {
            hub: Arc::clone(hub),
            me,
            round: 0,
            gathers: 0,
            tags: HashSet::new(),
            shared: None,
            expects: true,
            polls: 0,
            delivers: true,
        }
    }
}

impl Channel for HubChannel {
    fn empty_packet(&mut self) -> Packet {
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
        if !self.delivers || hub.is_delayed() {
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

    fn recycle(&mut self, _: Packet) {}

    fn poll(&mut self) {
        let Some(shared) = &mut self.shared else { return };
        let moved = (shared.0)();
        self.polls += 1;
        self.delivers = self.polls >= 64 || (!moved && self.expects);
        if self.delivers {
            self.polls = 0;
        }
    }

    /// Few, so that they are used again often.
    fn take_tag(&mut self) -> Option<u32> {
        (0..12).find(|tag| self.tags.insert(*tag))
    }

    fn return_tag(&mut self, number: u32) {
        assert!(self.tags.remove(&number), "the tag is in use");
    }

    unsafe fn send_data(
        &mut self,
        peer: Rank,
        tag: TransferTag,
        from: Addr,
        len: usize,
        transfer: TransferId,
    ) {
        let mut hub = self.hub.lock().unwrap();
        let pair = (self.me, peer);
        hub.transfers.entry((pair, tag)).or_default().0.push_back(End {
            memory: from.0,
            len,
            transfer,
        });
        hub.match_transfers(pair, tag);
    }

    unsafe fn receive_data(
        &mut self,
        peer: Rank,
        tag: TransferTag,
        to: Addr,
        len: usize,
        transfer: TransferId,
    ) {
        let mut hub = self.hub.lock().unwrap();
        let pair = (peer, self.me);
        hub.transfers.entry((pair, tag)).or_default().1.push_back(End {
            memory: to.0,
            len,
            transfer,
        });
        hub.match_transfers(pair, tag);
    }

    fn next_transfer(&mut self) -> Option<(TransferId, usize)> {
        let mut hub = self.hub.lock().unwrap();
        if !self.delivers || hub.is_delayed() {
            return None;
        }
        hub.moved.get_mut(&self.me)?.pop_front()
    }

    fn cancel_receives(&mut self) {
        let mut hub = self.hub.lock().unwrap();
        let me = self.me;
        for ((pair, _), ends) in &mut hub.transfers {
            if pair.1 == me {
                ends.1.clear();
            }
        }
    }

    fn propose(&mut self, proposal: Proposal) {
        let mut hub = self.hub.lock().unwrap();
        if hub.proposals.len() <= self.round {
            hub.proposals.push((0, Proposal::Ready));
        }
        let proposals = &mut hub.proposals[self.round];
        (proposals.0, proposals.1) = (proposals.0 + 1, proposals.1.max(proposal));
    }

    fn decision(&mut self) -> Option<Proposal> {
        let hub = self.hub.lock().unwrap();
        let (proposals, highest) = *hub.proposals.get(self.round)?;
        if proposals < hub.ranks {
            return None;
        }
        drop(hub);
        self.round += 1;
        Some(highest)
    }

    fn start_allgather(&mut self, number: u32) {
        let mut hub = self.hub.lock().unwrap();
        if hub.numbers.len() <= self.gathers {
            let all = vec![None; hub.ranks as usize];
            hub.numbers.push(all);
        }
        hub.numbers[self.gathers][self.me as usize] = Some(number);
    }

    fn finish_allgather(&mut self) -> Option<Vec<u32>> {
        let hub = self.hub.lock().unwrap();
        let all = hub.numbers[self.gathers].iter().copied().collect::<Option<Vec<u32>>>()?;
        drop(hub);
        self.gathers += 1;
        Some(all)
    }

    fn is_quiet(&mut self) -> bool {
        true
    }

    fn is_idle(&self) -> bool {
        self.hub.lock().unwrap().waiting_for(self.me) == 0
    }

    fn expect(&mut self, expects: bool) {
        self.expects = expects;
    }

    fn set_cookie(&mut self, _: u64) {}

    fn release(&mut self) {}
}
