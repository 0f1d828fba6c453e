//! Transports move bytes. Each implements [`crate::engine::Port`] for one window in one process.

mod agreement;
pub mod am;
mod copy;
pub mod datatype;
pub mod rdma;
pub mod shm;
#[cfg(feature = "sim")]
pub mod sim;

pub use agreement::Proposal;
pub(crate) use copy::copy;
