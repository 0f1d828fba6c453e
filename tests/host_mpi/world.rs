//! Windows of several processes, driven in turn by one thread.

use std::sync::{Arc, Mutex};

use mpix_rma::engine::*;
use mpix_rma::transport::host_mpi::members::{Extents, Members};
use mpix_rma::transport::host_mpi::wire::How;
use mpix_rma::transport::host_mpi::{MessageWindow, Settings};
use mpix_rma::transport::shm::{self, Bootstrap, Memory, ShmWindow};

use crate::hub::{Hub, HubCourier};

pub type Far = MessageWindow<HubCourier>;

/// Set-up of a process by itself.
struct Alone;

impl Bootstrap for Alone {
    fn rank(&self) -> Rank {
        0
    }
    fn size(&self) -> u32 {
        1
    }
    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) {
        all.copy_from_slice(mine);
    }
}

/// A foreign datatype as `MPI_DOUBLE_INT` is: 16 bytes from one to the next, 12 of them used.
pub const PAIR: Element = Element(mpix_rma::transport::element::FIRST_FOREIGN + 1);

pub unsafe fn foreign_reduce(element: Element, reduction: Reduction, input: *const u8, inout: *mut u8, count: usize) {
    use mpix_rma::transport::element::reduction::MAXLOC;
    assert_eq!((element, reduction), (PAIR, MAXLOC));
    assert_eq!(input as usize % 8, 0, "the host wants its elements aligned");
    for i in 0..count {
        unsafe {
            let (a, b) = (inout.add(16 * i), input.add(16 * i));
            if b.cast::<f64>().read_unaligned() > a.cast::<f64>().read_unaligned() {
                std::ptr::copy_nonoverlapping(b, a, 12);
            }
        }
    }
}

pub fn foreign(how: How) -> Option<(u8, u8)> {
    use mpix_rma::transport::element::reduction::{MAXLOC, REPLACE};
    (how.element == PAIR && [MAXLOC, REPLACE].contains(&how.reduction)).then_some((16, 12))
}

pub fn settings() -> Settings {
    Settings { foreign_reduce, foreign }
}

/// A window of which all processes are reached by messages, each with memory of its own in `memories`.
pub fn windows(memories: &mut [Vec<u8>], seed: u64) -> (Arc<Mutex<Hub>>, Vec<Far>) {
    let ranks = memories.len() as u32;
    let hub = Hub::new(ranks, seed);
    let extents = Extents::new(memories.iter().map(|memory| (memory.len() as u64, 1)));
    let windows = (0..ranks)
        .zip(memories)
        .map(|(me, memory)| {
            let memory = Memory::Create { base: Addr(memory.as_mut_ptr() as usize), size: memory.len() as u64 };
            let near = ShmWindow::new(&mut Alone, memory, 1, shm::Settings { cma: false, foreign_reduce }).unwrap();
            let members = Members::new(me, ranks, vec![me], true);
            MessageWindow::new(HubCourier::new(&hub, me), members, near, extents.clone(), settings())
        })
        .collect();
    (hub, windows)
}

/// Dynamic windows, without memory as yet.
pub fn dynamic_windows(ranks: u32, seed: u64) -> (Arc<Mutex<Hub>>, Vec<Far>) {
    let hub = Hub::new(ranks, seed);
    let windows = (0..ranks)
        .map(|me| {
            let near = ShmWindow::new(&mut Alone, Memory::Dynamic, 1, shm::Settings { cma: false, foreign_reduce }).unwrap();
            let members = Members::new(me, ranks, vec![me], true);
            let extents = Extents::new((0..ranks).map(|_| (0, 1)));
            MessageWindow::new(HubCourier::new(&hub, me), members, near, extents, settings())
        })
        .collect();
    (hub, windows)
}

/// Tears all of them down, and sees to it that nothing is left.
pub fn end(hub: &Arc<Mutex<Hub>>, windows: Vec<Far>) {
    let mut windows = windows;
    for _ in 0..100_000 {
        // All are asked, so that all ask their peers.
        let quiet = windows.iter_mut().filter_map(|window| window.is_quiet().then_some(())).count();
        if quiet == windows.len() {
            break;
        }
        windows.iter_mut().for_each(|window| _ = window.poll());
    }
    for window in &mut windows {
        assert!(window.is_quiet(), "{window:#?}");
        window.vote(false);
    }
    for window in &mut windows {
        assert_eq!(window.verdict(), Some(false));
    }
    for _ in 0..100_000 {
        windows.iter_mut().for_each(|window| _ = window.poll());
        if windows.iter_mut().filter_map(|window| window.farewell().then_some(())).count() == windows.len() {
            break;
        }
    }
    for window in &mut windows {
        assert!(window.farewell());
        assert_eq!(window.next_refused(), None);
    }
    assert!(hub.lock().unwrap().is_empty(), "messages are under way after the end");
    windows.into_iter().for_each(Far::release);
}

/// An operation without buffers.
pub fn op(kind: OpKind, target: Rank, disp: u64, len: usize) -> Op {
    Op {
        origin: Addr(0),
        result: Addr(0),
        compare: Addr(0),
        disp,
        len: len as u64,
        shape: None,
        target,
        kind,
        element: Element(0),
        reduction: Reduction(0),
        extent: 1,
    }
}

/// Operations in flight, each of which must report its stages once.
#[derive(Default)]
pub struct Flight {
    seen: Vec<(bool, bool)>,
    pub open: usize,
    pub refusals: u64,
}

impl Flight {
    /// Posts, or says that it was refused.
    pub fn try_post(&mut self, window: &mut Far, op: &Op) -> bool {
        let ticket = Ticket(self.seen.len() as u32);
        let seen = match window.post(op, ticket) {
            Posted::Complete => (true, true),
            Posted::Local => (true, false),
            Posted::Pending => (false, false),
            Posted::NoResource => {
                self.refusals += 1;
                return false;
            }
        };
        self.open += usize::from(!seen.1);
        self.seen.push(seen);
        true
    }

    pub fn collect(&mut self, window: &mut Far) {
        while let Some((Ticket(ticket), stage)) = window.next_finished() {
            let seen = &mut self.seen[ticket as usize];
            match stage {
                Stage::Local => assert!(!std::mem::replace(&mut seen.0, true), "local completion twice"),
                Stage::Remote => {
                    assert!(!std::mem::replace(&mut seen.1, true), "remote completion twice");
                    self.open -= 1;
                }
            }
        }
    }

    pub fn is_local(&self, ticket: usize) -> bool {
        self.seen[ticket].0
    }
}

/// As [`windows`], of `size` bytes that begin `at` bytes inside each memory.
pub fn windows_inside(memories: &mut [Vec<u8>], at: usize, size: usize, seed: u64) -> (Arc<Mutex<Hub>>, Vec<Far>) {
    let ranks = memories.len() as u32;
    let hub = Hub::new(ranks, seed);
    let windows = (0..ranks)
        .zip(memories)
        .map(|(me, memory)| {
            let base = memory[at..at + size].as_mut_ptr();
            let memory = Memory::Create { base: Addr(base as usize), size: size as u64 };
            let near = ShmWindow::new(&mut Alone, memory, 1, shm::Settings { cma: false, foreign_reduce }).unwrap();
            let members = Members::new(me, ranks, vec![me], true);
            let extents = Extents::new((0..ranks).map(|_| (size as u64, 1)));
            MessageWindow::new(HubCourier::new(&hub, me), members, near, extents, settings())
        })
        .collect();
    (hub, windows)
}
