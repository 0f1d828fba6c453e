//! Copies between processes that may or may not share a cache.
//!
//! The C library's `memcpy` chooses its instructions by length alone. On x86-64 servers, two other
//! choices were measured to be faster for window memory. Up to a page: 32-byte registers (23 ns
//! instead of 30). Above: `rep movsb` to an aligned destination. 1 MiB takes 15 µs instead of 19,
//! or instead of 26 if another processor has read the destination; 4 MiB 77 µs instead of 82.
//! String stores do not fetch the lines that they overwrite; stores from registers do, so they are
//! slower above a page. But from memory to memory, some processors copy faster by registers: 4 MiB
//! take 770 µs instead of 880. So for such copies, that is learned from the times of both
//! ([`super::trials`]).
//!
//! Copies by registers may fetch the lines ahead of their stores, for writing: the processor by
//! itself fetches those of a few waiting stores only. 64 puts of 4 KiB to lines that another
//! processor has read take 0.155 µs each instead of 0.203. Where the lines are in the nearest cache
//! already, this costs 12 ns of 42, so a copy to the place of the copy before does without, and a
//! get does. Other processors use the C library.
//!
//! Registers of 64 bytes store whole lines, which a processor need not fetch. 64 puts of 512 bytes
//! to lines that another processor has read take 52 ns each by the C library, which has such
//! registers, instead of 77 by 32-byte registers (Zen 4). 4 KiB to lines of the nearest cache take
//! 17 ns by 64-byte registers, and 27 by 32-byte ones (Zen 5).
//!
//! From 1 KiB on, lines that another processor has may be overwritten faster by the string
//! instruction, though it takes longer to begin: 4 KiB through a ring in 0.11 µs each instead of
//! 0.16, on distant processors 0.29 instead of 0.70 (Zen 5). Which is faster is learned from the
//! times of both.
//!
//! Where the data are in no cache, streaming stores are faster still: 64 copies of 1 MiB behind one
//! another take 80 to 100 µs each instead of 105 to 140. Copies of one buffer again and again take
//! longer with them. So copies to a place that is likely in a cache go through the caches, and the
//! faster way to make other long ones is learned from the times of both ([`super::streaming`]).

#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::atomic::{AtomicBool, Ordering};

/// Fetches a cache line that this process will read soon. Never faults, whatever the address.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    // SAFETY: the instruction changes nothing that the program can see.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) at, options(nostack, preserves_flags));
    }
    // SAFETY: the instruction changes nothing that the program can see.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Fetches a cache line that this process will write soon, and takes it from others. Never faults,
/// whatever the address.
#[inline(always)]
pub(crate) fn prefetch_to_write(at: *const u8) {
    // SAFETY: the instruction changes nothing that the program can see.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags));
    }
    // SAFETY: the instruction changes nothing that the program can see.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Several threads copy. A hint: nothing breaks where it is wrong.
static SEVERAL_THREADS: AtomicBool = AtomicBool::new(false);

/// Prepares for copies by several threads at once, or by one.
pub(crate) fn expect_several_threads(several: bool) {
    SEVERAL_THREADS.store(several, Ordering::Relaxed);
}

/// Where the lines of a destination are likely to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lines {
    /// In a cache of this processor, or in none.
    Here,
    /// With another processor, unless this one has just copied to the same place.
    #[cfg_attr(not(feature = "host"), allow(dead_code, reason = "used by the host glue alone"))]
    Elsewhere,
    /// With another processor.
    Away,
}

/// Copies `len` bytes; the ranges may overlap. Pieces of 2, 4, 8 and 16 bytes are one store, so
/// that a reader never sees half of an aligned word.
///
/// # Safety
/// Both pointers must be valid for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the contract of this function.
    unsafe { copy_by(from, to, len, Lines::Here) }
}

/// As [`copy`], to memory that another processor may have in its cache.
///
/// # Safety
/// As [`copy`].
#[cfg(feature = "host")]
#[inline(always)]
pub(crate) unsafe fn copy_to_peer(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the contract of this function.
    unsafe { copy_by(from, to, len, Lines::Elsewhere) }
}

/// As [`copy`], to memory that another processor has read or written last.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
pub(crate) unsafe fn copy_away(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the contract of this function.
    unsafe { copy_by(from, to, len, Lines::Away) }
}

/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn copy_by(from: *const u8, to: *mut u8, len: usize, lines: Lines) {
    // SAFETY: both pointers are valid for `len` bytes, and each arm moves exactly that many.
    unsafe {
        match len {
            8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
            16 => to.cast::<u128>().write_unaligned(from.cast::<u128>().read_unaligned()),
            2 => to.cast::<u16>().write_unaligned(from.cast::<u16>().read_unaligned()),
            1 => to.write(from.read()),
            _ => copy_long(from, to, len, lines),
        }
    }
}

/// Whether the string instruction copies much more slowly between these addresses than between
/// others: to less than a line above the source, modulo a page, on processors by AMD. 64 KiB took
/// 21 µs instead of 1.3 (Zen 3). A large buffer of the C library, which lies 16 bytes behind the
/// begin of a page, is such a destination where an allocated window is the source.
#[inline]
pub(crate) fn is_slow_by_string(from: usize, to: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    return x86::is_just_above(from, to) && x86::has_slow_strings();
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (from, to);
        false
    }
}

