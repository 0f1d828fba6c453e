//! A peer that sends anything.

use mpix_rma::engine::*;

use crate::world::*;

/// Bytes of the window, and of the memory before and behind it.
const WINDOW: usize = 256;
const FENCE: usize = 4096;

/// Delivers packets to process 1 as if process 0 had sent them. Whatever they hold, the target
/// neither panics nor changes memory outside its window. `seed`: of the delays.
pub fn deliver(packets: impl Iterator<Item = Vec<u8>>, seed: u64) {
    let mut memories: Vec<Vec<u8>> = vec![vec![0xA5; WINDOW + 2 * FENCE]; 2];
    let (hub, mut w) = windows_inside(&mut memories, FENCE, WINDOW, seed);
    assert!(count(&mut w, &[0, 4], None));
    // Requests are outstanding, so that forged replies may match them.
    let mut results = [0u8; 64];
    let mut flight = InFlight::default();
    let get = Op { result: Addr(results.as_mut_ptr() as usize), ..op(OpKind::Get, 0, 0, 64) };
    flight.try_post(&mut w[1], &get);
    let _ = w[1].atomic(0, LockWord::Tail, Atomic::Load, LockTicket(3));
    w[1].poll();
    for bytes in packets {
        hub.lock().unwrap().inject(0, 1, bytes);
        w[1].poll();
        flight.collect(&mut w[1]);
        while let Some((ticket, _)) = w[1].next_answer() {
            assert_eq!(ticket, LockTicket(3));
        }
        while let Some(refused) = w[1].next_refused() {
            assert_eq!(refused.peer, 0);
        }
    }
    drop(w);
    for memory in &memories {
        let outside = memory[..FENCE].iter().chain(&memory[FENCE + WINDOW..]);
        assert!(outside.copied().all(|byte| byte == 0xA5), "memory outside the window was touched");
    }
}
