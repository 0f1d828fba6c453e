//! The queue lock of one target, implemented with remote atomics only [LK-1 to LK-4].
//!
//! A list-based reader-writer lock after Mellor-Crummey and Scott (fair variant), with two changes.
//! A releaser does not spin until its successor has linked itself: both exchange the releaser's
//! `Next` word, and the second to arrive performs the hand-over [LK-3]. Whoever grants a reader
//! also grants the readers behind it, because their processes may be computing [LK-1].
//!
//! Without a queue, readers own no node. A reader enters by one addition to `Tail` and leaves by
//! one subtraction from `Readers`, so that readers who compete need no second attempt. A request
//! that queues swaps the count out of `Tail` and adds it to `Readers`. Readers are interchangeable,
//! so only the sum of both words matters. The sum is too low only while a queuing request carries
//! the count; `Readers` may then be negative, and no other process inspects it.
//!
//! A reader that finds a node in `Tail` has not entered, and queues. What it added to the word is
//! ignored: with a node, the count means nothing, and whoever removes the node clears it. Both
//! counts are modulo 2^31.
//!
//! Every other request owns a node at its origin, named by origin and sequence number. The node's
//! `Next` word holds
//! - [`EMPTY`]: no successor has linked itself. The owner waits or holds exclusively.
//! - [`READER_ACTIVE`]: no successor has linked itself. The owner holds the lock shared.
//! - [`RELEASED`]: the owner has left. The successor grants the lock to itself.
//! - a node: the successor.
//!
//! Access to `Next`: its owner, until the node is in the queue; then one exchange by the successor
//! (linking) and one compare-and-swap by the process that grants the owner (before it writes the
//! grant); finally the owner, when it releases. Two nodes per origin and target are enough: an
//! origin makes its request n + 2 after its request n + 1 was granted. The successor of request n
//! was granted no later than that, and has linked itself by then.

use super::port::{Answer, Atomic, LockMemory, LockMode, LockTicket, LockWord, Rank};
use super::replay::{Replay, Suspended};

const EMPTY: u64 = 0;
const READER_ACTIVE: u64 = 1 << 32;
const RELEASED: u64 = 2 << 32;
/// In `Readers`: a writer waits for the last reader. `NextWriter` holds its node.
const WRITER_WAITS: u64 = 1;

/// In `Tail` and `Readers`: the unit of the reader count in the high 31 bits.
const ONE_READER: u64 = 1 << 33;
/// In `Tail`: these bits are 0 without a node.
const NODE: u64 = 0xffff_ffff;
/// In `Tail` without a node: half of the count's range has been used. A reader that sees this
/// queues, which moves the count to `Readers` before it could wrap to 0.
const COUNTED_MANY: u64 = 1 << 63;
/// In `Tail` without a node: `Readers` may count readers with nodes. Without this flag it does not.
const LEFT_BEHIND: u64 = 1 << 32;

/// The readers counted in a `Tail` without a node, in units of [`ONE_READER`].
fn counted(tail: u64) -> u64 {
    tail & ONE_READER.wrapping_neg()
}

/// Attempts to remove a node from `Tail` while readers add to the word. They queue afterwards, so
/// the node may as well stay.
const TRIES: usize = 3;

/// A queue node: sequence number (high 32 bits), rank + 1, mode (lowest bit). The low 32 bits are
/// never 0. Of a node read from `Tail`, only the lowest bit of the sequence number is certain,
/// because readers may have been added to the others.
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
        (word & NODE != 0).then_some(Node(word))
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

    /// Whether `tail` holds this node. (A process's latest two nodes have different lowest bits of
    /// their sequence numbers, and earlier ones are in no queue.)
    fn is_in(self, tail: u64) -> bool {
        (self.0 ^ tail) & (ONE_READER - 1) == 0
    }

    fn next(self, target: Rank) -> LockWord {
        LockWord::Next { target, parity: self.sequence() as u8 & 1 }
    }
}

