//! Joins the engine and a transport for every window of this process, and drives them.
//!
//! There is one [state](process) per process, behind the guard, which is a lock only under
//! `MPI_THREAD_MULTIPLE`. The host glue takes it with [`enter`] (a call of the application) or
//! [`try_enter`] (a hook of the host, which must never wait), finds its [`Window`] in the
//! [`Registry`], calls the engine, and gives the guard up. Nothing here reads `mpi.h`: the host's
//! handles are numbers, and the functions in [`Host`] are all that the runtime calls of the host.
//!
//! Locking [PR-4]: the guard is never held while yielding, nor across a call of the host that can
//! block or that makes progress. A waiting call gives it up between two polls ([`progress`]).

// Without the host glue, only tests use this module, and only its settings.
#![cfg_attr(not(feature = "host"), allow(dead_code, unused_imports))]

pub(crate) mod bootstrap;
pub(crate) mod checked;
pub(crate) mod collectives;
pub mod config;
#[doc(hidden)]
pub mod continuations;
#[doc(hidden)]
pub mod fast_path;
pub(crate) mod looks;
pub(crate) mod network;
pub(crate) mod pause;
pub(crate) mod persistent;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod recorded;
pub(crate) mod registry;
pub(crate) mod thread;
pub(crate) mod together;
pub(crate) mod transport;
pub(crate) mod window;

pub(crate) use process::{Guard, enter};
pub(crate) use registry::{HandleState, WindowId};
pub(crate) use transport::{Transport, with_port};
pub(crate) use window::{Completion, Hints, HostHandle, HostRequest, Scope, Window};
