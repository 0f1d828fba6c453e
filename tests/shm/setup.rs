//! Set-up and end of shared-memory windows: all processes get one result, and nothing is left
//! behind. A single test function in a process of its own, because it counts mappings and
//! descriptors.

use crate::world::*;
use mpix_rma::engine::*;
use mpix_rma::transport::shm::*;

/// A host that falsifies what one rank sends or receives.
struct Tampered<F: FnMut(u32, &mut [u8], bool)> {
    world: World,
    gathers: u32,
    /// Number of the gather, its bytes, and whether they are about to be sent.
    tamper: F,
}

impl<F: FnMut(u32, &mut [u8], bool)> Bootstrap for Tampered<F> {
    fn rank(&self) -> Rank {
        self.world.rank
    }
    fn size(&self) -> u32 {
        self.world.size
    }
    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) {
        self.gathers += 1;
        let mut mine = mine.to_vec();
        (self.tamper)(self.gathers, &mut mine, true);
        self.world.allgather(&mine, all);
        (self.tamper)(self.gathers, all, false);
    }
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .filter(|line| line.contains("/memfd:mpix-rma"))
        .count()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn settings() -> Settings {
    unsafe fn none(_: Element, _: Reduction, _: *const u8, _: *mut u8, _: usize) {}
    Settings { cma: true, oversubscribed: false, foreign_reduce: none }
}

/// The error of a window that all ranks fail to make, which must be the same everywhere.
fn failure(make: impl Fn(&World) -> Result<ShmWindow, SetupError> + Sync) -> SetupError {
    let errors = std::sync::Mutex::new(Vec::new());
    run(3, |world| {
        let error = make(&world).expect_err("must fail");
        errors.lock().unwrap().push(error);
        world.barrier();
    });
    let errors = errors.into_inner().unwrap();
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    errors[0].clone()
}

/// Whether a system call failed on this rank, with these words in the message.
fn is_of(error: &SetupError, rank: Rank, words: &str) -> bool {
    matches!(error, SetupError::System { rank: on, .. } if *on == rank)
        && error.to_string().contains(words)
}

#[test]
fn all_ranks_get_one_result_and_nothing_is_left() {
    in_own_process("setup::all_ranks_get_one_result_and_nothing_is_left", one_result);
}

