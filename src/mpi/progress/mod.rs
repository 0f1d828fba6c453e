//! Progress of this library in the host's calls, and of the host in ours [PR-1].
//!
//! | module | what it does |
//! |---|---|
//! | `hook` | runs sweeps inside the host's own progress |
//! | `drive` | waits for the host while driving our windows |
//! | `blocking` | blocking calls, made in their nonblocking form |

pub(crate) mod blocking;
pub(crate) mod drive;
pub(crate) mod hook;
