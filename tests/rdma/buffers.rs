//! The registration cache under puts and gets.

use std::io::Read;

use mpix_rma::engine::*;
use mpix_rma::transport::rdma::registration_cache::CacheStats;

use crate::carry::{contexts, net};
use crate::hub::Hub;
use crate::registration_cache::is_supported;
use crate::request_counts::{drain, met, stats_of};
use crate::world::*;

/// Long enough to be registered, and not copied.
const LEN: usize = 64 * 1024;

fn map_at(at: usize, flags: i32) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    let got =
        unsafe { libc::mmap(at as *mut _, LEN, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert_ne!(got, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    got as usize
}

fn buffer(at: usize) -> &'static mut [u8] {
    unsafe { std::slice::from_raw_parts_mut(at as *mut u8, LEN) }
}

fn transfer(w: &mut [Far], flight: &mut InFlight, op: &Op) {
    while !flight.try_post(&mut w[0], op) {
        w.iter_mut().for_each(|window| _ = window.poll());
    }
    w[0].flush_and_poll();
    drain(w, flight);
}

#[test]
fn a_buffer_is_registered_once_while_it_is_there() {
    if !is_supported() {
        return;
    }
    let (hub, mut w, memories, mut flight) = met();
    let hits = || stats_of(&hub, 0).registrations;
    let at = map_at(0, 0);
    let put = Op { origin: Addr(at), ..op(OpKind::Put, 1, 64, LEN) };
    let get = Op { result: Addr(at), ..op(OpKind::Get, 1, 64, LEN) };
    let there = |value: u8| memories[1][64..64 + LEN].iter().all(|byte| *byte == value);
    for round in 1..4_u8 {
        for again in 0..4 {
            buffer(at).fill(round + again);
            transfer(&mut w, &mut flight, &put);
            assert!(there(round + again));
        }
        buffer(at).fill(99);
        transfer(&mut w, &mut flight, &get);
        assert!(buffer(at).iter().all(|byte| *byte == round + 3));
        let n = u64::from(round);
        assert_eq!(
            hits(),
            CacheStats { hits: 4 * n, misses: n, evictions: 0, invalidations: n - 1 }
        );
        // In one step: after munmap, another test might map the same addresses.
        // `registration_cache` has the other ways.
        map_at(at, libc::MAP_FIXED);
        net(&hub).lock().unwrap().replace_pages(at, LEN);
    }
    // A get must not use the old registration either.
    buffer(at).fill(99);
    transfer(&mut w, &mut flight, &get);
    assert!(buffer(at).iter().all(|byte| *byte == 6));
    assert_eq!((hits().misses, hits().invalidations), (4, 3));
    end(&hub, w);
    unsafe { libc::munmap(at as *mut _, LEN) };
}

#[test]
fn a_bound_of_zero_disables_the_cache() {
    let (hub, mut w, memories, mut flight) = met();
    contexts(&hub)[0].borrow().set_registration_bound(0);
    let at = map_at(0, 0);
    let put = Op { origin: Addr(at), ..op(OpKind::Put, 1, 64, LEN) };
    for round in 0..5_u8 {
        buffer(at).fill(round);
        transfer(&mut w, &mut flight, &put);
        assert!(memories[1][64..64 + LEN].iter().all(|byte| *byte == round));
    }
    assert_eq!(stats_of(&hub, 0).registrations, CacheStats { misses: 5, ..CacheStats::default() });
    end(&hub, w);
    unsafe { libc::munmap(at as *mut _, LEN) };
}

/// Memory that cannot be locked is registered on demand if the device can, and reached by packets
/// otherwise.
#[test]
fn memory_that_cannot_be_locked_is_still_reached() {
    if crate::carry::device().is_some() {
        return;
    }
    for paged in [None, Some(0)] {
        let hub = Hub::new(2, 3);
        (net(&hub).lock().unwrap().room, net(&hub).lock().unwrap().paged) = (512 * 1024, paged);
        let mut memories = vec![vec![0u8; 1 << 20]; 2];
        let mut w = windows_over(&hub, &mut memories);
        let mut flight = InFlight::default();
        let at = map_at(0, 0);
        let large = vec![7u8; 600_000];
        for round in 1..4_u8 {
            buffer(at).fill(round);
            transfer(&mut w, &mut flight, &Op { origin: Addr(at), ..op(OpKind::Put, 1, 64, LEN) });
            assert!(memories[1][64..64 + LEN].iter().all(|byte| *byte == round));
            let before = stats_of(&hub, 0).posted;
            transfer(
                &mut w,
                &mut flight,
                &Op { origin: Addr(large.as_ptr() as usize), ..op(OpKind::Put, 1, 1000, 600_000) },
            );
            assert!(memories[1][1000..601_000].iter().all(|byte| *byte == 7));
            if paged.is_some() {
                // Requests of 64 KB, and the flush.
                assert_eq!(stats_of(&hub, 0).posted - before, 600_000_u64.div_ceil(1 << 16) + 1);
            }
        }
        // Two windows, and the buffer, which stays cached.
        assert_eq!(net(&hub).lock().unwrap().paged, paged.map(|_| 3));
        end(&hub, w);
        unsafe { libc::munmap(at as *mut _, LEN) };
    }
}

/// After a fork, registered pages stay the parent's.
#[test]
fn a_fork_leaves_registered_pages_to_the_parent() {
    if !is_supported() {
        return;
    }
    let (hub, mut w, memories, mut flight) = met();
    let at = map_at(0, 0);
    let put = Op { origin: Addr(at), ..op(OpKind::Put, 1, 64, LEN) };
    buffer(at).fill(1);
    transfer(&mut w, &mut flight, &put);
    let (mut wait, go) = std::io::pipe().unwrap();
    let child = unsafe { libc::fork() };
    if child == 0 {
        unsafe {
            libc::close(std::os::fd::IntoRawFd::into_raw_fd(go));
            libc::munmap(at as *mut _, LEN);
            _ = wait.read(&mut [0]);
            libc::_exit(0);
        }
    }
    buffer(at).fill(2);
    transfer(&mut w, &mut flight, &put);
    assert!(memories[1][64..64 + LEN].iter().all(|byte| *byte == 2));
    assert_eq!(stats_of(&hub, 0).registrations.hits, 1);
    end(&hub, w);
    unsafe { libc::munmap(at as *mut _, LEN) };
    drop(go);
    let mut status = -1;
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}
