//! Queue pairs: what a reliable connection keeps in order, and what it does not.

use std::collections::VecDeque;

use mpix_rma::transport::rdma::device::*;

use super::{bytes_at, write_bytes};

/// Most pieces in which the bytes of one write are placed, or those of one read are fetched.
const MAX_PIECES: usize = 4;
/// Runs for which a read or atomic may wait at the peer before it is executed.
const MAX_LATE_RUNS: u8 = 24;
/// Runs for which a response may be in flight.
const MAX_RESPONSE_RUNS: u8 = 4;

/// How far a request has got.
#[derive(Debug)]
pub(super) enum Stage {
    Posted,
    /// A read or atomic that has arrived and is not executed yet: in how many runs it may be, and
    /// the bytes that it has read so far.
    Arrived {
        late: u8,
        read: Vec<u8>,
    },
    /// A read or atomic whose response is in flight.
    Executed {
        late: u8,
        response: Vec<u8>,
    },
    /// Complete, as soon as all requests before it are.
    Finished,
    /// It fails when all requests before it are complete.
    Refused(u32),
}

/// A request that is not complete.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) work: WorkRequest,
    pub(super) parts: Vec<LocalSegment>,
    pub(super) inline: Option<Vec<u8>>,
    pub(super) stage: Stage,
}

impl Request {
    pub(super) fn is_atomic(&self) -> bool {
        matches!(self.work.opcode, Opcode::FetchAdd(_) | Opcode::CompareSwap { .. })
    }

    fn has_response(&self) -> bool {
        self.is_atomic() || self.work.opcode == Opcode::Read
    }

    /// Whether it is a message for the peer's process, which consumes a receive.
    pub(super) fn is_message(&self) -> bool {
        matches!(self.work.opcode, Opcode::SendImm(_) | Opcode::WriteImm(_))
    }

    /// Bytes of the peer's memory that it accesses.
    pub(super) fn remote_len(&self) -> usize {
        match self.work.opcode {
            Opcode::SendImm(_) => 0,
            _ if self.is_atomic() => 8,
            _ => self.work.len as usize,
        }
    }

    fn is_outstanding(&self) -> bool {
        matches!(self.stage, Stage::Arrived { .. } | Stage::Executed { .. })
    }
}

/// Bytes of a write that has arrived but that nobody sees yet.
#[derive(Debug)]
struct Piece {
    /// The request that wrote them.
    id: u64,
    key: u32,
    at: usize,
    bytes: Vec<u8>,
}

/// One end of a connection: its send queue, and its writes that are not visible yet.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) nic: usize,
    pub(super) queue: Qp,
    pub(super) to: Option<u32>,
    /// Requests that are not complete, in the order of posting.
    pub(super) requests: VecDeque<Request>,
    hidden: Vec<Piece>,
    /// The disconnect, if delivered but not acknowledged: its number, and in how many runs it will
    /// be. Once the receiver has destroyed its queue pair, this counts up to the end of all
    /// retries.
    pub(super) unacknowledged: Option<(u64, u32)>,
    pub(super) failed: bool,
}

impl Pair {
    pub(super) fn new(nic: usize, queue: Qp) -> Self {
        Pair {
            nic,
            queue,
            to: None,
            requests: VecDeque::new(),
            hidden: Vec::new(),
            unacknowledged: None,
            failed: false,
        }
    }

    /// No request waits for the one behind it any more.
    pub(super) fn post_kept(&mut self) {
        if let Some(last) = self.requests.back_mut() {
            last.work.more = false;
        }
    }

    /// The request that may be started next: the oldest that is not. It waits for responses if it
    /// has the fence flag, or if as many are due as the port serves concurrently.
    pub(super) fn next_to_start(&self, depth: usize) -> Option<usize> {
        let at = self.requests.iter().position(|one| matches!(one.stage, Stage::Posted))?;
        let outstanding = self.requests.iter().filter(|one| one.is_outstanding()).count();
        let next = &self.requests[at];
        let waits = next.work.fence && outstanding > 0
            || next.has_response() && outstanding >= depth
            // The device waits for the request behind it.
            || next.work.more && at + 1 == self.requests.len()
            || self.requests.iter().any(|one| matches!(one.stage, Stage::Refused(_)));
        (!waits).then_some(at)
    }

    /// Starts a read or atomic: it arrives at the peer.
    pub(super) fn arrive(&mut self, at: usize, rng: &mut fastrand::Rng) {
        let late = if rng.bool() { 0 } else { rng.u8(..MAX_LATE_RUNS) };
        self.requests[at].stage = Stage::Arrived { late, read: Vec::new() };
    }

    /// The requests that may be executed now. An atomic may be executed before an earlier read. All
    /// others keep their order: reads among themselves, atomics among themselves, and a read behind
    /// an atomic.
    pub(super) fn executable(&self) -> Vec<usize> {
        let (mut found, mut behind_atomic, mut behind_read) = (Vec::new(), false, false);
        for (at, one) in self.requests.iter().enumerate() {
            let Stage::Arrived { late, .. } = one.stage else { continue };
            let waits = behind_atomic || behind_read && !one.is_atomic();
            if late == 0 && !waits {
                found.push(at);
            }
            behind_atomic |= one.is_atomic();
            behind_read |= !one.is_atomic();
        }
        found
    }

