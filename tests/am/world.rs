//! Windows of several processes, polled in turn by one thread.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Barrier, Mutex};

use mpix_rma::engine::*;
use mpix_rma::transport::Proposal;
use mpix_rma::transport::am::context::SharedContext;
use mpix_rma::transport::am::window_channel::{PeerAddress, WindowChannel};
use mpix_rma::transport::am::wire::ElementOp;
use mpix_rma::transport::am::{Protocol, Settings};
use mpix_rma::transport::members::{Extents, Members};
use mpix_rma::transport::router::Router;
use mpix_rma::transport::shm::{self, Alone, Bootstrap, CounterStep, Memory, ShmWindow};

use crate::carry::{Poll, endpoint};
use crate::hub::{Hub, contexts, open_ports};

/// Polls of RDMA between two of the host, if no window waits for its messages: as in the runtime.
const POLLS_PER_HOST_POLL: u32 = 64;

/// A window under test, and the contexts of its process.
pub struct Far {
    _hub: Arc<Mutex<Hub>>,
    router: Router,
    context: SharedContext,
    rdma: Option<Poll>,
    polls: u32,
    looks: u32,
}

impl std::fmt::Debug for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.router.fmt(f)
    }
}

impl Deref for Far {
    type Target = Router;
    fn deref(&self) -> &Router {
        &self.router
    }
}

impl DerefMut for Far {
    fn deref_mut(&mut self) -> &mut Router {
        &mut self.router
    }
}

impl Far {
    /// The window of process `me`, which has rank `place` on its node.
    fn new(
        hub: &Arc<Mutex<Hub>>,
        (contexts, ports): &(Vec<SharedContext>, Vec<PeerAddress>),
        members: Members,
        (near, place): (ShmWindow, Rank),
        extents: &Extents,
    ) -> Self {
        let me = members.me();
        let context = Arc::clone(&contexts[me as usize]);
        let port = ports[me as usize].port;
        let channel = WindowChannel::new(Arc::clone(&context), port, me, ports.iter().copied());
        let (endpoint, rdma) = endpoint(hub, me, &near, place).unzip();
        let am = Protocol::new(settings());
        let router = Router::new(channel, endpoint, members, near, extents.clone(), am);
        Far { _hub: Arc::clone(hub), router, context, rdma, polls: 0, looks: 0 }
    }

    /// Polls the contexts of the process, then the window; at times only what the window needs if
    /// it has nothing else to do.
    pub fn poll(&mut self) -> bool {
        self.poll_contexts();
        self.looks += 1;
        match self.looks % 3 {
            0 if self.router.serve_packets() => true,
            1 if self.router.only_sends() => false,
            _ => self.router.poll(),
        }
    }

    /// Polls the contexts of the process.
    pub fn poll_contexts(&mut self) {
        let moved = self.rdma.as_mut().is_some_and(|poll| poll());
        self.polls += 1;
        let mut context = self.context.borrow();
        if self.polls >= POLLS_PER_HOST_POLL || (!moved && context.expects_messages()) {
            self.polls = 0;
            context.poll();
        }
    }

    pub fn release(self) {
        self.router.release();
    }
}

impl LockMemory for Far {
    fn atomic(&mut self, home: Rank, word: LockWord, access: Atomic, ticket: LockTicket) -> Answer {
        self.router.atomic(home, word, access, ticket)
    }
    fn look(&mut self, word: LockWord) -> u64 {
        self.router.look(word)
    }
}

impl Port for Far {
    fn signals_follow(&self, peer: Rank) -> bool {
        self.router.signals_follow(peer)
    }
    fn post(&mut self, op: &Op, ticket: Ticket) -> Posted {
        self.router.post(op, ticket)
    }
    fn order(&mut self, target: Rank) -> Result<(), NoResource> {
        self.router.order(target)
    }
    fn signal(&mut self, peer: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        self.router.signal(peer, word, value)
    }
    fn observe(&mut self, peer: Rank, word: Word) -> u64 {
        self.router.observe(peer, word)
    }
    fn counter(&mut self, index: u32) -> u64 {
        self.router.counter(index)
    }
    fn next_arrival(&mut self) -> Option<Arrival> {
        self.router.next_arrival()
    }
    fn poll(&mut self) -> bool {
        Far::poll(self)
    }
    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        self.router.next_finished()
    }
    fn next_failed(&mut self) -> Option<Ticket> {
        self.router.next_failed()
    }
    fn next_answer(&mut self) -> Option<(LockTicket, u64)> {
        self.router.next_answer()
    }
}

