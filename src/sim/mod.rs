//! Worlds in virtual time: the production engine on a simulated network, driven by scripts of MPI
//! calls.
//!
//! A [`World`] runs N ranks in one thread. Each rank's [`Script`] returns one [`Step`] at a time,
//! and the next one only when that has returned, so long programs need no memory. Time jumps to the
//! next event, and simultaneous events are ordered by creation. Equal inputs give equal runs;
//! [`World::trace`] is a hash of the run.
//!
//! A rank's CPU spends time on every call, message posted and completion handled ([`Machine`]).
//! While a rank computes, its NIC works but its engine does not. A rank that waits sweeps whenever
//! something arrives [PR-1]; with [`Settings::progress_thread`] one that computes does so too
//! [PR-2].
//!
//! [`bsp`] has bulk-synchronous programs, [`collectives`] collectives over many nodes.
//! [`tasks`] runs programs of tasks instead, on ranks with
//! several cores.
// Only `schedule` calls C.
#![deny(unsafe_code)]

pub mod applications;
pub mod bsp; // only: bsp
pub mod collectives; // only: collectives
pub mod curves;
mod noise;
pub mod patterns;
mod process;
mod profile;
mod schedule;
mod script;
pub mod tasks; // only: tasks
mod two_sided;
mod world;

pub use process::Memory;
pub use profile::{Machine, PROFILES, profile};
pub use schedule::{LuOptions, Schedule, Series, TransactionsOptions};
pub use script::{Group, How, Moment, Recorded, Script, Slot, Step};
pub use world::{Report, Settings, Stuck, StuckBecause, Unwatched, Watch, WindowSpec, World};
