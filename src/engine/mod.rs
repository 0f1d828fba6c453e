//! The engine: a pure state machine that decides when epochs are activated, when operations may
//! be posted and when requests are complete. No clock, thread, environment, I/O or `unsafe`.
#![forbid(unsafe_code)]

mod activation;
mod alone;
mod blocking;
mod calls;
mod communication;
mod completion;
mod counter_waits;
mod epoch;
mod exclusion;
mod fence;
mod flush;
mod folded;
mod folded_exchange;
mod folded_fence;
mod lanes;
pub mod lock;
mod lock_ops;
mod locking;
mod matching;
mod notify;
mod order;
mod pattern;
mod peer;
mod port;
mod record;
pub mod replay;
mod report;
mod request;
mod restart;
pub(crate) mod slab;
mod sweep;
mod tagged;
mod window;

pub use blocking::{LockHeld, earlier_locks_first};
pub use counter_waits::Watch;
pub use folded_exchange::Exchange;
pub use matching::ExpectationState;
pub use notify::{CounterBases, Notified};
pub use port::*;
pub use report::Waits;
pub use restart::{InFences, Rehearsal, SyncCall};
pub use window::Window;
