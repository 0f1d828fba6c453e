//! Collectives as schedules of notified stores, for processes of one node.
//!
//! A [`schedule`] is data: what one process publishes, and what it takes, folds in or collects from
//! others.
//! Pure functions build it from the rank and the number of processes. A [`run`] executes it,
//! step by step and without waiting, over the [`board`] of the communicator: memory that its
//! processes share, with slots in which each publishes. Nothing here waits, calls MPI, or knows
//! where the memory comes from. `docs/design/collectives.md` has the reasons.
//!
//! Neighbour collectives need neither schedule nor board ([`halo`]).

pub mod board;
pub mod flags;
pub mod halo;
pub mod nodes;
pub mod run;
pub mod schedule;
pub mod steps;

pub use board::{Board, BoardShape, Content, Draft, LEAD, Position, Published};
pub use run::{Buffers, InBlock, Mismatch, Run, Side, Work};
pub use schedule::{Action, Schedule, Step};

/// Most processes of a communicator that has a board: the stages of a barrier are bounded.
pub const RANKS_MAX: u32 = 1 << board::STAGES;
