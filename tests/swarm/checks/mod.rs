//! What must be true at the end of a run; the rules that are looked at during it are in
//! `tests/common/rules`.

pub mod counts;
pub mod leaks;
pub mod memory;
pub mod tags;
