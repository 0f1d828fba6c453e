//! Copies by processors of x86-64: which instructions make them.

use std::arch::asm;
use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{
    __cpuid, _mm_sfence, _mm256_loadu_si256, _mm256_setzero_si256, _mm256_storeu_si256,
    _mm256_stream_si256, _mm512_loadu_si512, _mm512_storeu_si512,
};
use std::cell::{Cell, RefCell};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

use super::{Lines, SEVERAL_THREADS, prefetch_to_write};
use crate::transport::streaming::{self, Faster, Recent, Way};
use crate::transport::trials::{SharedTrials, Trials, Turn};

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
/// Shortest copy to another processor's lines that the string instruction may make, and the classes
/// of the lengths of such copies, one for each doubling.
const STRING_AWAY: usize = 1024;
const AWAY_CLASSES: usize = (SHORT / STRING_AWAY).ilog2() as usize + 1;
/// Classes of the lengths of copies that may use streaming stores, one for each doubling.
const CLASSES: usize = 8;

/// The ways of copies through the caches: to places that are in none, and to lines of others.
const STRING: usize = 0;
const REGISTERS: usize = 1;
/// Of 20 parts of the time, so many must be left.
const WORTHWHILE: u64 = 19;

/// Destination of the last copy of [`FETCHING`] bytes or more by registers. With several
/// threads, each has its own; reaching it takes as long as storing 512 bytes.
static LAST: AtomicUsize = AtomicUsize::new(0);

static AWAY: [SharedTrials<2>; AWAY_CLASSES] = [const { SharedTrials::new(STRING) }; AWAY_CLASSES];

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
pub(super) unsafe fn copy_apart(from: *const u8, to: *mut u8, len: usize, lines: Lines) {
    // SAFETY: both pointers are valid for `len` bytes without overlap; the features were detected.
    unsafe {
        if len <= SHORT {
            if is_x86_feature_detected!("avx2") {
                return copy_short(from, to, len, lines);
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

/// # Safety
/// As [`copy_apart`], with at most [`SHORT`] bytes; the processor has AVX2.
#[inline(always)]
unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize, lines: Lines) {
    let is_away = len >= FETCHING
        && match lines {
            Lines::Here => false,
            Lines::Elsewhere => is_elsewhere(to),
            Lines::Away => true,
        };
    // SAFETY: the contract of this function; the features were detected.
    unsafe {
        if is_away && len >= STRING_AWAY && is_x86_feature_detected!("ermsb") {
            by_faster_away(from, to, len);
        } else {
            by_widest(from, to, len, is_away);
        }
    }
}

/// Copies by the widest registers. `is_away`: another processor has the lines of `to`.
///
/// # Safety
/// As [`copy_short`].
#[inline(always)]
unsafe fn by_widest(from: *const u8, to: *mut u8, len: usize, is_away: bool) {
    // SAFETY: the contract of this function; the features were detected.
    unsafe {
        match has_line_registers() {
            true if len <= IN_LINES => std::ptr::copy_nonoverlapping(from, to, len),
            true => by_lines(from, to, len),
            false => by_registers(from, to, len, is_away),
        }
    }
}

/// Copies to lines that another processor has, by the string instruction or by registers, as has
/// been faster for such lengths.
///
/// # Safety
/// As [`copy_short`], with at least [`STRING_AWAY`] bytes; the processor has ERMS.
unsafe fn by_faster_away(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the contract of this function.
    let copy = |way| unsafe {
        match way {
            STRING => by_string(from, to, len),
            _ => by_widest(from, to, len, true),
        }
    };
    AWAY[(len / STRING_AWAY).ilog2() as usize].take(len, |turn| match turn {
        Turn::Best(way) => {
            copy(way);
            Duration::ZERO
        }
        Turn::Trial(way) => time_of(|| copy(way)),
    });
}

/// The time of a copy, with that of its stores that wait for their lines.
#[allow(clippy::disallowed_methods, reason = "only to learn which way is faster")]
fn time_of(copy: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    copy();
    fence(Ordering::SeqCst);
    begin.elapsed()
}

/// Whether the C library copies by registers of 64 bytes. It does not on older processors that
/// have them, which lower their clock for it.
#[inline]
fn has_line_registers() -> bool {
    is_x86_feature_detected!("avx512vbmi2") && is_x86_feature_detected!("avx512f")
}

/// Whether the last copy by registers had another destination.
#[inline]
fn is_elsewhere(to: *mut u8) -> bool {
    if SEVERAL_THREADS.load(Ordering::Relaxed) {
        return LAST_HERE.try_with(|last| last.replace(to.addr()) != to.addr()).unwrap_or(false);
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

/// Copies by registers of a line.
///
/// # Safety
/// As [`copy_apart`]; the processor has AVX-512.
#[target_feature(enable = "avx512f")]
unsafe fn by_lines(from: *const u8, to: *mut u8, len: usize) {
    const STEP: usize = 4 * LINE;
    // SAFETY: the first and the last register, and those between them, lie within the `len` bytes.
    unsafe {
        let load = |at: usize| _mm512_loadu_si512(from.add(at).cast());
        let head = load(0);
        let tail = load(len - LINE);
        // Aligned stores, four at a time; head and tail cover the rest.
        let mut at = LINE - to.addr() % LINE;
        while at + STEP <= len {
            let loaded = [0, 1, 2, 3].map(|i| load(at + i * LINE));
            for (i, register) in loaded.into_iter().enumerate() {
                _mm512_storeu_si512(to.add(at + i * LINE).cast(), register);
            }
            at += STEP;
        }
        while at + LINE <= len {
            _mm512_storeu_si512(to.add(at).cast(), load(at));
            at += LINE;
        }
        _mm512_storeu_si512(to.cast(), head);
        _mm512_storeu_si512(to.add(len - LINE).cast(), tail);
    }
}

/// Copies through the caches by the string instruction or by registers, as has been faster for
/// lengths of this class.
///
/// # Safety
/// As [`by_fastest`].
#[inline(never)]
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
    let took = time_of(|| copy(way));
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
