//! The host's interface: types, functions and constants, and what is said in its terms.
//!
//! | module | what it does |
//! |---|---|
//! | `sys`, `shim.c` | the host's types, functions and constants |
//! | `host` | how the host's functions are reached; both names of each exported call |
//! | `host_calls` | calls of the host that are safe |
//! | `argument`, `status` | arguments of the application, with types |
//! | `error` | error classes, codes and handlers |
//! | `world` | `MPI_COMM_WORLD`, and the environment |

pub(crate) mod argument;
pub(crate) mod error;
pub(crate) mod host;
pub(crate) mod host_calls;
pub(crate) mod status;
pub(crate) mod sys;
pub(crate) mod world;
