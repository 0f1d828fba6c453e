//! A peer whose handshake messages hold anything.

use mpix_rma::engine::*;
use mpix_rma::transport::am::wire::{Content, Packet};

use crate::world::*;

/// What process 0 meets between two polls.
pub struct Turn {
    /// It puts to process 1.
    pub puts: bool,
    /// Bytes that arrive as a handshake message of process 1.
    pub message: Option<Vec<u8>>,
}

/// Runs three processes. Whatever arrives, process 0 survives. It may lose the sender, and says so.
pub fn run(turns: impl Iterator<Item = Turn>, seed: u64) {
    let mut memories = vec![vec![0u8; 4096]; 3];
    let (hub, mut w) = windows(&mut memories, seed);
    let mut flight = InFlight::default();
    let value = 5u64;
    let put = Op { origin: Addr(&raw const value as usize), ..op(OpKind::Put, 1, 8, 8) };
    for Turn { puts, message } in turns {
        if puts {
            flight.try_post(&mut w[0], &put);
        }
        if let Some(bytes) = message {
            let mut packet = Packet::new().holding(Content::Handshake);
            packet.bytes.extend(bytes);
            hub.lock().unwrap().inject(1, 0, packet.bytes);
        }
        w.iter_mut().for_each(|window| _ = window.poll());
        flight.collect(&mut w[0]);
    }
    for _ in 0..200 {
        w.iter_mut().for_each(|window| _ = window.poll());
    }
    if let Some((peer, reason)) = w[0].lost() {
        assert!(peer == 1 || peer == 0, "process {peer}: {reason}");
    }
}
