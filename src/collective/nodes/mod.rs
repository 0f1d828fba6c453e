//! Collectives over several nodes, as data.
//!
//! Pure functions from rank and [`Placement`] to a [`Program`]: steps with dependencies, which load
//! and store within a node and put with notification between nodes. For [`Placement::flat`], in
//! which each process is a node, they are the usual algorithms that know no nodes. [`model`] says
//! what each takes, and chooses. `docs/design/collectives.md` has the reasons.

mod allgather;
mod allreduce;
pub mod alltoallv;
pub mod halo;
pub mod model;
mod placement;
mod program;
mod runner;
mod spread;

pub use allgather::allgather;
pub use allreduce::Allreduce;
pub use placement::Placement;
pub use program::{
    AREAS, Area, Await, Block, Counter, Kind, Move, Piece, Place, Program, Progress, Step, StepId,
};
pub use runner::{Machine, Repeated, Totals, Turn, add_totals};
pub use spread::{Broadcast, barrier, broadcast};
