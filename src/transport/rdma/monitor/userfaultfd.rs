//! `userfaultfd`, used for events of mappings. Page faults are never reported.
//!
//! Constants and layouts are those of `<linux/userfaultfd.h>`. The arguments of its requests are
//! structures of 64-bit members, which are arrays here.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Event {
    event: u8,
    _reserved: [u8; 7],
    /// Start and end; for a remap, old address, new address and length.
    numbers: [u64; 3],
}

/// A change of monitored memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Invalidation {
    /// The range from the first address to the second one was unmapped.
    Unmapped(usize, usize),
    /// The pages of the range are about to be discarded; the range stays mapped.
    Discarded(usize, usize),
    /// The range was moved.
    Moved { from: usize, to: usize, len: usize },
}

/// Requests without the size of their argument: direction (`_IOWR` or `_IOR`), type and number.
const API: u64 = 3 << 30 | 0xaa << 8 | 0x3f;
const REGISTER: u64 = 3 << 30 | 0xaa << 8;
const UNREGISTER: u64 = 2 << 30 | 0xaa << 8 | 1;
const WRITE_PROTECT: u64 = 3 << 30 | 0xaa << 8 | 6;

/// Report no faults of the kernel's own accesses (Linux 5.11), so that no privilege is needed.
const USER_MODE_ONLY: i32 = 1;
const MODE_WRITE_PROTECT: u64 = 1 << 1;

/// Flags on page-fault events; events of moving, discarding and unmapping; and a feature of Linux
/// 5.18. The last one is not used. It is required because kernels that have it also count changes
/// in progress (5.16), and leave pages that a device uses to the parent after a fork (5.12).
const FEATURES: u64 = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 11;

const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;

#[derive(Debug)]
pub(super) struct Userfaultfd(OwnedFd);

impl Userfaultfd {
    /// Opens a descriptor with the needed features.
    pub(super) fn open() -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: the call takes a number only.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened, and nobody else owns it.
        let uffd = Userfaultfd(unsafe { OwnedFd::from_raw_fd(fd as i32) });
        uffd.call(API, [0xaa, FEATURES, 0])?;
        Ok(uffd)
    }

    fn call<const N: usize>(&self, request: u64, mut argument: [u64; N]) -> io::Result<()> {
        let request = request | (size_of::<[u64; N]>() as u64) << 16;
        // SAFETY: the request encodes the size of the argument, and the kernel accesses no more
        // than that. The argument lives during the call.
        match unsafe {
            libc::ioctl(self.0.as_raw_fd(), request as libc::Ioctl, argument.as_mut_ptr())
        } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Monitors whole pages. The mode asks for faults of write-protected pages; none ever is.
    pub(super) fn register(&self, start: usize, end: usize) -> io::Result<()> {
        let (start, len) = (start as u64, (end - start) as u64);
        self.call(REGISTER, [start, len, MODE_WRITE_PROTECT, 0])
    }

    /// Stops monitoring pages.
    pub(super) fn unregister(&self, start: usize, end: usize) -> io::Result<()> {
        self.call(UNREGISTER, [start as u64, (end - start) as u64])
    }

    /// Whether monitored memory is being changed: true from before a change until its event was
    /// read.
    pub(super) fn is_changing(&self) -> bool {
        // The empty range is invalid, but the kernel checks for changes in progress first.
        self.call(WRITE_PROTECT, [0, 0, 0])
            .is_err_and(|error| error.raw_os_error() == Some(libc::EAGAIN))
    }

    /// Reads pending events, without waiting. The call that caused an event returns after this.
    pub(super) fn read(&self, into: &mut [Event]) -> usize {
        // SAFETY: the call writes at most the size of `into`, whose type allows all bytes.
        let got =
            unsafe { libc::read(self.0.as_raw_fd(), into.as_mut_ptr().cast(), size_of_val(into)) };
        usize::try_from(got).unwrap_or(0) / size_of::<Event>()
    }

    pub(super) fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl Event {
    /// The change that the event reports; `None` for other events.
    pub(super) fn invalidation(&self) -> Option<Invalidation> {
        let [first, second, third] = self.numbers.map(|number| number as usize);
        match self.event {
            EVENT_UNMAP => Some(Invalidation::Unmapped(first, second)),
            EVENT_REMOVE => Some(Invalidation::Discarded(first, second)),
            EVENT_REMAP => Some(Invalidation::Moved { from: first, to: second, len: third }),
            _ => None,
        }
    }
}
