//! Measures the transport between two processes, and checks that it works between processes. Tiny
//! under `cargo test`. To measure: `cargo test --release --test shm speed -- --ignored --nocapture
//! --test-threads 1`.

#![allow(clippy::disallowed_methods, reason = "it measures")]

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::world::{
    F64, Flavour, LockWords, U64, barrier, bytes, in_own_process, op, skips_without_attach,
};
use mpix_rma::engine::*;
use mpix_rma::transport::datatype::element::reduction;
use mpix_rma::transport::shm::*;

/// The bootstrap of two processes, through memory that they have shared since before the fork.
struct Forked {
    rank: Rank,
    page: *mut u8,
    turn: u32,
}

impl Forked {
    fn meet(&mut self) {
        let arrived = unsafe { &*self.page.cast::<AtomicU32>() };
        self.turn += 2;
        arrived.fetch_add(1, Ordering::AcqRel);
        let mut looks = 0u32;
        while arrived.load(Ordering::Acquire) < self.turn {
            looks += 1;
            if looks.is_multiple_of(1000) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }
}

impl Bootstrap for Forked {
    fn rank(&self) -> Rank {
        self.rank
    }
    fn size(&self) -> u32 {
        2
    }
    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) {
        let place = unsafe { self.page.add(64) };
        unsafe { place.add(self.rank as usize * mine.len()).copy_from(mine.as_ptr(), mine.len()) };
        self.meet();
        unsafe { place.copy_to(all.as_mut_ptr(), all.len()) };
        self.meet();
    }
}

