//! An in-memory device with fault injection. It keeps the guarantees of a reliable connection and
//! no others:
//! - Requests of a queue pair are executed in order, each as late as the device likes.
//! - A write may complete before it is visible. It is visible before a later read, atomic or
//!   message of the same queue pair, but not before a later write.
//! - A queue pair that fails completes each request.
//! - A disconnect may be delivered before it is acknowledged. A receiver that destroys its queue
//!   pair in between does not acknowledge it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use mpix_rma::transport::rdma::device::*;

/// A queue pair.
#[derive(Debug)]
struct Pair {
    nic: usize,
    queue: Qp,
    to: Option<u32>,
    work: VecDeque<(WorkRequest, Vec<LocalSegment>, Option<Vec<u8>>)>,
    /// Completed writes that are not visible yet: keys, addresses, bytes.
    hidden: Vec<(u32, usize, Vec<u8>)>,
    /// The disconnect, if delivered but not acknowledged: its number, and in how many runs it will
    /// be. Once the receiver has destroyed its queue pair, this counts up to the end of all
    /// retries.
    unacknowledged: Option<(u64, u32)>,
    failed: bool,
}

/// The disconnect.
const DISCONNECT: Opcode = Opcode::SendImm(u32::MAX);
/// Status: no response.
const NO_ANSWER: u32 = 12;
/// Status of requests behind a failed one.
const FLUSHED: u32 = 5;
/// Runs for which an unacknowledged request is retried.
const RETRY_RUNS: u32 = 5000;

/// One device.
#[derive(Debug, Default)]
struct End {
    receives: VecDeque<(u32, usize, u32)>,
    completions: VecDeque<Completion>,
    queues: u32,
}

/// The network between devices.
#[derive(Debug)]
pub struct SimulatedNetwork {
    rng: fastrand::Rng,
    ends: Vec<End>,
    pairs: HashMap<u32, Pair>,
    memory: HashMap<u32, (usize, usize)>,
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
}

impl SimulatedNetwork {
    pub fn new(seed: u64) -> Arc<Mutex<SimulatedNetwork>> {
        Arc::new(Mutex::new(SimulatedNetwork {
            rng: fastrand::Rng::with_seed(seed),
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
        }))
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
        self.memory.get(&key).is_some_and(|(from, end)| at >= *from && at + len <= *end)
    }

    /// Executes the next request of a queue pair. False if there is none that can be executed now.
    fn step(&mut self, number: u32) -> bool {
        let pair = self.pairs.get_mut(&number).unwrap();
        let (nic, queue) = (pair.nic, pair.queue);
        let Some((work, _, _)) = pair.work.front() else { return false };
        let (work, to) = (*work, pair.to.expect("posted to a connected queue pair"));
        let other = self.pairs.get(&to).map(|other| (other.nic, other.queue));
        let Some((far, far_queue)) = other else { return self.failed(number, NO_ANSWER) };
        if self.stalled == Some(far) {
            return false;
        }
        let tells = matches!(work.opcode, Opcode::SendImm(_) | Opcode::WriteImm(_));
        // Receiver not ready: the request is retried.
        if tells && self.ends[far].receives.is_empty() {
            return false;
        }
        let len = work.len as usize;
        let reached = if matches!(work.opcode, Opcode::FetchAdd(_) | Opcode::CompareSwap { .. }) {
            8
        } else {
            len
        };
        let remote = work.remote as usize;
        if reached > 0
            && !matches!(work.opcode, Opcode::SendImm(_))
            && !self.reaches(work.rkey, remote, reached)
        {
            return self.failed(number, 10);
        }
        let (_, parts, _) = self.pairs[&number].work.front().unwrap();
        if len > 0
            && !work.inline
            && !parts.iter().all(|part| self.reaches(work.lkey, part.addr, part.len as usize))
        {
            return self.failed(number, 4);
        }
        let pair = self.pairs.get_mut(&number).unwrap();
        let (_, parts, inline) = pair.work.pop_front().unwrap();
        let gone = self.gone.contains(&work.lkey) && !work.inline;
        let read = |at: usize, len: usize| if gone { vec![0xee; len] } else { bytes_at(at, len) };
        let write = |at: usize, bytes: &[u8]| unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len());
        };
        let bytes = match work.opcode {
            Opcode::Write | Opcode::WriteImm(_) | Opcode::SendImm(_) => {
                inline.unwrap_or_else(|| {
                    parts.iter().flat_map(|part| read(part.addr, part.len as usize)).collect()
                })
            }
            _ => Vec::new(),
        };
        if work.opcode == Opcode::Write && self.rng.bool() {
            // Complete, but not visible.
            pair.hidden.push((work.rkey, remote, bytes.clone()));
        } else {
            if work.opcode != Opcode::Write {
                for (_, at, hidden) in std::mem::take(&mut pair.hidden) {
                    write(at, &hidden);
                }
            }
            match work.opcode {
                Opcode::Write | Opcode::WriteImm(_) => write(remote, &bytes),
                Opcode::Read if gone => {}
                Opcode::Read => {
                    let (bytes, mut at) = (bytes_at(remote, len), 0);
                    for part in parts {
                        write(part.addr, &bytes[at..at + part.len as usize]);
                        at += part.len as usize;
                    }
                }
                Opcode::SendImm(_) => {}
                Opcode::FetchAdd(_) | Opcode::CompareSwap { .. } => {
                    assert_eq!(remote % 8, 0);
                    let word = remote as *mut u64;
                    let old = unsafe { word.read() };
                    match work.opcode {
                        Opcode::FetchAdd(delta) => unsafe { word.write(old.wrapping_add(delta)) },
                        Opcode::CompareSwap { expected, new } if expected == old => unsafe {
                            word.write(new)
                        },
                        _ => {}
                    }
                    write(work.local, &old.to_ne_bytes());
                }
            }
        }
        if let Opcode::SendImm(number) | Opcode::WriteImm(number) = work.opcode {
            let from_write = !matches!(work.opcode, Opcode::SendImm(_));
            let (receive, at, room) = self.ends[far].receives.pop_front().unwrap();
            if !from_write {
                assert!(bytes.len() <= room as usize);
                write(at, &bytes);
            }
            let received = Completion::Received {
                qp: far_queue,
                receive,
                len: len as u32,
                imm: number,
                from_write,
            };
            self.ends[far].completions.push_back(received);
        }
        if work.opcode == DISCONNECT {
            let runs = self.rng.u32(0..=self.ack_within);
            self.pairs.get_mut(&number).unwrap().unacknowledged = Some((work.id, runs));
        } else if work.signalled {
            self.ends[nic].completions.push_back(Completion::Success(queue, work.id));
        }
        true
    }

    fn failed(&mut self, number: u32, code: u32) -> bool {
        let pair = self.pairs.get_mut(&number).unwrap();
        pair.failed = true;
        let (queue, nic) = (pair.queue, pair.nic);
        let failed =
            std::mem::take(&mut pair.work).into_iter().enumerate().map(|(at, (work, _, _))| {
                let code = if at == 0 { code } else { FLUSHED };
                Completion::Error(queue, work.id, code)
            });
        self.ends[nic].completions.extend(failed);
        true
    }

    /// Acknowledges a disconnect, if its receiver is there to do so.
    fn answer(&mut self, number: u32) {
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
            while self.rng.u8(0..4) > 0 && self.step(number) {}
            self.answer(number);
            self.show(number);
        }
    }

    /// Makes one of the hidden writes visible, any of them, or none.
    fn show(&mut self, number: u32) {
        let hidden = &mut self.pairs.get_mut(&number).unwrap().hidden;
        if hidden.is_empty() || self.rng.bool() {
            return;
        }
        let (key, at, bytes) = hidden.swap_remove(self.rng.usize(..hidden.len()));
        // Not if the memory was deregistered: nothing is written after that.
        if self.reaches(key, at, bytes.len()) {
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
        }
    }
}

