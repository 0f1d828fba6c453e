//! The info keys of a window: `mpix_rma`, the four reorder flags [AC-1], and the standard's
//! (MPI-4.1 12.2).
//!
//! An invalid value of one of our keys is an error. The standard's keys are hints: an invalid value
//! is ignored, as by both hosts.
//!
//! A reorder flag has four spellings: ours, the paper's, and the paper's abbreviation with and
//! without our prefix. The short ones exist because Open MPI limits keys to 35 characters. There,
//! `MPI_Info_set` and its kin are interposed to store long spellings under the short one, so that
//! programs may use any spelling on every host.

#[cfg(mpi_host = "openmpi")]
use std::ffi::c_char;
use std::ffi::{CStr, CString, c_int};

use crate::engine::ReorderFlags;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::runtime::Hints;
use crate::runtime::config::Reach;

/// A key of ours, and the error text for an invalid value. Error texts are static.
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

/// Whether operations that are copies take the fast path.
static FAST_PATH: Key = key!("mpix_rma_fast_path");

/// How peers are reached.
static TRANSPORT: Key = Key {
    name: c"mpix_rma_transport",
    wrong: "info key mpix_rma_transport takes auto, shm, host_mpi or verbs",
};

/// The most notification counters that a process will set.
static MAX_COUNTERS: Key = Key {
    name: c"mpi_assert_max_num_notify",
    wrong: "info key mpi_assert_max_num_notify takes a number of counters, an int that is not \
            negative",
};

/// The spellings of each reorder flag: ours, the paper's, and the short ones. In the order of
/// `read`.
static FLAGS: [[Key; 4]; 4] = [
    [
        key!("mpix_win_access_after_access_reorder"),
        key!("MPI_WIN_ACCESS_AFTER_ACCESS_REORDER"),
        key!(
            "mpix_a_a_a_r",
            "mpix_a_a_a_r (mpix_win_access_after_access_reorder, \
             MPI_WIN_ACCESS_AFTER_ACCESS_REORDER)"
        ),
        key!("A_A_A_R"),
    ],
    [
        key!("mpix_win_access_after_exposure_reorder"),
        key!("MPI_WIN_ACCESS_AFTER_EXPOSURE_REORDER"),
        key!(
            "mpix_a_a_e_r",
            "mpix_a_a_e_r (mpix_win_access_after_exposure_reorder, \
             MPI_WIN_ACCESS_AFTER_EXPOSURE_REORDER)"
        ),
        key!("A_A_E_R"),
    ],
    [
        key!("mpix_win_exposure_after_exposure_reorder"),
        key!("MPI_WIN_EXPOSURE_AFTER_EXPOSURE_REORDER"),
        key!(
            "mpix_e_a_e_r",
            "mpix_e_a_e_r (mpix_win_exposure_after_exposure_reorder, \
             MPI_WIN_EXPOSURE_AFTER_EXPOSURE_REORDER)"
        ),
        key!("E_A_E_R"),
    ],
    [
        key!("mpix_win_exposure_after_access_reorder"),
        key!("MPI_WIN_EXPOSURE_AFTER_ACCESS_REORDER"),
        key!(
            "mpix_e_a_a_r",
            "mpix_e_a_a_r (mpix_win_exposure_after_access_reorder, \
             MPI_WIN_EXPOSURE_AFTER_ACCESS_REORDER)"
        ),
        key!("E_A_A_R"),
    ],
];
/// Index of the spelling that every host can store.
const SHORT: usize = 2;

/// The keys of an info object, as far as this library knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InfoKeys {
    /// `mpix_rma`
    pub(crate) serve: Option<bool>,
    /// `mpix_rma_transport`
    pub(crate) reach: Option<Reach>,
    /// `mpix_rma_fast_path`
    pub(crate) fast_path: Option<bool>,
    /// The reorder flags.
    pub(crate) flags: ReorderFlags,
    /// `mpi_assert_max_num_notify`; fixed when the window is made.
    pub(crate) max_counters: Option<u32>,
    /// The standard's keys.
    pub(crate) standard: StandardKeys,
}

/// The standard's keys, as far as an info object has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StandardKeys {
    no_locks: Option<bool>,
    ordering: Option<u8>,
    same_op: Option<bool>,
    same_size: Option<bool>,
    same_disp_unit: Option<bool>,
    noncontig: Option<bool>,
    granularity: Option<u64>,
    alignment: Option<u64>,
    single: Option<bool>,
}

impl InfoKeys {
    /// The hints of a new window.
    pub(crate) fn hints(&self) -> Hints {
        let mut hints = Hints {
            flags: self.flags,
            max_counters: self.max_counters.unwrap_or(0),
            fast_path: self.fast_path.unwrap_or(true),
            ..Hints::default()
        };
        hints.alignment = self.standard.alignment.unwrap_or(hints.alignment);
        hints.single = self.standard.single.unwrap_or(hints.single);
        self.standard.change(&mut hints);
        hints
    }
}

