//! Registered memory of this library's own, through which short operations and packets go.

use super::device::{Device, DeviceError, MemoryRegion};

/// Registered memory of this library's, in pieces of one size.
#[derive(Debug)]
pub(super) struct BufferPool {
    memory: Box<[Piece]>,
    size: usize,
    registered: MemoryRegion,
    free: Vec<u32>,
}

/// What pools are made of, so that every piece of one is aligned.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
struct Piece([u8; 64]);

impl BufferPool {
    /// `count` pieces of `size` bytes, a multiple of 64.
    pub(super) fn new(
        device: &mut dyn Device,
        count: u32,
        size: usize,
    ) -> Result<Self, DeviceError> {
        let memory = vec![Piece([0; 64]); count as usize * size / 64].into_boxed_slice();
        // SAFETY: the memory is the pool's, which ends when the interface has.
        let registered =
            unsafe { device.register(memory.as_ptr() as usize, count as usize * size, false) }?;
        Ok(BufferPool { memory, size, registered, free: (0..count).rev().collect() })
    }

    pub(super) fn key(&self) -> u32 {
        self.registered.lkey
    }

    /// For peers.
    pub(super) fn remote_key(&self) -> u32 {
        self.registered.rkey
    }

    /// Pieces.
    pub(super) fn len(&self) -> u32 {
        (self.memory.len() * 64 / self.size) as u32
    }

    pub(super) fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    pub(super) fn give_back(&mut self, piece: u32) {
        self.free.push(piece);
    }

    /// Address of a piece.
    pub(super) fn at(&self, piece: u32) -> *mut u8 {
        debug_assert!((piece as usize + 1) * self.size <= self.memory.len() * 64);
        self.memory.as_ptr().cast::<u8>().cast_mut().wrapping_add(piece as usize * self.size)
    }
}
