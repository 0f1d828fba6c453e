//! The engine: a pure state machine that decides when epochs are activated, when operations may leave
//! and when requests are complete. No clock, thread, environment, I/O or `unsafe`.
#![forbid(unsafe_code)]

mod alphabet;
mod window;

pub use alphabet::*;
pub use window::Window;