/// The contexts of a hub's processes, and the ports of a new window of all of them.
fn open(hub: &Arc<Mutex<Hub>>) -> (Vec<SharedContext>, Vec<PeerAddress>) {
    let contexts = contexts(hub);
    let all: Vec<Rank> = (0..contexts.len() as Rank).collect();
    let ports = open_ports(hub, &contexts, &all);
    (contexts, ports)
}

/// The bootstrap of the processes of a node, each in a thread of its own.
struct Together {
    rank: Rank,
    barrier: Arc<Barrier>,
    buffer: Arc<Mutex<Vec<u8>>>,
    size: u32,
}

impl Bootstrap for Together {
    fn rank(&self) -> Rank {
        self.rank
    }
    fn size(&self) -> u32 {
        self.size
    }
    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) {
        {
            let mut buffer = self.buffer.lock().unwrap();
            buffer.resize(all.len(), 0);
            buffer[self.rank as usize * mine.len()..][..mine.len()].copy_from_slice(mine);
        }
        self.barrier.wait();
        all.copy_from_slice(&self.buffer.lock().unwrap());
        self.barrier.wait();
        if self.rank == 0 {
            self.buffer.lock().unwrap().clear();
        }
        self.barrier.wait();
    }
}

/// How operations between the processes of a node are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near {
    /// By load and store, in memory that the window has allocated.
    Allocated,
    /// By cross-memory attach or by channels, in memory of the application.
    Created {
        /// Use cross-memory attach.
        cma: bool,
    },
    /// By messages, though the processes share a segment.
    Messages,
}

