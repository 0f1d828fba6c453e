//! Memory shared by the processes of a window.
//!
//! A segment is a memfd. It has no name, so nothing is left behind when a process dies, and its
//! size is limited by memory, not by a mounted file system. The creator keeps the descriptor open
//! until all processes have mapped the segment through `/proc/<pid>/fd/<n>`. The length is sealed,
//! since truncating the file would kill every process that has mapped it with SIGBUS.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::ptr::{NonNull, null_mut};

use super::layout::page;

/// A system call that failed while shared memory was set up, and its errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", step.name(), self.reason())]
pub struct SystemError {
    pub(super) step: Step,
    pub(super) errno: i32,
}

impl SystemError {
    /// The errno of the system call.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// The errno in words.
    pub(super) fn reason(&self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }

    /// `default` is the errno of an error that has none.
    pub(super) fn of(step: Step, error: &io::Error, default: i32) -> Self {
        SystemError { step, errno: error.raw_os_error().unwrap_or(default) }
    }

    fn last(step: Step) -> Self {
        SystemError::of(step, &io::Error::last_os_error(), libc::EIO)
    }
}

/// Steps of the set-up that can fail. Processes send each other these numbers.
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

    /// What failed, for the error message.
    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(step, _)| *step == self).map_or("set-up", |(_, name)| name)
    }

    /// The step with a number that another process sent.
    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.iter().find(|(step, _)| *step as u8 == code).map(|(step, _)| *step)
    }
}

/// Creates an empty segment that only this user can open.
pub(super) fn create() -> Result<File, SystemError> {
    // SAFETY: the name is a C string; the call has no other precondition.
    let fd = unsafe {
        libc::memfd_create(c"mpix-rma window".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    };
    if fd < 0 {
        return Err(SystemError::last(Step::Create));
    }
    // SAFETY: `memfd_create` returned the descriptor, and nothing else owns it.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_permissions(Permissions::from_mode(0o600))
        .map_err(|error| SystemError::of(Step::Mode, &error, libc::EIO))?;
    Ok(file)
}

/// Forbids later changes of a segment's length: `F_SEAL_SHRINK`, `F_SEAL_GROW`, or both.
pub(super) fn seal(file: &File, seals: libc::c_int) -> Result<(), SystemError> {
    // SAFETY: a system call on an open descriptor, without pointers.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(SystemError::last(Step::Seal)),
    }
}

/// Sets the length of a segment.
pub(super) fn resize(file: &File, len: u64) -> Result<(), SystemError> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for the result.
    if unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } != 0 {
        return Err(SystemError::last(Step::Limit));
    }
    // Exceeding the limit would raise SIGXFSZ instead of returning an error.
    if limit.rlim_cur != libc::RLIM_INFINITY && len > limit.rlim_cur {
        return Err(SystemError { step: Step::Limit, errno: libc::EFBIG });
    }
    file.set_len(len).map_err(|error| SystemError::of(Step::Resize, &error, libc::EINVAL))
}

/// Opens the segment that process `pid` created under descriptor `fd`.
pub(super) fn open(pid: i32, fd: RawFd) -> Result<File, SystemError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/fd/{fd}"))
        .map_err(|error| SystemError::of(Step::Open, &error, libc::EIO))?;
    // If the number is wrong, this may be any file of that process. Only memory has seals.
    // SAFETY: a system call on an open descriptor, without pointers.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) } {
        0.. => Ok(file),
        _ => Err(SystemError::last(Step::Open)),
    }
}

const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Maps memory.
///
/// # Safety
/// With `MAP_FIXED`, nobody uses the range at `address`.
unsafe fn mmap(
    address: *mut u8,
    len: u64,
    protection: libc::c_int,
    flags: libc::c_int,
    fd: RawFd,
    offset: u64,
) -> Result<NonNull<u8>, SystemError> {
    // SAFETY: a range that is replaced is unused (contract of this function).
    let base =
        unsafe { libc::mmap(address.cast(), len as usize, protection, flags, fd, offset as i64) };
    NonNull::new(base.cast())
        .filter(|_| base != libc::MAP_FAILED)
        .ok_or_else(|| SystemError::last(Step::Map))
}

