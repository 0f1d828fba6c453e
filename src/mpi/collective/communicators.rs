//! The communicators that have made collectives here, and their boards.
//!
//! A communicator gets its board in its n-th call that could use one, with the same n in all its
//! processes, so that a short-lived communicator costs nothing. Until then, and if the set-up
//! fails, the host serves it. The set-up is collective and has the same outcome in all processes.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hashbrown::HashMap;

use super::nodes::Nodes;
use super::single_copy::Help;
use super::{endings, limits, single_copy};
use crate::collective::{
    Board, BoardShape, Buffers, Content, InBlock, Mismatch, Position, RANKS_MAX, Run, Schedule,
    Work, schedule,
};
use crate::engine::Rank;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::abi::world;
use crate::mpi::progress::{drive, hook};
use crate::runtime::config::Collectives;
use crate::runtime::process::Own;
use crate::runtime::progress::{oversubscribed, sweep_from_hook};
use crate::transport::shm::{Bootstrap, PeerMemory, Scratch, SetupError};

/// What this process knows of a communicator.
enum Entry {
    /// The host has served so many of its calls.
    Calls(u32),
    /// The host serves it.
    Host,
    /// This library serves it. `None` while a collective runs on it.
    Ours(Option<Ours>),
}

/// A communicator that has a board, or one for each node.
pub(super) enum Ours {
    Node(Box<Communicator>),
    Nodes(Box<Nodes>),
}

/// The entries by the handles' keys, until the communicators end ([`endings`]).
// SAFETY: any thread may use and drop entries, which are memory, mappings and numbers.
static ENTRIES: Own<Option<HashMap<u64, Entry>>> = unsafe { Own::new(None) };

/// Calls of a communicator before it gets a board. 0: none ever does.
static CALLS_BEFORE: AtomicU32 = AtomicU32::new(0);
/// That number with `MPIX_RMA_COLLECTIVES=auto`. The set-up takes as long as some hundred calls, so
/// most communicators that are made for a single exchange should not pay for it.
const CALLS_BEFORE_AUTO: u32 = 16;

/// This process may use cross-memory attach.
static ATTACHES: AtomicBool = AtomicBool::new(false);

/// Turns schedules on. All processes of the job call it, or none, with the same setting.
/// `attaches`: cross-memory attach may be used.
pub(crate) fn open(setting: Collectives, attaches: bool) {
    let calls = match setting {
        Collectives::Auto => CALLS_BEFORE_AUTO,
        Collectives::Always => 1,
        Collectives::Host => return,
    };
    let mut rank = 0;
    host_calls::comm_rank(MPI_COMM_WORLD, &mut rank);
    limits::take(rank, |numbers| _ = host_calls::bcast_ints(numbers, MPI_COMM_WORLD));
    ATTACHES.store(attaches, Ordering::Relaxed);
    CALLS_BEFORE.store(calls, Ordering::Release);
}

/// Turns schedules off, and frees all boards. Call it before MPI is finalized.
pub(super) fn close() {
    CALLS_BEFORE.store(0, Ordering::Release);
    drop(ENTRIES.with(Option::take));
    drop(ENDED.with(std::mem::take));
}

/// Whether any call may run on a schedule.
#[inline]
pub(super) fn is_open() -> bool {
    CALLS_BEFORE.load(Ordering::Relaxed) != 0
}

/// What has ended, until the next set-up: the host ends communicators inside of its own calls, in
/// which this library makes none.
// SAFETY: as for `ENTRIES`.
static ENDED: Own<Vec<Entry>> = unsafe { Own::new(Vec::new()) };

/// A communicator ends.
pub(super) fn forget(comm: MPI_Comm) {
    let entry = ENTRIES.with(|entries| entries.as_mut()?.remove(&comm.key()));
    match entry {
        Some(Entry::Ours(Some(Ours::Nodes(_)))) => ENDED.with(|ended| ended.extend(entry)),
        // Unmapped outside of the lock.
        other => drop(other),
    }
}

/// Who serves a call that could run on a schedule.
pub(super) enum Claim {
    /// The host.
    Host,
    /// The host; if the call succeeds, [`begin`] must follow. Only then is the handle known to be
    /// valid.
    Unknown,
    /// This library. [`release`] must follow.
    Ours(Ours),
    /// Another collective of this process runs on the communicator.
    Busy,
}

