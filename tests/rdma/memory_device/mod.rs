//! An in-memory device with fault injection. It keeps the guarantees of a reliable connection
//! (InfiniBand Architecture Specification, volume 1, 9.5 and 10.8.3) and no others:
//! - Requests of a queue pair are started and completed in order, each as late as the device likes.
//! - A read or atomic may be executed late: writes and messages behind it take effect earlier, and
//!   so do atomics behind a read. A request with the fence flag is started when the reads and
//!   atomics before it have ended. A read is fetched in pieces. Its bytes, and the old value of an
//!   atomic, arrive later still.
//! - An atomic reads its word and writes it later. In between, other atomics of the same device
//!   wait, but the processors do not, unless the device says that its atomics are atomic with them.
//! - A write may complete before it is visible. Its bytes become visible in pieces, in any order,
//!   before a later read, atomic or message of the same queue pair is executed, but not before a
//!   later write. Aligned words of 8 bytes stay whole. The specification does not say so, but
//!   devices write them so, and the library's signals depend on it.
//! - A queue pair that fails completes each request.
//! - A disconnect may be delivered before it is acknowledged. A receiver that destroys its queue
//!   pair in between does not acknowledge it.
//!
//! `MPIX_TEST_DEVICE_SEED` seeds all devices of a test run. A test that fails prints it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use mpix_rma::transport::rdma::device::*;

mod queue_pair;

use queue_pair::{Pair, Request, Stage};

/// The disconnect.
const DISCONNECT: Opcode = Opcode::SendImm(u32::MAX);
/// Statuses: the local memory, or the peer's, is not registered.
const LOCAL_PROTECTION: u32 = 4;
const REMOTE_ACCESS: u32 = 10;
/// Status: no response.
const NO_ANSWER: u32 = 12;
/// Status of requests behind a failed one.
const FLUSHED: u32 = 5;
/// Runs for which an unacknowledged request is retried.
const RETRY_RUNS: u32 = 5000;
/// Reads and atomics that a port serves concurrently on one queue pair.
const DEPTH: u8 = 4;

/// One device.
#[derive(Debug)]
struct End {
    atomics: AtomicCapability,
    receives: VecDeque<(u32, usize, u32)>,
    completions: VecDeque<Completion>,
}

/// The network between devices.
#[derive(Debug)]
pub struct SimulatedNetwork {
    seed: u64,
    rng: fastrand::Rng,
    ends: Vec<End>,
    pairs: HashMap<u32, Pair>,
    memory: Registrations,
    /// Registrations whose pages were replaced.
    gone: HashSet<u32>,
    /// Bytes of the longest registration that can be locked.
    pub room: usize,
    /// Registrations with on-demand paging, if the device has it.
    pub paged: Option<u32>,
    next: u32,
    /// Queue pairs of one device.
    pub most_queues: usize,
    /// The fence flag works.
    pub fences: bool,
    /// Entries of a completion queue.
    pub completions: u32,
    /// A process whose device serves nobody for the time being.
    pub stalled: Option<usize>,
    /// Requests are refused.
    pub refuses: bool,
    /// Most runs from the delivery of a disconnect to its acknowledgement.
    pub ack_within: u32,
    /// Disconnects that were not acknowledged, since the receiver had destroyed its queue pair.
    pub unacknowledged: u32,
    /// Events that devices have not reported yet, by process.
    events: Vec<(usize, DeviceEvent)>,
}

impl SimulatedNetwork {
    /// A network for a test that has a seed of its own.
    pub fn new(of_test: u64) -> Arc<Mutex<SimulatedNetwork>> {
        let given = std::env::var("MPIX_TEST_DEVICE_SEED").ok();
        let seed: u64 = given.map_or(0, |text| text.parse().expect("a seed is a number"));
        Arc::new(Mutex::new(SimulatedNetwork {
            seed,
            rng: fastrand::Rng::with_seed(seed.wrapping_mul(1 << 32).wrapping_add(of_test)),
            ends: Vec::new(),
            pairs: HashMap::new(),
            memory: HashMap::new(),
            gone: HashSet::new(),
            room: usize::MAX,
            paged: None,
            next: 100,
            most_queues: usize::MAX,
            fences: true,
            completions: 256,
            stalled: None,
            refuses: false,
            ack_within: 8,
            unacknowledged: 0,
            events: Vec::new(),
        }))
    }