/// A segment, or a part of one, as mapped in this process.
#[derive(Debug)]
pub(super) struct Segment {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, and `Segment` only hands out addresses.
unsafe impl Send for Segment {}
// SAFETY: a shared `Segment` only hands out addresses.
unsafe impl Sync for Segment {}

impl Segment {
    /// Sets the segment's final length and maps it at a multiple of `align`, a power of two. Every
    /// process sets the same length, so none has to wait for the creator.
    pub(super) fn map(file: &File, len: u64, align: u64) -> Result<Self, SystemError> {
        resize(file, len)?;
        seal(file, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)?;
        if align <= page() {
            return Self::map_part(file, 0, len);
        }
        let too_long = SystemError { step: Step::Map, errno: libc::ENOMEM };
        let len = len.checked_next_multiple_of(page()).ok_or(too_long)?;
        let room =
            len.checked_add(align).filter(|room| *room <= isize::MAX as u64).ok_or(too_long)?;
        // Reserve enough addresses to contain an aligned range of this length, and unmap the rest
        // below.
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let found = unsafe { mmap(null_mut(), room, libc::PROT_NONE, flags, -1, 0) }?;
        let before = (found.as_ptr() as u64).next_multiple_of(align) - found.as_ptr() as u64;
        let start = found.as_ptr().wrapping_add(before as usize);
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: all three parts lie in the range just reserved, which nothing else uses.
        unsafe {
            let base = mmap(start, len, READ_WRITE, flags, file.as_raw_fd(), 0)
                .inspect_err(|_| _ = libc::munmap(found.as_ptr().cast(), room as usize))?;
            if before > 0 {
                libc::munmap(found.as_ptr().cast(), before as usize);
            }
            if before + len < room {
                let rest = start.wrapping_add(len as usize).cast();
                libc::munmap(rest, (room - before - len) as usize);
            }
            Ok(Segment { base, len: len as usize })
        }
    }

    /// Maps `len` bytes of a file at `offset`, a multiple of the page. A caller that maps beyond
    /// the end of the file must not access what is beyond.
    pub(super) fn map_part(file: &File, offset: u64, len: u64) -> Result<Self, SystemError> {
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let base = unsafe { mmap(null_mut(), len, READ_WRITE, flags, file.as_raw_fd(), offset) }?;
        Ok(Segment { base, len: len as usize })
    }

    /// As [`map`](Self::map), for the segment that process `pid` created under descriptor `fd`.
    /// `own`: its file, if that process is this one.
    pub(super) fn map_shared(
        own: Option<&File>,
        (pid, fd): (i32, RawFd),
        len: u64,
        align: u64,
    ) -> Result<Self, SystemError> {
        match own {
            Some(file) => Self::map(file, len, align),
            None => Self::map(&open(pid, fd)?, len, align),
        }
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len as u64
    }

    /// Address of the first byte.
    pub(super) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Address of the byte at `offset`.
    pub(super) fn at(&self, offset: u64) -> *mut u8 {
        self.base().wrapping_add(offset as usize)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping is this segment's, whose owner drops the users of its addresses
        // first.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_mapped_segment_is_sealed() {
        let file = create().unwrap();
        let segment = Segment::map(&file, 10_000, 1).unwrap();
        for len in [0, 4096, 9_999, 10_001, 1 << 20] {
            let refused = resize(&file, len).unwrap_err();
            assert_eq!((refused.step, refused.errno), (Step::Resize, libc::EPERM), "{len} bytes");
        }
        // The other processes of the window set the same length again.
        let again = Segment::map(&file, 10_000, 1 << 16).unwrap();
        // SAFETY: inside both mappings, which nobody else uses.
        unsafe {
            segment.at(9_999).write(7);
            assert_eq!(again.at(9_999).read(), 7);
        }
    }

    #[test]
    fn a_segment_has_no_name_and_belongs_to_its_user() {
        let file = create().unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let link = link.to_str().unwrap();
        assert!(link.starts_with("/memfd:") && link.ends_with("(deleted)"), "{link}");
    }

    #[test]
    fn a_descriptor_of_another_file_is_refused() {
        let path = std::env::temp_dir().join(format!("mpix-rma-{}", std::process::id()));
        std::fs::write(&path, "text").unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let place = (std::process::id() as i32, file.as_raw_fd());
        let refused = Segment::map_shared(None, place, 10_000, 1).unwrap_err();
        assert_eq!((refused.step, refused.errno), (Step::Open, libc::EINVAL));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
        std::fs::remove_file(&path).unwrap();
    }

    /// Only root can become another user, so others do not run it.
    #[test]
    fn another_user_cannot_open_a_segment() {
        const NOBODY: libc::uid_t = 65_534;
        // SAFETY: a system call without arguments.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let file = create().unwrap();
        let path = format!("/proc/{}/fd/{}\0", std::process::id(), file.as_raw_fd());
        // SAFETY: the child makes only system calls, with a path that was made before.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                let gone = libc::setgid(NOBODY) != 0 || libc::setuid(NOBODY) != 0;
                let opened = libc::open(path.as_ptr().cast(), libc::O_RDWR);
                let refused = opened < 0 && *libc::__errno_location() == libc::EACCES;
                libc::_exit(if gone { 2 } else { i32::from(!refused) });
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status
        };
        assert!(libc::WIFEXITED(status), "the child ended by a signal");
        assert_eq!(libc::WEXITSTATUS(status), 0, "1: opened, 2: could not become nobody");
    }

    #[test]
    fn an_aligned_mapping_unmaps_the_rest_of_its_reservation() {
        let file = create().unwrap();
        let align = 1 << 21;
        let segment = Segment::map(&file, 5 * page() + 1, align).unwrap();
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
