//! The interposed one-sided calls.
//!
//! | module | what it does |
//! |---|---|
//! | `call` | what all calls on a window have in common: finding it, waiting, errors, requests |
//! | `sync` | calls that open, close and flush epochs |
//! | `communication` | put, get, accumulate and their kin, with their notifying forms |
//! | `notify` | notifications of an operation's target |
//! | `record` | persistent epochs and operations, and calls that are recorded |
//! | `fast_path` | puts and gets that are plain copies |
//! | `alone` | synchronization in a window of one process |
//! | `args`, `shaped` | checked arguments: of predefined datatypes, and of derived ones |

pub(crate) mod alone;
pub(crate) mod args;
pub(crate) mod call;
pub(crate) mod communication;
pub(crate) mod fast_path;
pub(crate) mod notify;
pub(crate) mod record;
pub(crate) mod shaped;
pub(crate) mod sync;
