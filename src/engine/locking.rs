//! The way of a lock or lock_all epoch to its lock, and back [LK-1 to LK-6].
//!
//! An exclusive lock is held when its request is first in the target's queue, no reader is left, and it is registered in the
//! window's `Holders` while no lock_all is held. It registers only once it is first: a registration keeps new lock_alls out, so
//! it waits for those that are held and for nobody else. A lock_all holds by one addition to `Holders`, or takes it back and waits
//! holding nothing. So that it does not wait for ever, a process that holds no lock of the window lets the lock_alls pass that were
//! waiting before it *enters a queue* (the gate); once in a queue nobody is held back by a waiting lock_all.

use super::alphabet::{LockMemory, LockMode, LockWord, Port, Rank};
use super::epoch::{Kind, Locking};
use super::lock::{LockRequest, Turn, enqueue, look, release};
use super::slab::Key;
use super::window::Window;

/// Where `Holders` and `Intent` live.
const HOME: Rank = 0;
const ONE_EXCLUSIVE: u64 = 1 << 32;
const ONE_LOCK_ALL: u64 = 1;

fn lock_alls(holders: u64) -> u32 {
    holders as u32
}

fn exclusives(holders: u64) -> u32 {
    (holders >> 32) as u32
}

/// Counts one up in a half of `Intent`, without a carry from one half to the other.
fn count_intent(mem: &mut impl LockMemory, count: impl Fn(u32, u32) -> (u32, u32)) {
    let mut seen = mem.load(HOME, LockWord::Intent);
    loop {
        let (arrived, served) = count(seen as u32, (seen >> 32) as u32);
        let met = mem.compare_swap(HOME, LockWord::Intent, seen, u64::from(served) << 32 | u64::from(arrived));
        if met == seen {
            return;
        }
        seen = met;
    }
}

impl Window {
    /// A lock epoch is activated: its request is made, after those that stand at the gate [EP-10].
    pub(super) fn request_lock(&mut self, port: &mut impl Port, epoch: Key) {
        match self.epochs[epoch].kind {
            Kind::Lock { target, mode: LockMode::Shared, .. } if self.lock_gate.is_empty() => {
                self.enter_queue(port, epoch, target, LockMode::Shared);
            }
            _ => {
                self.lock_gate.push_back(epoch);
                self.advance_gate(port);
            }
        }
    }

    /// Makes the lock requests that may be made, in the order in which their epochs were activated [EP-10].
    pub(super) fn advance_gate(&mut self, port: &mut impl Port) {
        while let Some(&epoch) = self.lock_gate.front() {
            let Kind::Lock { target, mode, .. } = self.epochs[epoch].kind else { unreachable!("only locks pass the gate") };
            if mode == LockMode::Exclusive && self.locks_held == 0 && !self.gate_is_open(port, epoch) {
                return;
            }
            self.lock_gate.pop_front();
            self.enter_queue(port, epoch, target, mode);
        }
    }

    fn enter_queue(&mut self, port: &mut impl Port, epoch: Key, target: Rank, mode: LockMode) {
        let peer = self.peers.of(target);
        peer.lock_sequence = peer.lock_sequence.wrapping_add(1);
        let mut request = LockRequest { origin: self.me, target, mode, sequence: peer.lock_sequence, queued: false };
        self.moves += 1;
        let turn = enqueue(port, &mut request);
        self.epochs[epoch].locking = Locking::Queued(request);
        if !self.take_turn(port, epoch, request, turn) {
            self.lock_watch.push(epoch);
        } else if self.epochs[epoch].closed {
            self.closed(port, epoch);
        }
    }

    /// The lock_alls that waited when this request came have been served [LK-6].
    fn gate_is_open(&mut self, port: &mut impl Port, epoch: Key) -> bool {
        let intent = port.load(HOME, LockWord::Intent);
        let (arrived, served) = (intent as u32, (intent >> 32) as u32);
        let locking = &mut self.epochs[epoch].locking;
        let awaited = match *locking {
            Locking::Gate(awaited) => awaited,
            _ => arrived,
        };
        *locking = Locking::Gate(awaited);
        served.wrapping_sub(awaited).cast_signed() >= 0
    }

