//! RDMA transport: one-sided operations over a device of libibverbs, for peers that shared memory
//! does not reach.
//!
//! A window with a device is a [`MessageWindow`](super::am::MessageWindow) whose packets
//! travel as RDMA sends ([`RdmaAmChannel`]). Operations that need no target CPU bypass the packets
//! and reach the peer's registered memory directly ([`Endpoint`]). The rest (most accumulates, many
//! short runs of derived datatypes, unregistered memory) go as packets, as without RDMA.
//!
//! | module | contents |
//! |---|---|
//! | [`device`] | the device interface ([`device::Device`]), which tests replace |
//! | [`ibverbs`] | its implementation by libibverbs, loaded at run time |
//! | [`context`] | the RDMA context of a process: queue pairs, completion queue, buffers |
//! | [`handshake`] | the messages that connect two processes |
//! | [`endpoint`](Endpoint) | one window's part: its peers and its operations |
//! | [`am_channel`](RdmaAmChannel) | one window's packets |
//! | [`registration_cache`], `monitor` | registrations of application memory |
//! | `buffer_pool` | registered bounce buffers |
//! | [`capabilities`] | what the devices of a window's processes have in common |
//!
//! `docs/design/rdma.md` counts the work requests and round trips of each call.

mod address_ranges;
mod am_channel;
mod buffer_pool;
pub mod capabilities;
pub mod context;
pub mod device;
mod endpoint;
pub mod handshake;
pub mod ibverbs;
mod monitor;
pub mod registration_cache;

pub use am_channel::RdmaAmChannel;
pub use endpoint::{Endpoint, NicAtomics, SharedContext, WindowMemory};
