//! One piece of memory shared by the processes of a window.
//!
//! It is a memfd: it has no name, so nothing stays behind when a process dies, and its limit is
//! memory, not the size of some mounted file system. The creator keeps the descriptor open until
//! all have mapped the segment through `/proc/<pid>/fd/<n>`. Its length is sealed: no process of
//! the same user can truncate it, which would end every process that has mapped it with SIGBUS.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use super::layout::page;

/// A system call that failed, and its errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) step: Step,
    pub(super) errno: i32,
}

/// Steps of the set-up that can fail. The numbers travel between the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Step {
    Identity = 1,
    Create = 2,
    Mode = 3,
    Limit = 4,
    Open = 5,
    Resize = 6,
    Map = 7,
    Arguments = 8,
    Seal = 9,
}

impl Step {
    const ALL: [(Step, &'static str); 9] = [
        (Step::Identity, "read of the node's identity in /proc"),
        (Step::Create, "memfd_create"),
        (Step::Mode, "fchmod of the segment"),
        (Step::Limit, "check of RLIMIT_FSIZE"),
        (Step::Open, "open of the segment in /proc"),
        (Step::Resize, "ftruncate of the segment"),
        (Step::Map, "mmap of the segment"),
        (Step::Arguments, "check of the window's arguments"),
        (Step::Seal, "seal of the segment's length"),
    ];

    /// In words, for the error message.
    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(step, _)| *step == self).map_or("set-up", |(_, name)| name)
    }

    /// From the number that another process sent.
    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.iter().find(|(step, _)| *step as u8 == code).map(|(step, _)| *step)
    }
}

pub(super) fn last_failure(step: Step) -> Failure {
    Failure { step, errno: io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) }
}

/// Makes an empty segment that only this user can open.
pub(super) fn create() -> Result<OwnedFd, Failure> {
    // SAFETY: the name is a C string; the call has no other precondition.
    let fd = unsafe {
        libc::memfd_create(c"mpix-rma window".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    };
    if fd < 0 {
        return Err(last_failure(Step::Create));
    }
    // SAFETY: the descriptor is new and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: a plain system call on an open descriptor.
    if unsafe { libc::fchmod(fd.as_raw_fd(), 0o600) } != 0 {
        return Err(last_failure(Step::Mode));
    }
    Ok(fd)
}

/// Fixes what the length of a segment may do from now on: `F_SEAL_SHRINK`, `F_SEAL_GROW`, or both.
pub(super) fn seal(fd: &OwnedFd, seals: libc::c_int) -> Result<(), Failure> {
    // SAFETY: a plain system call on an open descriptor.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(last_failure(Step::Seal)),
    }
}

/// Sets the length of a segment.
pub(super) fn resize(fd: &OwnedFd, len: u64) -> Result<(), Failure> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer.
    if unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } != 0 {
        return Err(last_failure(Step::Limit));
    }
    // Going over the limit would raise SIGXFSZ instead of giving an error.
    if limit.rlim_cur != libc::RLIM_INFINITY && len > limit.rlim_cur {
        return Err(Failure { step: Step::Limit, errno: libc::EFBIG });
    }
    // SAFETY: a plain system call on an open descriptor.
    if unsafe { libc::ftruncate64(fd.as_raw_fd(), len as i64) } != 0 {
        return Err(last_failure(Step::Resize));
    }
    Ok(())
}