/// Runs `body` in two processes, each pinned to a processor. The second is a child that must
/// succeed.
fn two_processes(body: impl Fn(Forked)) {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let page = unsafe {
        libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(page, libc::MAP_FAILED);
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    let rank = Rank::from(child == 0);
    pin(rank as usize);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        body(Forked { rank, page: page.cast(), turn: 0 })
    }));
    if child == 0 {
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    if result.is_err() {
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    let mut status = 0;
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert!(result.is_ok() && status == 0);
    unsafe { libc::munmap(page, 4096) };
}

fn pin(cpu: usize) {
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let cpus = libc::sysconf(libc::_SC_NPROCESSORS_ONLN) as usize;
        libc::CPU_SET(cpu % cpus, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// Time of one call in microseconds: the best decile of the batches, which other load disturbs
/// least.
fn best(batches: usize, calls: usize, mut body: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..batches)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..calls {
                body();
            }
            start.elapsed().as_secs_f64() * 1e6 / calls as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[batches / 10]
}

/// Posts an operation and waits for it.
#[inline(never)]
fn complete(w: &mut ShmWindow, op: &Op) {
    loop {
        match w.post(op, Ticket(1)) {
            Posted::Complete => return,
            Posted::NoResource => {
                w.poll();
                while w.next_finished().is_some() {}
            }
            Posted::Local | Posted::Pending => break,
        }
    }
    loop {
        w.poll();
        while let Some((_, stage)) = w.next_finished() {
            if stage == Stage::Remote {
                return;
            }
        }
    }
}

/// Posts `count` operations and waits for all.
fn stream(w: &mut ShmWindow, op: &Op, count: u32) {
    let mut open = 0u32;
    let drive = |w: &mut ShmWindow, open: &mut u32| {
        w.poll();
        while let Some((_, stage)) = w.next_finished() {
            *open -= u32::from(stage == Stage::Remote);
        }
    };
    for _ in 0..count {
        loop {
            match w.post(op, Ticket(1)) {
                Posted::Complete => break,
                Posted::NoResource => drive(w, &mut open),
                Posted::Local | Posted::Pending => {
                    open += 1;
                    break;
                }
            }
        }
    }
    while open > 0 {
        drive(w, &mut open);
    }
}

/// Rank 0 measures. Rank 1 polls, or computes until a lock word changes.
fn measure(mut host: Forked, flavour: Flavour, attentive: bool, batches: usize, scale: usize) {
    const SIZE: usize = 4 << 20;
    let mut memory = vec![1u8; SIZE];
    let memory_of = |memory: &mut [u8]| match flavour {
        Flavour::Allocated => Memory::Allocate { size: SIZE as u64, align: 1 },
        _ => Memory::Create { base: Addr(memory.as_mut_ptr() as usize), size: SIZE as u64 },
    };
    let settings =
        Settings { cma: flavour == Flavour::Attached, oversubscribed: false, foreign_reduce };
    let create = best(batches.min(11), 1, || {
        drop(ShmWindow::new(&mut host, memory_of(&mut memory), 1, settings).unwrap())
    });
    let mut w = ShmWindow::new(&mut host, memory_of(&mut memory), 1, settings).unwrap();
    barrier(&mut w);
    if host.rank == 1 {
        // First touch by the owner.
        unsafe { (w.base().0 as *mut u8).write_bytes(0, SIZE) };
        barrier(&mut w);
        while w.load(1, LockWord::Tail) == 0 {
            if attentive {
                w.poll();
            }
        }
        barrier(&mut w);
        let end =
            unsafe { std::slice::from_raw_parts((w.base().0 + SIZE / 2) as *const u8, 1 << 20) };
        assert!(end == bytes(1 << 20, 1), "what was put last is there");
        return;
    }
    barrier(&mut w);
    let buffer = bytes(1 << 20, 1);
    let mut result = vec![0u8; 1 << 20];
    let (origin, back) = (Addr(buffer.as_ptr() as usize), Addr(result.as_mut_ptr() as usize));
    let at = |kind, len| Op { origin, result: back, ..op(kind, 1, SIZE as u64 / 2, len) };
    println!("{flavour:?}, target {}", if attentive { "polling" } else { "away" });
    println!("  create + free                    {create:9.3} us");
    for (name, len, calls) in [
        ("8 B", 8, 100),
        ("4 KiB", 4096, 50),
        ("16 KiB", 16384, 20),
        ("64 KiB", 64 << 10, 10),
        ("1 MiB", 1 << 20, 2),
    ] {
        for (verb, kind) in [("put", OpKind::Put), ("get", OpKind::Get)] {
            let op = at(kind, len);
            let time = best(batches, calls / scale + 1, || complete(&mut w, black_box(&op)));
            println!("  {verb} + completion {name:7}         {time:9.3} us");
        }
        let sum = Op {
            element: F64,
            reduction: reduction::SUM,
            extent: 8,
            ..at(OpKind::Accumulate, len)
        };
        let time = best(batches, calls / scale + 1, || {
            complete(&mut w, black_box(&Op { disp: 0, ..sum }))
        });
        println!("  accumulate + completion {name:7}  {time:9.3} us");
    }
    let fetch =
        Op { element: U64, reduction: reduction::SUM, extent: 8, ..at(OpKind::GetAccumulate, 8) };
    let time = best(batches, 100 / scale, || complete(&mut w, black_box(&Op { disp: 0, ..fetch })));
    println!("  fetch_and_op + completion        {time:9.3} us");
    let put = at(OpKind::Put, 8);
    let count = 2_000 / scale as u32;
    let time = best(batches, 1, || stream(&mut w, black_box(&put), count)) / f64::from(count);
    println!("  puts of 8 B in flight            {time:9.4} us each, {:.1} M/s", 1.0 / time);
    complete(&mut w, &at(OpKind::Put, 1 << 20));
    w.store(1, LockWord::Tail, 1);
    barrier(&mut w);
}

unsafe fn foreign_reduce(_: Element, _: Reduction, _: *const u8, _: *mut u8, _: usize) {}

#[test]
fn works_between_processes() {
    // A fork copies no other threads, so what they hold would never be released.
    in_own_process("speed::works_between_processes", between_processes);
}

fn between_processes() {
    for (flavour, attentive) in [
        (Flavour::Allocated, true),
        (Flavour::Attached, true),
        (Flavour::Attached, false),
        (Flavour::Copied, true),
    ] {
        if !attentive && skips_without_attach("works_between_processes, away") {
            continue;
        }
        two_processes(|host| measure(host, flavour, attentive, 3, 100));
    }
}

fn speed(flavour: Flavour, attentive: bool) {
    two_processes(|host| measure(host, flavour, attentive, 501, 1));
}

#[test]
#[ignore = "a measurement, to be run by hand on a quiet machine"]
fn speed_allocated() {
    speed(Flavour::Allocated, true);
}

#[test]
#[ignore = "a measurement, to be run by hand on a quiet machine"]
fn speed_attached() {
    speed(Flavour::Attached, true);
}

#[test]
#[ignore = "a measurement, to be run by hand on a quiet machine"]
fn speed_away() {
    speed(Flavour::Attached, false);
}

#[test]
#[ignore = "a measurement, to be run by hand on a quiet machine"]
fn speed_copied() {
    speed(Flavour::Copied, true);
}

#[test]
#[ignore = "a measurement, to be run by hand on a quiet machine"]
fn speed_create() {
    for size in [0, 8, 4 << 20] {
        two_processes(|mut host| {
            let settings = Settings { cma: true, oversubscribed: false, foreign_reduce };
            let memory = Memory::Allocate { size, align: 1 };
            let dropped =
                best(300, 10, || drop(ShmWindow::new(&mut host, memory, 1, settings).unwrap()));
            let released =
                best(300, 10, || ShmWindow::new(&mut host, memory, 1, settings).unwrap().release());
            if host.rank == 0 {
                println!(
                    "  create + free, {size:8} B: {dropped:9.3} us, {released:9.3} us with a \
                     cached one"
                );
            }
        });
    }
}
