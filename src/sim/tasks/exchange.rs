//! How a rank exchanges rows with the ranks above and below: by messages, or by notified puts of
//! the engine.

use super::super::script::byte_op;
use super::super::two_sided::{PacketKind, packed, unpacked};
use super::gauss_seidel::{Kind, Task};
use crate::engine::{
    Assert, Notification, Op, OpKind, Outcome, Rank, ReorderFlags, RequestId, SyncError, Window,
};
use crate::transport::sim::{Network, Time};

/// The two kinds of tasks that receive, in the order of their sides.
const RECEIVES: [Kind; 2] = [Kind::ReceiveUpper, Kind::ReceiveLower];
/// The two kinds of tasks that send to these sides.
const SENDS: [Kind; 2] = [Kind::SendUp, Kind::SendDown];

/// The side of a communication: 0 above, 1 below.
fn side_of(kind: Kind) -> usize {
    usize::from(matches!(kind, Kind::SendDown | Kind::ReceiveLower))
}

/// What every rank's communication has in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// CPU time of a call.
    pub(super) call: Time,
    /// Longest eager message.
    pub(super) eager_max: u64,
    /// Bytes of a piece of a row.
    pub(super) bytes: u64,
    /// Pieces of a row.
    pub(super) pieces: u32,
}

/// The communication of one rank. Calls return true if the communication is complete; otherwise a
/// [`sweep`](Exchange::sweep) reports it.
pub(super) struct Exchange {
    me: Rank,
    costs: Costs,
    /// By kind and column: the task whose communication is incomplete.
    pending: Vec<Option<Task>>,
    by: By,
}

enum By {
    Messages(Messages),
    Puts(Box<Puts>),
}

/// Two-sided messages, eager or by rendezvous as in [`two_sided`](super::super::two_sided).
struct Messages {
    /// By side and column: messages that have arrived and are not received (eager or ready).
    arrived: [Vec<u32>; 2],
}

/// Notified puts within one epoch for all targets. Counter j counts the pieces of column j that
/// have arrived from above, and the others those from below.
struct Puts {
    window: Window,
    /// By index: the place in `pending` of each request of the engine.
    bound: Vec<usize>,
}

impl Exchange {
    pub(super) fn by_messages(me: Rank, costs: Costs) -> Self {
        let arrived = [0, 1].map(|_| vec![0; costs.pieces as usize]);
        Self::new(me, costs, By::Messages(Messages { arrived }))
    }

    pub(super) fn by_puts(me: Rank, ranks: u32, costs: Costs) -> Self {
        let window = Window::new(me, ranks, ReorderFlags::default());
        Self::new(me, costs, By::Puts(Box::new(Puts { window, bound: Vec::new() })))
    }

    fn new(me: Rank, costs: Costs, by: By) -> Self {
        Exchange { me, costs, pending: vec![None; 4 * costs.pieces as usize], by }
    }

    fn place(&self, kind: Kind, column: u32) -> usize {
        let of = side_of(kind) + if SENDS.contains(&kind) { 0 } else { 2 };
        of * self.costs.pieces as usize + column as usize
    }

    /// Opens the epoch of the puts.
    pub(super) fn open(&mut self, net: &mut Network) -> Result<(), SyncError> {
        match &mut self.by {
            By::Messages(_) => Ok(()),
            By::Puts(puts) => puts.window.lock_all(&mut net.port(0, self.me), Assert::default()),
        }
    }

    /// Closes the epoch of the puts.
    pub(super) fn close(&mut self, net: &mut Network) -> Result<(), SyncError> {
        match &mut self.by {
            By::Messages(_) => Ok(()),
            By::Puts(puts) => {
                // What is pending is found by `is_quiet`.
                let _ = puts.window.unlock_all(&mut net.port(0, self.me))?;
                // Deliveries that the call itself caused wake nobody.
                self.sweep(net, &mut Vec::new());
                Ok(())
            }
        }
    }

    /// True if nothing is pending.
    pub(super) fn is_quiet(&self) -> bool {
        let engine = match &self.by {
            By::Messages(_) => true,
            By::Puts(puts) => puts.window.is_quiet(),
        };
        engine && self.pending.iter().all(Option::is_none)
    }

    /// Makes the call of a communication task.
    pub(super) fn call(&mut self, net: &mut Network, task: Task) -> Result<bool, SyncError> {
        net.spend(self.costs.call);
        let place = self.place(task.kind, task.column);
        let (side, me, costs) = (side_of(task.kind), self.me, self.costs);
        let other = if side == 0 { me - 1 } else { me + 1 };
        let sends = SENDS.contains(&task.kind);
        let complete = match &mut self.by {
            By::Messages(_) if sends => send(net, me, other, task.column, &costs),
            By::Messages(messages) => messages.receive(net, (me, other), side, task.column, &costs),
            By::Puts(puts) => {
                let request = if sends {
                    puts.put(net, me, other, 1 - side, task.column, &costs)?
                } else {
                    puts.expect(net, me, side, task, &costs)
                };
                request.is_none_or(|request| {
                    puts.bind(request, place);
                    false
                })
            }
        };
        if !complete {
            assert_eq!(self.pending[place], None, "two communications of {task:?} at a time");
            self.pending[place] = Some(task);
        }
        Ok(complete)
    }

