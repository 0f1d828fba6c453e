//! Cross-memory attach: the kernel copies between the memories of two processes.

use std::cell::RefCell;
use std::io;

use libc::iovec;

use super::bootstrap::PROBE;
use crate::engine::OpKind;
use crate::transport::copy::{copy, is_slow_by_string};

/// Pieces of one system call (UIO_MAXIOV).
const CALL_PIECES: usize = 1024;

/// Where cross-memory attach copies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
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
    if goes_aside(direction, local, remote, len) {
        // SAFETY: the contract of this function.
        return unsafe { transfer_aside(direction, pid, local, remote, len) };
    }
    let mut at = 0;
    while at < len {
        let local = piece(local.wrapping_add(at), len - at);
        let remote = remote_piece(remote + at as u64, len - at);
        // SAFETY: the local piece lies in the caller's buffer. The kernel checks the remote one.
        at += unsafe { call(direction, pid, &[local], &[remote]) }?;
    }
    Ok(())
}

/// Tries to read a word [`PROBE`] at `address` in process `pid`. Whether that works.
pub(super) fn reads(pid: i32, address: u64) -> bool {
    let mut word = 0u64;
    // SAFETY: `word` is valid for eight bytes; the kernel checks the remote address.
    let read = unsafe { transfer(Direction::Read, pid, (&raw mut word).cast(), address, 8) };
    read.is_ok() && word == PROBE
}

const PAGE: usize = 4096;
/// Bytes that go aside at a time.
const ASIDE: usize = 64 * PAGE;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Whether a transfer goes through a buffer of this process. The kernel copies by the string
/// instruction. Where that is slow, it saves time to copy twice: a get of 64 KiB took 28 µs
/// straight, and 8 aside.
fn goes_aside(direction: Direction, local: *const u8, remote: u64, len: usize) -> bool {
    let (here, there) = (local.addr(), remote as usize);
    len >= PAGE
        && match direction {
            Direction::Write => is_slow_by_string(here, there),
            Direction::Read => is_slow_by_string(there, here),
        }
}

