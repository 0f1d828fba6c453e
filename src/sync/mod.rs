//! Atomics, spinning and yielding: `std` in production, `loom` under `--cfg loom`. A lock for short
//! bodies.

mod exclusive;

pub use exclusive::Exclusive;

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Hints to the CPU that this thread spins until another one writes.
#[inline(always)]
pub fn spin_loop() {
    #[cfg(loom)]
    loom::hint::spin_loop();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

/// A full fence directly after an atomic read-modify-write. On x86-64, that instruction is one
/// already.
#[inline(always)]
pub fn fence_after_update() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    fence(Ordering::SeqCst);
}

/// Orders loads of memory that a device writes: those before this call against those after it.
///
/// An acquire load orders what processors write. On AArch64, Linux and rdma-core treat devices as
/// observers outside that domain, and order such loads by this barrier.
#[inline(always)]
pub fn device_fence() {
    #[cfg(all(target_arch = "aarch64", not(loom)))]
    // SAFETY: a barrier without operands. It is an access to all memory as far as the compiler
    // knows, so the compiler keeps loads on their side too.
    unsafe {
        std::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
}

/// Yields the CPU to another runnable thread.
pub fn yield_now() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}