    /// True if the lock is held now.
    fn take_turn(&mut self, port: &mut impl Port, epoch: Key, request: LockRequest, turn: Turn) -> bool {
        let held = match (turn, request.mode) {
            (Turn::Waiting, _) => return false,
            (Turn::In { .. }, LockMode::Shared) | (Turn::In { inherited: true }, _) => true,
            (Turn::In { inherited: false }, LockMode::Exclusive) => {
                lock_alls(port.fetch_add(HOME, LockWord::Holders, ONE_EXCLUSIVE)) == 0
            }
        };
        self.epochs[epoch].locking = if held { Locking::Held(Some(request)) } else { Locking::Draining(request) };
        if held {
            self.grant(port, epoch);
        }
        held
    }

    pub(super) fn request_lock_all(&mut self, port: &mut impl Port, epoch: Key) {
        if exclusives(port.fetch_add(HOME, LockWord::Holders, ONE_LOCK_ALL)) == 0 {
            self.epochs[epoch].locking = Locking::Held(None);
            self.grant(port, epoch);
            return;
        }
        port.fetch_add(HOME, LockWord::Holders, ONE_LOCK_ALL.wrapping_neg());
        count_intent(port, |arrived, served| (arrived.wrapping_add(1), served));
        self.epochs[epoch].locking = Locking::AllWaiting;
        self.lock_watch.push(epoch);
    }

    /// Looks at every lock request that waits.
    pub(super) fn poll_locks(&mut self, port: &mut impl Port) {
        let mut at = 0;
        while at < self.lock_watch.len() {
            let epoch = self.lock_watch[at];
            let held = match self.epochs[epoch].locking {
                Locking::Queued(request) => {
                    let turn = look(port, request);
                    self.take_turn(port, epoch, request, turn)
                }
                Locking::Draining(request) => {
                    let drained = lock_alls(port.load(HOME, LockWord::Holders)) == 0;
                    if drained {
                        self.epochs[epoch].locking = Locking::Held(Some(request));
                        self.grant(port, epoch);
                    }
                    drained
                }
                Locking::AllWaiting => self.retry_lock_all(port, epoch),
                Locking::No | Locking::Gate(_) | Locking::Held(_) | Locking::Unchecked => {
                    unreachable!("only waiting requests are watched")
                }
            };
            if held {
                self.lock_watch.swap_remove(at);
                if self.epochs[epoch].closed {
                    self.closed(port, epoch);
                }
            } else {
                at += 1;
            }
        }
    }

    fn retry_lock_all(&mut self, port: &mut impl Port, epoch: Key) -> bool {
        let seen = port.load(HOME, LockWord::Holders);
        let free = exclusives(seen) == 0;
        if !free || port.compare_swap(HOME, LockWord::Holders, seen, seen + ONE_LOCK_ALL) != seen {
            return false;
        }
        count_intent(port, |arrived, served| (arrived, served.wrapping_add(1)));
        self.epochs[epoch].locking = Locking::Held(None);
        self.grant(port, epoch);
        true
    }

    /// Gives the lock of an epoch back. Tells the target nothing [LK-2].
    pub(super) fn unlock_now(&mut self, port: &mut impl Port, epoch: Key) {
        let held = &self.epochs[epoch];
        match held.locking {
            Locking::Held(Some(request)) => {
                let passed_on = release(port, request);
                if request.mode == LockMode::Exclusive && !passed_on {
                    port.fetch_add(HOME, LockWord::Holders, ONE_EXCLUSIVE.wrapping_neg());
                }
            }
            Locking::Held(None) => {
                port.fetch_add(HOME, LockWord::Holders, ONE_LOCK_ALL.wrapping_neg());
            }
            Locking::Unchecked => {}
            _ => unreachable!("only a held lock is released"),
        }
        self.locks_held -= 1;
        if let Kind::Lock { target, .. } = self.epochs[epoch].kind {
            self.peers.of(target).lock_active = None;
        }
    }
}