fn one_result() {
    // The process's memory file, with its doorbell, is created with the first window and stays.
    run(2, |world| {
        let mut w = world.allocate(8);
        barrier(&mut w);
    });
    let (maps, fds) = (mappings(), descriptors());
    assert_eq!(maps, 1);

    for flavour in FLAVOURS {
        run(4, |world| {
            for _ in 0..10 {
                let mut memory = vec![0; 10_000];
                let mut w = world.window(flavour, &mut memory);
                // All descriptors are closed as soon as all ranks have mapped.
                world.barrier();
                if world.rank == 0 {
                    assert_eq!((mappings(), descriptors()), (maps + 4, fds));
                }
                world.barrier();
                w.put((world.rank + 1) % 4, 0, &[1; 5000]);
                barrier(&mut w);
            }
        });
        assert_eq!((mappings(), descriptors()), (maps, fds));
    }

    dynamic_windows_need_no_descriptors();
    cached_segments_are_reused(mappings(), fds);
    one_process_without_cma_disables_it_for_all();
    let maps = mappings();

    // Sizes whose sum exceeds any address space.
    let error =
        failure(|world| world.try_window(Memory::Allocate { size: u64::MAX - 5, align: 1 }, true));
    assert!(is_of(&error, 0, "too large"), "{error}");

    // A size that the kernel refuses.
    let error =
        failure(|world| world.try_window(Memory::Allocate { size: 1 << 60, align: 1 }, true));
    assert!(matches!(&error, SetupError::System { rank: 0, .. }), "{error}");

    // Memory beyond the last address, on one rank.
    let error = failure(|world| {
        let size = if world.rank == 2 { u64::MAX } else { 8 };
        world.try_window(Memory::Create { base: Addr(4096), size }, true)
    });
    assert!(is_of(&error, 2, "arguments"), "{error}");

    // Different constructors.
    let error = failure(|world| match world.rank {
        1 => world.try_window(Memory::Allocate { size: 8, align: 1 }, true),
        _ => world.try_window(Memory::Create { base: Addr(4096), size: 8 }, true),
    });
    assert!(matches!(&error, SetupError::System { rank: 1, .. }), "{error}");

    // One rank on another node: the node's id is the first part of a bootstrap record.
    let error = failure(|world| {
        let elsewhere = world.rank == 2;
        let tamper = |gather: u32, bytes: &mut [u8], sent: bool| {
            if elsewhere && sent && gather == 1 {
                bytes[3] ^= 1;
            }
        };
        let memory = Memory::Allocate { size: 8, align: 1 };
        ShmWindow::new(
            &mut Tampered { world: world.clone(), gathers: 0, tamper },
            memory,
            1,
            settings(),
        )
    });
    assert_eq!(error, SetupError::NotOneNode);

    // One rank cannot open the segment, because it receives a wrong descriptor.
    for allocate in [true, false] {
        let error = failure(|world| {
            let unlucky = world.rank == 1;
            let tamper = |gather: u32, bytes: &mut [u8], sent: bool| {
                if unlucky && !sent && gather == 1 {
                    bytes[28..32].copy_from_slice(&99_999u32.to_ne_bytes());
                }
            };
            let memory = match allocate {
                true => Memory::Allocate { size: 8, align: 1 },
                false => Memory::Create { base: Addr(4096), size: 8 },
            };
            ShmWindow::new(
                &mut Tampered { world: world.clone(), gathers: 0, tamper },
                memory,
                1,
                settings(),
            )
        });
        assert!(is_of(&error, 1, "open"), "{error}");
        assert!(error.to_string().contains("No such file"), "{error}");
    }
    assert_eq!((mappings(), descriptors()), (maps, fds), "failed set-ups leave nothing");

    // One rank cannot attach to its neighbour, so no rank uses cross-memory attach.
    run(3, |world| {
        let mut memory = vec![0u8; 100_000];
        let unlucky = world.rank == 1;
        let tamper = |gather: u32, bytes: &mut [u8], sent: bool| {
            if unlucky && !sent && gather == 1 {
                for record in bytes.chunks_exact_mut(88) {
                    record[56..64].copy_from_slice(&8u64.to_ne_bytes());
                }
            }
        };
        let base = Addr(memory.as_mut_ptr() as usize);
        let memory = Memory::Create { base, size: 100_000 };
        let mut host = Tampered { world: world.clone(), gathers: 0, tamper };
        let mut w = ShmWindow::new(&mut host, memory, 1, settings()).unwrap();
        assert_eq!(host.gathers, 2, "creation costs two gathers");
        assert_eq!(w.describe(), "shared memory + active copying");
        let from = bytes(100_000, 3);
        w.put((world.rank + 1) % 3, 0, &from);
        barrier(&mut w);
        assert!(own(&w, 0, 100_000) == from);
        barrier(&mut w);
    });

    // RLIMIT_FSIZE causes an error, not a signal.
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &libc::rlimit { rlim_cur: 1 << 20, ..limit }) };
    let error =
        failure(|world| world.try_window(Memory::Allocate { size: 1 << 20, align: 1 }, true));
    assert!(error.to_string().contains("RLIMIT_FSIZE"), "{error}");
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
    assert_eq!((mappings(), descriptors()), (maps, fds));
}

/// Processes that were started separately may have other settings. If one may not use cross-memory
/// attach, none does.
fn one_process_without_cma_disables_it_for_all() {
    run(3, |world| {
        let mut memory = [0u8; 100];
        let base = Addr(memory.as_mut_ptr() as usize);
        // The second window reuses the segment of the first.
        for _ in 0..2 {
            let w = world.try_window(Memory::Create { base, size: 100 }, world.rank != 1).unwrap();
            assert_eq!(w.progresses(), c"target_calls");
            world.barrier();
            drop(w);
            world.barrier();
        }
    });
}