/// Decides who serves a call, which all processes of the communicator make.
pub(super) fn claim(comm: MPI_Comm) -> Claim {
    let must_set_up = |calls: &mut u32| {
        *calls += 1;
        *calls > CALLS_BEFORE.load(Ordering::Relaxed)
    };
    let claimed =
        ENTRIES.with(|entries| match entries.get_or_insert_default().get_mut(&comm.key()) {
            None => Some(Claim::Unknown),
            Some(Entry::Host) => Some(Claim::Host),
            Some(Entry::Ours(own)) => Some(own.take().map_or(Claim::Busy, Claim::Ours)),
            Some(Entry::Calls(calls)) => (!must_set_up(calls)).then_some(Claim::Host),
        });
    claimed.unwrap_or_else(|| match Ours::set_up(comm) {
        Some(made) => {
            insert(comm, Entry::Ours(None));
            Claim::Ours(made)
        }
        None => {
            insert(comm, Entry::Host);
            Claim::Host
        }
    })
}

/// Notes the first successful call of a communicator.
pub(super) fn begin(comm: MPI_Comm) {
    if endings::watch(comm) {
        insert(comm, Entry::Calls(1));
    }
}

/// Ends a claim.
pub(super) fn release(comm: MPI_Comm, own: Ours) {
    ENTRIES.with(|entries| {
        if let Some(Entry::Ours(place)) = entries.as_mut().and_then(|all| all.get_mut(&comm.key()))
        {
            *place = Some(own);
        }
    });
}

fn insert(comm: MPI_Comm, entry: Entry) {
    let before = ENTRIES.with(|entries| entries.get_or_insert_default().insert(comm.key(), entry));
    drop(before);
}

/// The collectives that have schedules.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Collective {
    Barrier,
    Broadcast { root: u32 },
    Allreduce,
    Reduce { root: u32 },
    Scan { inclusive: bool },
    Gather { root: u32 },
    AnnouncedGather { root: u32 },
    Scatter { root: u32 },
    Exchange,
    OrderedExchange,
}

impl Collective {
    fn schedule(self, me: u32, ranks: u32) -> Schedule {
        match self {
            Collective::Barrier => schedule::barrier(me, ranks),
            Collective::Broadcast { root } => schedule::broadcast(me, ranks, root),
            Collective::Allreduce => schedule::allreduce(me, ranks),
            Collective::Reduce { root } => schedule::reduce(me, ranks, root),
            Collective::Scan { inclusive } => schedule::scan(me, ranks, inclusive),
            Collective::Gather { root } => schedule::gather(me, ranks, root),
            Collective::AnnouncedGather { root } => schedule::announced_gather(me, ranks, root),
            Collective::Scatter { root } => schedule::scatter(me, ranks, root),
            Collective::Exchange => schedule::exchange(ranks),
            Collective::OrderedExchange => schedule::ordered_exchange(me, ranks),
        }
    }
}

/// A communicator with a board.
pub(super) struct Communicator {
    scratch: Scratch,
    shape: BoardShape,
    me: u32,
    position: Position,
    barrier: Schedule,
    allreduce: Schedule,
    /// The others, each made at its first use.
    schedules: HashMap<Collective, Schedule>,
    /// The block, and what is folded into it: aligned for elements of every datatype.
    block: Vec<u128>,
    operand: Vec<u128>,
    /// Collectives since the last round of progress.
    since_progress: u32,
    /// The ranks of the node outnumber its cores, as at least one of the processes sees it.
    crowded: bool,
    /// The processes' memory, if all can reach that of all others.
    attached: Option<PeerMemory>,
    /// Whether this process helps others to copy when it is the root.
    help: Help,
}

/// Looks before a collective waits like other calls.
const QUICK_LOOKS: u32 = 24;
/// Collectives that need not wait, between two rounds of progress [PR-1].
const BETWEEN_PROGRESS: u32 = 64;
/// Looks of a wait before each further one runs the host's progress, too: peers may use windows of
/// the host meanwhile, or wait for its messages.
const LOOKS_ALONE: u32 = 16;

impl Ours {
    /// Makes the board of a communicator, or one for each node. Collective. `None`, in all
    /// processes: the host serves it.
    #[cold]
    fn set_up(comm: MPI_Comm) -> Option<Self> {
        drop(ENDED.with(std::mem::take));
        let mut carrier = Carrier::of(comm)?;
        let few = carrier.ranks <= RANKS_MAX;
        let made = if few { Communicator::of_node(&mut carrier) } else { Err(None) };
        let made = match made {
            Ok(mut made) => {
                made.attach(&mut carrier);
                Some(Ours::Node(Box::new(made)))
            }
            Err(None | Some(SetupError::NotOneNode)) if !carrier.failed => {
                Nodes::set_up(&mut carrier).map(|made| Ours::Nodes(Box::new(made)))
            }
            Err(_) => None,
        };
        if made.is_none() {
            log::info!(
                "collectives of a communicator of {} processes are left to the host: no node has \
                 several of them, or they cannot share memory",
                carrier.ranks
            );
        }
        made
    }
}