/// A lock request of one process on one target, packed into two integers that stay in registers on
/// the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    target: Rank,
    /// Sequence number (30 bits), [`QUEUED`] and [`EXCLUSIVE`].
    bits: u32,
}

const EXCLUSIVE: u32 = 1;
const QUEUED: u32 = 2;

impl LockRequest {
    /// `sequence` counts the process's requests on this target. Its lowest bit selects the node;
    /// consecutive requests must have different numbers.
    #[inline(always)]
    pub fn new(target: Rank, mode: LockMode, sequence: u32) -> Self {
        LockRequest {
            target,
            bits: sequence << 2 | QUEUED | if mode == LockMode::Exclusive { EXCLUSIVE } else { 0 },
        }
    }

    /// The request after [`enqueue`]: `queued` if it owns a node, otherwise a reader counted in
    /// `Tail`.
    #[inline(always)]
    pub fn placed(self, queued: bool) -> Self {
        LockRequest { bits: self.bits & !QUEUED | if queued { QUEUED } else { 0 }, ..self }
    }

    /// The locked process.
    #[inline(always)]
    pub fn target(self) -> Rank {
        self.target
    }

    /// Lock type.
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

/// The state of a request in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The queue grants the lock. `inherited`: the predecessor passed its exclusive registration
    /// on.
    Granted {
        /// See [`release`].
        inherited: bool,
    },
    /// Another process will write the request's grant word.
    Waiting,
}

/// Result of [`enqueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// The state of the request.
    pub turn: Turn,
    /// Argument for [`LockRequest::placed`].
    pub queued: bool,
    /// A reader behind the request, which the caller must grant with [`grant_reader`].
    pub next_reader: Option<Node>,
}

/// Result of [`release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// The exclusive registration was passed on to the successor.
    pub passed_on: bool,
    /// A reader behind the request, which the caller must grant with [`grant_reader`].
    pub next_reader: Option<Node>,
}

/// Requests the lock. A free lock is granted at once, by one exchange on `Tail` or, for a reader,
/// by one addition.
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
    let queued = |turn| Ok(Enqueued { turn, queued: true, next_reader: None });
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
        // The predecessor waits or holds exclusively. Whoever grants or releases it finds this
        // request.
        (EMPTY, _) => queued(Turn::Waiting),
        (_, LockMode::Shared) => {
            let next_reader = admit(mem, target, me, carried, false)?;
            Ok(Enqueued { turn: GRANTED, queued: true, next_reader })
        }
        // The predecessor reads. When it leaves, it names this request as the next writer.
        (READER_ACTIVE, LockMode::Exclusive) => queued(Turn::Waiting),
        // This request is the first of the queue. Readers that were counted in `Tail`, or that left
        // the queue out of order, may still be active.
        (_, LockMode::Exclusive) => {
            let readers = match carried {
                0 if left_behind => mem.load(target, LockWord::Readers)?,
                0 => 0,
                _ => mem.add(target, LockWord::Readers, carried)?.wrapping_add(carried),
            };
            if readers == 0 {
                return queued(GRANTED);
            }
            mem.store(target, LockWord::NextWriter, me.0)?;
            if mem.add(target, LockWord::Readers, WRITER_WAITS)? == 0 {
                mem.add(target, LockWord::Readers, WRITER_WAITS.wrapping_neg())?;
                return queued(GRANTED);
            }
            queued(Turn::Waiting)
        }
    }
}

/// Counts a reader in `Tail`. False if there is a node: the reader has to queue.
#[inline(always)]
fn count_reader(mem: &mut Replay<'_, impl LockMemory>, target: Rank) -> Result<bool, Suspended> {
    let before = mem.add(target, LockWord::Tail, ONE_READER)?;
    if before & (NODE | COUNTED_MANY) == 0 {
        return Ok(true);
    }
    if Node::from_word(before).is_none() {
        leave_readers(mem, target)?;
    }
    Ok(false)
}

