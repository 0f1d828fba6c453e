//! Messages of the handshake that connects queue pairs, while one process puts to another.
#![no_main]
#![allow(dead_code, unreachable_pub, reason = "the modules are those of tests/rdma")]

use libfuzzer_sys::fuzz_target;

#[path = "../rdma/carry.rs"]
mod carry;
#[path = "../rdma/hostile.rs"]
mod hostile;
#[path = "../am/hub.rs"]
mod hub;
#[path = "../rdma/memory_device/mod.rs"]
mod memory_device;
mod pieces;
#[path = "../am/world.rs"]
mod world;

use hostile::Turn;

fuzz_target!(|input: &[u8]| {
    // An empty piece is a turn in which nothing arrives.
    let turn =
        |piece: &[u8]| Turn { puts: true, message: (!piece.is_empty()).then(|| piece.to_vec()) };
    hostile::run(pieces::of(input).map(turn), 1);
});
