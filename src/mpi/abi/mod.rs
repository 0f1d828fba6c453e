//! The host's interface: types, functions and constants, and this library's types for them.
//!
//! | module | what it does |
//! |---|---|
//! | `sys`, `shim.c` | the host's types, functions and constants |
//! | `host` | looks up the host's functions; exports each interposed call under both names |
//! | `host_calls` | the host's calls that are safe functions here |
//! | `argument`, `status` | types for arguments of the application |
//! | `error` | error classes, codes and handlers |
//! | `world` | `MPI_COMM_WORLD`, and the environment |

pub(crate) mod argument;
pub(crate) mod error;
pub(crate) mod host;
pub(crate) mod host_calls;
pub(crate) mod status;
pub(crate) mod sys;
pub(crate) mod world;
