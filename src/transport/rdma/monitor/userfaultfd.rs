//! The kernel's messages about memory (`userfaultfd`), as far as they are used here: never a page
//! fault, only what becomes of mappings.
//!
//! Constants and layouts are those of `<linux/userfaultfd.h>`, which has not changed them since
//! they came.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A range of the kernel's.
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

/// One message.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Message {
    event: u8,
    _reserved: [u8; 7],
    /// Begin and end; or from, to and length.
    numbers: [u64; 3],
}

/// What has become of some memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport::rdma) enum Invalidation {
    /// It is not mapped any more, or was when this was told.
    Unmapped(usize, usize),
    /// Its pages are about to be given back; it stays mapped.
    Discarded(usize, usize),
    /// Its pages are mapped somewhere else now.
    Moved {
        /// Where it was.
        from: usize,
        /// Where it is.
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

/// Asks for no message about a fault that the kernel itself meets: with it, no privilege is needed.
/// Linux 5.11.
const USER_MODE_ONLY: i32 = 1;
const MODE_WRITE_PROTECT: u64 = 1 << 1;

/// Faults tell what they are; moves, emptying and unmapping are told. The last one, of Linux 5.18,
/// is not needed for what it does: kernels that know it count the changes under way (5.16), and
/// give a child its own copy of pages that an interface uses, so that a fork leaves the parent's
/// where they are (5.12).
const FEATURES: u64 = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 11;

const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;

/// A descriptor that tells what becomes of the memory it watches.
#[derive(Debug)]
pub(super) struct Userfaultfd(OwnedFd);

impl Userfaultfd {
    /// Opens one.
    ///
    /// # Errors
    /// The kernel has none, or does not give it.
    pub(super) fn open() -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: a call with a number.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and nobody else's.
        let uffd = Userfaultfd(unsafe { OwnedFd::from_raw_fd(fd as i32) });
        uffd.call(API, &mut Api { api: 0xaa, features: FEATURES, ioctls: 0 })?;
        Ok(uffd)
    }

    fn call<T>(&self, request: u64, argument: &mut T) -> io::Result<()> {
        // SAFETY: each request is made with its own argument, of the size that its number has.
        match unsafe {
            libc::ioctl(self.0.as_raw_fd(), request as libc::Ioctl, std::ptr::from_mut(argument))
        } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Watches whole pages. Their faults would be told only if they were write-protected, which
    /// they never are.
    pub(super) fn watch(&self, at: usize, end: usize) -> io::Result<()> {
        let range = Range { start: at as u64, len: (end - at) as u64 };
        self.call(REGISTER, &mut Register { range, mode: MODE_WRITE_PROTECT, ioctls: 0 })
    }

    /// Watches them no more.
    pub(super) fn leave(&self, at: usize, end: usize) -> io::Result<()> {
        self.call(UNREGISTER, &mut Range { start: at as u64, len: (end - at) as u64 })
    }

    /// True if memory that is watched is being changed, and the message of it was not read yet:
    /// from before the change until after that.
    pub(super) fn is_changing(&self) -> bool {
        // Of nothing, which is refused; but first of all it is refused for this.
        let mut nothing = WriteProtect { range: Range { start: 0, len: 0 }, mode: 0 };
        self.call(WRITE_PROTECT, &mut nothing)
            .is_err_and(|error| error.raw_os_error() == Some(libc::EAGAIN))
    }

    /// Reads the messages that there are. Who caused one goes on when it is read.
    pub(super) fn read(&self, into: &mut [Message]) -> usize {
        // SAFETY: room for so many bytes, any of which are valid.
        let got =
            unsafe { libc::read(self.0.as_raw_fd(), into.as_mut_ptr().cast(), size_of_val(into)) };
        usize::try_from(got).unwrap_or(0) / size_of::<Message>()
    }

    pub(super) fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl Message {
    /// What it tells.
    pub(super) fn change(&self) -> Option<Invalidation> {
        let [first, second, third_party] = self.numbers.map(|number| number as usize);
        match self.event {
            EVENT_UNMAP => Some(Invalidation::Unmapped(first, second)),
            EVENT_REMOVE => Some(Invalidation::Discarded(first, second)),
            EVENT_REMAP => Some(Invalidation::Moved { from: first, to: second, len: third_party }),
            _ => None,
        }
    }
}
