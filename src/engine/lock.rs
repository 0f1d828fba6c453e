//! The queue lock of one target, by remote atomics alone [LK-1 to LK-4].
//!
//! A list-based reader-writer lock after Mellor-Crummey and Scott (fair variant), changed in two
//! ways. Nobody spins for a neighbour: a releaser and its successor meet in one exchange on the
//! releaser's node, and the second to arrive does the hand-over [LK-3]. And whoever lets a reader
//! in walks on and lets the readers behind it in as well, because their processes may be computing
//! [LK-1].
//!
//! While nobody queues, readers own no node: `Tail` counts them, one compare-and-swap in and one
//! out. Whoever queues exchanges that count away and adds it to `Readers`; a reader that leaves
//! takes itself off whichever of the two holds a count. Readers are alike, so their sum is what
//! matters: it is right at every moment but for a count on its way, during which `Readers` may be
//! below 0, and nobody but the one who carries the count looks at it then.
//!
//! Each other request owns a node at its origin, named by (origin, sequence number). A node's
//! `Next` word holds
//! - [`EMPTY`]: no successor has linked itself; its owner waits, or holds exclusively;
//! - [`READER_ACTIVE`]: its owner holds shared, no successor has linked itself;
//! - [`RELEASED`]: its owner has left; the successor lets itself in;
//! - a node: the successor.
//!
//! Who may touch what: the owner until it is in the queue; then one exchange by the successor
//! (linking), one compare-and-swap by whoever lets the owner in (before the grant is written), and
//! the owner again when it releases. Two nodes in turn are enough: the request after next of one
//! origin is let in only behind the successor of the first, which has then linked itself.

use super::port::{LockMemory, LockMode, LockWord, Rank};
use super::replay::{Replay, Suspended};

const EMPTY: u64 = 0;
const READER_ACTIVE: u64 = 1 << 32;
const RELEASED: u64 = 2 << 32;
/// In `Readers`: a writer waits for the last reader; its node stands in `NextWriter`.
const WRITER_WAITS: u64 = 1 << 32;

/// In `Tail` without a node: readers, counted in the high 32 bits.
const ONE_READER: u64 = 1 << 32;
/// How often a reader tries to be counted in `Tail` before it queues.
const TRIES: usize = 3;

/// In `Tail` without a node: readers with nodes may be left behind, counted in `Readers`. Else
/// nobody need look there.
const LEFT_BEHIND: u64 = 1 << 63;

/// Readers counted in a `Tail` that holds no node.
fn counted(tail: u64) -> u64 {
    (tail & !LEFT_BEHIND) >> 32
}

/// A request in the queue: sequence number (high 32 bits), rank + 1, mode (lowest bit). Its low 32
/// bits are never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(u64);

impl Node {
    fn new(rank: Rank, sequence: u32, mode: LockMode) -> Self {
        Node(
            u64::from(sequence) << 32
                | (u64::from(rank) + 1) << 1
                | u64::from(mode == LockMode::Exclusive),
        )
    }

    fn from_word(word: u64) -> Option<Self> {
        (word as u32 != 0).then_some(Node(word))
    }

    fn rank(self) -> Rank {
        ((self.0 as u32) >> 1) - 1
    }

    fn sequence(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn is_writer(self) -> bool {
        self.0 & 1 == 1
    }

    fn next(self, target: Rank) -> LockWord {
        LockWord::Next { target, parity: self.sequence() as u8 & 1 }
    }
}

/// One process's request at one target. Two numbers, which stay in registers: requests are made and
/// kept on the shortest paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    target: Rank,
    /// Sequence number (30 bits), and the two flags below.
    bits: u32,
}

const EXCLUSIVE: u32 = 1;
const QUEUED: u32 = 2;

impl LockRequest {
    /// `sequence` counts the process's requests at this target; its lowest bit chooses the node. Of
    /// the rest it matters only that neighbours differ.
    #[inline(always)]
    pub fn new(target: Rank, mode: LockMode, sequence: u32) -> Self {
        LockRequest {
            target,
            bits: sequence << 2 | QUEUED | if mode == LockMode::Exclusive { EXCLUSIVE } else { 0 },
        }
    }

    /// The same, as [`enqueue`] has placed it: `queued` if it owns a node, else a reader counted in
    /// `Tail`.
    #[inline(always)]
    pub fn placed(self, queued: bool) -> Self {
        LockRequest { bits: self.bits & !QUEUED | if queued { QUEUED } else { 0 }, ..self }
    }

    /// The process whose window is locked.
    #[inline(always)]
    pub fn target(self) -> Rank {
        self.target
    }