    /// The atomic that has read its word and not written it yet.
    pub(super) fn half_done(&self) -> Option<usize> {
        self.requests.iter().position(|one| {
            one.is_atomic() && matches!(&one.stage, Stage::Arrived { read, .. } if !read.is_empty())
        })
    }

    /// Executes part of a request: fetches some bytes of a read, or the word of an atomic, which it
    /// writes later. `at_once`: an atomic does both.
    pub(super) fn execute(&mut self, at: usize, at_once: bool, rng: &mut fastrand::Rng) {
        let Request { work, stage, .. } = &mut self.requests[at];
        let (remote, len) = (work.remote as usize, work.len as usize);
        let Stage::Arrived { read, .. } = stage else { panic!("it has arrived") };
        let response = match work.opcode {
            Opcode::Read => {
                let from = remote + read.len();
                let to = if rng.bool() { remote + len } else { cut(from, remote + len, rng) };
                read.extend(bytes_at(from, to - from));
                if to < remote + len {
                    return;
                }
                std::mem::take(read)
            }
            Opcode::FetchAdd(_) | Opcode::CompareSwap { .. } => {
                assert_eq!(remote % 8, 0);
                let word = remote as *mut u64;
                if read.is_empty() {
                    read.extend(unsafe { word.read() }.to_ne_bytes());
                    if !at_once {
                        return;
                    }
                }
                let old = u64::from_ne_bytes(read[..].try_into().unwrap());
                match work.opcode {
                    Opcode::FetchAdd(delta) => unsafe { word.write(old.wrapping_add(delta)) },
                    Opcode::CompareSwap { expected, new } if expected == old => unsafe {
                        word.write(new)
                    },
                    _ => {}
                }
                old.to_ne_bytes().to_vec()
            }
            _ => panic!("{work:?} has no response"),
        };
        *stage = Stage::Executed { late: rng.u8(..MAX_RESPONSE_RUNS), response };
    }

    /// The requests whose response may arrive now.
    pub(super) fn answered(&self) -> Vec<usize> {
        let arrives = |one: &Request| matches!(one.stage, Stage::Executed { late: 0, .. });
        (0..self.requests.len()).filter(|at| arrives(&self.requests[*at])).collect()
    }

    /// Ends a request, and returns its response.
    pub(super) fn finish(&mut self, at: usize) -> Vec<u8> {
        match std::mem::replace(&mut self.requests[at].stage, Stage::Finished) {
            Stage::Executed { response, .. } => response,
            _ => Vec::new(),
        }
    }

    /// Takes the oldest request, if it is complete or fails now.
    pub(super) fn pop_ended(&mut self) -> Option<Result<WorkRequest, u32>> {
        match self.requests.front()?.stage {
            Stage::Finished => Some(Ok(self.requests.pop_front()?.work)),
            Stage::Refused(code) => Some(Err(code)),
            _ => None,
        }
    }

    /// One run has passed.
    pub(super) fn age(&mut self) {
        for one in &mut self.requests {
            if let Stage::Arrived { late, .. } | Stage::Executed { late, .. } = &mut one.stage {
                *late = late.saturating_sub(1);
            }
        }
    }

    /// Hides the bytes of a write, in pieces that become visible one by one, in any order.
    pub(super) fn hide(&mut self, work: &WorkRequest, bytes: &[u8], rng: &mut fastrand::Rng) {
        let (mut from, end) = (work.remote as usize, work.remote as usize + bytes.len());
        for piece in 1..=MAX_PIECES {
            let to = if piece == MAX_PIECES { end } else { cut(from, end, rng) };
            let start = from - work.remote as usize;
            let bytes = bytes[start..start + (to - from)].to_vec();
            self.hidden.push(Piece { id: work.id, key: work.rkey, at: from, bytes });
            from = to;
            if from == end {
                break;
            }
        }
    }

    /// Makes all writes visible that were posted before request `id`, if peers still reach their
    /// memory.
    pub(super) fn show_before(&mut self, id: u64, reaches: impl Fn(u32, usize, usize) -> bool) {
        self.hidden.retain(|piece| {
            if piece.id < id && reaches(piece.key, piece.at, piece.bytes.len()) {
                write_bytes(piece.at, &piece.bytes);
            }
            piece.id >= id
        });
    }

    /// Makes some of the hidden pieces visible, any of them, or none.
    pub(super) fn show_some(
        &mut self,
        rng: &mut fastrand::Rng,
        reaches: impl Fn(u32, usize, usize) -> bool,
    ) {
        while !self.hidden.is_empty() && rng.u8(0..3) > 0 {
            let Piece { key, at, bytes, .. } =
                self.hidden.swap_remove(rng.usize(..self.hidden.len()));
            // Not if the memory was deregistered: nothing is written after that.
            if reaches(key, at, bytes.len()) {
                write_bytes(at, &bytes);
            }
        }
    }
}

/// An address at which bytes are divided, or the end. Aligned words of 8 bytes stay whole.
fn cut(from: usize, end: usize, rng: &mut fastrand::Rng) -> usize {
    if end - from <= 8 || rng.bool() {
        return end;
    }
    rng.usize(from + 1..=end).next_multiple_of(8).min(end)
}
