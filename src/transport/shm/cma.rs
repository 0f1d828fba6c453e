//! Cross-memory attach: the kernel copies between the memories of two processes.

use std::io;

use libc::iovec;

use crate::engine::OpKind;

/// Pieces of one system call (UIO_MAXIOV).
const CALL_PIECES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From this process to the other one.
    Write,
    /// From the other process to this one.
    Read,
}

impl Direction {
    /// That of a put or get of this process.
    pub(super) fn of(kind: OpKind) -> Self {
        if kind == OpKind::Put { Direction::Write } else { Direction::Read }
    }
}

/// Transfers `len` bytes between `local` here and the address `remote` in process `pid`.
///
/// # Safety
/// `local` must be valid for `len` bytes, and writable for [`Direction::Read`]. With
/// [`Direction::Write`], the other process must expect the write.
pub(super) unsafe fn transfer(
    direction: Direction,
    pid: i32,
    local: *mut u8,
    remote: u64,
    len: usize,
) -> io::Result<()> {
    let mut at = 0;
    while at < len {
        let local = piece(local.wrapping_add(at), len - at);
        let remote = remote_piece(remote + at as u64, len - at);
        // SAFETY: the local piece lies in the caller's buffer. The kernel checks the remote one.
        at += unsafe { call(direction, pid, &[local], &[remote]) }?;
    }
    Ok(())
}

fn piece(base: *mut u8, len: usize) -> iovec {
    iovec { iov_base: base.cast(), iov_len: len }
}

fn remote_piece(base: u64, len: usize) -> iovec {
    iovec { iov_base: base as usize as *mut libc::c_void, iov_len: len }
}

