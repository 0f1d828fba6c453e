//! The queue lock of one target, by remote atomics alone [LK-1 to LK-4].
//!
//! A list-based reader-writer lock after Mellor-Crummey and Scott (fair variant), changed in two ways.
//! Nobody spins for a neighbour: a releaser and its successor meet in one exchange on the releaser's node, and
//! the second to arrive does the hand-over [LK-3]. And whoever lets a reader in walks on and lets the readers behind it
//! in as well, because their processes may be computing [LK-1].
//!
//! While nobody queues, readers own no node: `Tail` counts them, one compare-and-swap in and one out. Whoever queues exchanges that
//! count away and adds it to `Readers`; a reader that leaves takes itself off whichever of the two holds a count. Readers are
//! alike, so their sum is what matters: it is right at every moment but for a count on its way, during which `Readers`
//! may be below 0, and nobody but the one who carries the count looks at it then.
//!
//! Each other request owns a node at its origin, named by (origin, sequence number). A node's `Next` word holds
//! - [`EMPTY`]: no successor has linked itself; its owner waits, or holds exclusively;
//! - [`READER_ACTIVE`]: its owner holds shared, no successor has linked itself;
//! - [`RELEASED`]: its owner has left; the successor lets itself in;
//! - a node: the successor.
//!
//! Who may touch what: the owner until it is in the queue; then one exchange by the successor (linking), one
//! compare-and-swap by whoever lets the owner in (before the grant is written), and the owner again when it
//! releases. Two nodes in turn are enough: the request after next of one origin is let in only behind the successor
//! of the first, which has then linked itself.

use super::alphabet::{LockMemory, LockMode, LockWord, Rank};

const EMPTY: u64 = 0;
const READER_ACTIVE: u64 = 1 << 32;
const RELEASED: u64 = 2 << 32;
/// In `Readers`: a writer waits for the last reader; its node stands in `NextWriter`.
const WRITER_WAITS: u64 = 1 << 32;

/// In `Tail` without a node: readers, counted in the high 32 bits.
const ONE_READER: u64 = 1 << 32;
/// How often a reader tries to be counted in `Tail` before it queues.
const TRIES: usize = 3;

/// Readers counted in a `Tail` that holds no node.
fn counted(tail: u64) -> u64 {
    tail >> 32
}

/// A request in the queue: sequence number (high 32 bits), rank + 1, mode (lowest bit). Its low 32 bits are never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node(u64);

