//! Accumulates by device atomics, in windows whose accumulates are of single elements.
//!
//! Device atomics are not atomic with a processor's. So each location belongs to one of the two,
//! whoever accesses it. An element of 8 bytes at an address divisible by 8 belongs to the device,
//! also for the target and its node; everything else belongs to the target's processor. (MPI-4.1
//! 12.7.1: concurrent accumulates to a location use one datatype.)
//!
//! Devices have two atomics. A sum of integers is a fetch-and-add, and so is a fetch, which adds 0.
//! Every other reduction is a loop of compare-and-swaps, which first expects 0 and then the value
//! that it found. During the loop, nothing that must be ordered behind it is posted to that peer:
//! accumulates keep the order of their calls [AT-2]; signals, messages and notifications report
//! operations as complete [FE-2].

use super::super::context::{AtomicOp, Requester};
use super::Endpoint;
use crate::engine::{Addr, Atomic, Op, OpKind, Posted, Ticket};
use crate::transport::datatype::Combine;
use crate::transport::datatype::element::{native, native_extent, native_has, reduction};
use crate::transport::peers::PeerId;

/// Never called, because the host reduces no native elements.
unsafe fn no_foreign(
    _: crate::engine::Element,
    _: crate::engine::Reduction,
    _: *const u8,
    _: *mut u8,
    _: usize,
) {
    debug_assert!(false, "the datatype is native");
}

impl Endpoint {
    /// Whether devices execute this accumulate, if its address at the target is divisible by 8.
    #[inline]
    #[must_use]
    pub fn offloads(&self, op: &Op) -> bool {
        self.nic_accumulates && op.len == 8 && op.shape.is_none() && atomic_of(op).is_some()
    }

    /// Posts an accumulate as a device atomic. `None`: the target's processor has to execute it.
    pub fn post_atomic(&mut self, peer: PeerId, op: &Op, ticket: Ticket) -> Option<Posted> {
        if !self.offloads(op) {
            return None;
        }
        let atomic = atomic_of(op)?;
        let Some((conn, remote)) = self.connected(peer) else { return Some(Posted::NoResource) };
        let word = remote.memory.offset(op.disp);
        if !remote.has_memory() || word.addr % 8 != 0 {
            return None;
        }
        let has_result = matches!(op.kind, OpKind::GetAccumulate | OpKind::CompareAndSwap);
        let requester = Requester::Operation(ticket, if has_result { op.result.0 } else { 0 });
        if self.begin_ordered(peer, conn, op.kind).is_err() {
            return Some(Posted::NoResource);
        }
        let mut context = self.context.borrow();
        if context.has_cas_loops(conn)
            || context.access(conn, self.window, requester, word, atomic).is_err()
        {
            return Some(Posted::NoResource);
        }
        // Without a result the operation is locally complete, because its operand is copied.
        Some(if has_result { Posted::Pending } else { Posted::Local })
    }

    /// Whether accumulates by device atomics are in flight to a process (which may be this one).
    #[must_use]
    pub fn has_accumulates_in_flight(&self, peer: PeerId) -> bool {
        let conn = self.peers.get(peer.at()).and_then(|peer| peer.conn);
        conn.is_some_and(|conn| self.context.borrow().has_accumulates(conn))
    }
}

/// The atomic for an accumulate of 8 bytes; `None` if its datatype or operation is not offloaded.
fn atomic_of(op: &Op) -> Option<AtomicOp> {
    let operand = |at: Addr| {
        // SAFETY: the application keeps the 8-byte operands valid until the operation is complete
        // [EP-8].
        unsafe { (at.0 as *const u64).read_unaligned() }
    };
    if native_extent(op.element) != Some(8) {
        return None;
    }
    match op.kind {
        OpKind::CompareAndSwap => {
            let (expected, new) = (operand(op.compare), operand(op.origin));
            Some(AtomicOp::Word(Atomic::CompareSwap { expected, new }))
        }
        OpKind::Accumulate | OpKind::GetAccumulate => {
            if !native_has(op.element, op.reduction) {
                return None;
            }
            let integer = matches!(op.element, native::I64 | native::U64);
            Some(match op.reduction {
                reduction::NO_OP => AtomicOp::Word(Atomic::Add(0)),
                reduction::SUM if integer => AtomicOp::Word(Atomic::Add(operand(op.origin))),
                _ => {
                    let combine = Combine {
                        element: op.element,
                        reduction: op.reduction,
                        extent: 8,
                        foreign: no_foreign,
                    };
                    AtomicOp::Reduce(combine, operand(op.origin))
                }
            })
        }
        _ => None,
    }
}
