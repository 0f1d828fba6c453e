//! Nonblocking epochs for MPI one-sided communication, beside an unmodified MPICH or Open MPI.
//!
//! The parts, and which way the arrows point, stand in `docs/ARCHITECTURE.md`: [`engine`] decides,
//! [`transport`] moves bytes, the runtime joins them, and the host glue only translates.
//! C programs read `mpix_rma.h`; this crate's Rust surface is what tests and simulators need.

// Records of operations, words in shared memory and the layout of packets hold addresses of 64
// bits.
#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "mpix-rma supports 64-bit targets only: compile it for a 64-bit target, with a 64-bit MPI \
     library"
);

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
