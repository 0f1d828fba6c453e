//! The simulator: the network against closed forms, worlds against their own reruns, the paper's
//! patterns against its numbers.

// A test binary exports nothing.
#![allow(unreachable_pub)]

mod applications;
mod bsp;
mod collectives;
mod network;
mod patterns;
mod tasks;
mod worlds;
