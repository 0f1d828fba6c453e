//! The engine over an in-memory transport in virtual time: one named test, or more, per requirement.
//!
//! Besides what a test asserts, [`world::World`] checks every operation, signal, lock and completion against what the
//! application has called; `World::finish` checks that nothing is left over.

// A test binary exports nothing.
#![allow(unreachable_pub)]

mod activation;
mod alloc;
mod cost;
mod errors;
mod fence;
mod flush;
mod lifecycle;
mod locks;
mod matching;
mod patterns;
mod program;
mod programs;

mod random;
mod requests;
mod resources;
mod world;