    /// Has the device of a process report an event.
    pub fn report(&mut self, process: usize, event: DeviceEvent) {
        self.events.push((process, event));
    }

    /// The queue pairs of a process.
    pub fn queue_pairs(&self, process: usize) -> Vec<Qp> {
        self.pairs.values().filter(|pair| pair.nic == process).map(|pair| pair.queue).collect()
    }

    /// Makes memory unreachable for peers.
    pub fn make_unreachable(&mut self, at: usize) {
        self.memory
            .values_mut()
            .filter(|(from, end)| (*from..*end).contains(&at))
            .for_each(|range| *range = (0, 0));
    }

    /// Number of registrations.
    pub fn registered(&self) -> usize {
        self.memory.len()
    }

    /// Other pages are mapped there now; registrations still reach the old ones.
    pub fn replace_pages(&mut self, at: usize, len: usize) {
        let gone = self
            .memory
            .iter()
            .filter(|(_, (from, end))| *from < at + len && *end > at)
            .map(|(key, _)| *key);
        self.gone.extend(gone);
    }

    /// Kills the process with the given device number.
    pub fn kill(&mut self, process: usize) {
        self.pairs.retain(|_, pair| pair.nic != process);
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn reaches(&self, key: u32, at: usize, len: usize) -> bool {
        reaches(&self.memory, key, at, len)
    }

    /// Does one thing on a queue pair, if there is one that may be done now.
    fn step(&mut self, number: u32) -> bool {
        let pair = &self.pairs[&number];
        if pair.requests.is_empty() {
            return false;
        }
        let to = pair.to.expect("posted to a connected queue pair");
        let Some(far) = self.pairs.get(&to).map(|other| other.nic) else {
            while self.complete(number) {}
            return self.pairs[&number].requests.is_empty() || self.failed(number, NO_ANSWER);
        };
        let first = self.rng.u8(0..4);
        (first..first + 4).any(|action| match action % 4 {
            0 => self.complete(number),
            1 => self.answer(number),
            _ if self.stalled == Some(far) => false,
            2 => self.execute(number, far),
            _ => self.start(number, to),
        })
    }

    /// Starts the next request. Writes and messages take effect.
    fn start(&mut self, number: u32, to: u32) -> bool {
        let pair = &self.pairs[&number];
        let Some(at) = pair.next_to_start(DEPTH.into()) else { return false };
        let (far, far_queue) = (self.pairs[&to].nic, self.pairs[&to].queue);
        let Request { work, parts, inline, .. } = &pair.requests[at];
        let (work, remote, len) = (*work, work.remote as usize, pair.requests[at].remote_len());
        // Receiver not ready: the request is retried.
        if pair.requests[at].is_message() && self.ends[far].receives.is_empty() {
            return false;
        }
        let refused = if len > 0 && !self.reaches(work.rkey, remote, len) {
            Some(REMOTE_ACCESS)
        } else if !work.inline
            && !parts
                .iter()
                .all(|part| part.len == 0 || self.reaches(work.lkey, part.addr, part.len as usize))
        {
            Some(LOCAL_PROTECTION)
        } else {
            None
        };
        let gone = self.gone.contains(&work.lkey) && !work.inline;
        let bytes = match (work.opcode, inline) {
            _ if refused.is_some() => Vec::new(),
            (Opcode::Write | Opcode::WriteImm(_) | Opcode::SendImm(_), Some(bytes)) => {
                bytes.clone()
            }
            (Opcode::Write | Opcode::WriteImm(_) | Opcode::SendImm(_), None) if gone => {
                vec![0xee; work.len as usize]
            }
            (Opcode::Write | Opcode::WriteImm(_) | Opcode::SendImm(_), None) => {
                parts.iter().flat_map(|part| bytes_at(part.addr, part.len as usize)).collect()
            }
            _ => Vec::new(),
        };
        let SimulatedNetwork { pairs, memory, rng, .. } = self;
        let pair = pairs.get_mut(&number).unwrap();
        match (refused, work.opcode) {
            (Some(code), _) => {
                pair.requests[at].stage = Stage::Refused(code);
                return true;
            }
            (_, Opcode::Write) if rng.bool() => pair.hide(&work, &bytes, rng),
            (_, Opcode::Write) => write_bytes(remote, &bytes),
            (_, Opcode::WriteImm(_) | Opcode::SendImm(_)) => {
                pair.show_before(work.id, |key, at, len| reaches(memory, key, at, len));
                if matches!(work.opcode, Opcode::WriteImm(_)) {
                    write_bytes(remote, &bytes);
                }
            }
            (_, Opcode::Read | Opcode::FetchAdd(_) | Opcode::CompareSwap { .. }) => {
                pair.arrive(at, rng);
                return true;
            }
        }
        pair.finish(at);
        if let Opcode::SendImm(imm) | Opcode::WriteImm(imm) = work.opcode {
            self.deliver((far, far_queue), &work, imm, &bytes);
        }
        if work.opcode == DISCONNECT {
            let runs = self.rng.u32(0..=self.ack_within);
            let pair = self.pairs.get_mut(&number).unwrap();
            pair.requests.pop_back();
            pair.unacknowledged = Some((work.id, runs));
        }
        true
    }

    /// Hands a message to the peer's process.
    fn deliver(&mut self, (far, qp): (usize, Qp), work: &WorkRequest, imm: u32, bytes: &[u8]) {
        let from_write = matches!(work.opcode, Opcode::WriteImm(_));
        let (receive, at, room) = self.ends[far].receives.pop_front().unwrap();
        if !from_write {
            assert!(bytes.len() <= room as usize);
            write_bytes(at, bytes);
        }
        let len = work.len;
        let received = Completion::Received { qp, receive, len, imm, from_write };
        self.ends[far].completions.push_back(received);
    }

    /// Whether another queue pair is in the middle of an atomic at device `far`.
    fn is_in_atomic(&self, far: usize, number: u32) -> bool {
        let nic_of = |to: Option<u32>| to.and_then(|to| Some(self.pairs.get(&to)?.nic));
        self.pairs.iter().any(|(other, pair)| {
            *other != number && pair.half_done().is_some() && nic_of(pair.to) == Some(far)
        })
    }

    /// Executes one of the reads and atomics that have arrived, or part of a read.
    fn execute(&mut self, number: u32, far: usize) -> bool {
        let found = self.pairs[&number].executable();
        let Some(at) = self.rng.choice(found) else { return false };
        if self.pairs[&number].requests[at].is_atomic() && self.is_in_atomic(far, number) {
            return false;
        }
        let work = self.pairs[&number].requests[at].work;
        let len = self.pairs[&number].requests[at].remote_len();
        let refused = len > 0 && !self.reaches(work.rkey, work.remote as usize, len);
        let SimulatedNetwork { pairs, memory, rng, ends, .. } = self;
        let pair = pairs.get_mut(&number).unwrap();
        if refused {
            pair.requests[at].stage = Stage::Refused(REMOTE_ACCESS);
            return true;
        }
        pair.show_before(work.id, |key, at, len| reaches(memory, key, at, len));
        pair.execute(at, ends[far].atomics == AtomicCapability::Global, rng);
        true
    }

    /// Stores one of the responses that have arrived.
    fn answer(&mut self, number: u32) -> bool {
        let found = self.pairs[&number].answered();
        let Some(at) = self.rng.choice(found) else { return false };
        let Request { work, parts, .. } = &self.pairs[&number].requests[at];
        let (lkey, parts) = (work.lkey, parts.clone());
        let is_there =
            |part: &LocalSegment| self.reaches(lkey, part.addr, part.len as usize) || part.len == 0;
        let (is_there, gone) = (parts.iter().all(is_there), self.gone.contains(&lkey));
        let pair = self.pairs.get_mut(&number).unwrap();
        if !is_there {
            pair.requests[at].stage = Stage::Refused(LOCAL_PROTECTION);
            return true;
        }
        let response = pair.finish(at);
        let mut rest = &response[..];
        for part in parts.iter().filter(|_| !gone) {
            let (bytes, behind) = rest.split_at(part.len as usize);
            write_bytes(part.addr, bytes);
            rest = behind;
        }
        true
    }

    /// Completes the oldest request, if it has ended.
    fn complete(&mut self, number: u32) -> bool {
        let pair = self.pairs.get_mut(&number).unwrap();
        let (nic, queue) = (pair.nic, pair.queue);
        match pair.pop_ended() {
            None => false,
            Some(Err(code)) => self.failed(number, code),
            Some(Ok(work)) => {
                if work.signalled {
                    self.ends[nic].completions.push_back(Completion::Success(queue, work.id));
                }
                true
            }
        }
    }

    fn failed(&mut self, number: u32, code: u32) -> bool {
        let pair = self.pairs.get_mut(&number).unwrap();
        pair.failed = true;
        let (queue, nic) = (pair.queue, pair.nic);
        let failed =
            std::mem::take(&mut pair.requests).into_iter().enumerate().map(|(at, request)| {
                let code = if at == 0 { code } else { FLUSHED };
                Completion::Error(queue, request.work.id, code)
            });
        self.ends[nic].completions.extend(failed);
        true
    }

    /// Acknowledges a disconnect, if its receiver is there to do so.
    fn acknowledge(&mut self, number: u32) {
        let pair = &self.pairs[&number];
        let (Some((asked, runs)), nic, queue) = (pair.unacknowledged, pair.nic, pair.queue) else {
            return;
        };
        let is_there = pair.to.is_some_and(|to| self.pairs.contains_key(&to));
        let next = match (is_there, runs) {
            (true, 0) => {
                self.ends[nic].completions.push_back(Completion::Success(queue, asked));
                None
            }
            (true, _) => Some((asked, runs - 1)),
            (false, RETRY_RUNS..) => {
                self.unacknowledged += 1;
                self.ends[nic].completions.push_back(Completion::Error(queue, asked, NO_ANSWER));
                None
            }
            (false, _) => Some((asked, runs + 1)),
        };
        self.pairs.get_mut(&number).unwrap().unacknowledged = next;
    }

    fn run(&mut self) {
        let mut numbers: Vec<u32> = self.pairs.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            while self.rng.u8(0..8) > 0 && self.step(number) {}
            self.acknowledge(number);
            let SimulatedNetwork { pairs, memory, rng, .. } = self;
            let pair = pairs.get_mut(&number).unwrap();
            pair.age();
            pair.show_some(rng, |key, at, len| reaches(memory, key, at, len));
        }
    }
}

