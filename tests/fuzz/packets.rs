//! Packets of the active-message transport, with any content and in any number.
#![no_main]
#![allow(dead_code, unreachable_pub, reason = "the modules are those of tests/am")]

use libfuzzer_sys::fuzz_target;

#[path = "../am/carry.rs"]
mod carry;
#[path = "../am/hostile.rs"]
mod hostile;
#[path = "../am/hub.rs"]
mod hub;
mod pieces;
#[path = "../am/world.rs"]
mod world;

fuzz_target!(|input: &[u8]| hostile::deliver(pieces::of(input).map(<[u8]>::to_vec), 1));
