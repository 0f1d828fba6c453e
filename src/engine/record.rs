//! Recorded operations: one arena per window, 64 bytes each, chained per target.

use std::num::NonZeroU32;

use super::lanes::target_at;
use super::port::{
    Addr, Element, Notification, Op, OpKind, Rank, Reduction, RequestId, Shaped, Ticket,
};
use super::request::Requests;

/// End of a queue.
pub(super) const NIL: u32 = u32::MAX;
/// An empty arena with more records than this frees its memory.
const KEEP: usize = 1024;

/// An operation that is recorded or in flight, and its accounting data.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Record {
    origin: Addr,
    result: Addr,
    /// Length in bytes. A compare_and_swap, whose length is its extent, stores the compare buffer's
    /// address here.
    len_or_compare: u64,
    /// The displacement, or the shape's number for a shaped operation.
    disp: u64,
    /// Request of an R-form, packed.
    request: u64,
    /// Where its epoch keeps it (see [`super::lanes`]), and the flag [`ORDERED`].
    place: u32,
    kind: OpKind,
    element: Element,
    reduction: Reduction,
    /// Extent in the low 6 bits, and the flags [`SHAPED`] and [`LOCAL_DONE`].
    extent: u8,
    notification: Option<Notification>,
    age_local: u32,
    age_remote: u32,
    /// Next record in the leg's queue or in the free list. While in flight: index of the epoch.
    next_or_epoch: u32,
}

const LOCAL_DONE: u8 = 0x80;
/// Flag: the operation has a shape.
const SHAPED: u8 = 0x40;
/// Flag: the operation follows an order. Places are below it.
const ORDERED: u32 = 1 << 31;
/// Number of places that a record can name.
pub(super) const PLACES: u32 = ORDERED;
const _: () = assert!(size_of::<Record>() == 64, "a recorded operation takes one cache line");

/// The accounting data of an operation. `epoch` is valid only while the operation is in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    pub(super) epoch: u32,
    /// Where its epoch keeps it; see [`super::lanes`].
    pub(super) place: Rank,
    pub(super) age_local: u32,
    pub(super) age_remote: u32,
    pub(super) request: Option<RequestId>,
    pub(super) local_done: bool,
}

/// The arena of records of one window.
#[derive(Debug)]
pub(super) struct Records {
    /// Processes of the window, which tell a target by its place.
    size: u32,
    records: Vec<Record>,
    free: u32,
    len: usize,
}

