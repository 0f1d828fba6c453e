//! Copies through memory that another process reads next, or has just written.
//!
//! A processor that writes lines which another one has read must take them away from it, line by
//! line. Streaming stores need not: they go to memory, from where the reader fetches them. Which is
//! faster depends on how near the two processors are. In rings of slots, an exchange of 1 MiB took
//! 84 µs with ordinary stores and 178 with streaming ones where a round trip of a line took
//! 0.12 µs, and 312 and 141 where it took 0.55. So it is learned from the times of both
//! ([`Stores`]).
//!
//! A reader copies by registers up to a page, and longer contents as [`copy`] chooses: by the
//! string instruction, if that is not slow between these addresses. It does not fetch the lines
//! that it overwrites. 128 KiB of another process's window took 4.5 µs instead of 9.7.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::transport::copy::copy;
use crate::transport::trials::{Trials, Turn};

/// Shortest copy with streaming stores. Shorter contents stay in caches.
const STREAMED: usize = 1024;

/// Shortest copy that is made as [`copy`] chooses.
const PAGE: usize = 4096;

/// How contents are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through the caches.
    Ordinary,
    /// Past the caches.
    Streaming,
}

/// The faster stores for the contents of one ring, which one process writes.
///
/// Only the writer's times are known. Streaming stores make the reader slower, so they must take
/// less than a third of the time. Measured were 0.4 to 1.8 of the time of ordinary stores between
/// near processors, and 0.15 to 0.3 between distant ones.
///
/// A new ring begins with the stores that were better in the process's latest trial. Before the
/// first trial, all slots are used once: until then, no reader has them in its cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stores(Trials<2>);

const WAYS: [Way; 2] = [Way::Ordinary, Way::Streaming];

/// How many times as long ordinary stores must take.
const WORTHWHILE: u64 = 3;

/// Whether streaming stores were better in the latest trial of any ring.
static STREAMING: AtomicBool = AtomicBool::new(false);

impl Stores {
    pub(crate) fn new() -> Self {
        Self::beginning(if STREAMING.load(Relaxed) { Way::Streaming } else { Way::Ordinary })
    }

    const fn beginning(best: Way) -> Self {
        Stores(Trials::new(best as usize))
    }

    /// Stores a content of so many bytes by `copy`, which makes its copies by [`copy_out`].
    #[inline]
    #[allow(clippy::disallowed_methods, reason = "only to learn which way is faster")]
    pub(crate) fn fill(&mut self, bytes: usize, copy: impl FnOnce(Way)) {
        if bytes < STREAMED {
            return copy(Way::Ordinary);
        }
        let way = match self.0.next() {
            Turn::Best(way) => return copy(WAYS[way]),
            Turn::Trial(way) => way,
        };
        let begin = Instant::now();
        copy(WAYS[way]);
        self.note(way, begin.elapsed(), bytes);
    }

    /// Notes the time of a content on trial.
    #[cold]
    fn note(&mut self, way: usize, took: Duration, bytes: usize) {
        if let Some([ordinary, streaming]) = self.0.note(way, took, bytes) {
            let is_worthwhile = ordinary > streaming.saturating_mul(WORTHWHILE);
            STREAMING.store(is_worthwhile, Relaxed);
            self.0.settle(if is_worthwhile { Way::Streaming } else { Way::Ordinary } as usize);
        }
    }
}

/// Bytes of a processor's second-level cache, as the system says, or a usual number.
pub(crate) fn second_level_cache() -> usize {
    const USUAL: usize = 1024 * 1024;
    // Older C libraries ask the processor each time, which is slow in virtual machines.
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        // SAFETY: it only looks up a number.
        let bytes = unsafe { libc::sysconf(libc::_SC_LEVEL2_CACHE_SIZE) };
        usize::try_from(bytes).ok().filter(|bytes| *bytes > 0).unwrap_or(USUAL)
    })
}

/// Copies `len` bytes to memory that another process will read. They do not overlap. A release
/// store publishes them.
///
/// # Safety
/// Both pointers are valid for `len` bytes.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables, reason = "it has one way"))]
pub(crate) unsafe fn copy_out(way: Way, from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if way == Way::Streaming && len >= STREAMED && to.addr().is_multiple_of(16) {
        // SAFETY: both pointers are valid for `len` bytes, and the destination is aligned.
        return unsafe { x86::stream(from, to, len) };
    }
    // SAFETY: both pointers are valid for `len` bytes.
    unsafe { by_registers(from, to, len) }
}

/// Copies `len` bytes that another process has written. They do not overlap.
///
/// # Safety
/// Both pointers are valid for `len` bytes.
pub(crate) unsafe fn copy_in(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: both pointers are valid for `len` bytes.
    unsafe {
        match len {
            ..PAGE => by_registers(from, to, len),
            _ => copy(from, to, len),
        }
    }
}

