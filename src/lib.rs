//! Nonblocking epochs for MPI one-sided communication, beside an unmodified MPICH or Open MPI.
//!
//! The parts, and which way the arrows point, stand in `docs/ARCHITECTURE.md`: [`engine`] decides,
//! [`transport`] moves bytes, the runtime joins them, and the host glue only translates.
//! C programs read `mpix_rma.h`; this crate's Rust surface is what tests and simulators need.

#[cfg(feature = "host")]
pub mod capi;
pub mod engine;
#[cfg(feature = "host")]
pub mod mpi;
pub mod runtime;
#[cfg(feature = "sim")]
pub mod sim;
pub mod sync;
pub mod transport;
