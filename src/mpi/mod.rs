//! The host glue: translates between the host MPI library and the runtime. The only readers of
//! `mpi.h`.
//!
//! | module | what it does |
//! |---|---|
//! | `sys`, `shim.c` | the host's types, functions and constants |
//! | `host` | how the host's functions are reached; both names of each call of ours |
//! | `fortran` | what Fortran needs beyond `PMPI_*` |
//! | `init`, `session` | `MPI_Init*`, `MPI_Finalize` and MPI sessions: settings and agreements |
//! | `window`, `info` | constructors, attributes, info keys, `MPI_Win_free` |
//! | `sync`, `rma` | the interposed `MPI_Win_*` synchronisation and communication calls |
//! | `notify`, `tagged` | the notifying forms of the communication calls |
//! | `persistent`, `completion` | persistent requests for tagged notifications, in all calls that take requests |
//! | `direct` | waits for generalized requests of ours that do without the host |
//! | `shortcut` | puts and gets of many threads at once |
//! | `args`, `datatype`, `table` | checked arguments, predefined datatypes and reductions |
//! | `shaped`, `derived`, `flatten`, `constructor` | the same for derived datatypes: layouts, kept as attributes |
//! | `call`, `error`, `request` | what calls have in common: errors, requests |
//! | `hook`, `drive`, `blocking` | progress both ways [PR-1] |
//! | `private` | communicators of the library's own |
//!
//! Every call on a window that is not ours goes on to the host's `PMPI_*`. Each call that is taken
//! over is exported as `MPI_*` and as `PMPI_*`.
// Exported by their symbols, not by their paths.
#![allow(non_snake_case, unreachable_pub)]

mod args;
#[cfg(mpi_host = "mpich")]
mod blocking;
pub(crate) mod call;
mod completion;
mod constructor;
mod courier;
mod datatype;
mod derived;
mod direct;
mod drive;
pub(crate) mod error;
mod flatten;
mod fortran;
mod hook;
pub(crate) mod host;
mod info;
mod init;
mod messages;
pub(crate) mod notify;
pub(crate) mod persistent;
mod private;
mod request;
mod rma;
#[cfg(mpi_sessions)]
mod session;
mod shaped;
mod shortcut;
pub(crate) mod sync;
pub(crate) mod sys;
mod table;
pub(crate) mod tagged;
mod transport;
mod verbs;
pub(crate) mod window;