/// Makes one system call, and repeats it if a signal interrupts it. Returns the number of bytes
/// moved, never 0. The kernel moves at most 2 GiB less a page.
///
/// # Safety
/// The local pieces must be valid for the direction.
unsafe fn call(way: Direction, pid: i32, local: &[iovec], remote: &[iovec]) -> io::Result<usize> {
    let (local, locals) = (local.as_ptr(), local.len() as libc::c_ulong);
    let (remote, remotes) = (remote.as_ptr(), remote.len() as libc::c_ulong);
    loop {
        // SAFETY: the arrays are valid for their lengths, and the caller keeps the local pieces
        // valid.
        let moved = unsafe {
            match way {
                Direction::Write => libc::process_vm_writev(pid, local, locals, remote, remotes, 0),
                Direction::Read => libc::process_vm_readv(pid, local, locals, remote, remotes, 0),
            }
        };
        if moved > 0 {
            return Ok(moved as usize);
        }
        match io::Error::last_os_error() {
            _ if moved == 0 => return Err(io::Error::from_raw_os_error(libc::EFAULT)),
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
}

/// Pieces to transfer in one direction with as few system calls as possible.
///
/// The kernel looks up the pages of each remote piece anew, so adjacent remote pieces become one.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pieces: Vec<Piece>,
    /// Operations in the batch.
    count: usize,
    local: Vec<iovec>,
    remote: Vec<iovec>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    local: *mut u8,
    remote: u64,
    len: usize,
    /// Operations that are done when this piece is.
    upto: usize,
}

// SAFETY: the thread that owns the window uses the addresses, within one call.
unsafe impl Send for Batch {}

impl Batch {
    /// Removes all pieces.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.count = 0;
    }

    /// Adds a write of `len` bytes from `local` here to `remote` there. Replaces the write before
    /// it if that one is to the same bytes.
    pub(super) fn push_over(&mut self, local: *mut u8, remote: u64, len: usize) {
        match self.pieces.last_mut() {
            Some(last) if last.remote == remote && last.len == len => {
                self.count += 1;
                (last.local, last.upto) = (local, self.count);
            }
            _ => self.push(local, remote, len),
        }
    }

    /// Adds an operation: `len` bytes between `local` here and `remote` there.
    pub(super) fn push(&mut self, local: *mut u8, remote: u64, len: usize) {
        self.push_part(local, remote, len, true);
    }

    /// Adds a part of an operation. `last`: its last part.
    pub(super) fn push_part(&mut self, local: *mut u8, remote: u64, len: usize, last: bool) {
        self.count += usize::from(last);
        self.pieces.push(Piece { local, remote, len, upto: self.count });
    }

    /// Transfers all pieces. Returns the number of operations that were done completely, and the
    /// error that kept it from doing the others.
    ///
    /// # Safety
    /// The local pieces must be valid for the direction.
    pub(super) unsafe fn run(&mut self, way: Direction, pid: i32) -> (usize, io::Result<()>) {
        let mut next = 0;
        while next < self.pieces.len() {
            self.build_vectors(next);
            // SAFETY: the caller keeps the local pieces valid.
            match unsafe { call(way, pid, &self.local, &self.remote) } {
                Ok(moved) => next = self.skip(next, moved),
                Err(error) => {
                    let done = next.checked_sub(1).map_or(0, |last| self.pieces[last].upto);
                    return (done, Err(error));
                }
            }
        }
        (self.count, Ok(()))
    }

    /// Builds the vectors of the next call, from piece `next` on.
    fn build_vectors(&mut self, next: usize) {
        self.local.clear();
        self.remote.clear();
        let mut end = None;
        for part in self.pieces[next..].iter().take(CALL_PIECES) {
            self.local.push(piece(part.local, part.len));
            match self.remote.last_mut() {
                Some(last) if end == Some(part.remote) => last.iov_len += part.len,
                _ => self.remote.push(remote_piece(part.remote, part.len)),
            }
            end = Some(part.remote + part.len as u64);
        }
    }

    /// Removes `moved` bytes from the pieces from `next` on. Returns the first that is not empty.
    fn skip(&mut self, mut next: usize, mut moved: usize) -> usize {
        while let Some(part) = self.pieces.get_mut(next) {
            if moved < part.len {
                (part.local, part.remote) =
                    (part.local.wrapping_add(moved), part.remote + moved as u64);
                part.len -= moved;
                break;
            }
            moved -= part.len;
            next += 1;
        }
        next
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn batch_continues_inside_a_piece() {
        let mut batch = Batch::default();
        let mut bytes = [0u8; 30];
        for i in 0..3 {
            batch.push(bytes.as_mut_ptr().wrapping_add(10 * i), 1000 + 100 * i as u64, 10);
        }
        assert_eq!(batch.skip(0, 13), 1);
        assert_eq!((batch.pieces[1].len, batch.pieces[1].remote), (7, 1103));
        assert_eq!(batch.skip(1, 7 + 10), 3);
    }

    #[test]
    fn batch_joins_adjacent_pieces_and_keeps_the_last_write() {
        let mut batch = Batch::default();
        let mut bytes = [0u8; 64];
        let base = bytes.as_mut_ptr();
        for (i, remote) in (0..).zip([100u64, 108, 108, 116, 200, 108]) {
            batch.push_over(base.wrapping_add(8 * i), remote, 8);
        }
        batch.build_vectors(0);
        let remote: Vec<_> =
            batch.remote.iter().map(|piece| (piece.iov_base as u64, piece.iov_len)).collect();
        assert_eq!(remote, [(100, 24), (200, 8), (108, 8)]);
        let local: Vec<_> =
            batch.local.iter().map(|piece| piece.iov_base as usize - base as usize).collect();
        assert_eq!(local, [0, 16, 24, 32, 40]);
        assert_eq!(
            batch.pieces.iter().map(|piece| piece.upto).collect::<Vec<_>>(),
            [1, 3, 4, 5, 6]
        );
    }

    #[test]
    fn batch_transfers_within_this_process() {
        let from: Vec<u8> = (0..3000u32).map(|i| i as u8).collect();
        let mut to = vec![0u8; 3000];
        let mut batch = Batch::default();
        for i in 0..3000 {
            batch.push(
                from.as_ptr().wrapping_add(i).cast_mut(),
                to.as_mut_ptr() as u64 + i as u64,
                1,
            );
        }
        // SAFETY: every local piece lies in `from`, and every remote one in `to` of this process.
        let (whole, result) = unsafe { batch.run(Direction::Write, std::process::id() as i32) };
        // An emulator of one process (`make test-aarch64`) has no such call.
        if result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOSYS)) {
            let said = "SKIPPED batch_transfers_within_this_process: no process_vm_writev";
            _ = writeln!(std::io::stderr(), "{said} on this system");
            assert_eq!(whole, 0, "nothing was copied");
            return;
        }
        assert!(whole == 3000 && result.is_ok());
        assert_eq!(from, to);
        batch.clear();
        batch.push(to.as_mut_ptr(), 8, 4);
        // SAFETY: the local piece is valid. The kernel reports that address 8 is not mapped.
        let (whole, result) = unsafe { batch.run(Direction::Read, std::process::id() as i32) };
        assert_eq!((whole, result.unwrap_err().raw_os_error()), (0, Some(libc::EFAULT)));
    }
}