/// # Safety
/// Both pointers are valid for `len` bytes, which do not overlap.
#[inline]
unsafe fn by_registers(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: each part lies within the `len` bytes.
    unsafe {
        if len == 8 {
            return to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
        }
        #[cfg(target_arch = "x86_64")]
        let at = x86::lines(from, to, len);
        #[cfg(not(target_arch = "x86_64"))]
        let at = 0;
        std::ptr::copy_nonoverlapping(from.add(at), to.add(at), len - at);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, _mm_loadu_si128, _mm_sfence, _mm_storeu_si128, _mm_stream_si128,
    };

    const LINE: usize = 64;

    /// Copies whole lines, 16 bytes at a time by `store`. Returns the number of bytes.
    ///
    /// # Safety
    /// Both pointers are valid for `len` bytes, which do not overlap. `store` writes its second
    /// argument to its first.
    #[inline(always)]
    unsafe fn lines_by(
        store: unsafe fn(*mut __m128i, __m128i),
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> usize {
        let end = len / LINE * LINE;
        for at in (0..end).step_by(LINE) {
            // SAFETY: the line lies within the `len` bytes.
            unsafe {
                let (from, to) = (from.add(at).cast::<__m128i>(), to.add(at).cast::<__m128i>());
                let parts: [__m128i; 4] = std::array::from_fn(|i| _mm_loadu_si128(from.add(i)));
                for (i, part) in parts.into_iter().enumerate() {
                    store(to.add(i), part);
                }
            }
        }
        end
    }

    /// Copies whole lines. Returns the number of bytes.
    ///
    /// # Safety
    /// Both pointers are valid for `len` bytes, which do not overlap.
    #[inline]
    pub(super) unsafe fn lines(from: *const u8, to: *mut u8, len: usize) -> usize {
        // SAFETY: the contract of this function; the stores need no alignment.
        unsafe { lines_by(_mm_storeu_si128, from, to, len) }
    }

    /// # Safety
    /// Both pointers are valid for `len` bytes, which do not overlap; `to` is aligned to 16 bytes.
    pub(super) unsafe fn stream(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the contract of this function; the parts of a line are aligned to 16 bytes.
        let end = unsafe { lines_by(_mm_stream_si128, from, to, len) };
        // SAFETY: the rest lies within the `len` bytes. No release orders streaming stores, so a
        // fence does.
        unsafe {
            std::ptr::copy_nonoverlapping(from.add(end), to.add(end), len - end);
            _mm_sfence();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_arrive_at_every_length_and_alignment() {
        for len in (0..200).chain([1000, 1023, 1024, 1025, 1100, 5000]) {
            for shift in [0, 1, 16, 17] {
                let from: Vec<u8> = (0..len + shift).map(|at| (at * 7 + 1) as u8).collect();
                let mut shared = vec![0u128; (len + shift) / 16 + 2];
                let mut to = vec![0u8; len + 1];
                let shared = shared.as_mut_ptr().cast::<u8>();
                for way in [Way::Ordinary, Way::Streaming] {
                    to.fill(0);
                    // SAFETY: all have room for `len` bytes behind the shift.
                    unsafe {
                        copy_out(way, from.as_ptr().add(shift), shared.add(shift % 17), len);
                        copy_in(shared.add(shift % 17), to.as_mut_ptr(), len);
                    }
                    assert_eq!(to[..len], from[shift..], "{len} bytes, shifted by {shift}");
                    assert_eq!(to[len], 0);
                }
            }
        }
    }

    /// Stores contents of 2 KiB that take these times, in nanoseconds. Returns the number of
    /// streaming ones.
    fn streamed(stores: &mut Stores, contents: u32, [ordinary, streaming]: [u64; 2]) -> u32 {
        let mut number = 0;
        for _ in 0..contents {
            let turn = stores.0.next();
            let (Turn::Best(way) | Turn::Trial(way)) = turn;
            number += u32::from(WAYS[way] == Way::Streaming);
            if turn == Turn::Trial(way) {
                let took = [ordinary, streaming][way];
                stores.note(way, Duration::from_nanos(took), 2048);
            }
        }
        number
    }

    #[test]
    fn streaming_stores_are_used_where_ordinary_ones_take_much_longer() {
        let (mut stores, near, far) = (Stores::beginning(Way::Ordinary), [170, 70], [550, 80]);
        assert!(streamed(&mut stores, 10_000, near) < 100);
        assert!(streamed(&mut stores, 1000, far) > 300, "the processor has moved away");
        assert!(streamed(&mut stores, 10_000, far) > 9900);
        assert!(streamed(&mut stores, 1000, near) < 600, "and back");
        let mut short = 0;
        stores.fill(STREAMED - 1, |way| short = i32::from(way == Way::Ordinary));
        assert_eq!(short, 1);
    }
}