    /// Shared or exclusive.
    #[inline(always)]
    pub fn mode(self) -> LockMode {
        if self.bits & EXCLUSIVE == 0 { LockMode::Shared } else { LockMode::Exclusive }
    }

    #[inline(always)]
    fn sequence(self) -> u32 {
        self.bits >> 2
    }

    #[inline(always)]
    fn is_queued(self) -> bool {
        self.bits & QUEUED != 0
    }

    #[inline(always)]
    fn node(self, origin: Rank) -> Node {
        Node::new(origin, self.sequence(), self.mode())
    }
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The queue lets it in. `inherited`: the predecessor's exclusive registration came with the
    /// hand-over.
    Granted {
        /// See [`release`].
        inherited: bool,
    },
    /// Somebody else writes its grant word.
    Waiting,
}

/// What became of [`enqueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// Where the request stands.
    pub turn: Turn,
    /// For [`LockRequest::placed`].
    pub queued: bool,
    /// A reader behind it, which the caller lets in ([`let_reader_in`]).
    pub next_reader: Option<Node>,
}

/// What became of [`release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// The exclusive registration was passed on to the successor.
    pub passed_on: bool,
    /// A reader behind it, which the caller lets in ([`let_reader_in`]).
    pub next_reader: Option<Node>,
}

/// Asks for the lock. A free lock is granted at once: by one exchange on `Tail`, or one
/// compare-and-swap for a reader.
#[inline(always)]
pub fn enqueue(
    mem: &mut Replay<'_, impl LockMemory>,
    request: LockRequest,
) -> Result<Enqueued, Suspended> {
    const GRANTED: Turn = Turn::Granted { inherited: false };
    let target = request.target();
    if request.mode() == LockMode::Shared && count_reader(mem, target)? {
        return Ok(Enqueued { turn: GRANTED, queued: false, next_reader: None });
    }
    let stands = |turn| Ok(Enqueued { turn, queued: true, next_reader: None });
    let me = request.node(mem.me());
    mem.store(me.rank(), me.next(target), EMPTY)?;
    let before = mem.swap(target, LockWord::Tail, me.0)?;
    let (met, carried, left_behind) = match Node::from_word(before) {
        None => (RELEASED, counted(before), before & LEFT_BEHIND != 0),
        Some(before) => {
            (mem.swap(before.rank(), before.next(target), me.0)?, 0, !before.is_writer())
        }
    };
    match (met, request.mode()) {
        // The predecessor waits or holds exclusively: whoever lets it out, or in, sees us.
        (EMPTY, _) => stands(Turn::Waiting),
        (_, LockMode::Shared) => {
            let next_reader = admit(mem, target, me, carried, false)?;
            Ok(Enqueued { turn: GRANTED, queued: true, next_reader })
        }
        // The predecessor reads: when it leaves it names us as the next writer.
        (READER_ACTIVE, LockMode::Exclusive) => stands(Turn::Waiting),
        // Nobody is before us in the queue; readers that left it out of order, or were counted in
        // `Tail`, may be active.
        (_, LockMode::Exclusive) => {
            if carried == 0 && (!left_behind || mem.load(target, LockWord::Readers)? == 0) {
                return stands(GRANTED);
            }
            mem.store(target, LockWord::NextWriter, me.0)?;
            let readers = mem.add(target, LockWord::Readers, WRITER_WAITS + carried)?;
            if readers.wrapping_add(carried) == 0 {
                mem.add(target, LockWord::Readers, WRITER_WAITS.wrapping_neg())?;
                return stands(GRANTED);
            }
            stands(Turn::Waiting)
        }
    }
}

/// Counts a reader in a `Tail` without a node; false if there is one, or too much traffic.
#[inline(always)]
fn count_reader(mem: &mut Replay<'_, impl LockMemory>, target: Rank) -> Result<bool, Suspended> {
    let mut tail = 0;
    for _ in 0..TRIES {
        let met = mem.compare_swap(target, LockWord::Tail, tail, tail + ONE_READER)?;
        if met == tail {
            return Ok(true);
        }
        if Node::from_word(met).is_some() {
            return Ok(false);
        }
        tail = met;
    }
    Ok(false)
}

/// Looks at the grant word of a waiting request.
pub fn look(mem: &mut impl LockMemory, request: LockRequest) -> Turn {
    let word = mem.look(LockWord::Grant { target: request.target() });
    if word >> 1 == u64::from(request.sequence()) && word != 0 {
        Turn::Granted { inherited: word & 1 == 1 }
    } else {
        Turn::Waiting
    }
}

