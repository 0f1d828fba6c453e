//! Transports move bytes. Each implements [`crate::engine::Port`] for one window in one process.

mod ballot;
mod bulk;
pub mod element;
pub mod host_mpi;
pub(crate) mod kernel;
pub mod rdma;
pub mod regions;
pub mod shape;
pub mod shm;
#[cfg(feature = "sim")]
pub mod sim;

pub use ballot::Ballot;
