//! The host's messages, in memory: carriers of the processes of one thread. Messages are delivered
//! with delays, and in any order that MPI allows.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};

use mpix_rma::engine::{Addr, Rank};
use mpix_rma::transport::am::carrier::{Carrier, Event, PortNumber, Process};
use mpix_rma::transport::am::channel::{TransferId, TransferTag};
use mpix_rma::transport::am::context::{Context, SharedContext};
use mpix_rma::transport::am::window_channel::PeerAddress;
use mpix_rma::transport::am::wire::{Content, ENVELOPE, Packet};
use mpix_rma::transport::guarded::Guarded;

/// The lock of contexts that one thread uses, which needs none.
pub static LOCKED: AtomicBool = AtomicBool::new(true);

type Pair = (Process, Process);

/// One end of a rendezvous transfer.
#[derive(Debug)]
struct End {
    owner: (PortNumber, TransferId),
    memory: usize,
    len: usize,
    /// The data, if the host has copied them.
    #[allow(dead_code, reason = "`memory` points there")]
    copied: Option<Vec<u8>>,
}

/// Everything in flight between the processes.
#[derive(Debug)]
pub struct Hub {
    rng: fastrand::Rng,
    /// Probability that a delivery is delayed, in eighths.
    pub delay: u8,
    /// Probability that a carrier is busy, in sixteenths.
    pub busy: u8,
    packets: HashMap<Pair, VecDeque<Vec<u8>>>,
    transfers: HashMap<(Pair, TransferTag), (VecDeque<End>, VecDeque<End>)>,
    /// Matched transfers by receiver, with the sender.
    moving: HashMap<Process, VecDeque<(Process, End, End)>>,
    /// Sends and transfers whose end a process has not heard of.
    ended: HashMap<Process, VecDeque<Event>>,
    pub ranks: u32,
    /// The seed of this test's delays.
    #[allow(dead_code, reason = "only tests with RDMA use it")]
    pub seed: u64,
    /// Number of packets of windows sent, without their agreements.
    pub sent: u64,
    /// Number of messages sent. One may carry packets of several windows.
    #[allow(dead_code, reason = "only tests of contexts use it")]
    pub messages: u64,
    /// The host copies what a transfer sends, so its sender is done at once.
    pub copies: bool,
    /// Modifies packets before delivery.
    pub tamper: Option<fn(Rank, &mut Vec<u8>)>,
    /// The contexts of the processes, once there is a window.
    contexts: Vec<SharedContext>,
    /// Ports of the window opened last.
    ports: Vec<PeerAddress>,
    /// State that the processes share beside the hub: in-memory devices and their network.
    #[allow(dead_code, reason = "only tests with RDMA use it")]
    pub beside: Option<Box<dyn std::any::Any + Send>>,
}

impl Hub {
    pub fn new(ranks: u32, seed: u64) -> Arc<Mutex<Hub>> {
        Arc::new(Mutex::new(Hub {
            rng: fastrand::Rng::with_seed(seed),
            delay: 2,
            busy: 1,
            packets: HashMap::new(),
            transfers: HashMap::new(),
            moving: HashMap::new(),
            ended: HashMap::new(),
            ranks,
            seed,
            sent: 0,
            messages: 0,
            copies: false,
            tamper: None,
            contexts: Vec::new(),
            ports: Vec::new(),
            beside: None,
        }))
    }

    /// Queues a packet with any content. It is for the window that was opened last, if it is one.
    pub fn inject(&mut self, from: Rank, to: Rank, mut bytes: Vec<u8>) {
        if bytes.len() >= ENVELOPE {
            let mut packet = Packet { bytes };
            packet.address(self.ports[to as usize].port, from);
            bytes = packet.bytes;
        }
        self.deliver(from, to, bytes);
    }

    /// Queues a packet as it is.
    pub fn deliver(&mut self, from: Process, to: Process, bytes: Vec<u8>) {
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
            && self.moving.values().all(VecDeque::is_empty)
    }

    fn is_delayed(&mut self) -> bool {
        self.rng.u8(0..8) < self.delay
    }

    /// Matches sends with receives in order.
    fn match_transfers(&mut self, pair: Pair, tag: TransferTag) {
        let ends = self.transfers.entry((pair, tag)).or_default();
        while !ends.0.is_empty() && !ends.1.is_empty() {
            let (sent, wanted) = (ends.0.pop_front().unwrap(), ends.1.pop_front().unwrap());
            self.moving.entry(pair.1).or_default().push_back((pair.0, sent, wanted));
        }
    }

    /// Moves the data of the next matched transfer to process `to`, as late as that hears of it.
    fn move_data(&mut self, to: Process) -> Option<Event> {
        let (from, sent, wanted) = self.moving.get_mut(&to)?.pop_front()?;
        let fits = sent.len <= wanted.len;
        if sent.len > 0 && fits {
            // SAFETY: both ends stay valid until their owners have heard of the end, and the
            // receiver has room for `sent.len` bytes.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    sent.memory as *const u8,
                    wanted.memory as *mut u8,
                    sent.len,
                )
            };
        }
        if sent.copied.is_none() {
            let (port, id) = sent.owner;
            self.ended.entry(from).or_default().push_back(Event::Moved(port, id, sent.len));
        }
        let (port, id) = wanted.owner;
        Some(Event::Moved(port, id, if fits { sent.len } else { usize::MAX }))
    }
}