/// Leaves; never waits for anybody. An exclusive holder that is `registered` in `Holders` passes
/// its registration on if the successor is exclusive too; else it must deregister itself.
#[inline(always)]
pub fn release(
    mem: &mut Replay<'_, impl LockMemory>,
    request: LockRequest,
    registered: bool,
) -> Result<Released, Suspended> {
    const ALONE: Released = Released { passed_on: false, next_reader: None };
    let target = request.target();
    if !request.is_queued() {
        discount_reader(mem, target)?;
        return Ok(ALONE);
    }
    let me = request.node(mem.me());
    let mut met = mem.look(me.next(target));
    if Node::from_word(met).is_none() {
        let empty = if request.mode() == LockMode::Shared { LEFT_BEHIND } else { 0 };
        if mem.compare_swap(target, LockWord::Tail, me.0, empty)? == me.0 {
            met = EMPTY;
        } else {
            met = mem.swap(me.rank(), me.next(target), RELEASED)?;
        }
    }
    let successor = Node::from_word(met);
    match request.mode() {
        LockMode::Exclusive => match successor {
            Some(writer) if writer.is_writer() => {
                grant(mem, target, writer, registered)?;
                Ok(Released { passed_on: registered, next_reader: None })
            }
            Some(reader) => {
                let next_reader = admit(mem, target, reader, 0, true)?;
                Ok(Released { passed_on: false, next_reader })
            }
            None => Ok(ALONE),
        },
        LockMode::Shared => {
            if let Some(writer) = successor.filter(|s| s.is_writer()) {
                mem.store(target, LockWord::NextWriter, writer.0)?;
                mem.add(target, LockWord::Readers, WRITER_WAITS)?;
            }
            leave_readers(mem, target)?;
            Ok(ALONE)
        }
    }
}

/// A reader without a node leaves: off `Tail` if readers are counted there, else, or if there is
/// much traffic, off `Readers`. (Then `Tail` counts one too many and `Readers` one too few, until
/// somebody queues and adds them up: the sum is right.)
#[inline(always)]
fn discount_reader(mem: &mut Replay<'_, impl LockMemory>, target: Rank) -> Result<(), Suspended> {
    let mut tail = ONE_READER;
    for _ in 0..TRIES {
        let met = mem.compare_swap(target, LockWord::Tail, tail, tail - ONE_READER)?;
        if met == tail {
            return Ok(());
        }
        if counted(met) == 0 || Node::from_word(met).is_some() {
            break;
        }
        tail = met;
    }
    leave_readers(mem, target)
}

/// Takes a reader off `Readers`; the last one before a waiting writer lets it in.
fn leave_readers(mem: &mut Replay<'_, impl LockMemory>, target: Rank) -> Result<(), Suspended> {
    let before = mem.add(target, LockWord::Readers, 1u64.wrapping_neg())?;
    if before == WRITER_WAITS + 1 {
        // Everybody who could enter now stands behind that writer.
        let writer = mem.load(target, LockWord::NextWriter)?;
        mem.add(target, LockWord::Readers, WRITER_WAITS.wrapping_neg())?;
        grant(mem, target, Node(writer), false)?;
    }
    Ok(())
}

/// Lets in a reader that stands directly behind one that was let in. Gives the next such reader:
/// whoever lets one in walks on, one reader a procedure.
pub fn let_reader_in(
    mem: &mut Replay<'_, impl LockMemory>,
    target: Rank,
    reader: Node,
) -> Result<Option<Node>, Suspended> {
    admit(mem, target, reader, 0, true)
}

/// `carried`: readers that this one took off `Tail`. `tell`: write its grant (it is not the
/// caller). Gives a reader behind it.
fn admit(
    mem: &mut Replay<'_, impl LockMemory>,
    target: Rank,
    reader: Node,
    carried: u64,
    tell: bool,
) -> Result<Option<Node>, Suspended> {
    mem.add(target, LockWord::Readers, carried + 1)?;
    let met = mem.compare_swap(reader.rank(), reader.next(target), EMPTY, READER_ACTIVE)?;
    if tell {
        // From here on the node is its owner's.
        grant(mem, target, reader, false)?;
    }
    Ok(Node::from_word(met).filter(|next| !next.is_writer()))
}

fn grant(
    mem: &mut Replay<'_, impl LockMemory>,
    target: Rank,
    node: Node,
    inherited: bool,
) -> Result<(), Suspended> {
    let value = u64::from(node.sequence()) << 1 | u64::from(inherited);
    mem.store(node.rank(), LockWord::Grant { target }, value)
}
