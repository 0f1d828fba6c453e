//! Registered bounce buffers, for short operations and packets.

use super::device::{Device, MemoryRegion, RegistrationError};

/// Buffers of one size in one registration.
#[derive(Debug)]
pub(super) struct BufferPool {
    memory: Box<[CacheLine]>,
    size: usize,
    pub(super) region: MemoryRegion,
    free: Vec<u32>,
}

#[repr(C, align(64))]
#[derive(Clone, Debug)]
struct CacheLine([u8; 64]);

impl BufferPool {
    /// A pool of `count` buffers of `size` bytes, a multiple of 64.
    pub(super) fn new(
        device: &mut dyn Device,
        count: u32,
        size: usize,
    ) -> Result<Self, RegistrationError> {
        let memory = vec![CacheLine([0; 64]); count as usize * size / 64].into_boxed_slice();
        // SAFETY: the pool owns the memory. Its owner drops the device, which ends all
        // registrations, before the pool.
        let region =
            unsafe { device.register(memory.as_ptr() as usize, count as usize * size, false) }?;
        Ok(BufferPool { memory, size, region, free: (0..count).rev().collect() })
    }

    pub(super) fn len(&self) -> u32 {
        (self.memory.len() * 64 / self.size) as u32
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    pub(super) fn give_back(&mut self, buffer: u32) {
        self.free.push(buffer);
    }

    pub(super) fn addr(&self, buffer: u32) -> *mut u8 {
        debug_assert!((buffer as usize + 1) * self.size <= self.memory.len() * 64);
        self.memory.as_ptr().cast::<u8>().cast_mut().wrapping_add(buffer as usize * self.size)
    }
}