/// The windows of the processes of one node over their memories, in a segment that they share.
pub fn node(memories: Vec<&mut Vec<u8>>, near: Near) -> Vec<ShmWindow> {
    let size = memories.len() as u32;
    let (barrier, buffer) = (Arc::new(Barrier::new(memories.len())), Arc::default());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(memories)
            .map(|(rank, memory)| {
                let mut boot = Together {
                    rank,
                    barrier: Arc::clone(&barrier),
                    buffer: Arc::clone(&buffer),
                    size,
                };
                let (base, len) = (Addr(memory.as_mut_ptr() as usize), memory.len() as u64);
                scope.spawn(move || {
                    let memory = match near {
                        Near::Allocated => Memory::Allocate { size: len, align: 8 },
                        _ => Memory::Create { base, size: len },
                    };
                    let cma = near == Near::Created { cma: true };
                    ShmWindow::new(
                        &mut boot,
                        memory,
                        1,
                        shm::Settings { cma, oversubscribed: false, foreign_reduce },
                    )
                    .unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A window over `memories`, one per process. `nodes` lists the ranks of each node, rising.
pub fn mixed(
    nodes: &[Vec<Rank>],
    memories: &mut [Vec<u8>],
    near: Near,
    seed: u64,
) -> (Arc<Mutex<Hub>>, Vec<Far>) {
    let ranks = memories.len() as u32;
    let hub = Hub::new(ranks, seed);
    let extents = Extents::new(memories.iter().map(|memory| (memory.len() as u64, 1)));
    let opened = open(&hub);
    let mut windows: Vec<Option<Far>> = (0..ranks).map(|_| None).collect();
    for mates in nodes {
        let here = memories.iter_mut().enumerate().filter(|(me, _)| mates.contains(&(*me as Rank)));
        let ports = node(here.map(|(_, memory)| memory).collect(), near);
        for ((place, me), port) in (0..).zip(mates).zip(ports) {
            let members = Members::new(*me, ranks, mates.clone(), near != Near::Messages);
            windows[*me as usize] = Some(Far::new(&hub, &opened, members, (port, place), &extents));
        }
    }
    (hub, windows.into_iter().map(|window| window.expect("each rank is on a node")).collect())
}

/// Changes the number of counters of each process. `objects`: the process that fails, and the step.
/// Returns whether the change was agreed.
pub fn count(windows: &mut [Far], numbers: &[u32], objects: Option<(usize, CounterStep)>) -> bool {
    let mut objected = false;
    for step in [CounterStep::Want, CounterStep::Create, CounterStep::Map] {
        for (me, window) in windows.iter_mut().enumerate() {
            window.make_counters(step, numbers[me]).unwrap();
            window.propose(Proposal::unless(objects == Some((me, step))));
        }
        objected = decide(windows) == Proposal::Objection;
        if objected {
            break;
        }
    }
    windows.iter_mut().for_each(|window| window.counters_made(!objected));
    !objected
}

/// What processes that have all proposed agree on.
pub fn decide(windows: &mut [Far]) -> Proposal {
    let mut decided: Vec<Option<Proposal>> = vec![None; windows.len()];
    for _ in 0..100_000 {
        for (window, decided) in windows.iter_mut().zip(&mut decided) {
            window.poll();
            if decided.is_none() {
                *decided = window.decision();
            }
        }
        if let Some(all) = decided.iter().copied().collect::<Option<Vec<_>>>() {
            assert!(all.iter().all(|each| *each == all[0]), "{all:?}");
            return all[0];
        }
    }
    panic!("no agreement: {decided:?}");
}

/// A foreign datatype like `MPI_DOUBLE_INT`: an extent of 16 bytes, 12 of them data.
pub const PAIR: Element = Element(mpix_rma::transport::datatype::element::FIRST_FOREIGN + 1);

pub unsafe fn foreign_reduce(
    element: Element,
    reduction: Reduction,
    input: *const u8,
    inout: *mut u8,
    count: usize,
) {
    use mpix_rma::transport::datatype::element::reduction::MAXLOC;
    assert_eq!((element, reduction), (PAIR, MAXLOC));
    assert_eq!(input as usize % 8, 0, "the host requires aligned elements");
    for i in 0..count {
        unsafe {
            let (a, b) = (inout.add(16 * i), input.add(16 * i));
            if b.cast::<f64>().read_unaligned() > a.cast::<f64>().read_unaligned() {
                std::ptr::copy_nonoverlapping(b, a, 12);
            }
        }
    }
}

pub fn foreign(how: ElementOp) -> Option<(u8, u8)> {
    use mpix_rma::transport::datatype::element::reduction::{MAXLOC, REPLACE};
    (how.element == PAIR && [MAXLOC, REPLACE].contains(&how.reduction)).then_some((16, 12))
}

pub fn settings() -> Settings {
    Settings { foreign_reduce, foreign }
}

/// A window over `memories` in which all processes are on different nodes.
pub fn windows(memories: &mut [Vec<u8>], seed: u64) -> (Arc<Mutex<Hub>>, Vec<Far>) {
    let hub = Hub::new(memories.len() as u32, seed);
    let windows = windows_over(&hub, memories);
    (hub, windows)
}

/// Another window of the same processes.
pub fn windows_over(hub: &Arc<Mutex<Hub>>, memories: &mut [Vec<u8>]) -> Vec<Far> {
    let ranks = memories.len() as u32;
    let extents = Extents::new(memories.iter().map(|memory| (memory.len() as u64, 1)));
    let opened = open(hub);
    (0..ranks)
        .zip(memories)
        .map(|(me, memory)| {
            let memory = Memory::Create {
                base: Addr(memory.as_mut_ptr() as usize),
                size: memory.len() as u64,
            };
            let near = ShmWindow::new(
                &mut Alone,
                memory,
                1,
                shm::Settings { cma: false, oversubscribed: false, foreign_reduce },
            )
            .unwrap();
            let members = Members::new(me, ranks, vec![me], true);
            Far::new(hub, &opened, members, (near, 0), &extents)
        })
        .collect()
}

/// Dynamic windows without attached memory.
pub fn dynamic_windows(ranks: u32, seed: u64) -> (Arc<Mutex<Hub>>, Vec<Far>) {
    let hub = Hub::new(ranks, seed);
    let opened = open(&hub);
    let windows = (0..ranks)
        .map(|me| {
            let near = ShmWindow::new(
                &mut Alone,
                Memory::Dynamic,
                1,
                shm::Settings { cma: false, oversubscribed: false, foreign_reduce },
            )
            .unwrap();
            let members = Members::new(me, ranks, vec![me], true);
            let extents = Extents::new((0..ranks).map(|_| (0, 1)));
            Far::new(&hub, &opened, members, (near, 0), &extents)
        })
        .collect();
    (hub, windows)
}

/// Frees all windows, and checks that nothing is in flight.
pub fn end(hub: &Arc<Mutex<Hub>>, windows: Vec<Far>) {
    let mut windows = windows;
    for _ in 0..100_000 {
        // Ask all: the question makes each process ask its peers.
        let quiet = windows.iter_mut().filter_map(|window| window.is_quiet().then_some(())).count();
        if quiet == windows.len() {
            break;
        }
        windows.iter_mut().for_each(|window| _ = window.poll());
    }
    for window in &mut windows {
        assert!(window.is_quiet(), "{window:#?}");
        window.propose(Proposal::Ready);
    }
    assert_eq!(decide(&mut windows), Proposal::Ready);
    // A process that has drained its window is in a call of the host, and polls no more.
    let mut staying: Vec<&mut Far> = windows.iter_mut().collect();
    for _ in 0..100_000 {
        staying.retain_mut(|window| {
            window.poll();
            !window.drain()
        });
        if staying.is_empty() {
            break;
        }
    }
    assert!(staying.is_empty(), "windows that never drain: {staying:#?}");
    for window in &mut windows {
        assert_eq!(window.next_refused(), None);
    }
    assert!(hub.lock().unwrap().is_empty(), "messages are in flight after the drain");
    windows.into_iter().for_each(Far::release);
}

/// An operation without buffers, to be completed by the caller.
pub fn op(kind: OpKind, target: Rank, disp: u64, len: usize) -> Op {
    Op {
        origin: Addr(0),
        result: Addr(0),
        compare: Addr(0),
        disp,
        len: len as u64,
        shape: None,
        notification: None,
        target,
        kind,
        element: Element(0),
        reduction: Reduction(0),
        extent: 1,
    }
}

/// Operations in flight. Each must report each stage once.
#[derive(Default)]
pub struct InFlight {
    /// Whether each operation is complete locally, and remotely.
    pub seen: Vec<(bool, bool)>,
    pub open: usize,
    pub refusals: u64,
}

impl InFlight {
    /// Posts an operation. False if it was refused.
    pub fn try_post(&mut self, port: &mut impl Port, op: &Op) -> bool {
        let seen = match port.post(op, Ticket(self.seen.len() as u32)) {
            Posted::Complete => (true, true),
            Posted::Local => (true, false),
            Posted::Pending => (false, false),
            Posted::NoResource => {
                self.refusals += 1;
                return false;
            }
        };
        self.open += usize::from(!seen.1);
        self.seen.push(seen);
        true
    }

    pub fn collect(&mut self, port: &mut impl Port) {
        while let Some((Ticket(ticket), stage)) = port.next_finished() {
            let seen = &mut self.seen[ticket as usize];
            match stage {
                Stage::Local => {
                    assert!(!std::mem::replace(&mut seen.0, true), "local completion twice")
                }
                Stage::Remote => {
                    assert!(!std::mem::replace(&mut seen.1, true), "remote completion twice");
                    self.open -= 1;
                }
            }
        }
    }

    /// Whether nothing was posted.
    #[allow(dead_code, reason = "not all tests use it")]
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }
}

/// As [`windows`], of `size` bytes that begin `at` bytes inside each memory.
pub fn windows_inside(
    memories: &mut [Vec<u8>],
    at: usize,
    size: usize,
    seed: u64,
) -> (Arc<Mutex<Hub>>, Vec<Far>) {
    let ranks = memories.len() as u32;
    let hub = Hub::new(ranks, seed);
    let opened = open(&hub);
    let windows = (0..ranks)
        .zip(memories)
        .map(|(me, memory)| {
            let base = memory[at..at + size].as_mut_ptr();
            let memory = Memory::Create { base: Addr(base as usize), size: size as u64 };
            let near = ShmWindow::new(
                &mut Alone,
                memory,
                1,
                shm::Settings { cma: false, oversubscribed: false, foreign_reduce },
            )
            .unwrap();
            let members = Members::new(me, ranks, vec![me], true);
            let extents = Extents::new((0..ranks).map(|_| (size as u64, 1)));
            Far::new(&hub, &opened, members, (near, 0), &extents)
        })
        .collect();
    (hub, windows)
}
