//! The kind of memory at an address.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;

/// `struct procmap_query` of Linux 6.11.
#[repr(C)]
#[derive(Debug, Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    /// Readable, writable, executable, shared.
    mapping: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

const QUERY: u64 = 3 << 30 | (size_of::<Query>() as u64) << 16 | (b'f' as u64) << 8 | 17;
const SHARED: u64 = 8;

/// Whether all of a range is private anonymous memory, so that the kernel reports all ways to
/// discard it. Anyone who has a file open may truncate it, and shared memory is a file to the
/// kernel.
pub(super) fn is_anonymous(at: usize, end: usize) -> bool {
    File::open("/proc/self/maps")
        .is_ok_and(|maps| query(&maps, at, end).unwrap_or_else(|| read(maps, at, end)))
}

/// Queries one mapping after the other. `None` if the kernel has no such request.
fn query(maps: &File, at: usize, end: usize) -> Option<bool> {
    let mut place = at;
    while place < end {
        let mut argument =
            Query { size: size_of::<Query>() as u64, address: place as u64, ..Query::default() };
        // SAFETY: the request number encodes the size of the argument, which lives during the call.
        if unsafe { libc::ioctl(maps.as_raw_fd(), QUERY as libc::Ioctl, &raw mut argument) } != 0 {
            return (std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT))
                .then_some(false);
        }
        if argument.inode != 0 || argument.mapping & SHARED != 0 || argument.end as usize <= place {
            return Some(false);
        }
        place = argument.end as usize;
    }
    Some(true)
}

/// Reads the list of all mappings instead.
fn read(mut maps: File, at: usize, end: usize) -> bool {
    let mut text = String::new();
    maps.read_to_string(&mut text).is_ok() && lists(&text, at, end)
}

fn lists(text: &str, at: usize, end: usize) -> bool {
    let mut place = at;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        let Some((Some(from), Some(to))) = range.map(|(from, to)| (number(from), number(to)))
        else {
            return false;
        };
        if to <= place {
            continue;
        }
        let private = words.next().is_some_and(|access| access.ends_with('p'));
        if from > place || !private || words.nth(2) != Some("0") {
            return false;
        }
        place = to;
        if place >= end {
            return true;
        }
    }
    false
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TEXT: &str = "\
5000-8000 r--p 00000000 fe:01 42 /usr/bin/true
9000-b000 rw-p 00000000 00:00 0 [heap]
b000-c000 rw-p 00000000 00:00 0
c000-d000 rw-s 00000000 00:01 7 /dev/zero (deleted)
f000-ff000 rw-p 00000000 00:00 0 [stack]
";

    #[test]
    fn only_private_memory_without_a_file_is_anonymous() {
        let answer = |at, end| lists(TEXT, at, end);
        assert!(answer(0x9000, 0xc000) && answer(0xa000, 0xa800) && answer(0xf000, 0x10000));
        assert!(!answer(0x5000, 0x6000), "a file");
        assert!(!answer(0xb000, 0xd000), "shared memory behind it");
        assert!(!answer(0x8000, 0xa000), "nothing before it");
        assert!(!answer(0xff000, 0x100000), "nothing at all");
    }

    #[test]
    fn query_and_list_agree() {
        let here = 0_u8;
        let page = |at: *const u8| at as usize & !4095;
        for at in [page(&raw const here), page(TEXT.as_ptr()), 4096] {
            let maps = || File::open("/proc/self/maps").unwrap();
            let expected = read(maps(), at, at + 4096);
            assert_eq!(expected, at == page(&raw const here), "{at:x}");
            assert_eq!(query(&maps(), at, at + 4096).unwrap_or(expected), expected, "{at:x}");
        }
    }
}