/// Copies `len` bytes; the ranges may overlap.
///
/// # Safety
/// Both pointers must be valid for `len` bytes.
#[inline]
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "for x86-64"))]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize, lines: Lines) {
    #[cfg(target_arch = "x86_64")]
    if len >= x86::SHORTEST && from.addr().abs_diff(to.addr()) >= len {
        // SAFETY: both pointers are valid for `len` bytes, and the ranges do not overlap.
        return unsafe { x86::copy_apart(from, to, len, lines) };
    }
    // SAFETY: both pointers are valid for `len` bytes.
    unsafe { std::ptr::copy(from, to, len) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn copies_exactly_the_bytes_of_every_length_and_alignment() {
        for lines in [Lines::Here, Lines::Elsewhere, Lines::Away] {
            check_bytes(lines);
        }
    }

    fn check_bytes(lines: Lines) {
        let lengths = (0..700).chain([
            1055,
            3001,
            4096,
            16 * 1024,
            16 * 1024 + 1,
            70_000,
            1 << 20,
            (4 << 20) - 1,
            (4 << 20) + 3,
        ]);
        let from: Vec<u8> =
            (0..(4 << 20) + 4096).map(|i: usize| (i * 31 + i / 251) as u8 | 1).collect();
        let mut to = vec![0u8; from.len()];
        for len in lengths {
            for (source, target) in [(0, 0), (1, 0), (0, 1), (16, 3), (63, 64), (5, 127)] {
                to[..target + len + 64].fill(0);
                // SAFETY: both vectors are longer than offset plus length.
                unsafe {
                    copy_by(from.as_ptr().add(source), to.as_mut_ptr().add(target), len, lines)
                };
                let (before, rest) = to.split_at(target);
                let (copied, after) = rest.split_at(len);
                let around = before.iter().chain(&after[..64]);
                let what = format!("{len} bytes from {source} to {target}");
                assert!(around.copied().all(|byte| byte == 0), "{what}: bytes outside");
                assert!(*copied == from[source..source + len], "{what}");
            }
        }
    }

    #[test]
    fn long_copies_are_right_in_each_way_on_trial() {
        let (len, apart, places) = ((1 << 19) + 3, (1 << 19) + 128, 80);
        // So many places that each is in no cache when its turn comes again.
        let mut to = vec![0u8; places * apart];
        for round in 0..3 * places {
            let from: Vec<u8> = (0..len).map(|i: usize| (i * 31 + round) as u8 | 1).collect();
            let to = &mut to[round % places * apart..][..apart];
            let (head, tail) = (round % 70, round % 70 + len);
            // SAFETY: the destination has room for all bytes behind the head.
            unsafe { copy(from.as_ptr(), to.as_mut_ptr().add(head), len) };
            assert!(to[head..tail] == from, "round {round}");
            let mut around = to[..head].iter().chain(&to[tail..]);
            assert!(around.all(|byte| *byte == 0), "round {round}: bytes outside");
            to.fill(0);
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn streaming_stores_copy_exactly_the_bytes() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let from: Vec<u8> = (0..9000).map(|i: usize| (i * 31 + i / 251) as u8 | 1).collect();
        let mut to = vec![0u8; from.len()];
        for len in [128, 255, 256, 320, 447, 4096, 8191] {
            for (source, target) in [(0, 0), (1, 0), (0, 1), (16, 3), (63, 64), (5, 127)] {
                to.fill(0);
                let (source, place) = (&from[source..], to[target..].as_mut_ptr());
                // SAFETY: both vectors are longer than offset plus length, and AVX2 was detected.
                unsafe { x86::by_streaming(source.as_ptr(), place, len) };
                assert!(to[target..target + len] == source[..len], "{len} bytes to {target}");
                assert!(to[..target].iter().chain(&to[target + len..]).all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn strings_are_not_copied_to_just_above_their_source() {
        for (from, to, expected) in [
            (0x10_000, 0x20_010, true), // a window, and a large buffer of the C library
            (0x10_fff, 0x20_000, true),
            (0x20_000, 0x1_03f, true),
            (0x10_000, 0x20_000, false),
            (0x10_010, 0x20_000, false),
            (0x10_000, 0x20_040, false),
        ] {
            assert_eq!(x86::is_just_above(from, to), expected, "{from:x} to {to:x}");
        }
    }

    #[test]
    fn overlapping_ranges_are_moved() {
        for len in [200usize, 5000, 40_000] {
            for shift in [1usize, 64, 100] {
                let mut bytes: Vec<u8> = (0..len + shift).map(|i| i as u8).collect();
                let expected = bytes[..len].to_vec();
                // SAFETY: both ranges lie in the vector.
                unsafe { copy(bytes.as_ptr(), bytes.as_mut_ptr().add(shift), len) };
                assert_eq!(bytes[shift..], expected[..]);
            }
        }
    }
}