impl Node {
    fn new(rank: Rank, sequence: u32, mode: LockMode) -> Self {
        Node(u64::from(sequence) << 32 | (u64::from(rank) + 1) << 1 | u64::from(mode == LockMode::Exclusive))
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

/// One origin's request at one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The process that asks.
    pub origin: Rank,
    /// The process whose window is locked.
    pub target: Rank,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// Counts this origin's requests at this target; its lowest bit chooses the node.
    pub sequence: u32,
    /// Owns a node; else a reader counted in `Tail`. Set by [`enqueue`].
    pub queued: bool,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The queue lets it in. `inherited`: the predecessor's exclusive registration came with the hand-over.
    In {
        /// See [`release`].
        inherited: bool,
    },
    /// Somebody else writes its grant word.
    Waiting,
}

/// Asks for the lock. A free lock is granted at once: by one exchange on `Tail`, or one compare-and-swap for a reader.
pub fn enqueue(mem: &mut impl LockMemory, request: &mut LockRequest) -> Turn {
    let target = request.target;
    request.queued = request.mode == LockMode::Exclusive || !count_reader(mem, target);
    if !request.queued {
        return Turn::In { inherited: false };
    }
    let me = Node::new(request.origin, request.sequence, request.mode);
    mem.store(me.rank(), me.next(target), EMPTY);
    let before = mem.swap(target, LockWord::Tail, me.0);
    let (met, carried) = match Node::from_word(before) {
        None => (RELEASED, counted(before)),
        Some(before) => (mem.swap(before.rank(), before.next(target), me.0), 0),
    };
    match (met, request.mode) {
        // The predecessor waits or holds exclusively: whoever lets it out, or in, sees us.
        (EMPTY, _) => Turn::Waiting,
        (_, LockMode::Shared) => {
            let_readers_in(mem, target, me, carried, false);
            Turn::In { inherited: false }
        }
        // The predecessor reads: when it leaves it names us as the next writer.
        (READER_ACTIVE, LockMode::Exclusive) => Turn::Waiting,
        // Nobody is before us in the queue; readers that left it out of order, or were counted in `Tail`, may be active.
        (_, LockMode::Exclusive) => {
            if carried == 0 && mem.load(target, LockWord::Readers) == 0 {
                return Turn::In { inherited: false };
            }
            mem.store(target, LockWord::NextWriter, me.0);
            let readers = mem.fetch_add(target, LockWord::Readers, WRITER_WAITS + carried);
            if readers.wrapping_add(carried) == 0 {
                mem.fetch_add(target, LockWord::Readers, WRITER_WAITS.wrapping_neg());
                return Turn::In { inherited: false };
            }
            Turn::Waiting
        }
    }
}

/// Counts a reader in a `Tail` without a node; false if there is one, or too much traffic.
fn count_reader(mem: &mut impl LockMemory, target: Rank) -> bool {
    let mut tail = mem.load(target, LockWord::Tail);
    for _ in 0..TRIES {
        if Node::from_word(tail).is_some() {
            return false;
        }
        let met = mem.compare_swap(target, LockWord::Tail, tail, tail + ONE_READER);
        if met == tail {
            return true;
        }
        tail = met;
    }
    false
}

/// Looks at the grant word of a waiting request.
pub fn look(mem: &mut impl LockMemory, request: LockRequest) -> Turn {
    let word = mem.load(request.origin, LockWord::Grant { target: request.target });
    if word >> 1 == u64::from(request.sequence) && word != 0 { Turn::In { inherited: word & 1 == 1 } } else { Turn::Waiting }
}

/// Leaves; never waits for anybody. An exclusive holder that is registered in `Holders` passes its
/// registration on if the successor is exclusive too, and gets `true`; else it must deregister itself.
pub fn release(mem: &mut impl LockMemory, request: LockRequest) -> bool {
    if !request.queued {
        discount_reader(mem, request.target);
        return false;
    }
    let me = Node::new(request.origin, request.sequence, request.mode);
    let target = request.target;
    let mut met = mem.load(me.rank(), me.next(target));
    if Node::from_word(met).is_none() {
        if mem.compare_swap(target, LockWord::Tail, me.0, 0) == me.0 {
            met = EMPTY;
        } else {
            met = mem.swap(me.rank(), me.next(target), RELEASED);
        }
    }
    let successor = Node::from_word(met);
    match request.mode {
        LockMode::Exclusive => match successor {
            Some(writer) if writer.is_writer() => {
                grant(mem, target, writer, true);
                true
            }
            Some(reader) => {
                let_readers_in(mem, target, reader, 0, true);
                false
            }
            None => false,
        },
        LockMode::Shared => {
            if let Some(writer) = successor.filter(|s| s.is_writer()) {
                mem.store(target, LockWord::NextWriter, writer.0);
                mem.fetch_add(target, LockWord::Readers, WRITER_WAITS);
            }
            leave_readers(mem, target);
            false
        }
    }
}

/// A reader without a node leaves: off `Tail` if readers are counted there, else, or if there is much traffic, off `Readers`.
/// (Then `Tail` counts one too many and `Readers` one too few, until somebody queues and adds them up: the sum is right.)
fn discount_reader(mem: &mut impl LockMemory, target: Rank) {
    let mut tail = mem.load(target, LockWord::Tail);
    for _ in 0..TRIES {
        if tail == 0 || Node::from_word(tail).is_some() {
            break;
        }
        let met = mem.compare_swap(target, LockWord::Tail, tail, tail - ONE_READER);
        if met == tail {
            return;
        }
        tail = met;
    }
    leave_readers(mem, target);
}

/// Takes a reader off `Readers`; the last one before a waiting writer lets it in.
fn leave_readers(mem: &mut impl LockMemory, target: Rank) {
    let before = mem.fetch_add(target, LockWord::Readers, 1u64.wrapping_neg());
    if before == WRITER_WAITS + 1 {
        // Everybody who could enter now stands behind that writer.
        let writer = mem.load(target, LockWord::NextWriter);
        mem.fetch_add(target, LockWord::Readers, WRITER_WAITS.wrapping_neg());
        grant(mem, target, Node(writer), false);
    }
}

/// Lets `first` in and every reader that stands directly behind it. `carried`: readers that `first` took off `Tail`.
/// `granting`: also tell `first` (it is not the caller).
fn let_readers_in(mem: &mut impl LockMemory, target: Rank, first: Node, carried: u64, granting: bool) {
    let (mut node, mut tell, mut readers) = (first, granting, carried + 1);
    loop {
        mem.fetch_add(target, LockWord::Readers, std::mem::replace(&mut readers, 1));
        let met = mem.compare_swap(node.rank(), node.next(target), EMPTY, READER_ACTIVE);
        if tell {
            // From here on the node is its owner's.
            grant(mem, target, node, false);
        }
        match Node::from_word(met) {
            Some(next) if !next.is_writer() => (node, tell) = (next, true),
            _ => return,
        }
    }
}

fn grant(mem: &mut impl LockMemory, target: Rank, node: Node, inherited: bool) {
    let value = u64::from(node.sequence()) << 1 | u64::from(inherited);
    mem.store(node.rank(), LockWord::Grant { target }, value);
}
