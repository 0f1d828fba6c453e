//! Collectives on schedules of this library, on hosts that cannot call us while they block.
//!
//! - [`calls`]: the interposed calls, `MPI_Barrier` and `MPI_Bcast`.
//! - [`exchanges`]: collectives that gather, scatter or exchange blocks whose lengths all processes
//!   know; [`varying`]: those of which each process knows its own lengths only.
//! - [`reductions`]: collectives that reduce.
//! - [`serve`]: who serves a call: a schedule, or the host in one of two forms.
//! - [`limits`]: up to how many bytes a schedule serves it.
//! - [`single_copy`]: longer ones within a node.
//! - [`message`]: data in the application's buffers.
//! - [`communicators`]: the boards of communicators. [`nodes`]: communicators of several nodes.
//! - [`own_comm`]: communicators of this library.
//! - [`persistent`]: persistent collectives, on every host.
//! - [`endings`]: what is kept of a communicator is forgotten when it ends.
//!
//! All processes of a communicator must choose alike [CL-1]. So a choice depends on the
//! communicator, the number of bytes and the operation, which MPI requires to be equal in all of
//! them, on settings that the job has agreed on, or on what a process publishes for all others.

mod calls;
mod communicators;
mod endings;
mod exchanges;
mod limits;
mod message;
mod nodes;
mod own_comm;
pub(crate) mod persistent;
mod reductions;
mod serve;
mod single_copy;
mod varying;

pub(crate) use communicators::open;
pub(crate) use persistent::{WindowCalls, free_windows};

/// Turns schedules off, and frees all that collectives keep. Call it before MPI is finalized.
pub(crate) fn close() {
    communicators::close();
    persistent::close();
    endings::close();
}
