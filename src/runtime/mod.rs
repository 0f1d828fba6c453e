//! Joins the engine and a transport for every window of this process, and drives them.
//!
//! There is one [`Process`](process) state per process, behind one flag that is a lock only under
//! `MPI_THREAD_MULTIPLE`. The host glue enters it with [`enter`] (a call of the application) or
//! [`try_enter`] (a hook of the host, which must never wait), finds its [`Window`] in the
//! [`Registry`], calls the engine, and leaves. Nothing here reads `mpi.h`: the host's handles are
//! numbers, and the two things that the runtime needs of the host (drive it, complete a request)
//! are the functions in [`Host`].
//!
//! Locking [PR-4]: the flag is never held while yielding, nor across a call of the host that can
//! block or that makes progress; a waiting call gives it up between two looks ([`progress`]).

// Without the host glue, only the settings have a user (the tests).
#![cfg_attr(not(feature = "host"), allow(dead_code, unused_imports))]

pub(crate) mod bootstrap;
pub mod config;
#[doc(hidden)]
pub mod fast_path;
pub(crate) mod network;
pub(crate) mod persistent;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod registry;
pub(crate) mod thread;
pub(crate) mod transport;
pub(crate) mod window;

pub(crate) use process::{Guard, enter};
pub(crate) use registry::{HandleState, WindowId};
pub(crate) use transport::{Transport, with_port};
pub(crate) use window::{Completion, Hints, HostHandle, HostRequest, Scope, Window};