impl Drop for SimulatedNetwork {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let test = std::thread::current().name().unwrap_or("").to_owned();
            let binary = env!("CARGO_CRATE_NAME");
            eprintln!(
                "in-memory device: to replay, MPIX_TEST_DEVICE_SEED={} cargo test --test {binary} \
                 {test}",
                self.seed
            );
        }
    }
}

type Registrations = HashMap<u32, (usize, usize)>;

fn reaches(memory: &Registrations, key: u32, at: usize, len: usize) -> bool {
    memory.get(&key).is_some_and(|(from, end)| at >= *from && at + len <= *end)
}

fn bytes_at(at: usize, len: usize) -> Vec<u8> {
    if len == 0 {
        return Vec::new();
    }
    unsafe { std::slice::from_raw_parts(at as *const u8, len) }.to_vec()
}

fn write_bytes(at: usize, bytes: &[u8]) {
    if !bytes.is_empty() {
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
    }
}

/// The adapter of a process.
#[derive(Clone, Copy, Debug)]
pub struct Adapter {
    /// On InfiniBand rather than Ethernet.
    pub infiniband: bool,
    pub atomics: AtomicCapability,
    /// Partition key, if on InfiniBand.
    pub partition: u16,
}

impl Adapter {
    /// An adapter on Ethernet.
    pub const fn with(atomics: AtomicCapability) -> Self {
        Adapter { infiniband: false, atomics, partition: 0xffff }
    }
}

