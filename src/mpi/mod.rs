//! The host glue: translates between the host MPI library and the runtime. No other part uses
//! `mpi.h`.
//!
//! | folder | what it does |
//! |---|---|
//! | `abi` | the host's types, functions and constants; errors |
//! | `init` | `MPI_Init*`, `MPI_Finalize` and MPI sessions: the settings and agreement on them |
//! | `window` | constructors, attributes, `MPI_Win_free`; what Fortran needs beyond `PMPI_*` |
//! | `info` | info keys of windows |
//! | `bootstrap` | chooses and makes the transport of a window |
//! | `rma` | the interposed synchronization and communication calls, and their notifying forms |
//! | `datatype` | predefined and derived datatypes: reductions, layouts |
//! | `request` | requests of this library, and the calls that complete requests |
//! | `progress` | progress of this library and the host in each other's calls [PR-1] |
//! | `collective` | collectives on schedules of this library [CL-1] |
//!
//! Calls on a window that is not ours are passed on to the host's `PMPI_*`. Each interposed call is
//! exported as `MPI_*` and as `PMPI_*`.
// The exported functions are public by their symbols, not by their paths.
#![allow(non_snake_case, unreachable_pub)]

pub(crate) mod abi;
mod bootstrap;
mod collective;
mod datatype;
pub(crate) mod info;
mod init;
mod progress;
pub(crate) mod request;
pub(crate) mod rma;
pub(crate) mod window;