/// The process whose request is the last in the queue of a target's lock. `None` if the queue is
/// empty, or if the answer would not come at once.
pub(super) fn last_in_queue<M: LockMemory>(mem: &mut M, target: Rank) -> Option<Rank> {
    if !M::ANSWERS_AT_ONCE {
        return None;
    }
    match mem.atomic(target, LockWord::Tail, Atomic::Load, LockTicket(0)) {
        Answer::Now(tail) => Node::from_word(tail).map(Node::rank),
        Answer::Later | Answer::NoResource => None,
    }
}

/// Reads the grant word of a waiting request.
pub fn look(mem: &mut impl LockMemory, request: LockRequest) -> Turn {
    let word = mem.look(LockWord::Grant { target: request.target() });
    if word >> 1 == u64::from(request.sequence()) && word != 0 {
        Turn::Granted { inherited: word & 1 == 1 }
    } else {
        Turn::Waiting
    }
}

/// Releases the lock without waiting. An exclusive holder that is `registered` in `Holders` passes
/// its registration on to an exclusive successor; otherwise the caller must deregister it.
#[inline(always)]
pub fn release(
    mem: &mut Replay<'_, impl LockMemory>,
    request: LockRequest,
    registered: bool,
) -> Result<Released, Suspended> {
    const ALONE: Released = Released { passed_on: false, next_reader: None };
    let target = request.target();
    if !request.is_queued() {
        leave_readers(mem, target)?;
        return Ok(ALONE);
    }
    let me = request.node(mem.me());
    let mut met = mem.look(me.next(target));
    if Node::from_word(met).is_none() {
        met = if remove_last(mem, target, me)? {
            EMPTY
        } else {
            mem.swap(me.rank(), me.next(target), RELEASED)?
        };
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

/// Removes a node from `Tail` if it is the last one there.
#[inline(always)]
fn remove_last(
    mem: &mut Replay<'_, impl LockMemory>,
    target: Rank,
    node: Node,
) -> Result<bool, Suspended> {
    let empty = if node.is_writer() { 0 } else { LEFT_BEHIND };
    let mut tail = node.0;
    for _ in 0..TRIES {
        let met = mem.compare_swap(target, LockWord::Tail, tail, empty)?;
        if met == tail {
            return Ok(true);
        }
        if !node.is_in(met) {
            break;
        }
        tail = met;
    }
    Ok(false)
}

/// Removes a reader from `Readers`. The last reader before a waiting writer grants that writer.
fn leave_readers(mem: &mut Replay<'_, impl LockMemory>, target: Rank) -> Result<(), Suspended> {
    let before = mem.add(target, LockWord::Readers, ONE_READER.wrapping_neg())?;
    if before == WRITER_WAITS + ONE_READER {
        // Every request that could be granted now is queued behind that writer.
        let writer = mem.load(target, LockWord::NextWriter)?;
        mem.add(target, LockWord::Readers, WRITER_WAITS.wrapping_neg())?;
        grant(mem, target, Node(writer), false)?;
    }
    Ok(())
}

/// Grants a reader directly behind one that was granted. Returns the next such reader: the caller
/// grants them one per lock operation.
pub fn grant_reader(
    mem: &mut Replay<'_, impl LockMemory>,
    target: Rank,
    reader: Node,
) -> Result<Option<Node>, Suspended> {
    admit(mem, target, reader, 0, true)
}

/// Makes a reader active. `carried`: the count of readers that it took off `Tail`. `write_grant`:
/// write its grant word, because another process waits. Returns the reader directly behind it.
fn admit(
    mem: &mut Replay<'_, impl LockMemory>,
    target: Rank,
    reader: Node,
    carried: u64,
    write_grant: bool,
) -> Result<Option<Node>, Suspended> {
    mem.add(target, LockWord::Readers, carried.wrapping_add(ONE_READER))?;
    let met = mem.compare_swap(reader.rank(), reader.next(target), EMPTY, READER_ACTIVE)?;
    if write_grant {
        // From here on the node belongs to its owner again.
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