/// The contexts of the processes that a hub connects.
pub fn contexts(hub: &Arc<Mutex<Hub>>) -> Vec<SharedContext> {
    let mut held = hub.lock().unwrap();
    if held.contexts.is_empty() {
        let context = |me| {
            let carrier = HubCarrier { hub: Arc::downgrade(hub), me, has_started: false };
            // SAFETY: each test uses it in one thread.
            Arc::new(unsafe { Guarded::new(Context::new(Box::new(carrier), 7, me), &LOCKED) })
        };
        held.contexts = (0..held.ranks).map(context).collect();
    }
    held.contexts.clone()
}

/// Opens a port in each of these processes, which are to have a window together.
pub fn open_ports(
    hub: &Arc<Mutex<Hub>>,
    contexts: &[SharedContext],
    of: &[Process],
) -> Vec<PeerAddress> {
    let open = |process: &Process| {
        let port = contexts[*process as usize].borrow().open();
        PeerAddress { process: *process, port }
    };
    let ports: Vec<PeerAddress> = of.iter().map(open).collect();
    hub.lock().unwrap().ports.clone_from(&ports);
    ports
}

/// The carrier of one process.
#[derive(Debug)]
struct HubCarrier {
    hub: Weak<Mutex<Hub>>,
    me: Process,
    has_started: bool,
}

impl HubCarrier {
    fn hub(&self) -> Arc<Mutex<Hub>> {
        self.hub.upgrade().expect("windows keep their hub")
    }
}

impl Carrier for HubCarrier {
    fn start(&mut self) {
        self.has_started = true;
    }

    fn empty_packet(&mut self) -> Packet {
        Packet::new()
    }

    fn recycle(&mut self, _: Packet) {}

    fn is_sending(&self, _: PortNumber) -> bool {
        false
    }

    fn send(&mut self, _: PortNumber, to: Process, packet: Packet) {
        let hub = self.hub();
        let mut hub = hub.lock().unwrap();
        hub.sent += u64::from(packet.content() == Some(Content::Records));
        hub.messages += 1;
        let mut bytes = packet.bytes;
        if let Some(tamper) = hub.tamper {
            tamper(self.me, &mut bytes);
        }
        hub.deliver(self.me, to, bytes);
    }

    fn is_busy(&self) -> bool {
        let hub = self.hub();
        let mut hub = hub.lock().unwrap();
        hub.rng.u8(0..16) < hub.busy
    }

    unsafe fn send_data(
        &mut self,
        owner: (PortNumber, TransferId),
        to: Process,
        tag: TransferTag,
        from: Addr,
        len: usize,
    ) {
        let hub = self.hub();
        let (mut hub, pair) = (hub.lock().unwrap(), (self.me, to));
        let mut end = End { owner, memory: from.0, len, copied: None };
        if hub.copies {
            // SAFETY: the bytes are valid (contract of this function).
            let data = unsafe { std::slice::from_raw_parts(from.0 as *const u8, len) }.to_vec();
            end = End { memory: data.as_ptr() as usize, copied: Some(data), ..end };
            let done = Event::Moved(owner.0, owner.1, len);
            hub.ended.entry(self.me).or_default().push_back(done);
        }
        hub.transfers.entry((pair, tag)).or_default().0.push_back(end);
        hub.match_transfers(pair, tag);
    }

    unsafe fn receive_data(
        &mut self,
        owner: (PortNumber, TransferId),
        from: Process,
        tag: TransferTag,
        to: Addr,
        len: usize,
    ) {
        let hub = self.hub();
        let (mut hub, pair) = (hub.lock().unwrap(), (from, self.me));
        let end = End { owner, memory: to.0, len, copied: None };
        hub.transfers.entry((pair, tag)).or_default().1.push_back(end);
        hub.match_transfers(pair, tag);
    }

    fn cancel_receives(&mut self, port: PortNumber) {
        let hub = self.hub();
        let mut hub = hub.lock().unwrap();
        let (me, mut cancelled) = (self.me, Vec::new());
        for ((pair, _), ends) in &mut hub.transfers {
            if pair.1 == me {
                ends.1.retain(|end| {
                    let is_of_port = end.owner.0 == port;
                    if is_of_port {
                        cancelled.push(Event::Moved(port, end.owner.1, usize::MAX));
                    }
                    !is_of_port
                });
            }
        }
        hub.ended.entry(me).or_default().extend(cancelled);
    }

    fn poll(&mut self) {}

    fn next_event(&mut self) -> Option<Event> {
        let hub = self.hub();
        let mut held = hub.lock().unwrap();
        let hub = &mut *held;
        if hub.is_delayed() {
            return None;
        }
        if let Some(ended) = hub.ended.get_mut(&self.me).and_then(VecDeque::pop_front) {
            return Some(ended);
        }
        if hub.rng.bool()
            && let Some(moved) = hub.move_data(self.me)
        {
            return Some(moved);
        }
        if !self.has_started {
            return None;
        }
        let mut from: Vec<Process> = hub
            .packets
            .iter()
            .filter(|(pair, queue)| pair.1 == self.me && !queue.is_empty())
            .map(|(pair, _)| pair.0)
            .collect();
        from.sort_unstable();
        let Some(&from) = from.get(hub.rng.usize(0..from.len().max(1))) else {
            return hub.move_data(self.me);
        };
        let bytes = hub.packets.get_mut(&(from, self.me))?.pop_front()?;
        Some(Event::Arrived(from, Packet { bytes }))
    }

    fn close(&mut self) {}
}
