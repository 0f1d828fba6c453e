//! The engine: a pure state machine that decides when epochs are activated, when operations may
//! leave and when requests are complete. No clock, thread, environment, I/O or `unsafe`.
#![forbid(unsafe_code)]

mod activation;
mod alphabet;
mod blocking;
mod calls;
mod communication;
mod completion;
mod epoch;
mod exclusion;
mod fence;
mod flush;
mod folded;
pub mod lock;
mod locking;
mod matching;
mod notify;
mod peer;
mod procedure;
mod record;
mod report;
mod request;
pub(crate) mod slab;
pub mod steps;
mod sweep;
mod tagged;
mod window;

pub use alphabet::*;
pub use blocking::{LockHeld, earlier_locks_first};
pub use matching::Standing;
pub use notify::{CounterBases, Notified};
pub use report::Waits;
pub use window::Window;
