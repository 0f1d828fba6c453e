//! Loom: all interleavings of processes that publish, read and reuse the slots of a board [CL-1],
//! within bounds. The production schedules and their execution run over loom's words.

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use mpix_rma::collective::schedule::{allreduce, barrier, broadcast, exchange, gather};
use mpix_rma::collective::{
    Board, BoardShape, Buffers, Content, Draft, Mismatch, Position, Published, Run, Schedule, Work,
};

/// A slot is reused in the collective after the next one, and contents of two words do not fit into
/// the words that each process publishes with its stamp.
const SHAPE: BoardShape = BoardShape { ranks: 2, depth: 1, stages: 1, content_max: 64 };
/// More than a line has.
const BYTES: usize = 56;

struct Process {
    words: Arc<Vec<AtomicU64>>,
    me: u32,
    position: Position,
}

impl Process {
    fn pair() -> [Self; 2] {
        let words: Vec<_> = (0..SHAPE.words()).map(|_| AtomicU64::new(0)).collect();
        let words = Arc::new(words);
        [0, 1].map(|me| Process { words: words.clone(), me, position: Position::default() })
    }

    /// Runs one collective to its end. Returns the first and last byte of the block.
    fn run(&mut self, schedule: &Schedule, value: u8, bytes: usize) -> [u8; 2] {
        let board = Board::new(&self.words, SHAPE, self.me);
        let (mut block, mut operand) = ([0; BYTES], [0; BYTES]);
        block.fill(value);
        let content = Content { bytes: bytes as u32, code: 0 };
        let mut run = Run::new(schedule, &board, &mut self.position, content);
        let mut buffers = Buffers { block: &mut block, operand: &mut operand };
        let add = |input: &[u8], inout: &mut [u8]| {
            inout.iter_mut().zip(input).for_each(|(sum, byte)| *sum += byte);
        };
        while !run.advance(schedule, &board, &self.position, &mut buffers, add) {
            thread::yield_now();
        }
        assert_eq!(run.mismatch(), None);
        [block[0], block[bytes.saturating_sub(1)]]
    }
}

/// Both processes run `program`.
fn model(program: fn(&mut Process)) {
    loom::model(move || {
        let [mut first, mut second] = Process::pair();
        let other = thread::spawn(move || program(&mut second));
        program(&mut first);
        other.join().expect("no process panics");
    });
}

/// The root runs ahead by the depth of the board, and overwrites nothing that is still read.
#[test]
fn a_reader_of_broadcasts_sees_each_of_them() {
    model(|process| {
        let schedule = broadcast(process.me, 2, 0);
        for value in [1, 2] {
            let own = if process.me == 0 { value } else { 0 };
            assert_eq!(process.run(&schedule, own, BYTES), [value; 2]);
        }
    });
}

/// Roots take turns, so that each slot has a writer and a reader in turn.
#[test]
fn roots_may_take_turns() {
    model(|process| {
        for root in [0, 1] {
            let schedule = broadcast(process.me, 2, root);
            let own = if process.me == root { 7 } else { 0 };
            assert_eq!(process.run(&schedule, own, 8), [7; 2]);
        }
    });
}

/// All get the sum of what all have contributed, twice in a row.
#[test]
fn an_allreduce_sums_all_contributions() {
    model(|process| {
        let schedule = allreduce(process.me, 2);
        for value in [1, 3] {
            assert_eq!(process.run(&schedule, value + process.me as u8, 16), [2 * value + 1; 2]);
        }
    });
}

/// A content of two parts and a lead, and what was collected of the other process's.
struct Parts {
    own: u8,
    others: [u8; BYTES],
    lead: [u8; 8],
}

impl Work for Parts {
    fn write(&mut self, _: Content, draft: &Draft<'_>) {
        draft.write(0, &[self.own; 24]);
        draft.write(24, &[self.own + 1; BYTES - 24]);
        draft.write_lead(&[self.own; 8]);
    }
    fn collect(&mut self, _: u32, published: &Published<'_>) -> Option<Mismatch> {
        published.read_lead(0, &mut self.lead);
        published.read_part(0, &mut self.others[..24]);
        published.with(&mut [0; BYTES], |bytes| self.others[24..].copy_from_slice(&bytes[24..]));
        None
    }
}

impl Process {
    /// Runs one collective of parts. Returns the first and last byte that was collected.
    fn collect(&mut self, schedule: &Schedule, own: u8) -> [u8; 2] {
        let board = Board::new(&self.words, SHAPE, self.me);
        let content = Content { bytes: BYTES as u32, code: 0 };
        let mut run = Run::new(schedule, &board, &mut self.position, content);
        let mut work = Parts { own, others: [0; BYTES], lead: [0; 8] };
        while !run.advance_with(schedule, &board, &self.position, &mut work) {
            thread::yield_now();
        }
        assert_eq!(work.lead[0], work.others[0]);
        [work.others[0], work.others[BYTES - 1]]
    }
}

/// Each process gets what the other gives, twice in a row.
#[test]
fn an_exchange_collects_what_the_other_publishes() {
    model(|process| {
        let schedule = exchange(2);
        for value in [10, 20] {
            let theirs = value + 1 - process.me as u8;
            assert_eq!(process.collect(&schedule, value + process.me as u8), [theirs, theirs + 1]);
        }
    });
}

/// A process that only publishes runs ahead by the depth of the board.
#[test]
fn a_root_collects_every_content() {
    model(|process| {
        let schedule = gather(process.me, 2, 0);
        for value in [10, 20] {
            let collected = process.collect(&schedule, value);
            assert!(process.me == 1 || collected == [value, value + 1]);
        }
    });
}

/// What a process has stored before a barrier, the other sees after it.
#[test]
fn a_barrier_orders_memory() {
    loom::model(|| {
        let [mut first, mut second] = Process::pair();
        let data = Arc::new([loom::cell::UnsafeCell::new(0), loom::cell::UnsafeCell::new(0)]);
        let others = data.clone();
        let program = |process: &mut Process, data: &[loom::cell::UnsafeCell<u32>; 2]| {
            let me = process.me as usize;
            // Loom reports accesses that are not ordered.
            data[me].with_mut(|own| unsafe { *own = 1 });
            process.run(&barrier(process.me, 2), 0, 0);
            assert_eq!(data[1 - me].with(|other| unsafe { *other }), 1);
        };
        let other = thread::spawn(move || program(&mut second, &others));
        program(&mut first, &data);
        other.join().expect("no process panics");
    });
}