    /// Handles what has arrived. Adds the tasks whose communication is now complete.
    pub(super) fn sweep(&mut self, net: &mut Network, complete: &mut Vec<Task>) {
        match &mut self.by {
            By::Messages(_) => self.read_packets(net, complete),
            By::Puts(puts) => {
                while puts.window.progress(&mut net.port(0, self.me)) {}
                while let Some(request) = puts.window.next_completed() {
                    puts.window.found(request);
                    let bound = puts.bound.get_mut(request.index as usize);
                    let place = bound.map_or(UNBOUND, |at| std::mem::replace(at, UNBOUND));
                    // The request of the end of the epoch is not bound.
                    if place != UNBOUND {
                        complete.extend(self.pending[place].take());
                    }
                }
            }
        }
    }

    fn read_packets(&mut self, net: &mut Network, complete: &mut Vec<Task>) {
        let (me, costs) = (self.me, self.costs);
        while let Some(packet) = net.next_packet(me) {
            net.spend(net.parameters().wire.handle);
            let (kind, column) = unpacked(packet.value);
            let side = usize::from(packet.from > me);
            let receive = self.place(RECEIVES[side], column as u32);
            let send = self.place(SENDS[side], column as u32);
            let By::Messages(messages) = &mut self.by else { unreachable!("packets are messages") };
            match (kind, packet.acknowledged) {
                (PacketKind::Eager, false) if self.pending[receive].is_some() => {
                    complete.extend(self.pending[receive].take());
                }
                (PacketKind::Ready, false) if self.pending[receive].is_some() => {
                    answer(net, me, packet.from, PacketKind::Clear, column, 0);
                }
                (PacketKind::Eager | PacketKind::Ready, false) => {
                    messages.arrived[side][column as usize] += 1;
                }
                (PacketKind::Clear, false) => {
                    answer(net, me, packet.from, PacketKind::Data, column, costs.bytes);
                }
                (PacketKind::Data, false) => complete.extend(self.pending[receive].take()),
                (PacketKind::Data, true) => complete.extend(self.pending[send].take()),
                (_, true) => {}
            }
        }
    }
}

fn answer(net: &mut Network, me: Rank, to: Rank, kind: PacketKind, column: u64, bytes: u64) {
    net.port(0, me).send_packet(to, packed(kind, column), bytes);
}

/// Sends a piece of a row. An eager message is complete when it has been copied into a buffer.
fn send(net: &mut Network, me: Rank, to: Rank, column: u32, costs: &Costs) -> bool {
    let eager = costs.bytes <= costs.eager_max;
    let (kind, bytes) =
        if eager { (PacketKind::Eager, costs.bytes) } else { (PacketKind::Ready, 0) };
    answer(net, me, to, kind, column.into(), bytes);
    if eager {
        net.spend(net.parameters().local.serial(bytes));
    }
    eager
}

impl Messages {
    fn receive(
        &mut self,
        net: &mut Network,
        (me, from): (Rank, Rank),
        side: usize,
        column: u32,
        costs: &Costs,
    ) -> bool {
        let arrived = &mut self.arrived[side][column as usize];
        if *arrived == 0 {
            return false;
        }
        *arrived -= 1;
        if costs.bytes > costs.eager_max {
            answer(net, me, from, PacketKind::Clear, column.into(), 0);
            return false;
        }
        true
    }
}

/// A request that no task waits for.
const UNBOUND: usize = usize::MAX;

impl Puts {
    fn bind(&mut self, request: RequestId, place: usize) {
        let at = request.index as usize;
        if at >= self.bound.len() {
            self.bound.resize(at + 1, UNBOUND);
        }
        self.bound[at] = place;
    }

    /// `MPIX_Rput_notify`: complete when the buffer may be reused.
    fn put(
        &mut self,
        net: &mut Network,
        me: Rank,
        to: Rank,
        side: usize,
        column: u32,
        costs: &Costs,
    ) -> Result<Option<RequestId>, SyncError> {
        let counter = side as u32 * costs.pieces + column;
        let op = Op {
            notification: Some(Notification::counter(counter)),
            ..byte_op(OpKind::Put, to, u64::from(counter) * costs.bytes, costs.bytes)
        };
        let outcome = self.window.issue_request(&mut net.port(0, me), &op)?;
        Ok(match outcome {
            Outcome::Complete => None,
            Outcome::Pending(request) => Some(request),
        })
    }

    /// `MPIX_Win_notify_ithreshold`: complete when the piece of this iteration has arrived.
    fn expect(
        &mut self,
        net: &mut Network,
        me: Rank,
        side: usize,
        task: Task,
        costs: &Costs,
    ) -> Option<RequestId> {
        let counter = side as u32 * costs.pieces + task.column;
        let expected = u64::from(task.iteration) + 1;
        let (outcome, _) = self.window.await_counters(&mut net.port(0, me), counter, 1, expected);
        match outcome {
            Outcome::Complete => None,
            Outcome::Pending(request) => Some(request),
        }
    }
}
