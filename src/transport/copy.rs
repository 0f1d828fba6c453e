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
//! Where registers have 64 bytes, the C library stores whole lines, which a processor need not
//! fetch. 64 puts of 512 bytes to lines that another processor has read take 52 ns each by it,
//! instead of 77 by 32-byte registers (Zen 4). So it makes the copies of up to 512 bytes there.
//!
//! Where the data are in no cache, streaming stores are faster still: 64 copies of 1 MiB behind one
//! another take 80 to 100 µs each instead of 105 to 140. Copies of one buffer again and again take
//! longer with them. So copies to a place that is likely in a cache go through the caches, and the
//! faster way to make other long ones is learned from the times of both ([`super::streaming`]).

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

/// Copies `len` bytes; the ranges may overlap. Pieces of 2, 4, 8 and 16 bytes are one store, so
/// that a reader never sees half of an aligned word.
///
/// # Safety
/// Both pointers must be valid for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the contract of this function.
    unsafe { copy_by::<false>(from, to, len) }
}

/// As [`copy`], to memory that another processor is likely to have in its cache.
///
/// # Safety
/// As [`copy`].
#[cfg(feature = "host")]
#[inline(always)]
pub(crate) unsafe fn copy_to_peer(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the contract of this function.
    unsafe { copy_by::<true>(from, to, len) }
}

