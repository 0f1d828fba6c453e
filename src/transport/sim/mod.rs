//! A deterministic LogGP network in virtual time, for many ranks in one thread.
//!
//! [`Network`] owns the time, the event queue, the network's state and the memory of all ranks.
//! [`SimPort`] is the [`Port`](crate::engine::Port) of one rank for the duration of a call.
//! `crate::sim::World` joins it with engines and scripts. To drive it directly:
//!
//! 1. [`Network::begin`] selects the rank whose CPU runs, and the time.
//! 2. Engine calls on [`Network::port`] post, signal and read words. [`Network::clock`] tells the
//!    CPU time afterwards.
//! 3. [`Network::advance`] jumps to the next event. [`Network::next_woken`] returns the ranks that
//!    it affects.
//!
//! # The model
//! A message of n bytes between nodes takes CPU time `post`, then the origin's port for max(gap, n
//! G), one latency L, and the target's port for the same time. Head and tail are L apart from the
//! ports (cut-through), so an idle network takes `post` + n G + L to the last byte, and L for the
//! acknowledgement. The model simplifies reality as follows:
//!
//! - **Ports.** Each node has one full-duplex NIC, shared by its ranks. Messages longer than the
//!   MTU reserve a port exclusively, in order of arrival. Shorter ones slip in between packets:
//!   they wait for at most one packet and for other short ones, and their time is added to later
//!   reservations ([`lane`](lane::Lane)). A congested receiver does not slow its senders down.
//! - **Order.** Messages and answers of one connection arrive in the order of posting, as on a
//!   reliable connection. Different connections are not ordered.
//! - **Acknowledgements** and answers of up to 64 bytes take time but no port.
//! - **Atomics** on lock words, and accumulates, take effect one after the other in the target's
//!   NIC, at a limited rate. Accesses to a rank's own memory or node go through the NIC's loopback,
//!   so that all share one atomicity domain [LK-7]. An accumulate occupies the unit for one gap and
//!   its bytes. A rank loads its own words, and stores to those that are never targets of an atomic
//!   read-modify-write, without the NIC. With [`Parameters::atomics_by_rank`], the target's CPU
//!   takes the NIC's place.
//! - **Inside a node** put and get are copies by the calling CPU, complete on return. Copies of one
//!   node share its memory bus, in call order. Signals are stores that become visible after the
//!   class's latency.
//! - **The tree** ([`Tree`]) adds one port per link. A message reserves its way up and down when
//!   its head reaches the first switch.
//! - **Credits.** Each operation, signal and access takes one credit of its connection and one of
//!   its NIC until it is acknowledged (signals: visible). Without a credit the answer is "no
//!   resource", and the rank is woken when credits return.
//! - **Bulk window.** [`Parameters::bulk_window`] bounds the bytes of bulk operations that a rank
//!   has at its NIC, as a transport can that counts completions. Beyond it the answer is "no
//!   resource" too.
//!
//! [`SimPort::timed`] bypasses the model for one message: the caller sets its [`Times`], so that it
//! may overtake others. Tests script unordered links with it.
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
pub use parameters::{LinkClass, Parameters, Times, Tree};
pub use port::SimPort;
pub use violation::Violation;

/// Virtual time in whole picoseconds, so that sums do not depend on their order. 2^64 ps are 213
/// days.
pub type Time = u64;
/// One nanosecond.
pub const NS: Time = 1_000;
/// One microsecond.
pub const US: Time = 1_000_000;
/// One second.
pub const SECOND: Time = 1_000_000_000_000;
