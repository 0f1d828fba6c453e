//! Memory that the interface may use: buffers of this library, and the application's while operations need it.
//!
//! A registration of the application's memory lives as long as an operation uses it, and is shared by all that do so meanwhile. It is not kept
//! longer: MPI lets a program unmap its buffer as soon as the operation is complete, and map other memory at the same address, and neither
//! is told to anybody; a registration that is kept would go on to reach the old pages. What this library knows the life of is registered
//! once: window memory, and its own buffers, through which short operations are copied.

use std::collections::BTreeMap;

use super::nic::{Failure, Nic, Registered};

/// Bytes of a page, to which registrations are rounded.
const PAGE: usize = 4096;

/// One registration.
#[derive(Debug)]
struct Region {
    end: usize,
    registered: Registered,
    users: u32,
}

/// How often memory was registered, and how often it already was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hits {
    /// It was registered.
    hits: u64,
    /// It had to be.
    misses: u64,
}

/// Registrations of the application's memory.
#[derive(Debug, Default)]
pub(super) struct Regions {
    /// By first byte. They may overlap.
    regions: BTreeMap<(usize, u64), Region>,
    pub(super) hits: Hits,
}

/// Names a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionId(usize, u64);

/// Registrations that are looked at for one that has the wanted bytes.
const LOOKED_AT: usize = 8;

impl Regions {
    /// Uses memory: gives its keys.
    ///
    /// # Safety
    /// The memory must stay mapped until it is [released](Self::release).
    pub(super) unsafe fn acquire(&mut self, nic: &mut dyn Nic, at: usize, len: usize) -> Result<(RegionId, Registered), Failure> {
        let end = at + len;
        let before = self.regions.range_mut(..=(at, u64::MAX)).rev().take(LOOKED_AT);
        for (key, region) in before {
            if region.end >= end {
                region.users += 1;
                self.hits.hits += 1;
                return Ok((RegionId(key.0, key.1), region.registered));
            }
        }
        self.hits.misses += 1;
        // SAFETY: the caller's promise.
        unsafe { self.add(nic, at, end) }
    }

    /// Registers memory whose life is known: a registration of its own.
    ///
    /// # Safety
    /// As for `acquire`.
    pub(super) unsafe fn add(&mut self, nic: &mut dyn Nic, at: usize, end: usize) -> Result<(RegionId, Registered), Failure> {
        let (at, end) = (at & !(PAGE - 1), end.next_multiple_of(PAGE));
        // SAFETY: the caller's promise; what shares a page with the memory is mapped as long.
        let registered = unsafe { nic.register(at, end - at) }?;
        self.regions.insert((at, registered.id), Region { end, registered, users: 1 });
        Ok((RegionId(at, registered.id), registered))
    }

    /// An operation does not need it any more.
    pub(super) fn release(&mut self, nic: &mut dyn Nic, id: RegionId) {
        let std::collections::btree_map::Entry::Occupied(mut entry) = self.regions.entry((id.0, id.1)) else { return };
        let region = entry.get_mut();
        region.users -= 1;
        if region.users == 0 {
            nic.unregister(region.registered.id);
            entry.remove();
        }
    }
}

/// Registered memory of this library's, in pieces of one size.
#[derive(Debug)]
pub(super) struct Pool {
    memory: Box<[Piece]>,
    size: usize,
    registered: Registered,
    free: Vec<u32>,
}

/// What pools are made of, so that every piece of one is aligned.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
struct Piece([u8; 64]);

impl Pool {
    /// `count` pieces of `size` bytes, a multiple of 64.
    pub(super) fn new(nic: &mut dyn Nic, count: u32, size: usize) -> Result<Self, Failure> {
        let memory = vec![Piece([0; 64]); count as usize * size / 64].into_boxed_slice();
        // SAFETY: the memory is the pool's, which ends when the interface has.
        let registered = unsafe { nic.register(memory.as_ptr() as usize, count as usize * size) }?;
        Ok(Pool { memory, size, registered, free: (0..count).rev().collect() })
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