/// `AWAY`: another processor is likely to have the lines of the destination.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn copy_by<const AWAY: bool>(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: both pointers are valid for `len` bytes, and each arm moves exactly that many.
    unsafe {
        match len {
            8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
            16 => to.cast::<u128>().write_unaligned(from.cast::<u128>().read_unaligned()),
            2 => to.cast::<u16>().write_unaligned(from.cast::<u16>().read_unaligned()),
            1 => to.write(from.read()),
            _ => copy_long::<AWAY>(from, to, len),
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
unsafe fn copy_long<const AWAY: bool>(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= x86::SHORTEST && from.addr().abs_diff(to.addr()) >= len {
        // SAFETY: both pointers are valid for `len` bytes, and the ranges do not overlap.
        return unsafe { x86::copy_apart::<AWAY>(from, to, len) };
    }
    // SAFETY: both pointers are valid for `len` bytes.
    unsafe { std::ptr::copy(from, to, len) }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::is_x86_feature_detected;
    use std::arch::x86_64::{
        __cpuid, _mm_sfence, _mm256_loadu_si256, _mm256_setzero_si256, _mm256_storeu_si256,
        _mm256_stream_si256,
    };
    use std::cell::{Cell, RefCell};
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicUsize, Ordering, fence};
    use std::time::Instant;

    use super::{SEVERAL_THREADS, prefetch_to_write};
    use crate::transport::streaming::{self, Faster, Recent, Way};
    use crate::transport::trials::{Trials, Turn};

    /// Shortest copy that this module makes. Below, the C library is as fast.
    pub(super) const SHORTEST: usize = 128;
    /// Longest copy that the C library makes where it has registers of a line.
    const IN_LINES: usize = 512;
    /// Longest copy that is always made by registers.
    const SHORT: usize = 4 * 1024;
    const LINE: usize = 64;
    const PAGE: usize = 4096;
    /// Shortest copy that fetches the lines that it will overwrite, and how many bytes ahead.
    const FETCHING: usize = 512;
    const AHEAD: usize = 512;
    /// Bytes of a register.
    const REGISTER: usize = 32;
    /// Bytes that are loaded before the first of them is stored.
    const STEP: usize = 4 * REGISTER;
    /// Classes of the lengths of copies that may use streaming stores, one for each doubling.
    const CLASSES: usize = 8;

    /// The ways of copies through the caches to places that are in none.
    const STRING: usize = 0;
    const REGISTERS: usize = 1;
    /// Of 20 parts of the time, so many must be left.
    const WORTHWHILE: u64 = 19;

    /// Destination of the last copy of [`FETCHING`] bytes or more by registers. With several
    /// threads, each has its own; reaching it takes as long as storing 512 bytes.
    static LAST: AtomicUsize = AtomicUsize::new(0);

    thread_local! {
        static LAST_HERE: Cell<usize> = const { Cell::new(0) };
        static RECENT: RefCell<Recent> = const { RefCell::new(Recent::new()) };
        static FASTER: [Cell<Faster>; CLASSES] =
            const { [const { Cell::new(Faster::new()) }; CLASSES] };
        static CACHED: [Cell<Trials<2>>; CLASSES] =
            const { [const { Cell::new(Trials::new(STRING)) }; CLASSES] };
    }

    /// # Safety
    /// Both pointers must be valid for `len` bytes, at least [`SHORTEST`], without overlap.
    pub(super) unsafe fn copy_apart<const AWAY: bool>(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: both pointers are valid for `len` bytes without overlap; the features were
        // detected.
        unsafe {
            if len <= SHORT {
                if is_x86_feature_detected!("avx2") && !(len <= IN_LINES && has_line_registers()) {
                    return by_registers(
                        from,
                        to,
                        len,
                        AWAY && len >= FETCHING && is_elsewhere(to),
                    );
                }
            } else if is_x86_feature_detected!("ermsb") {
                return match len >= streaming::SHORTEST && is_x86_feature_detected!("avx2") {
                    true => by_fastest(from, to, len),
                    false => by_string(from, to, len),
                };
            }
            std::ptr::copy_nonoverlapping(from, to, len);
            // [FE-2] The C library's long copies use streaming stores, which no release orders.
            if len > SHORT {
                _mm_sfence();
            }
        }
    }

    /// Whether the C library copies by registers of 64 bytes. It does not on older processors that
    /// have them, which lower their clock for it.
    #[inline]
    fn has_line_registers() -> bool {
        is_x86_feature_detected!("avx512vbmi2")
    }

    /// Whether the last copy by registers had another destination.
    #[inline]
    fn is_elsewhere(to: *mut u8) -> bool {
        if SEVERAL_THREADS.load(Ordering::Relaxed) {
            return LAST_HERE
                .try_with(|last| last.replace(to.addr()) != to.addr())
                .unwrap_or(false);
        }
        let last = LAST.load(Ordering::Relaxed);
        LAST.store(to.addr(), Ordering::Relaxed);
        last != to.addr()
    }

    /// `fetches`: fetch the lines of `to` ahead; only with [`FETCHING`] bytes or more.
    ///
    /// # Safety
    /// As [`copy_apart`].
    #[target_feature(enable = "avx2")]
    unsafe fn by_registers(from: *const u8, to: *mut u8, len: usize, fetches: bool) {
        // SAFETY: the first and the last register, and those between them, lie within the `len`
        // bytes.
        unsafe {
            let load = |at: usize| _mm256_loadu_si256(from.add(at).cast());
            let step = |at: usize| {
                let loaded = [0, 1, 2, 3].map(|i| load(at + i * REGISTER));
                for (i, register) in loaded.into_iter().enumerate() {
                    _mm256_storeu_si256(to.add(at + i * REGISTER).cast(), register);
                }
            };
            let head = load(0);
            let tail = load(len - REGISTER);
            // Aligned stores, four at a time; head and tail cover the rest.
            let mut at = REGISTER - to.addr() % REGISTER;
            if fetches {
                (0..AHEAD).step_by(LINE).for_each(|ahead| prefetch_to_write(to.add(ahead)));
                while at + AHEAD + STEP <= len {
                    prefetch_to_write(to.add(at + AHEAD));
                    prefetch_to_write(to.add(at + AHEAD + LINE));
                    step(at);
                    at += STEP;
                }
            }
            while at + STEP <= len {
                step(at);
                at += STEP;
            }
            while at + REGISTER <= len {
                _mm256_storeu_si256(to.add(at).cast(), load(at));
                at += REGISTER;
            }
            _mm256_storeu_si256(to.cast(), head);
            _mm256_storeu_si256(to.add(len - REGISTER).cast(), tail);
        }
    }

    /// Copies through the caches by the string instruction or by registers, as has been faster for
    /// lengths of this class.
    ///
    /// # Safety
    /// As [`by_fastest`].
    #[inline(never)]
    #[allow(clippy::disallowed_methods, reason = "only to learn which way is faster")]
    unsafe fn by_faster(from: *const u8, to: *mut u8, len: usize, class: usize) {
        // SAFETY: the contract of this function.
        let copy = |way| unsafe {
            match way {
                STRING => by_string(from, to, len),
                _ => by_registers(from, to, len, false),
            }
        };
        let with = |change: &mut dyn FnMut(&mut Trials<2>)| {
            // A thread that ends has nothing to learn.
            CACHED.try_with(|classes| {
                let cell = &classes[class];
                let mut trials = cell.get();
                change(&mut trials);
                cell.set(trials);
            })
        };
        let mut turn = Turn::Best(STRING);
        _ = with(&mut |trials| turn = trials.next());
        let way = match turn {
            Turn::Best(way) => return copy(way),
            Turn::Trial(way) => way,
        };
        let begin = Instant::now();
        copy(way);
        // The time of stores that wait for their lines counts too.
        fence(Ordering::SeqCst);
        let took = begin.elapsed();
        _ = with(&mut |trials| {
            if let Some([string, registers]) = trials.note(way, took, len) {
                let is_worthwhile = 20 * registers < WORTHWHILE * string;
                trials.settle(if is_worthwhile { REGISTERS } else { STRING });
            }
        });
    }

    /// Copies in the way that has been faster for such lengths.
    ///
    /// # Safety
    /// As [`copy_apart`], with at least [`streaming::SHORTEST`] bytes; the processor has AVX2.
    #[inline(never)]
    #[allow(clippy::disallowed_methods, reason = "only to learn which way is faster")]
    unsafe fn by_fastest(from: *const u8, to: *mut u8, len: usize) {
        // A thread that ends has nothing to learn.
        let near = RECENT.try_with(|recent| recent.borrow_mut().note(to.addr(), len));
        if near != Ok(false) {
            // SAFETY: the contract of this function.
            return unsafe { by_string(from, to, len) };
        }
        let class = ((len / streaming::SHORTEST).ilog2() as usize).min(CLASSES - 1);
        let known = FASTER.try_with(|classes| classes[class].get()).ok();
        let begin = Instant::now();
        // SAFETY: the contract of this function.
        unsafe {
            match known.map_or(Way::Cached, |faster| faster.way()) {
                Way::Cached => by_faster(from, to, len, class),
                Way::Streaming => by_streaming(from, to, len),
            }
        }
        if let Some(mut faster) = known {
            faster.note(begin.elapsed());
            let _ = FASTER.try_with(|classes| classes[class].set(faster));
        }
    }

    /// # Safety
    /// As [`copy_apart`].
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn by_streaming(from: *const u8, to: *mut u8, len: usize) {
        const STEP: usize = 4 * LINE;
        let head = (LINE - to.addr() % LINE) % LINE;
        let steps = (len - head) / STEP;
        // SAFETY: all steps lie within the `len` bytes, and each of their stores is aligned, since
        // the first is aligned to a line; the fence orders them before all later stores [FE-2].
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, head);
            for step in 0..steps {
                let at = head + step * STEP;
                let mut loaded = [_mm256_setzero_si256(); STEP / REGISTER];
                for (i, register) in loaded.iter_mut().enumerate() {
                    *register = _mm256_loadu_si256(from.add(at + i * REGISTER).cast());
                }
                for (i, register) in loaded.into_iter().enumerate() {
                    _mm256_stream_si256(to.add(at + i * REGISTER).cast(), register);
                }
            }
            let done = head + steps * STEP;
            std::ptr::copy_nonoverlapping(from.add(done), to.add(done), len - done);
            _mm_sfence();
        }
    }

    /// Whether the destination is less than a line above the source, modulo a page.
    pub(super) fn is_just_above(from: usize, to: usize) -> bool {
        (1..LINE).contains(&(to.wrapping_sub(from) % PAGE))
    }

    /// Whether strings are copied slowly to just above their source, and registers can do it.
    pub(super) fn has_slow_strings() -> bool {
        static KNOWN: LazyLock<bool> = LazyLock::new(|| {
            let vendor = __cpuid(0);
            let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
            let is_amd = matches!(&name.concat()[..], b"AuthenticAMD" | b"HygonGenuine");
            is_amd && is_x86_feature_detected!("avx2")
        });
        *KNOWN
    }

    /// Copies by the string instruction, unless it is slow there. String stores are unordered among
    /// themselves, but come before all later stores.
    ///
    /// # Safety
    /// As [`copy_apart`].
    unsafe fn by_string(from: *const u8, to: *mut u8, len: usize) {
        if super::is_slow_by_string(from.addr(), to.addr()) {
            // SAFETY: the contract of this function; the processor has AVX2.
            return unsafe { by_registers(from, to, len, false) };
        }
        let head = (LINE - to.addr() % LINE) % LINE;
        // SAFETY: `head` is less than [`SHORTEST`]; the string instruction moves exactly the rest,
        // forwards (the calling convention clears the direction flag).
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, head);
            asm!(
                "rep movsb",
                inout("rcx") len - head => _,
                inout("rdi") to.add(head) => _,
                inout("rsi") from.add(head) => _,
                options(nostack, preserves_flags)
            );
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn copies_exactly_the_bytes_of_every_length_and_alignment() {
        check_bytes::<false>();
        check_bytes::<true>();
    }

    fn check_bytes<const AWAY: bool>() {
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
                    copy_by::<AWAY>(from.as_ptr().add(source), to.as_mut_ptr().add(target), len)
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