impl Communicator {
    /// Makes the board of processes of one node. Collective.
    ///
    /// # Errors
    /// The same in all processes. `None`: the host's exchange has failed.
    pub(super) fn of_node(carrier: &mut Carrier) -> Result<Self, Option<SetupError>> {
        let (me, ranks) = (carrier.me, carrier.ranks);
        let shape = BoardShape::of(ranks);
        let scratch = Scratch::new(carrier, shape.words())?;
        if carrier.failed {
            return Err(None);
        }
        let words = shape.content_max.div_ceil(size_of::<u128>());
        let mut own = Communicator {
            scratch,
            shape,
            me,
            position: Position::default(),
            barrier: schedule::barrier(me, ranks),
            allreduce: schedule::allreduce(me, ranks),
            schedules: HashMap::new(),
            block: vec![0; words],
            operand: vec![0; words],
            since_progress: 0,
            crowded: false,
            attached: None,
            help: Help::NEW,
        };
        own.crowded = own.is_any(oversubscribed());
        Ok(own)
    }

    /// Reaches the memory of all processes, if long collectives need it. Collective.
    fn attach(&mut self, carrier: &mut Carrier) {
        if !single_copy::suits(self.ranks()) {
            return;
        }
        let attached = PeerMemory::new(carrier, ATTACHES.load(Ordering::Relaxed));
        if self.is_any(attached.is_none() || carrier.failed) {
            log::info!("long collectives are left to the host, without cross-memory attach");
        } else {
            self.attached = attached;
        }
    }

    /// Whether the answer of any process is yes.
    fn is_any(&mut self, mine: bool) -> bool {
        let mut block = [u8::from(mine)];
        let content = Content { bytes: 1, code: 0 };
        let either = |input: &[u8], inout: &mut [u8]| inout[0] |= input[0];
        self.run_on(Collective::Allreduce, content, &mut block, either);
        block[0] != 0
    }

    pub(super) fn ranks(&self) -> u32 {
        self.shape.ranks
    }

    pub(super) fn me(&self) -> u32 {
        self.me
    }

    /// Memory with room for the longest content, aligned for elements of every datatype.
    pub(super) fn memory(&mut self) -> &mut Vec<u128> {
        &mut self.block
    }

    /// Bytes of the longest content.
    pub(super) fn content_max(&self) -> usize {
        self.shape.content_max
    }

    /// Whether the host's blocking calls should be avoided, since they do not yield the core
    /// [PR-4]. All processes get the same answer.
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// The processes' memory. All processes have it, or none.
    pub(super) fn attached(&self) -> Option<&PeerMemory> {
        self.attached.as_ref()
    }

    pub(super) fn help(&mut self) -> &mut Help {
        &mut self.help
    }

    /// Runs a collective on the [block](Self::block), as [`run_on`](Self::run_on).
    pub(super) fn run(
        &mut self,
        which: Collective,
        content: Content,
        fold: impl FnMut(&[u8], &mut [u8]),
    ) -> Option<Mismatch> {
        let mut block = std::mem::take(&mut self.block);
        let mismatch = self.run_on(which, content, bytes_of(&mut block), fold).1;
        self.block = block;
        mismatch
    }

    /// As [`run`](Self::run), without an operation.
    pub(super) fn run_on_block(
        &mut self,
        which: Collective,
        content: Content,
    ) -> (Content, Option<Mismatch>) {
        let mut block = std::mem::take(&mut self.block);
        let result = self.run_on(which, content, bytes_of(&mut block), |_, _| ());
        self.block = block;
        result
    }

    /// Runs a broadcast of `piece`. Where processes pass contents on, they need room for the
    /// longest one, since a root may have called with more data.
    pub(super) fn pass_on(
        &mut self,
        which: Collective,
        content: Content,
        piece: &mut [u8],
    ) -> (Content, Option<Mismatch>) {
        if self.shape.ranks <= schedule::FLAT_MAX {
            return self.run_on(which, content, piece, |_, _| ());
        }
        bytes_of(&mut self.block)[..piece.len()].copy_from_slice(piece);
        let result = self.run_on_block(which, content);
        if result.1.is_none() {
            piece.copy_from_slice(&bytes_of(&mut self.block)[..piece.len()]);
        }
        result
    }

    /// Runs a collective on a block, and makes progress while it waits. `fold` reduces its first
    /// argument into its second. Returns what was published, by this process or by the one that the
    /// block was taken from.
    pub(super) fn run_on(
        &mut self,
        which: Collective,
        content: Content,
        block: &mut [u8],
        fold: impl FnMut(&[u8], &mut [u8]),
    ) -> (Content, Option<Mismatch>) {
        let mut operand = std::mem::take(&mut self.operand);
        let mut buffers = Buffers { block, operand: bytes_of(&mut operand) };
        let mut work = InBlock { buffers: &mut buffers, input: None, fold };
        let result = self.run_with(which, content, &mut work);
        self.operand = operand;
        result
    }

