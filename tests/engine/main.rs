//! The engine on the simulated network in virtual time, with at least one named test per
//! requirement.
//!
//! [`world::World`] also checks every operation, signal, lock and completion against the
//! application's calls. `World::finish` checks that nothing is left.
//!
//! | requirement | where |
//! |---|---|
//! | the paper's rules 1 and 2 [EP-2], 3 [EP-3], 4 [EP-4], 5 [EP-5]; EP-1, EP-7 to EP-11 | `lifecycle` |
//! | the paper's VI.B: EP-6, AC-1 to AC-3 | `activation` |
//! | MA-1 to MA-3, PR-3 | `matching` |
//! | LK-1 to LK-6 | `locks`, and `tests/loom/lock.rs` for what is concurrent |
//! | FL-1, FE-1 | `flush`, `fence` |
//! | FE-3, FE-4 | `pattern_fences` |
//! | DU-1, DU-2 | `lanes` |
//! | direct routes to the transport | `routes` |
//! | RQ-4 to RQ-6, R-forms | `requests` |
//! | notifications | `notify`, `tagged`, `tag_matching` |
//! | calls that the standard forbids | `errors` |
//! | "no resource" | `resources` |
//! | the log of a long wait [EP-10] | `waits` |
//! | whole programs in every mix of blocking and nonblocking calls [EP-10] | `programs`, `random` |
//! | the paper's VIII.A | `patterns` |
//! | cost and memory | `cost` |

// A test binary exports nothing.
#![allow(unreachable_pub)]

mod activation;
mod alloc;
mod alone;
mod cost;
mod errors;
mod fence;
mod flush;
mod folded;
mod folded_exchange;
mod folded_fence;
mod lanes;
mod lifecycle;
mod locks;
mod matching;
mod notify;
mod order;
mod pattern_fences;
mod patterns;
mod program;
mod programs;
mod random;
mod requests;
mod resources;
mod restart;
mod routes;
mod tag_matching;
mod tagged;
mod waits;
mod world;
