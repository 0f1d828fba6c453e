//! `userfaultfd` for events of mappings; page faults are never reported.
//!
//! Constants and layouts are those of `<linux/userfaultfd.h>`, where they are stable.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

#[repr(C)]
#[derive(Debug)]
struct Range {
    start: u64,
    len: u64,
}

#[repr(C)]
#[derive(Debug)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Debug)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Debug)]
struct WriteProtect {
    range: Range,
    mode: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Event {
    event: u8,
    _reserved: [u8; 7],
    /// Start and end; or from, to and length.
    numbers: [u64; 3],
}

/// A change of monitored memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Invalidation {
    /// The range from the first to the second address was unmapped.
    Unmapped(usize, usize),
    /// The pages of the range are about to be discarded; the range stays mapped.
    Discarded(usize, usize),
    /// The range was moved.
    Moved {
        /// Old address.
        from: usize,
        /// New address.
        to: usize,
        /// Bytes.
        len: usize,
    },
}

const fn request(write: bool, number: u64, size: usize) -> u64 {
    // _IOR and _IOWR of type 0xaa.
    (if write { 3 } else { 2 }) << 30 | (size as u64) << 16 | 0xaa << 8 | number
}

const API: u64 = request(true, 0x3f, size_of::<Api>());
const REGISTER: u64 = request(true, 0, size_of::<Register>());
const UNREGISTER: u64 = request(false, 1, size_of::<Range>());
const WRITE_PROTECT: u64 = request(true, 6, size_of::<WriteProtect>());

/// No events for faults inside the kernel (Linux 5.11): then no privilege is needed.
const USER_MODE_ONLY: i32 = 1;
const MODE_WRITE_PROTECT: u64 = 1 << 1;

/// Flags on page-fault events; events of moving, discarding and unmapping; and a feature of Linux
/// 5.18. The last is not used, but kernels with it count changes in progress (5.16), and leave
/// pages in use by a device to the parent when it forks (5.12).
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
        uffd.call(API, &mut Api { api: 0xaa, features: FEATURES, ioctls: 0 })?;
        Ok(uffd)
    }

    fn call<T>(&self, request: u64, argument: &mut T) -> io::Result<()> {
        // SAFETY: the callers below pair each request with its own structure, whose size is part of
        // the request number; it lives during the call.
        match unsafe {
            libc::ioctl(self.0.as_raw_fd(), request as libc::Ioctl, std::ptr::from_mut(argument))
        } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Monitors whole pages. The mode asks for faults of write-protected pages; none ever is.
    pub(super) fn register(&self, start: usize, end: usize) -> io::Result<()> {
        let range = Range { start: start as u64, len: (end - start) as u64 };
        self.call(REGISTER, &mut Register { range, mode: MODE_WRITE_PROTECT, ioctls: 0 })
    }

    /// Stops monitoring pages.
    pub(super) fn unregister(&self, start: usize, end: usize) -> io::Result<()> {
        self.call(UNREGISTER, &mut Range { start: start as u64, len: (end - start) as u64 })
    }

    /// Whether monitored memory is being changed: true from before a change until its event has
    /// been read.
    pub(super) fn is_changing(&self) -> bool {
        // An empty range is invalid, but the kernel checks for changes first.
        let mut nothing = WriteProtect { range: Range { start: 0, len: 0 }, mode: 0 };
        self.call(WRITE_PROTECT, &mut nothing)
            .is_err_and(|error| error.raw_os_error() == Some(libc::EAGAIN))
    }

    /// Reads the events that are there. The call that caused an event goes on when it is read.
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
    /// The change that it reports; `None` for other events.
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