impl StandardKeys {
    /// Changes what may be changed at any time.
    pub(crate) fn change(&self, hints: &mut Hints) {
        let StandardKeys {
            no_locks,
            ordering,
            same_op,
            same_size,
            same_disp_unit,
            noncontig,
            granularity,
            ..
        } = *self;
        hints.no_locks = no_locks.unwrap_or(hints.no_locks);
        hints.ordering = ordering.unwrap_or(hints.ordering);
        hints.same_op = same_op.unwrap_or(hints.same_op);
        hints.same_size = same_size.unwrap_or(hints.same_size);
        hints.same_disp_unit = same_disp_unit.unwrap_or(hints.same_disp_unit);
        hints.noncontig = noncontig.unwrap_or(hints.noncontig);
        hints.granularity = granularity.unwrap_or(hints.granularity);
    }
}

/// Why the keys of an info object are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// A key of ours has an invalid value; the text names the key.
    Value(&'static str),
    /// The host refuses the info object, and has raised the error.
    Object,
}

/// Reads the keys of an info object of the application, or of `MPI_INFO_NULL`, which has none.
fn read(info: MPI_Info) -> Result<InfoKeys, Unreadable> {
    if info == MPI_INFO_NULL {
        return Ok(InfoKeys::default());
    }
    let serve = value(info, &SERVE, parse)?;
    let reach = value(info, &TRANSPORT, parse_reach)?;
    let fast_path = value(info, &FAST_PATH, parse)?;
    let max_counters = value(info, &MAX_COUNTERS, parse_counters)?;
    let mut flags = [false; 4];
    for (flag, on) in FLAGS.iter().zip(&mut flags) {
        for spelling in flag {
            // A host that has no room for the key cannot hold it either.
            if spelling.name.to_bytes().len() < MPI_MAX_INFO_KEY as usize {
                *on |= value(info, spelling, parse)?.unwrap_or(false);
            }
        }
    }
    let [
        access_after_access,
        access_after_exposure,
        exposure_after_exposure,
        exposure_after_access,
    ] = flags;
    Ok(InfoKeys {
        serve,
        reach,
        fast_path,
        flags: ReorderFlags {
            access_after_access,
            access_after_exposure,
            exposure_after_exposure,
            exposure_after_access,
        },
        max_counters,
        standard: standard_keys(info)?,
    })
}

/// Reads the standard's keys.
fn standard_keys(info: MPI_Info) -> Result<StandardKeys, Unreadable> {
    let value = |name| text(info, name);
    Ok(StandardKeys {
        no_locks: value(NO_LOCKS)?.and_then(truth),
        ordering: value(ORDERING)?.and_then(|words| ordering(words.get())),
        same_op: value(OPS)?.and_then(|word| match word.get() {
            b"same_op" => Some(true),
            b"same_op_no_op" => Some(false),
            _ => None,
        }),
        same_size: value(SAME_SIZE)?.and_then(truth),
        same_disp_unit: value(SAME_DISP_UNIT)?.and_then(truth),
        noncontig: value(NONCONTIG)?.and_then(truth),
        granularity: value(GRANULARITY)?.and_then(number),
        alignment: value(ALIGNMENT)?
            .and_then(number)
            .filter(|bytes| bytes.is_power_of_two() && *bytes <= ALIGNMENT_MOST),
        single: value(SINGLE)?.and_then(truth),
    })
}

/// Adds the hints of a window to an info object that has the host's own keys already.
pub(crate) fn write(info: MPI_Info, hints: &Hints, alignment: u64, progress: &CStr) -> c_int {
    let word = |value: bool| if value { c"true" } else { c"false" };
    let ordering = CString::new(names(hints.ordering)).unwrap_or_default();
    let decimal = |value: u64| CString::new(value.to_string()).unwrap_or_default();
    let (granularity, alignment) = (decimal(hints.granularity), decimal(alignment));
    let max_counters = decimal(hints.max_counters.into());
    let ReorderFlags {
        access_after_access,
        access_after_exposure,
        exposure_after_exposure,
        exposure_after_access,
    } = hints.flags;
    let flags = [
        access_after_access,
        access_after_exposure,
        exposure_after_exposure,
        exposure_after_access,
    ];
    let standard = [
        (NO_LOCKS, word(hints.no_locks)),
        (ORDERING, ordering.as_c_str()),
        (OPS, if hints.same_op { c"same_op" } else { c"same_op_no_op" }),
        (SAME_SIZE, word(hints.same_size)),
        (SAME_DISP_UNIT, word(hints.same_disp_unit)),
        (NONCONTIG, word(hints.noncontig)),
        (GRANULARITY, &granularity),
        (ALIGNMENT, &alignment),
        (SERVE.name, c"true"),
        (FAST_PATH.name, word(hints.fast_path)),
        (SINGLE, word(hints.single)),
        (PROGRESS, progress),
        (MAX_COUNTERS.name, &max_counters),
    ];
    let flags = FLAGS.iter().zip(flags).map(|(flag, on)| (stored_spelling(flag).name, word(on)));
    for (key, value) in standard.into_iter().chain(flags) {
        let status = host_calls::info_set(info, key, value);
        if status != MPI_SUCCESS {
            return status;
        }
    }
    MPI_SUCCESS
}