/// The device of one process.
#[derive(Debug)]
pub struct MemoryDevice {
    net: Arc<Mutex<SimulatedNetwork>>,
    me: usize,
    queues: HashMap<Qp, u32>,
    fences: bool,
    completions: u32,
    adapter: Adapter,
    /// Why the device has failed.
    failed: Option<String>,
}

impl MemoryDevice {
    pub fn new(net: &Arc<Mutex<SimulatedNetwork>>, adapter: Adapter) -> Self {
        let mut held = net.lock().unwrap();
        held.ends.push(End {
            atomics: adapter.atomics,
            receives: VecDeque::new(),
            completions: VecDeque::new(),
        });
        let (me, fences, completions) = (held.ends.len() - 1, held.fences, held.completions);
        drop(held);
        let (net, queues) = (Arc::clone(net), HashMap::new());
        MemoryDevice { net, me, queues, fences, completions, adapter, failed: None }
    }

    fn net(&self) -> MutexGuard<'_, SimulatedNetwork> {
        self.net.lock().unwrap()
    }
}

impl Device for MemoryDevice {
    fn limits(&self) -> DeviceLimits {
        DeviceLimits {
            send_depth: 32,
            cq_depth: self.completions,
            max_inline: 64,
            max_message: 1 << 16,
            receive_depth: 16,
            max_qps: 1000,
            max_sge: [4, 3],
            atomics: self.adapter.atomics,
            fences: self.fences,
        }
    }