/// The next window reuses a released segment, which looks like new. If not all processes have the
/// same one, they create a new one.
fn cached_segments_are_reused(maps: usize, fds: usize) {
    for flavour in FLAVOURS {
        run(2, |world| {
            let mut memory = vec![0u8; 20_000];
            let size = memory.len() as u64;
            let base = Addr(memory.as_mut_ptr() as usize);
            for round in 0..40u64 {
                let memory = match flavour {
                    // Sizes vary within the capacity of the segment.
                    Flavour::Allocated => Memory::Allocate { size: size - 100 * round, align: 1 },
                    _ => Memory::Create { base, size },
                };
                // Sometimes a rank offers another segment than the others.
                let odd = round % 8 == 5 && world.rank == (round as u32 / 8) % 2;
                let tamper = |gather: u32, bytes: &mut [u8], sent: bool| {
                    if odd && sent && gather == 1 {
                        bytes[64..72].copy_from_slice(&77u64.to_ne_bytes());
                    }
                };
                // Where the kernel refuses, each window tries again, in a gather of its own.
                let cma = flavour == Flavour::Attached && attaches();
                let settings = Settings { cma, ..settings() };
                let mut host = Tampered { world: world.clone(), gathers: 0, tamper };
                let mut w = ShmWindow::new(&mut host, memory, 1, settings).unwrap();
                // If all have cached the same segment, one gather is enough.
                match round {
                    0 => assert!(matches!(host.gathers, 1 | 2)),
                    _ => assert_eq!(
                        host.gathers,
                        if round % 8 == 5 { 3 } else { 1 },
                        "round {round}"
                    ),
                }
                let other = 1 - world.rank;
                for word in [Word::Grant, Word::Done, Word::Fence] {
                    assert_eq!(w.observe(other, word), 0);
                }
                for word in [
                    LockWord::Tail,
                    LockWord::Readers,
                    LockWord::Grant { target: other },
                    LockWord::Holders,
                ] {
                    assert_eq!(
                        w.load(if word == LockWord::Holders { 0 } else { world.rank }, word),
                        0
                    );
                }
                world.barrier();
                if round != 5 {
                    let from = bytes(10_000, round);
                    for chunk in 0..20 {
                        w.put(other, 500 * chunk, &from[500 * chunk as usize..][..500]);
                    }
                    w.accumulate(
                        other,
                        0,
                        (U64, mpix_rma::transport::datatype::element::reduction::SUM),
                        &from[..8],
                    );
                    barrier(&mut w);
                    assert!(own(&w, 8, 9992) == from[8..]);
                }
                w.signal(other, Word::Done, 5).unwrap();
                w.store(other, LockWord::Tail, 9);
                w.store(other, LockWord::Grant { target: world.rank }, 9);
                w.store(0, LockWord::Holders, 9);
                barrier(&mut w);
                w.release();
            }
        });
        // The process caches a few, however many windows there were.
        assert!((maps + 1..=maps + 4).contains(&mappings()), "{} mappings", mappings());
        assert_eq!(descriptors(), fds);
    }
}

/// Many dynamic windows, some with more regions than fit their segments, need no descriptors.
fn dynamic_windows_need_no_descriptors() {
    let fds = descriptors();
    run(2, |world| {
        let mut windows: Vec<_> =
            (0..50).map(|_| world.try_window(Memory::Dynamic, true).unwrap()).collect();
        let memory = vec![0u8; 1000];
        let base = memory.as_ptr() as usize;
        for (at, w) in windows.iter_mut().enumerate() {
            for region in 0..if at % 10 == 0 { 1000 } else { 1 } {
                w.attach(Addr(base + region), 1).unwrap();
            }
        }
        let mut bases = [0; 16];
        world.clone().allgather(&base.to_ne_bytes(), &mut bases);
        let peer = 1 - world.rank;
        let theirs = u64::from_ne_bytes(bases[8 * peer as usize..][..8].try_into().unwrap());
        for (at, w) in windows.iter().enumerate() {
            assert_eq!(w.reaches(peer, theirs, 2), Ok(at % 10 == 0), "window {at}");
            assert_eq!(w.reaches(peer, theirs, 1), Ok(true), "window {at}");
        }
        world.barrier();
        if world.rank == 0 {
            assert_eq!(descriptors(), fds);
        }
        windows.iter_mut().for_each(barrier);
    });
    assert_eq!(descriptors(), fds);
}
