//! Transports move bytes. [`shm`], [`am`] (active messages) and [`rdma`] are independent of each
//! other; the [`router`] chooses one of them for each peer. [`crate::engine::Port`] for one window
//! in one process is implemented by [`shm::ShmWindow`] or [`router::Router`].

mod agreement;
pub mod am;
pub(crate) mod copy;
#[cfg_attr(not(feature = "host"), allow(dead_code))]
pub(crate) mod crossing;
pub mod datatype;
pub mod guarded;
pub mod members;
pub mod peers;
pub mod rdma;
pub mod router;
pub mod shm;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(target_arch = "x86_64")]
mod streaming;
#[cfg_attr(not(feature = "host"), allow(dead_code))]
pub(crate) mod trials;

pub use agreement::Proposal;
pub(crate) use copy::{copy, expect_several_threads};

/// Maximum bytes of a packet of active messages, and of a buffer in which RDMA receives one.
pub const PACKET: usize = 16 * 1024;
