//! The info keys of a window: `mpix_rma`, and the four reorder flags [AC-1].
//!
//! A reorder flag has four spellings: ours, the paper's, and the paper's abbreviation with and without our prefix. The
//! short ones exist because Open MPI takes keys of at most 35 characters; there, `MPI_Info_set` and its kin are
//! interposed to put the long spellings away under the short one, so that programs may use any on every host.

use std::ffi::{CStr, c_char, c_int};

use super::sys::*;
use crate::engine::ReorderFlags;
use crate::runtime::config::Reach;

/// A key of ours, and what is said of a wrong value: the texts of errors are fixed for the life of the process.
struct Key {
    name: &'static CStr,
    wrong: &'static str,
}

macro_rules! key {
    ($name:literal) => {
        key!($name, $name)
    };
    ($name:literal, $words:expr) => {
        Key {
            name: match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a key has no zero in it"),
            },
            wrong: concat!("info key ", $words, " takes true, false, 1 or 0"),
        }
    };
}

/// Which windows are ours.
static SERVE: Key = key!("mpix_rma");

/// How peers are reached.
static TRANSPORT: Key = Key { name: c"mpix_rma_transport", wrong: "info key mpix_rma_transport takes auto, shm or host_mpi" };

/// The spellings of each reorder flag: ours, the paper's, and the short ones. In the order of `read`.
static FLAGS: [[Key; 4]; 4] = [
    [
        key!("mpix_win_access_after_access_reorder"),
        key!("MPI_WIN_ACCESS_AFTER_ACCESS_REORDER"),
        key!("mpix_a_a_a_r", "mpix_a_a_a_r (mpix_win_access_after_access_reorder, MPI_WIN_ACCESS_AFTER_ACCESS_REORDER)"),
        key!("A_A_A_R"),
    ],
    [
        key!("mpix_win_access_after_exposure_reorder"),
        key!("MPI_WIN_ACCESS_AFTER_EXPOSURE_REORDER"),
        key!("mpix_a_a_e_r", "mpix_a_a_e_r (mpix_win_access_after_exposure_reorder, MPI_WIN_ACCESS_AFTER_EXPOSURE_REORDER)"),
        key!("A_A_E_R"),
    ],
    [
        key!("mpix_win_exposure_after_exposure_reorder"),
        key!("MPI_WIN_EXPOSURE_AFTER_EXPOSURE_REORDER"),
        key!("mpix_e_a_e_r", "mpix_e_a_e_r (mpix_win_exposure_after_exposure_reorder, MPI_WIN_EXPOSURE_AFTER_EXPOSURE_REORDER)"),
        key!("E_A_E_R"),
    ],
    [
        key!("mpix_win_exposure_after_access_reorder"),
        key!("MPI_WIN_EXPOSURE_AFTER_ACCESS_REORDER"),
        key!("mpix_e_a_a_r", "mpix_e_a_a_r (mpix_win_exposure_after_access_reorder, MPI_WIN_EXPOSURE_AFTER_ACCESS_REORDER)"),
        key!("E_A_A_R"),
    ],
];
/// Place of the spelling that every host can hold.
#[cfg(mpi_host = "openmpi")]
const SHORT: usize = 2;

/// What an info object asks of us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// `mpix_rma`
    pub(crate) serve: Option<bool>,
    /// `mpix_rma_transport`
    pub(crate) reach: Option<Reach>,
    /// The reorder flags.
    pub(crate) flags: ReorderFlags,
}

/// Why the keys cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// A key of ours has a value that it does not take; the words name the key.
    Value(&'static str),
    /// The host does not take the info object; its error handler has heard of it.
    Object,
}

/// Reads the keys of ours.
///
/// # Safety
/// `info` is an info object of the application or `MPI_INFO_NULL`.
pub(crate) unsafe fn read(info: MPI_Info) -> Result<Wishes, Unreadable> {
    if info == MPI_INFO_NULL {
        return Ok(Wishes::default());
    }
    // SAFETY: as the caller says.
    unsafe {
        let serve = value(info, &SERVE, parse)?;
        let reach = value(info, &TRANSPORT, parse_reach)?;
        let mut flags = [false; 4];
        for (flag, on) in FLAGS.iter().zip(&mut flags) {
            for spelling in flag {
                // A host that has no room for the key cannot hold it either.
                if spelling.name.to_bytes().len() < MPI_MAX_INFO_KEY as usize {
                    *on |= value(info, spelling, parse)?.unwrap_or(false);
                }
            }
        }
        let [access_after_access, access_after_exposure, exposure_after_exposure, exposure_after_access] = flags;
        Ok(Wishes {
            serve,
            reach,
            flags: ReorderFlags { access_after_access, access_after_exposure, exposure_after_exposure, exposure_after_access },
        })
    }
}

/// Longest value that is read; every valid one is shorter.
const VALUE_MOST: usize = 15;

