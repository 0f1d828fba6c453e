//! Collectives on schedules of this library, on hosts that cannot call us while they block.
//!
//! - [`calls`]: `MPI_Barrier`, `MPI_Bcast` and `MPI_Allreduce`, and which of them run on schedules.
//! - [`communicators`]: the boards of communicators.
//! - [`persistent`]: persistent collectives, on every host.
//!
//! All processes of a communicator must choose alike [CL-1]. So a choice depends on the
//! communicator, the number of bytes and the operation, which MPI requires to be equal in all of
//! them, and on settings that the job has agreed on. What is not chosen goes to the host, driven
//! like other collectives (`mpi::progress::blocking`).

mod calls;
mod communicators;
pub(crate) mod persistent;

pub(crate) use communicators::{close, open};
