//! RDMA transport: one-sided operations over a device of libibverbs, for peers that shared memory
//! does not reach.
//!
//! Operations that do not need the target's processor access its registered memory directly
//! ([`Endpoint`]). The same connections carry the packets of active messages, which do the rest:
//! most accumulates, derived datatypes of many short runs, unregistered memory.
//!
//! | module | contents |
//! |---|---|
//! | [`device`] | the device interface ([`device::Device`]), which tests replace |
//! | [`ibverbs`] | the device interface over libibverbs, which is loaded at run time |
//! | [`context`] | the RDMA context of a process: queue pairs, completion queue, buffers |
//! | [`handshake`] | the messages that connect two processes |
//! | [`endpoint`](Endpoint) | one window's part of the context: its peers and its operations |
//! | [`registration_cache`], `monitor` | registrations of application memory |
//! | `buffer_pool` | registered bounce buffers |
//! | [`capabilities`] | what the devices of a window's processes have in common |
//!
//! `docs/design/rdma.md` counts the work requests and round trips of each call.

mod address_ranges;
mod buffer_pool;
pub mod capabilities;
pub mod context;
pub mod device;
mod endpoint;
pub mod handshake;
pub mod ibverbs;
mod monitor;
pub mod registration_cache;

pub use endpoint::{Endpoint, NicAtomics, SharedContext, WindowMemory};
