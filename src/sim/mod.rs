//! Worlds in virtual time: the engine as it is, on a simulated network, driven by scripts of MPI
//! calls.
//!
//! A [`World`] has N ranks in one thread. Each runs a [`Script`]: it is asked for one [`Step`]
//! after the other, and asked only when the one before has returned, so long programs need no
//! memory. Time jumps to the next event; equal times are ordered by the order in which events were
//! made, so the same inputs give the same run, of which [`World::trace`] is a hash.
//!
//! What a rank's CPU does takes time: every call, every message posted, every completion handled
//! ([`Machine`]). A rank that computes is deaf: its NIC works on, its engine does not. One that
//! waits sweeps whenever something comes for it [PR-1]; with [`Settings::progress_thread`] one that
//! computes does so too [PR-2].
// `schedule` alone calls C.
#![deny(unsafe_code)]

pub mod applications;
pub mod curves;
pub mod patterns;
mod process;
mod profile;
mod schedule;
mod script;
mod two_sided;
mod world;

pub use process::Memory;
pub use profile::{Machine, PROFILES, profile};
pub use schedule::{LuOptions, Schedule, Series, TransactionsOptions};
pub use script::{Group, How, Moment, Script, Slot, Step, Steps};
pub use world::{Report, Settings, Stuck, StuckBecause, Unwatched, Watch, WindowSpec, World};
