//! Progress both ways [PR-1].
//!
//! | module | what it does |
//! |---|---|
//! | `hook` | runs sweeps inside the host's own progress |
//! | `drive` | waits for the host while driving our windows |
//! | `blocking` | blocking calls of a host without a hook for that, in their nonblocking form |

#[cfg(mpi_host = "mpich")]
pub(crate) mod blocking;
pub(crate) mod drive;
pub(crate) mod hook;
