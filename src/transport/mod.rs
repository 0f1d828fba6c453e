//! Transports move bytes. Each implements [`crate::engine::Port`] for one window in one process.

mod agreement;
mod copy;
pub mod datatype;
pub mod host_mpi;
pub mod rdma;
pub mod shm;
#[cfg(feature = "sim")]
pub mod sim;

pub use agreement::Ballot;
pub(crate) use copy::copy;
