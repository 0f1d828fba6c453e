//! The engine over an in-memory transport in virtual time: one named test, or more, per
//! requirement.
//!
//! Besides what a test asserts, [`world::World`] checks every operation, signal, lock and
//! completion against what the application has called; `World::finish` checks that nothing is left
//! over.
//!
//! | requirement | where |
//! |---|---|
//! | the paper's rules 1 and 2 [EP-2], 3 [EP-3], 4 [EP-4], 5 [EP-5]; EP-1, EP-7 to EP-11 | `lifecycle` |
//! | the paper's VI.B: EP-6, AC-1 to AC-3 | `activation` |
//! | MA-1 to MA-3, PR-3 | `matching` |
//! | LK-1 to LK-6 | `locks`, and `tests/loom_lock.rs` for what is concurrent |
//! | FL-1, FE-1 | `flush`, `fence` |
//! | straight ways to the transport | `ways` |
//! | RQ-4, RQ-5, R-forms | `requests` |
//! | notifications | `notify`, `tagged` |
//! | wrong calls | `errors` |
//! | "no resource" | `resources` |
//! | what a wait says of itself [EP-10] | `waits` |
//! | whole programs in every mix of blocking and nonblocking calls [EP-10] | `programs`, `random` |
//! | the paper's VIII.A | `patterns` |
//! | cost and memory | `cost` |

// A test binary exports nothing.
#![allow(unreachable_pub)]

mod activation;
mod alloc;
mod cost;
mod errors;
mod fence;
mod flush;
mod folded;
mod lifecycle;
mod locks;
mod matching;
mod notify;
mod patterns;
mod program;
mod programs;

mod random;
mod requests;
mod resources;
mod tagged;
mod waits;
mod ways;
mod world;
