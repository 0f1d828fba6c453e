//! Checks at the end of a run. The rules checked during the run are in `tests/common/rules`.

pub mod counts;
pub mod leaks;
pub mod memory;
pub mod tags;