/// Opens the segment that process `pid` created under descriptor `fd`.
pub(super) fn open(pid: i32, fd: RawFd) -> Result<OwnedFd, Failure> {
    let path = CString::new(format!("/proc/{pid}/fd/{fd}")).expect("numbers have no zero byte");
    // SAFETY: the path is a C string.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(last_failure(Step::Open));
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The segment as mapped in this process.
#[derive(Debug)]
pub(super) struct Segment {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; the segment hands out addresses only.
unsafe impl Send for Segment {}
// SAFETY: as for `Send`; a shared reference gives no more than addresses either.
unsafe impl Sync for Segment {}

impl Segment {
    /// Gives the segment its final length and maps it. Every process sets the length, always to the
    /// same value, so that none needs to wait until the creator has done it.
    pub(super) fn map(fd: &OwnedFd, len: u64) -> Result<Self, Failure> {
        Self::fix(fd, len)?;
        Self::map_part(fd, 0, len)
    }

    /// As [`map`](Self::map), at a multiple of `align`, which is a power of two.
    pub(super) fn map_aligned(fd: &OwnedFd, len: u64, align: u64) -> Result<Self, Failure> {
        Self::fix(fd, len)?;
        if align <= page() {
            return Self::map_part(fd, 0, len);
        }
        let too_long = Failure { step: Step::Map, errno: libc::ENOMEM };
        let len = len.checked_next_multiple_of(page()).ok_or(too_long)?;
        let room =
            len.checked_add(align).filter(|room| *room <= isize::MAX as u64).ok_or(too_long)?;
        // Room for the segment wherever a multiple lies in it; what is left over goes back.
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let found = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(std::ptr::null_mut(), room as usize, libc::PROT_NONE, flags, -1, 0)
        };
        if found == libc::MAP_FAILED {
            return Err(last_failure(Step::Map));
        }
        let before = (found as u64).next_multiple_of(align) - found as u64;
        let start = found.wrapping_byte_add(before as usize);
        // SAFETY: all three parts lie in the room that was just reserved and that nobody else knows
        // of.
        unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
            let base = libc::mmap(
                start,
                len as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                fd.as_raw_fd(),
                0,
            );
            if base == libc::MAP_FAILED {
                let failure = last_failure(Step::Map);
                libc::munmap(found, room as usize);
                return Err(failure);
            }
            if before > 0 {
                libc::munmap(found, before as usize);
            }
            if before + len < room {
                libc::munmap(start.wrapping_byte_add(len as usize), (room - before - len) as usize);
            }
        }
        NonNull::new(start.cast()).map(|base| Segment { base, len: len as usize }).ok_or(too_long)
    }

    /// Gives the segment its final length.
    fn fix(fd: &OwnedFd, len: u64) -> Result<(), Failure> {
        resize(fd, len)?;
        seal(fd, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)
    }

    /// Maps `len` bytes of a file at `offset`, a multiple of the page. Whoever maps more than the
    /// file has must not access what is beyond its end.
    pub(super) fn map_part(fd: &OwnedFd, offset: u64, len: u64) -> Result<Self, Failure> {
        let len = len as usize;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), offset as i64)
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(Segment { base, len }),
            _ => Err(last_failure(Step::Map)),
        }
    }

    /// Bytes.
    pub(super) fn len(&self) -> u64 {
        self.len as u64
    }

    /// First byte.
    pub(super) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The byte at `offset`.
    pub(super) fn at(&self, offset: u64) -> *mut u8 {
        self.base().wrapping_add(offset as usize)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped; the window that held the addresses is being dropped
        // too.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nobody_changes_the_length_of_a_mapped_segment() {
        let file = create().unwrap();
        let segment = Segment::map(&file, 10_000).unwrap();
        for len in [0, 4096, 9_999, 10_001, 1 << 20] {
            let refused = resize(&file, len).unwrap_err();
            assert_eq!((refused.step, refused.errno), (Step::Resize, libc::EPERM), "{len} bytes");
        }
        // The other processes of the window set the same length again.
        let again = Segment::map_aligned(&file, 10_000, 1 << 16).unwrap();
        // SAFETY: inside both mappings, which nobody else uses.
        unsafe {
            segment.at(9_999).write(7);
            assert_eq!(again.at(9_999).read(), 7);
        }
    }

    #[test]
    fn an_aligned_mapping_leaves_nothing_behind() {
        let file = create().unwrap();
        let align = 1 << 21;
        let segment = Segment::map_aligned(&file, 5 * page() + 1, align).unwrap();
        assert_eq!(segment.base() as u64 % align, 0);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let bounds = |line: &str| {
            let (first, rest) = line.split_once('-')?;
            let (end, _) = rest.split_once(' ')?;
            Some((u64::from_str_radix(first, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
        };
        let base = segment.base() as u64;
        let mapped = maps.lines().filter_map(bounds).find(|(first, _)| *first == base);
        assert_eq!(
            mapped,
            Some((base, base + 6 * page())),
            "the mapping is the segment, whole pages"
        );
    }
}
