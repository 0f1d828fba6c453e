//! A LogGP network in virtual time, for many ranks in one thread: what it does follows from its
//! inputs alone.
//!
//! [`Network`] owns time, the event queue, the network's state and everything a rank's memory holds
//! of ours; [`SimPort`] is one rank's [`Port`](crate::engine::Port) for the duration of a call.
//! `crate::sim::World` joins it with engines and scripts; anything else may do so too:
//!
//! 1. [`Network::begin`] names the rank whose CPU runs, and the time at which it does;
//! 2. engine calls on [`Network::port`] post, signal and look; what they cost that CPU is in
//!    [`Network::clock`] afterwards;
//! 3. [`Network::advance`] jumps to the next event. Ranks that it brought something are in
//!    [`Network::next_woken`].
//!
//! # The model
//! A message of n bytes from one node to another takes its CPU `post`, then the origin's port for
//! max(gap, n G), one latency L, and the target's port for as long; head and tail travel L apart
//! from the port (cut-through), so an idle network takes `post` + n G + L to the last byte, and the
//! acknowledgement another L. The rest is where it deviates from reality, on purpose:
//!
//! - **Ports.** One NIC per node, full duplex; the ranks of a node share it. Messages longer than
//!   one MTU reserve a port whole, in the order in which they come; shorter ones slip in between
//!   the packets of a longer one: they wait for at most one packet and for other short ones, and
//!   the time that they take is added to what is reserved next ([`lane`](lane::Lane)). A sender is
//!   not held back by a crowded receiver.
//! - **Order.** What one rank sends to another arrives in the order of posting, whatever the
//!   network does (a reliable connection); answers come back in order likewise. Between different
//!   pairs there is none.
//! - **Acknowledgements** and answers of up to 64 bytes take time but no port.
//! - **Atomics** on lock words, and accumulates, take effect at the target's NIC one after the
//!   other, at a given rate. That holds for a rank's own memory and its node's too, through the
//!   NIC's loopback, so that all are in one domain [LK-7]. An accumulate takes the unit for a gap
//!   and its bytes' cost. A rank reads its own words, and writes those that nobody exchanges,
//!   without the NIC.
//! - **Inside a node** put and get are copies by the calling CPU, complete when the call returns;
//!   copies of one node share its memory bus, in the order of the calls. Signals are stores that
//!   are seen after the class's latency.
//! - **The tree** ([`Tree`]) adds a port per link; a message reserves its way up and down when its
//!   head comes to the first switch.
//! - **Credits.** Each operation, signal and access takes one of its connection and one of its NIC
//!   until it is acknowledged (signals: seen). Without one the answer is "no resource", and the
//!   rank is woken when credits return.
#![forbid(unsafe_code)]

mod delivery;
mod event;
mod faults;
mod lane;
mod memory;
mod message;
pub mod meter;
mod network;
mod parameters;
mod port;
mod queue;
mod violation;
mod words;

pub use event::{Event, EventKind};
pub use faults::FaultInjection;
pub use memory::Carry;
pub use network::{Network, NextEvent, Packet, Stats};
pub use parameters::{LinkClass, Parameters, Tree};
pub use port::SimPort;
pub use violation::Violation;

/// Virtual picoseconds: whole numbers, so that sums do not depend on their order; 2^64 of them are
/// 213 days.
pub type Time = u64;
/// One nanosecond.
pub const NS: Time = 1_000;
/// One microsecond.
pub const US: Time = 1_000_000;
/// One second.
pub const SECOND: Time = 1_000_000_000_000;