    fn address(&self) -> PortAddress {
        let Adapter { infiniband, partition, .. } = self.adapter;
        let (lid, partition) = if infiniband { (self.me as u16 + 1, partition) } else { (0, 0) };
        PortAddress { lid, mtu: 5, depth: DEPTH, gid: [0; 16], partition }
    }

    fn name(&self) -> String {
        "memory".into()
    }

    unsafe fn register(
        &mut self,
        at: usize,
        len: usize,
        on_demand: bool,
    ) -> Result<MemoryRegion, RegistrationError> {
        let mut net = self.net();
        if on_demand && net.paged.is_none() {
            return Err(RegistrationError::NoOnDemandPaging);
        }
        if !on_demand && len > net.room {
            return Err(RegistrationError::OutOfMemory(len));
        }
        let key = net.number();
        net.memory.insert(key, (at, at + len));
        net.paged.iter_mut().for_each(|paged| *paged += u32::from(on_demand));
        Ok(MemoryRegion { id: key.into(), lkey: key, rkey: key })
    }

    fn unregister(&mut self, id: u64) {
        assert!(self.net().memory.remove(&(id as u32)).is_some(), "unregistered twice");
    }

    fn create_qp(&mut self) -> Result<(Qp, u32), DeviceError> {
        if let Some(reason) = &self.failed {
            return Err(DeviceError::Failed(reason.clone()));
        }
        let me = self.me;
        let mut net = self.net();
        if self.queues.len() >= net.most_queues {
            return Err(DeviceError::System { call: "create_qp", errno: libc::ENOMEM });
        }
        let number = net.number();
        let queue = (1..).map(Qp).find(|queue| !self.queues.contains_key(queue)).expect("a handle");
        net.pairs.insert(number, Pair::new(me, queue));
        drop(net);
        self.queues.insert(queue, number);
        Ok((queue, number))
    }

