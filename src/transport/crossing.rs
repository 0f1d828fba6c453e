//! Copies through memory that another process reads next, or has just written.
//!
//! A processor that writes lines which another one has read must take them away from it, line by
//! line. Streaming stores need not. In rings of slots that two processes share on two processors,
//! 256 KiB take 18 µs with them and 88 without (cross-memory attach: 25).
//!
//! The string instruction is slow where source and destination are less than a line apart modulo a
//! page (Zen 3), as buffers of the C library and pages of shared memory are. So the reader copies
//! by registers.

/// Shortest copy with streaming stores. Shorter contents stay in caches.
const STREAMED: usize = 1024;

/// Copies `len` bytes to memory that another process will read. They do not overlap. A release
/// store publishes them.
///
/// # Safety
/// Both pointers are valid for `len` bytes.
pub(crate) unsafe fn copy_out(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= STREAMED && to.addr().is_multiple_of(16) {
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
    unsafe { by_registers(from, to, len) }
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
                // SAFETY: all have room for `len` bytes behind the shift.
                unsafe {
                    copy_out(from.as_ptr().add(shift), shared.add(shift % 17), len);
                    copy_in(shared.add(shift % 17), to.as_mut_ptr(), len);
                }
                assert_eq!(to[..len], from[shift..], "{len} bytes, shifted by {shift}");
                assert_eq!(to[len], 0);
            }
        }
    }
}