/// # Safety
/// `info` is an info object, not null.
unsafe fn value<T>(info: MPI_Info, key: &Key, parse: fn(&[u8]) -> Option<T>) -> Result<Option<T>, Unreadable> {
    let mut text = [0 as c_char; VALUE_MOST + 1];
    let (mut length, mut flag) = (0, 0);
    // SAFETY: as the caller says.
    if unsafe { PMPI_Info_get_valuelen(info, key.name.as_ptr(), &raw mut length, &raw mut flag) } != MPI_SUCCESS {
        return Err(Unreadable::Object);
    }
    if flag == 0 {
        return Ok(None);
    }
    if length > VALUE_MOST as c_int {
        return Err(Unreadable::Value(key.wrong));
    }
    // SAFETY: `text` has room for the length that is given, and the terminator.
    let status = unsafe { PMPI_Info_get(info, key.name.as_ptr(), VALUE_MOST as c_int, text.as_mut_ptr(), &raw mut flag) };
    if status != MPI_SUCCESS || flag == 0 {
        return Err(Unreadable::Object);
    }
    // SAFETY: the host terminates the value; the last place was 0 before in any case.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    parse(text.to_bytes()).map(Some).ok_or(Unreadable::Value(key.wrong))
}

fn parse(text: &[u8]) -> Option<bool> {
    let text = text.trim_ascii();
    if text.eq_ignore_ascii_case(b"true") || text == b"1" {
        Some(true)
    } else if text.eq_ignore_ascii_case(b"false") || text == b"0" {
        Some(false)
    } else {
        None
    }
}

fn parse_reach(text: &[u8]) -> Option<Reach> {
    let words: [&[u8]; 3] = [b"auto", b"shm", b"host_mpi"];
    let place = words.iter().position(|word| word.eq_ignore_ascii_case(text.trim_ascii()))?;
    i64::try_from(place).ok().map(Reach::of)
}

/// The spelling under which the host can hold a key: the short one where a key of ours is too long for it.
///
/// # Safety
/// `key` is null or a C string.
#[cfg(mpi_host = "openmpi")]
unsafe fn tractable(key: *const c_char) -> *const c_char {
    if key.is_null() {
        return key;
    }
    // SAFETY: as the caller says.
    let text = unsafe { CStr::from_ptr(key) };
    if text.to_bytes().len() < MPI_MAX_INFO_KEY as usize {
        return key;
    }
    let flag = FLAGS.iter().find(|flag| flag.iter().any(|spelling| spelling.name == text));
    flag.map_or(key, |flag| flag[SHORT].name.as_ptr())
}

/// Interposes a call that takes a key.
#[cfg(mpi_host = "openmpi")]
macro_rules! keyed {
    ($($name:ident => $host:ident($key:ident $(, $arg:ident: $type:ty)*);)*) => {$(
        /// Takes keys of ours that are too long for the host.
        ///
        /// # Safety
        /// As MPI says of the call.
        #[inline(always)]
        pub unsafe extern "C" fn $name(info: MPI_Info, $key: *const c_char $(, $arg: $type)*) -> c_int {
            // SAFETY: the application's arguments, passed on.
            super::error::boundary(stringify!($name), || unsafe { $host(info, tractable($key) $(, $arg)*) })
        }
        super::host::exports! { $name(info: MPI_Info, $key: *const c_char $(, $arg: $type)*); }
    )*};
}

#[cfg(mpi_host = "openmpi")]
keyed! {
    MPI_Info_set => PMPI_Info_set(key, value: *const c_char);
    MPI_Info_get => PMPI_Info_get(key, valuelen: c_int, value: *mut c_char, flag: *mut c_int);
    MPI_Info_get_valuelen => PMPI_Info_get_valuelen(key, valuelen: *mut c_int, flag: *mut c_int);
    MPI_Info_delete => PMPI_Info_delete(key);
}

#[cfg(all(mpi_host = "openmpi", mpi_info_get_string))]
keyed! {
    MPI_Info_get_string => PMPI_Info_get_string(key, buflen: *mut c_int, value: *mut c_char, flag: *mut c_int);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_true_false_1_0_and_nothing_else() {
        assert_eq!(parse(b"true"), Some(true));
        assert_eq!(parse(b"1"), Some(true));
        assert_eq!(parse(b"false"), Some(false));
        assert_eq!(parse(b"0"), Some(false));
        assert_eq!(parse(b"yes"), None);
        assert_eq!(parse(b""), None);
        assert_eq!(parse_reach(b"auto"), Some(Reach::Auto));
        assert_eq!(parse_reach(b"shm"), Some(Reach::Shm));
        assert_eq!(parse_reach(b"Host_MPI"), Some(Reach::HostMpi));
        assert_eq!(parse_reach(b"tcp"), None);
    }
}