    fn connect_qp(&mut self, queue: Qp, number: u32, _: &PortAddress) -> Result<(), DeviceError> {
        let mine = self.queues[&queue];
        let mut net = self.net();
        let pair = net.pairs.get_mut(&mine).unwrap();
        assert_eq!(pair.to.replace(number), None, "connected twice");
        Ok(())
    }

    fn destroy_qp(&mut self, queue: Qp, drained: bool, _: &mut VecDeque<Completion>) {
        let number = self.queues.remove(&queue).expect("an open queue pair");
        let pair = self.net().pairs.remove(&number);
        // A killed process has none.
        let is_idle = pair.is_none_or(|pair| {
            pair.requests.is_empty() && pair.unacknowledged.is_none() && !pair.failed
        });
        assert!(is_idle || !drained, "something is under way");
    }

    unsafe fn post_send(
        &mut self,
        queue: Qp,
        work: &WorkRequest,
        parts: &[LocalSegment],
    ) -> Result<(), DeviceError> {
        let number = self.queues[&queue];
        let mut net = self.net();
        let refuses = net.refuses;
        let pair = net.pairs.get_mut(&number).unwrap();
        assert!(pair.requests.len() < 32, "the send queue overflows");
        assert!(self.fences || !work.fence, "the fence flag does not work");
        let is_atomic = matches!(work.opcode, Opcode::FetchAdd(_) | Opcode::CompareSwap { .. });
        assert!(
            !is_atomic || self.adapter.atomics != AtomicCapability::None,
            "there are no atomics"
        );
        if refuses {
            return Err(DeviceError::System { call: "post_send", errno: libc::EINVAL });
        }
        if pair.failed {
            return Ok(());
        }
        // A disconnect is posted alone: once the peer has it and destroys its queue pair,
        // unacknowledged requests are lost.
        assert!(
            work.opcode != DISCONNECT || pair.requests.is_empty(),
            "the disconnect is not alone"
        );
        assert!(!work.inline || work.len <= 64);
        let bytes = work.inline.then(|| bytes_at(work.local, work.len as usize));
        let most = self.limits().max_sge[usize::from(work.opcode == Opcode::Read)] as usize;
        assert!(parts.len() <= most && (parts.is_empty() || !work.inline));
        let one = [LocalSegment { addr: work.local, len: work.len }];
        let parts = if parts.is_empty() { &one } else { parts };
        assert_eq!(parts.iter().map(|part| part.len).sum::<u32>(), work.len);
        let (work, parts) = (*work, parts.to_vec());
        pair.requests.push_back(Request { work, parts, inline: bytes, stage: Stage::Posted });
        Ok(())
    }

    unsafe fn post_receive(
        &mut self,
        receive: u32,
        at: usize,
        len: u32,
        _: u32,
    ) -> Result<(), DeviceError> {
        let me = self.me;
        self.net().ends[me].receives.push_back((receive, at, len));
        Ok(())
    }

    fn poll(&mut self, into: &mut VecDeque<Completion>) -> bool {
        let me = self.me;
        let mut net = self.net();
        for one in net.pairs.values_mut().filter(|pair| pair.nic == me) {
            one.post_kept();
        }
        net.run();
        let some = net.ends[me].completions.len().min(8);
        into.extend(net.ends[me].completions.drain(..some));
        assert!(
            net.ends[me].completions.len() <= self.completions as usize,
            "completions overflow"
        );
        !net.ends[me].completions.is_empty()
    }

    fn next_event(&mut self) -> Option<DeviceEvent> {
        let me = self.me;
        let mut net = self.net();
        let first = net.events.iter().position(|(process, _)| *process == me)?;
        let (_, event) = net.events.remove(first);
        drop(net);
        if let DeviceEvent::DeviceFailed(reason) = &event {
            self.failed = Some(reason.clone());
        }
        Some(event)
    }

    fn status_text(&self, code: u32) -> String {
        format!("code {code}")
    }
}
