//! Nonblocking epochs for MPI one-sided communication, beside an unmodified MPICH or Open MPI.
//!
//! `docs/ARCHITECTURE.md` describes the parts and their dependencies: [`engine`] decides when
//! operations run, [`transport`] moves bytes, [`runtime`] joins the two, and the host glue
//! translates MPI calls. Applications use `mpix_rma.h`; the Rust interface serves tests and the
//! simulator.

// Operation records, words in shared memory and packets hold 64-bit addresses.
#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "mpix-rma supports 64-bit targets only: compile it for a 64-bit target, with a 64-bit MPI \
     library"
);

#[cfg(feature = "host")]
pub mod capi;
pub mod collective;
pub mod engine;
#[cfg(feature = "host")]
pub mod mpi;
pub mod runtime;
#[cfg(feature = "sim")]
pub mod sim;
pub mod sync;
pub mod transport;