impl Records {
    pub(super) fn new(size: u32) -> Self {
        Records { size, records: Vec::new(), free: NIL, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The ticket that the next [`insert`](Self::insert) will use.
    #[inline]
    pub(super) fn next_ticket(&self) -> Ticket {
        Ticket(if self.free == NIL { self.records.len() as u32 } else { self.free })
    }

    pub(super) fn insert(&mut self, op: &Op, account: Account) -> u32 {
        let cas = op.kind == OpKind::CompareAndSwap;
        let record = Record {
            origin: op.origin,
            result: op.result,
            len_or_compare: if cas { op.compare.0 as u64 } else { op.len },
            disp: op.shape.map_or(op.disp, |shape| u64::from(shape.0.get())),
            request: Requests::pack(account.request),
            place: account.place,
            kind: op.kind,
            element: op.element,
            reduction: op.reduction,
            extent: op.extent
                | if account.local_done { LOCAL_DONE } else { 0 }
                | if op.shape.is_some() { SHAPED } else { 0 },
            notification: op.notification,
            age_local: account.age_local,
            age_remote: account.age_remote,
            next_or_epoch: account.epoch,
        };
        self.len += 1;
        if self.free == NIL {
            self.records.push(record);
            u32::try_from(self.records.len() - 1)
                .ok()
                .filter(|i| *i != NIL)
                .expect("fewer than 2^32 - 1 recorded operations")
        } else {
            let index = self.free;
            self.free = self.records[index as usize].next_or_epoch;
            self.records[index as usize] = record;
            index
        }
    }

    pub(super) fn op(&self, index: u32) -> Op {
        let r = &self.records[index as usize];
        let extent = r.extent & !(LOCAL_DONE | SHAPED);
        let shape =
            if r.extent & SHAPED == 0 { None } else { NonZeroU32::new(r.disp as u32).map(Shaped) };
        let cas = r.kind == OpKind::CompareAndSwap;
        let place = r.place & !ORDERED;
        Op {
            origin: r.origin,
            result: r.result,
            compare: Addr(if cas { r.len_or_compare as usize } else { 0 }),
            disp: if shape.is_some() { 0 } else { r.disp },
            shape,
            notification: r.notification,
            len: if cas { u64::from(extent) } else { r.len_or_compare },
            target: target_at(place, self.size),
            kind: r.kind,
            element: r.element,
            reduction: r.reduction,
            extent,
        }
    }

    pub(super) fn account(&self, index: u32) -> Account {
        let r = &self.records[index as usize];
        Account {
            epoch: r.next_or_epoch,
            place: r.place & !ORDERED,
            age_local: r.age_local,
            age_remote: r.age_remote,
            request: Requests::unpack(r.request),
            local_done: r.extent & LOCAL_DONE != 0,
        }
    }

    pub(super) fn set_local_done(&mut self, index: u32) {
        self.records[index as usize].extent |= LOCAL_DONE;
    }

    /// The operation must take effect after all that were posted to its target before [OR-1].
    pub(super) fn set_ordered(&mut self, index: u32) {
        self.records[index as usize].place |= ORDERED;
    }

    pub(super) fn is_ordered(&self, index: u32) -> bool {
        self.records[index as usize].place & ORDERED != 0
    }

    /// Queues `next` behind a record.
    pub(super) fn set_next(&mut self, index: u32, next: u32) {
        self.records[index as usize].next_or_epoch = next;
    }

    /// Removes a record, now in flight, from the head of its queue. Returns the next one.
    pub(super) fn dequeue(&mut self, index: u32, epoch: u32) -> u32 {
        std::mem::replace(&mut self.records[index as usize].next_or_epoch, epoch)
    }

    pub(super) fn remove(&mut self, index: u32) {
        self.records[index as usize].next_or_epoch = self.free;
        self.free = index;
        self.len -= 1;
        if self.len == 0 && self.records.len() > KEEP {
            self.records = Vec::new();
            self.free = NIL;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_gives_back_its_operation() {
        let mut records = Records::new(7);
        let op = Op {
            origin: Addr(1),
            result: Addr(2),
            compare: Addr(3),
            disp: 1 << 40,
            shape: None,
            notification: Some(Notification::tag(i32::MAX as u32)),
            len: 8,
            target: 5,
            kind: OpKind::CompareAndSwap,
            element: Element(6),
            reduction: Reduction(7),
            extent: 8,
        };
        let request = RequestId { index: 9, generation: NonZeroU32::new(4).unwrap() };
        let account = Account {
            epoch: 1,
            place: 5 + 2 * 7,
            age_local: 2,
            age_remote: 3,
            request: Some(request),
            local_done: true,
        };
        assert_eq!(records.next_ticket(), Ticket(0));
        let index = records.insert(&op, account);
        assert_eq!(format!("{:?}", records.op(index)), format!("{op:?}"));
        assert_eq!(records.account(index).request, Some(request));
        assert!(records.account(index).local_done);
        assert!(!records.is_ordered(index));
        records.set_ordered(index);
        assert!(records.is_ordered(index));
        assert_eq!((records.op(index).target, records.account(index).place), (5, 19));
        records.remove(index);
        assert_eq!(records.len(), 0);
        let shape = NonZeroU32::new(u32::MAX).map(Shaped);
        let op = Op {
            kind: OpKind::GetAccumulate,
            disp: 0,
            shape,
            notification: Some(Notification::counter(0)),
            extent: 32,
            len: 1 << 40,
            compare: Addr(0),
            ..op
        };
        let index = records.insert(&op, account);
        records.set_local_done(index);
        assert_eq!(format!("{:?}", records.op(index)), format!("{op:?}"));
    }
}