/// The spelling under which this host can store a flag.
fn stored_spelling(flag: &'static [Key; 4]) -> &'static Key {
    if flag[0].name.to_bytes().len() < MPI_MAX_INFO_KEY as usize { &flag[0] } else { &flag[SHORT] }
}

/// An info object without the standard's keys, for the host's window behind a handle of ours. There
/// the keys do no good, and with some of them the host refuses the window.
pub(crate) struct ForHost {
    info: MPI_Info,
    made: bool,
}

impl ForHost {
    /// Of an info object of the application or `MPI_INFO_NULL`.
    pub(crate) fn of(info: MPI_Info) -> Self {
        let mut ours = Self { info, made: false };
        if info == MPI_INFO_NULL {
            return ours;
        }
        for key in
            [NO_LOCKS, ORDERING, OPS, SAME_SIZE, SAME_DISP_UNIT, NONCONTIG, GRANULARITY, ALIGNMENT]
        {
            let (mut length, mut flag) = (0, 0);
            let found = host_calls::info_value_length(info, key, &mut length, &mut flag)
                == MPI_SUCCESS
                && flag != 0;
            if found && !ours.made {
                ours.made = host_calls::info_dup(info, &mut ours.info) == MPI_SUCCESS;
            }
            if found && ours.made {
                host_calls::info_delete(ours.info, key);
            }
        }
        ours
    }

    /// The info object, as long as this lives.
    pub(crate) fn get(&self) -> MPI_Info {
        self.info
    }
}

impl Drop for ForHost {
    fn drop(&mut self) {
        if self.made {
            host_calls::info_free(&mut self.info);
        }
    }
}

const NO_LOCKS: &CStr = c"no_locks";
const ORDERING: &CStr = c"accumulate_ordering";
const OPS: &CStr = c"accumulate_ops";
const SAME_SIZE: &CStr = c"same_size";
const SAME_DISP_UNIT: &CStr = c"same_disp_unit";
const NONCONTIG: &CStr = c"alloc_shared_noncontig";
const GRANULARITY: &CStr = c"mpi_accumulate_granularity";
/// Of Open MPI.
const SINGLE: &CStr = c"acc_single_intrinsic";
const ALIGNMENT: &CStr = c"mpi_minimum_memory_alignment";
/// What makes progress at the target without its calls; read-only.
const PROGRESS: &CStr = c"mpix_rma_progress";
/// Larger alignments are ignored: they can only be mistakes.
const ALIGNMENT_MOST: u64 = 1 << 40;

/// The orderings of accumulates, in the order in which both hosts name them.
const ORDERINGS: [&str; 4] = ["rar", "raw", "war", "waw"];

/// The set of orderings in a comma-separated list; `none` is the empty set.
fn ordering(words: &[u8]) -> Option<u8> {
    if words == b"none" {
        return Some(0);
    }
    let mut bits = 0;
    for word in words.split(|byte| *byte == b',') {
        let at = ORDERINGS.iter().position(|name| name.as_bytes() == word.trim_ascii())?;
        bits |= 1 << at;
    }
    Some(bits)
}

/// The comma-separated list of a set of orderings.
fn names(ordering: u8) -> String {
    let named: Vec<_> = ORDERINGS
        .iter()
        .enumerate()
        .filter(|(at, _)| ordering & 1 << at != 0)
        .map(|(_, name)| *name)
        .collect();
    if named.is_empty() { "none".into() } else { named.join(",") }
}

fn truth(value: Text) -> Option<bool> {
    match value.get() {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

fn number(value: Text) -> Option<u64> {
    std::str::from_utf8(value.get()).ok()?.parse().ok()
}

/// The value of a standard key. Valid ones are shorter.
#[derive(Clone, Copy)]
struct Text([u8; TEXT + 1]);
const TEXT: usize = 63;

impl Text {
    fn get(&self) -> &[u8] {
        // The host terminates what it writes.
        CStr::from_bytes_until_nul(&self.0).map_or(&b""[..], CStr::to_bytes).trim_ascii()
    }
}

/// The value of a standard key.
fn text(info: MPI_Info, name: &CStr) -> Result<Option<Text>, Unreadable> {
    let mut text = Text([0; TEXT + 1]);
    let mut flag = 0;
    if host_calls::info_get(info, name, &mut text.0, &mut flag) != MPI_SUCCESS {
        return Err(Unreadable::Object);
    }
    Ok((flag != 0).then_some(text))
}

/// Longest value of a key of ours that is read; every valid one is shorter.
const VALUE_MOST: usize = 15;

/// The value of a key of ours.
fn value<T>(
    info: MPI_Info,
    key: &Key,
    parse: fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, Unreadable> {
    let mut text = [0; VALUE_MOST + 1];
    let (mut length, mut flag) = (0, 0);
    if host_calls::info_value_length(info, key.name, &mut length, &mut flag) != MPI_SUCCESS {
        return Err(Unreadable::Object);
    }
    if flag == 0 {
        return Ok(None);
    }
    if length > VALUE_MOST as c_int {
        return Err(Unreadable::Value(key.wrong));
    }
    let status = host_calls::info_get(info, key.name, &mut text, &mut flag);
    if status != MPI_SUCCESS || flag == 0 {
        return Err(Unreadable::Object);
    }
    // The host terminates the value.
    let text = CStr::from_bytes_until_nul(&text).map_err(|_| Unreadable::Object)?;
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
    let words: [&[u8]; 4] = [b"auto", b"shm", b"host_mpi", b"verbs"];
    let place = words.iter().position(|word| word.eq_ignore_ascii_case(text.trim_ascii()))?;
    i64::try_from(place).ok().map(Reach::of)
}

fn parse_counters(text: &[u8]) -> Option<u32> {
    let number: c_int = std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()?;
    u32::try_from(number).ok()
}

/// The spelling under which the host can store a key: the short one if it is one of ours and too
/// long for the host.
///
/// # Safety
/// `key` is null or a C string.
#[cfg(mpi_host = "openmpi")]
unsafe fn storable(key: *const c_char) -> *const c_char {
    if key.is_null() {
        return key;
    }
    // SAFETY: it is a C string, since it is not NULL (contract of this function).
    let text = unsafe { CStr::from_ptr(key) };
    if text.to_bytes().len() < MPI_MAX_INFO_KEY as usize {
        return key;
    }
    let flag = FLAGS.iter().find(|flag| flag.iter().any(|spelling| spelling.name == text));
    flag.map_or(key, |flag| stored_spelling(flag).name.as_ptr())
}

/// Interposes a call that takes a key.
#[cfg(mpi_host = "openmpi")]
macro_rules! keyed {
    ($($name:ident => $host:ident($key:ident $(, $arg:ident: $type:ty)*);)*) => {$(
        /// Interposed for keys of ours that are too long for the host.
        ///
        /// # Safety
        /// As MPI says of the call.
        #[inline(never)]
        pub unsafe extern "C" fn $name(
            info: MPI_Info, $key: *const c_char $(, $arg: $type)*
        ) -> c_int {
            // SAFETY: the application's arguments, passed on.
            crate::mpi::abi::error::boundary(stringify!($name), || unsafe {
                $host(info, storable($key) $(, $arg)*)
            })
        }
        crate::mpi::abi::host::exports! {
            $name(info: MPI_Info, $key: *const c_char $(, $arg: $type)*);
        }
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
    MPI_Info_get_string => PMPI_Info_get_string(
        key, buflen: *mut c_int, value: *mut c_char, flag: *mut c_int);
}

/// As [`read`], with the fault of what cannot be read.
pub(crate) fn keys(info: MPI_Info) -> Result<InfoKeys, Fault> {
    read(info).map_err(|unreadable| match unreadable {
        Unreadable::Value(text) => Fault::new(MPI_ERR_INFO_VALUE, text),
        Unreadable::Object => Fault::new(MPI_ERR_INFO, "info cannot be read"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orderings_are_lists_of_four_words() {
        assert_eq!(ordering(b"rar,raw,war,waw"), Some(15));
        assert_eq!(ordering(b"waw, rar"), Some(9));
        assert_eq!(ordering(b"none"), Some(0));
        assert_eq!(ordering(b"rar,none"), None);
        assert_eq!(ordering(b"war,wow"), None);
        assert_eq!(names(9), "rar,waw");
        assert_eq!(names(15), "rar,raw,war,waw");
        assert_eq!(names(0), "none");
    }

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
        assert_eq!(parse_reach(b"verbs"), Some(Reach::Verbs));
        assert_eq!(parse_reach(b"tcp"), None);
        assert_eq!(parse_counters(b" 12"), Some(12));
        assert_eq!(parse_counters(b"0"), Some(0));
        assert_eq!(parse_counters(b"-1"), None);
        assert_eq!(parse_counters(b"3000000000"), None);
        assert_eq!(parse_counters(b"many"), None);
    }
}