    /// Runs a reduction of `input` into a block, which has the result afterwards if this process
    /// `has_result`.
    pub(super) fn reduce(
        &mut self,
        which: Collective,
        content: Content,
        input: Option<&[u8]>,
        (block, has_result): (&mut [u8], bool),
        fold: impl FnMut(&[u8], &mut [u8]),
    ) -> Option<Mismatch> {
        let mut operand = std::mem::take(&mut self.operand);
        let mut buffers = Buffers { block, operand: bytes_of(&mut operand) };
        let mut work = InBlock { buffers: &mut buffers, input, fold };
        let (_, mismatch) = self.run_with(which, content, &mut work);
        if has_result {
            work.settle();
        }
        self.operand = operand;
        mismatch
    }

    /// Runs a collective with contents that `work` writes and collects, likewise.
    #[inline]
    pub(super) fn run_with(
        &mut self,
        which: Collective,
        content: Content,
        work: &mut impl Work,
    ) -> (Content, Option<Mismatch>) {
        let (me, ranks) = (self.me, self.shape.ranks);
        let schedule = match which {
            Collective::Barrier => &self.barrier,
            Collective::Allreduce => &self.allreduce,
            _ => self.schedules.entry(which).or_insert_with(|| which.schedule(me, ranks)),
        };
        let board = Board::new(self.scratch.words(), self.shape, me);
        let mut run = Run::new(schedule, &board, &mut self.position, content);
        let mut advance = || run.advance_with(schedule, &board, &self.position, work);
        if quickly(&mut advance) {
            self.since_progress += 1;
        } else {
            wait(advance);
            self.since_progress = 0;
        }
        if self.since_progress == BETWEEN_PROGRESS {
            self.since_progress = 0;
            sweep_from_hook();
            hook::progress_host();
        }
        (run.content(), run.mismatch())
    }
}

/// Looks a few times. True if the collective is complete.
#[inline]
fn quickly(advance: &mut impl FnMut() -> bool) -> bool {
    let looks = if oversubscribed() { 1 } else { QUICK_LOOKS };
    (0..looks).any(|_| advance())
}

/// Waits for the collective, and makes progress meanwhile [PR-1].
fn wait(mut advance: impl FnMut() -> bool) {
    let mut looks = 0u32;
    drive::until(|| {
        looks = looks.saturating_add(1);
        if looks > LOOKS_ALONE {
            hook::progress_host();
        }
        advance().then_some(())
    });
}

/// Integers without padding, of which all values are valid.
pub(super) trait Word {}
impl Word for u64 {}
impl Word for u128 {}

/// The bytes of aligned memory.
pub(super) fn bytes_of<W: Word>(words: &mut [W]) -> &mut [u8] {
    // SAFETY: the bytes of these words, which are valid as bytes and need no alignment.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}

/// Whether all processes are of this job. Others may have different settings. The answer is the
/// same in all of them: a process of another job finds this one outside of its own.
fn in_world(comm: MPI_Comm, size: c_int) -> bool {
    if !world::has_world() {
        return false;
    }
    let mut groups = [MPI_GROUP_NULL; 2];
    for (comm, group) in [comm, MPI_COMM_WORLD].into_iter().zip(&mut groups) {
        host_calls::comm_group(comm, group);
    }
    let ranks = host_calls::ranks_within(groups[0], size, groups[1]);
    groups.iter_mut().for_each(|group| _ = host_calls::group_free(group));
    let outside = MPI_UNDEFINED as u32;
    ranks.is_some_and(|ranks| !ranks.contains(&outside))
}

/// The set-up's exchange over a communicator.
pub(super) struct Carrier {
    pub(super) comm: MPI_Comm,
    pub(super) me: u32,
    pub(super) ranks: u32,
    /// A call of the host has failed.
    pub(super) failed: bool,
}

impl Carrier {
    /// That of a communicator whose processes are all of this job. `None`, in all of them: it is an
    /// intercommunicator, or has others.
    pub(super) fn of(comm: MPI_Comm) -> Option<Self> {
        let (mut inter, mut me, mut size) = (0, 0, 0);
        host_calls::comm_test_inter(comm, &mut inter);
        host_calls::comm_rank(comm, &mut me);
        host_calls::comm_size(comm, &mut size);
        (inter == 0 && in_world(comm, size)).then_some(Carrier {
            comm,
            me: me as u32,
            ranks: size as u32,
            failed: false,
        })
    }
}

impl Bootstrap for Carrier {
    fn rank(&self) -> Rank {
        self.me
    }
    fn size(&self) -> u32 {
        self.ranks
    }
    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) {
        assert_eq!(mine.len() * self.ranks as usize, all.len());
        // SAFETY: the communicator is live, since the application has just called with it; the
        // lengths were just compared.
        let code = unsafe { drive::allgather(self.comm, mine, all) };
        self.failed |= code != MPI_SUCCESS;
    }
}
