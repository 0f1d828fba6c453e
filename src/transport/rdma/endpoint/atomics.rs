//! Accumulates by the interface's atomics, in windows whose accumulates are of single elements.
//!
//! An interface's atomics are not atomic with a processor's, so what is done to a location must be
//! done by the one or by the other, whoever does it. All know which: an element of eight bytes at
//! an address that they divide is the interface's, for the target itself and its node too;
//! everything else is the processor's of the target. (MPI-4.1 12.7.1: concurrent accumulates to a
//! location are of one datatype.)
//!
//! There are two atomics. A sum of integers is one of them, and so is a fetch, which adds 0. Every
//! other reduction is an exchange that supposes what the location has, and is tried again with what
//! it had. Until it is over, nothing goes to that peer that must come behind it: other accumulates
//! keep the order of their calls [AT-2], and signals, messages and notifications tell of operations
//! that have been done [FE-2].

use super::super::context::{AtomicOp, Requester};
use super::super::handshake::RemoteAddress;
use super::{Endpoint, lock};
use crate::engine::{Addr, Atomic, NoResource, Op, OpKind, Posted, Ticket};
use crate::transport::element::{native, native_extent, native_has, reduction};
use crate::transport::kernel::Combine;

/// A native element is never given to the host.
unsafe fn no_foreign(
    _: crate::engine::Element,
    _: crate::engine::Reduction,
    _: *const u8,
    _: *mut u8,
    _: usize,
) {
    debug_assert!(false, "the datatype is native");
}

/// # Safety
/// Eight bytes can be read there.
unsafe fn word_at(at: Addr) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { (at.0 as *const u64).read_unaligned() }
}

impl Endpoint {
    /// True if the interface does this operation in this window, whoever its target is.
    #[inline]
    pub(crate) fn offloads(&self, op: &Op) -> bool {
        self.nic_accumulates && op.len == 8 && op.shape.is_none() && change_of(op).is_some()
    }

    /// Starts an accumulate; `None` if the target's processor has to do it.
    pub(crate) fn post_atomic(&mut self, op: &Op, ticket: Ticket) -> Option<Posted> {
        if !self.offloads(op) {
            return None;
        }
        let change = change_of(op)?;
        let index = self.peer(op.target);
        let Some((conn, remote)) = self.reach(index) else { return Some(Posted::NoResource) };
        let at = remote.memory.at.wrapping_add(op.disp);
        if !remote.has_memory() || at % 8 != 0 {
            return None;
        }
        let has_result = matches!(op.kind, OpKind::GetAccumulate | OpKind::CompareAndSwap);
        let asker = Requester::Operation(ticket, if has_result { op.result.0 } else { 0 });
        let mut context = lock(&self.context);
        let started = match context.has_cas_loops(conn) {
            true => Err(NoResource),
            false => context.access(
                conn,
                self.window,
                asker,
                RemoteAddress { at, rkey: remote.memory.rkey },
                change,
            ),
        };
        Some(match (started, has_result) {
            (Err(NoResource), _) => Posted::NoResource,
            (Ok(()), true) => Posted::Pending,
            // What it brings was copied.
            (Ok(()), false) => Posted::Local,
        })
    }
}

/// What an operation of eight bytes does; `None` if an interface does not do that.
fn change_of(op: &Op) -> Option<AtomicOp> {
    let word = |at| {
        // SAFETY: the operation's buffers are valid until it is complete [EP-8].
        unsafe { word_at(at) }
    };
    if native_extent(op.element) != Some(8) {
        return None;
    }
    match op.kind {
        OpKind::CompareAndSwap => {
            let (expected, new) = (word(op.compare), word(op.origin));
            Some(AtomicOp::Word(Atomic::CompareSwap { expected, new }))
        }
        OpKind::Accumulate | OpKind::GetAccumulate => {
            if !native_has(op.element, op.reduction) {
                return None;
            }
            let integer = matches!(op.element, native::I64 | native::U64);
            Some(match op.reduction {
                reduction::NO_OP => AtomicOp::Word(Atomic::Add(0)),
                reduction::SUM if integer => AtomicOp::Word(Atomic::Add(word(op.origin))),
                _ => {
                    let combine = Combine {
                        element: op.element,
                        reduction: op.reduction,
                        extent: 8,
                        foreign: no_foreign,
                    };
                    AtomicOp::Reduce(combine, word(op.origin))
                }
            })
        }
        _ => None,
    }
}