fn bytes_at(at: usize, len: usize) -> Vec<u8> {
    if len == 0 {
        return Vec::new();
    }
    unsafe { std::slice::from_raw_parts(at as *const u8, len) }.to_vec()
}

/// The device of one process.
#[derive(Debug)]
pub struct MemoryDevice {
    net: Arc<Mutex<SimulatedNetwork>>,
    me: usize,
    queues: HashMap<Qp, u32>,
    fences: bool,
    completions: u32,
}

impl MemoryDevice {
    pub fn new(net: &Arc<Mutex<SimulatedNetwork>>) -> Self {
        let mut held = net.lock().unwrap();
        held.ends.push(End::default());
        let (me, fences, completions) = (held.ends.len() - 1, held.fences, held.completions);
        drop(held);
        MemoryDevice { net: Arc::clone(net), me, queues: HashMap::new(), fences, completions }
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
            atomics: AtomicCapability::Hca,
            fences: self.fences,
        }
    }

    fn address(&self) -> PortAddress {
        PortAddress { lid: self.me as u16, mtu: 5, depth: 4, gid: [0; 16] }
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
        let me = self.me;
        let mut net = self.net();
        if self.queues.len() >= net.most_queues {
            return Err(DeviceError::System { call: "create_qp", errno: libc::ENOMEM });
        }
        let number = net.number();
        net.ends[me].queues += 1;
        let queue = Qp(net.ends[me].queues);
        let pair = Pair {
            nic: me,
            queue,
            to: None,
            work: VecDeque::new(),
            hidden: Vec::new(),
            unacknowledged: None,
            failed: false,
        };
        net.pairs.insert(number, pair);
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
            pair.work.is_empty() && pair.unacknowledged.is_none() && !pair.failed
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
        assert!(pair.work.len() < 32, "the send queue overflows");
        assert!(self.fences || !work.fence, "the fence flag does not work");
        if refuses {
            return Err(DeviceError::System { call: "post_send", errno: libc::EINVAL });
        }
        if pair.failed {
            return Ok(());
        }
        // A disconnect is posted alone: once the peer has it and destroys its queue pair,
        // unacknowledged requests are lost.
        assert!(work.opcode != DISCONNECT || pair.work.is_empty(), "the disconnect is not alone");
        assert!(!work.inline || work.len <= 64);
        let bytes = work.inline.then(|| bytes_at(work.local, work.len as usize));
        let most = self.limits().max_sge[usize::from(work.opcode == Opcode::Read)] as usize;
        assert!(parts.len() <= most && (parts.is_empty() || !work.inline));
        let one = [LocalSegment { addr: work.local, len: work.len }];
        let parts = if parts.is_empty() { &one } else { parts };
        assert_eq!(parts.iter().map(|part| part.len).sum::<u32>(), work.len);
        pair.work.push_back((*work, parts.to_vec(), bytes));
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
        net.run();
        let some = net.ends[me].completions.len().min(8);
        into.extend(net.ends[me].completions.drain(..some));
        assert!(
            net.ends[me].completions.len() <= self.completions as usize,
            "completions overflow"
        );
        !net.ends[me].completions.is_empty()
    }

    fn status_text(&self, code: u32) -> String {
        format!("code {code}")
    }
}