/// Transfers through a buffer that lies in its page as the bytes of the other process do.
///
/// # Safety
/// As [`transfer`].
#[inline(never)]
unsafe fn transfer_aside(
    direction: Direction,
    pid: i32,
    local: *mut u8,
    remote: u64,
    len: usize,
) -> io::Result<()> {
    let mut buffer = BUFFER.try_with(RefCell::take).unwrap_or_default();
    buffer.resize(ASIDE + PAGE, 0);
    let skipped = (remote as usize).wrapping_sub(buffer.as_ptr().addr()) % PAGE;
    let place = buffer[skipped..].as_mut_ptr();
    let mut parts = (0..len).step_by(ASIDE).map(|at| (at, ASIDE.min(len - at)));
    let done = parts.try_for_each(|(at, part)| {
        let (local, remote) = (local.wrapping_add(at), remote + at as u64);
        // SAFETY: the contract of this function for each part, for which the buffer has room.
        unsafe {
            if direction == Direction::Write {
                copy(local, place, part);
            }
            transfer(direction, pid, place, remote, part)?;
            if direction == Direction::Read {
                copy(place, local, part);
            }
        }
        Ok(())
    });
    _ = BUFFER.try_with(|kept| kept.replace(buffer));
    done
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
        while let Some(&Piece { local, remote, len, .. }) = self.pieces.get(next) {
            // SAFETY: the caller keeps the local pieces valid.
            let moved = unsafe {
                if goes_aside(way, local, remote, len) {
                    transfer_aside(way, pid, local, remote, len).map(|()| len)
                } else {
                    self.build_vectors(way, next);
                    call(way, pid, &self.local, &self.remote)
                }
            };
            match moved {
                Ok(moved) => next = self.skip(next, moved),
                Err(error) => {
                    let done = next.checked_sub(1).map_or(0, |last| self.pieces[last].upto);
                    return (done, Err(error));
                }
            }
        }
        (self.count, Ok(()))
    }

    /// Builds the vectors of the next call, from piece `next` on, up to one that goes aside.
    fn build_vectors(&mut self, way: Direction, next: usize) {
        self.local.clear();
        self.remote.clear();
        let mut end = None;
        for (at, part) in self.pieces[next..].iter().take(CALL_PIECES).enumerate() {
            if at > 0 && goes_aside(way, part.local, part.remote, part.len) {
                break;
            }
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
        batch.build_vectors(Direction::Write, 0);
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

    /// Whether an emulator of one process (`make test-aarch64`) has no such call.
    fn is_skipped(test: &str, result: &io::Result<()>) -> bool {
        let skips = result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOSYS));
        if skips {
            let said = format!("SKIPPED {test}: no process_vm_writev on this system");
            _ = writeln!(std::io::stderr(), "{said}");
        }
        skips
    }

    #[test]
    fn a_transfer_aside_moves_exactly_the_bytes() {
        let pid = std::process::id() as i32;
        let len = ASIDE + 3 * PAGE + 5;
        let bytes: Vec<u8> = (0..len).map(|i: usize| (i * 31 + i / 251) as u8 | 1).collect();
        for shift in [0, 1, 16, 63, 64, 4095] {
            for way in [Direction::Write, Direction::Read] {
                let mut from = vec![0u8; len + 2 * PAGE];
                let mut to = vec![0u8; len + 2 * PAGE];
                let start = (to.as_ptr().addr() + shift).wrapping_sub(from.as_ptr().addr()) % PAGE;
                from[start..][..len].copy_from_slice(&bytes);
                let (source, target) = (from[start..].as_mut_ptr(), to[PAGE..].as_mut_ptr());
                let (local, remote) = match way {
                    Direction::Write => (source, target),
                    Direction::Read => (target, source),
                };
                // SAFETY: both vectors have room for the bytes.
                let result = unsafe { transfer_aside(way, pid, local, remote as u64, len) };
                if is_skipped("a_transfer_aside_moves_exactly_the_bytes", &result) {
                    return;
                }
                assert!(result.is_ok() && to[PAGE..][..len] == bytes, "{way:?}, {shift}");
                let mut around = to[..PAGE].iter().chain(&to[PAGE + len..]);
                assert!(around.all(|byte| *byte == 0), "{way:?}, {shift}: bytes outside");
            }
        }
    }

    /// Pieces that go straight, and pieces that go aside where the processor's strings are slow.
    #[test]
    fn a_batch_moves_pieces_of_any_alignment() {
        const PIECE: usize = 2 * PAGE;
        let pieces = 12;
        let bytes: Vec<u8> = (0..pieces * PIECE).map(|i| (i * 7 + i / 251) as u8 | 1).collect();
        let mut to = vec![0u8; pieces * (PIECE + 64)];
        let mut batch = Batch::default();
        for i in 0..pieces {
            let local = bytes.as_ptr().wrapping_add(i * PIECE).cast_mut();
            // Each is 16 bytes further behind the source, modulo a page, than the one before.
            let remote = to.as_mut_ptr().wrapping_add(i * (PIECE + 16));
            batch.push(local, remote as u64, PIECE);
        }
        // SAFETY: every local piece lies in `bytes`, and every remote one in `to`.
        let (whole, result) = unsafe { batch.run(Direction::Write, std::process::id() as i32) };
        if is_skipped("a_batch_moves_pieces_of_any_alignment", &result) {
            return;
        }
        assert!(whole == pieces && result.is_ok());
        for (i, piece) in bytes.chunks(PIECE).enumerate() {
            let (moved, gap) = to[i * (PIECE + 16)..][..PIECE + 16].split_at(PIECE);
            assert!(moved == piece && gap.iter().all(|byte| *byte == 0), "piece {i}");
        }
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
        if is_skipped("batch_transfers_within_this_process", &result) {
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
