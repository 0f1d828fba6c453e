//! The simulator: its network against closed forms, its worlds against themselves, the paper's
//! patterns against predictions.

// A test binary exports nothing.
#![allow(unreachable_pub)]

mod applications;
mod network;
mod patterns;
mod worlds;
