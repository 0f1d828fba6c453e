//! The info keys of a window: `mpix_rma`, the four reorder flags [AC-1], and the standard's
//! (MPI-4.1 12.2).
//!
//! An invalid value of one of our keys is an error. The standard's keys are hints: an invalid value
//! is ignored, as by both hosts.
//!
//! A reorder flag has four spellings: ours, the paper's, and the paper's abbreviation with and
//! without our prefix. The short ones exist because Open MPI limits keys to 35 characters. There,
//! `MPI_Info_set` and its kin are interposed: they store a long spelling under the short one with
//! our prefix, so programs may use any spelling on every host.

#[cfg(mpi_host = "openmpi")]
use std::ffi::c_char;
use std::ffi::{CStr, CString, c_int};
use std::num::NonZeroU32;

use crate::engine::ReorderFlags;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host::c_name;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::runtime::Hints;
use crate::runtime::config::Reach;

/// A key of ours.
struct Key {
    name: &'static CStr,
    /// The error text for an invalid value. Error texts are static.
    invalid: &'static str,
}

/// A key with a truth value.
macro_rules! key {
    ($name:literal) => {
        key!($name, $name)
    };
    ($name:literal, $($shown:literal),*) => {
        Key {
            name: c_name(concat!($name, "\0")),
            invalid: concat!("info key ", $($shown,)* " takes true, false, 1 or 0"),
        }
    };
}

/// The spellings of a reorder flag. The error text of the short one has the long ones too, since
/// those are stored under it.
macro_rules! spellings {
    ($ours:literal, $paper:literal, $short:literal, $paper_short:literal) => {
        [
            key!($ours),
            key!($paper),
            key!($short, $short, " (", $ours, ", ", $paper, ")"),
            key!($paper_short),
        ]
    };
}

/// Whether this library serves the window.
static SERVE: Key = key!("mpix_rma");

/// Whether operations that are copies take the fast path.
static FAST_PATH: Key = key!("mpix_rma_fast_path");

/// Whom fences wait for.
static FENCE: Key =
    Key { name: c"mpix_rma_fence", invalid: "info key mpix_rma_fence takes barrier or pattern" };

/// How peers are reached.
static TRANSPORT: Key = Key {
    name: c"mpix_rma_transport",
    invalid: "info key mpix_rma_transport takes auto, shm, host_mpi or verbs",
};

/// The most notification counters that a process will set.
static MAX_COUNTERS: Key = Key {
    name: c"mpi_assert_max_num_notify",
    invalid: "info key mpi_assert_max_num_notify takes a number of counters, an int that is not \
              negative",
};

/// The counter that each operation raises at its target.
static NOTIFY_PUTS: Key = Key {
    name: c"mpix_rma_notify_puts",
    invalid: "info key mpix_rma_notify_puts takes none, or a counter: an int that is not negative, \
              and not the largest one",
};

/// Whose thread runs continuations.
static CONTINUE_THREAD: Key = Key {
    name: c"mpi_continue_thread",
    invalid: "info key mpi_continue_thread takes all or application",
};

/// The spellings of each reorder flag, in the order of `read_flags`.
static FLAGS: [[Key; 4]; 4] = [
    spellings!(
        "mpix_win_access_after_access_reorder",
        "MPI_WIN_ACCESS_AFTER_ACCESS_REORDER",
        "mpix_a_a_a_r",
        "A_A_A_R"
    ),
    spellings!(
        "mpix_win_access_after_exposure_reorder",
        "MPI_WIN_ACCESS_AFTER_EXPOSURE_REORDER",
        "mpix_a_a_e_r",
        "A_A_E_R"
    ),
    spellings!(
        "mpix_win_exposure_after_exposure_reorder",
        "MPI_WIN_EXPOSURE_AFTER_EXPOSURE_REORDER",
        "mpix_e_a_e_r",
        "E_A_E_R"
    ),
    spellings!(
        "mpix_win_exposure_after_access_reorder",
        "MPI_WIN_EXPOSURE_AFTER_ACCESS_REORDER",
        "mpix_e_a_a_r",
        "E_A_A_R"
    ),
];
/// Index of the spelling that every host can store.
const SHORT: usize = 2;

/// The values of the keys that this library knows and an info object has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InfoKeys {
    /// `mpix_rma`
    pub(crate) serve: Option<bool>,
    /// `mpix_rma_transport`
    pub(crate) reach: Option<Reach>,
    /// `mpix_rma_fast_path`
    pub(crate) fast_path: Option<bool>,
    /// `mpix_rma_fence`: fences learn a pattern [FE-4].
    pub(crate) pattern_fences: Option<bool>,
    pub(crate) flags: ReorderFlags,
    /// `mpi_assert_max_num_notify`; fixed when the window is made.
    pub(crate) max_counters: Option<u32>,
    /// `mpix_rma_notify_puts`, plus 1; fixed when the window is made.
    pub(crate) puts_counter: Option<NonZeroU32>,
    /// `mpix_rma_notify_puts` is `none`.
    pub(crate) no_puts_counter: bool,
    pub(crate) standard: StandardKeys,
}

/// The values of the standard's keys that an info object has.
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
            puts_counter: self.puts_counter,
            pattern_fences: self.pattern_fences.unwrap_or(false),
            ..Hints::default()
        };
        if let Some(alignment) = self.standard.alignment {
            hints.log_alignment = alignment.trailing_zeros() as u8;
        }
        hints.single = self.standard.single.unwrap_or(hints.single);
        self.standard.change(&mut hints);
        hints
    }

    /// Changes the hints that a duplicate has taken over from a window [DU-4]. Keys that concern
    /// the window as a whole have no effect.
    pub(crate) fn change_duplicate(&self, hints: &mut Hints) {
        hints.fast_path = self.fast_path.unwrap_or(hints.fast_path);
        if self.puts_counter.is_some() || self.no_puts_counter {
            hints.puts_counter = self.puts_counter;
        }
        self.standard.change(hints);
    }
}

impl StandardKeys {
    /// Changes the hints that `MPI_Win_set_info` may change.
    pub(crate) fn change(&self, hints: &mut Hints) {
        hints.no_locks = self.no_locks.unwrap_or(hints.no_locks);
        hints.ordering = self.ordering.unwrap_or(hints.ordering);
        hints.same_op = self.same_op.unwrap_or(hints.same_op);
        hints.same_size = self.same_size.unwrap_or(hints.same_size);
        hints.same_disp_unit = self.same_disp_unit.unwrap_or(hints.same_disp_unit);
        hints.noncontig = self.noncontig.unwrap_or(hints.noncontig);
        hints.granularity = self.granularity.unwrap_or(hints.granularity);
    }
}

/// Reads the keys of an info object of the application. `MPI_INFO_NULL` has none.
///
/// # Errors
/// A key of ours has an invalid value, or the host cannot read the info object.
pub(crate) fn keys(info: MPI_Info) -> Result<InfoKeys, Fault> {
    if info == MPI_INFO_NULL {
        return Ok(InfoKeys::default());
    }
    let raised = value(info, &NOTIFY_PUTS, parse_counter)?;
    let keys = InfoKeys {
        serve: value(info, &SERVE, parse)?,
        reach: value(info, &TRANSPORT, parse_reach)?,
        fast_path: value(info, &FAST_PATH, parse)?,
        pattern_fences: value(info, &FENCE, parse_fence)?,
        max_counters: value(info, &MAX_COUNTERS, parse_counters)?,
        puts_counter: raised.flatten(),
        no_puts_counter: raised == Some(None),
        flags: read_flags(info)?,
        standard: standard_keys(info)?,
    };
    let most = keys.max_counters.filter(|most| *most != 0);
    if most.zip(keys.puts_counter).is_some_and(|(most, number)| number.get() > most) {
        return Err(Fault::new(
            MPI_ERR_INFO_VALUE,
            "info key mpix_rma_notify_puts names a counter beyond mpi_assert_max_num_notify",
        ));
    }
    Ok(keys)
}

/// Reads the key of `MPIX_Continue_init`: whether any thread may run continuations.
///
/// # Errors
/// The key has an invalid value, or the host cannot read the info object.
pub(crate) fn continues_on_any_thread(info: MPI_Info) -> Result<bool, Fault> {
    if info == MPI_INFO_NULL {
        return Ok(false);
    }
    let all = |word: &[u8]| match word {
        b"all" => Some(true),
        b"application" => Some(false),
        _ => None,
    };
    Ok(value(info, &CONTINUE_THREAD, all)?.unwrap_or(false))
}

fn unreadable() -> Fault {
    Fault::new(MPI_ERR_INFO, "info cannot be read")
}

fn read_flags(info: MPI_Info) -> Result<ReorderFlags, Fault> {
    let mut flags = [false; 4];
    for (spellings, on) in FLAGS.iter().zip(&mut flags) {
        // The host cannot have stored a spelling that it has no room for.
        for spelling in spellings.iter().filter(|spelling| is_storable(spelling.name)) {
            *on |= value(info, spelling, parse)?.unwrap_or(false);
        }
    }
    Ok(ReorderFlags {
        access_after_access: flags[0],
        access_after_exposure: flags[1],
        exposure_after_exposure: flags[2],
        exposure_after_access: flags[3],
    })
}

/// Reads the standard's keys.
fn standard_keys(info: MPI_Info) -> Result<StandardKeys, Fault> {
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

/// Adds the hints of a window to an info object that has the host's own keys already. Returns the
/// host's error code.
pub(crate) fn write(info: MPI_Info, hints: &Hints, alignment: u64, progress: &CStr) -> c_int {
    let word = |value: bool| if value { c"true" } else { c"false" };
    let ordering = CString::new(names(hints.ordering)).unwrap_or_default();
    let decimal = |value: u64| CString::new(value.to_string()).unwrap_or_default();
    let (granularity, alignment) = (decimal(hints.granularity), decimal(alignment));
    let max_counters = decimal(hints.max_counters.into());
    let flags = [
        hints.flags.access_after_access,
        hints.flags.access_after_exposure,
        hints.flags.exposure_after_exposure,
        hints.flags.exposure_after_access,
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
        (FENCE.name, if hints.pattern_fences { c"pattern" } else { c"barrier" }),
        (SINGLE, word(hints.single)),
        (PROGRESS, progress),
        (MAX_COUNTERS.name, &max_counters),
    ];
    let flags = FLAGS.iter().zip(flags).map(|(flag, on)| (stored_spelling(flag).name, word(on)));
    let counter = hints.puts_counter.map(|number| decimal(u64::from(number.get() - 1)));
    let counter = counter.as_deref().map(|index| (NOTIFY_PUTS.name, index));
    for (key, value) in standard.into_iter().chain(flags).chain(counter) {
        let status = host_calls::info_set(info, key, value);
        if status != MPI_SUCCESS {
            return status;
        }
    }
    MPI_SUCCESS
}

/// Whether the host has room for a key.
fn is_storable(key: &CStr) -> bool {
    key.to_bytes().len() < MPI_MAX_INFO_KEY as usize
}

/// The spelling under which this host stores a flag.
fn stored_spelling(flag: &'static [Key; 4]) -> &'static Key {
    if is_storable(flag[0].name) { &flag[0] } else { &flag[SHORT] }
}

/// An info object without the standard's keys and `mpix_rma_notify_puts`, for the host's window
/// behind a handle of ours. That window needs none of them, and with some of them the host refuses
/// to make it.
pub(crate) struct ForHost {
    info: MPI_Info,
    /// `info` is a copy of the application's, which this frees.
    made: bool,
}

impl ForHost {
    /// Copies an info object of the application if it has such keys. It may be `MPI_INFO_NULL`.
    pub(crate) fn of(info: MPI_Info) -> Self {
        let mut ours = Self { info, made: false };
        if info == MPI_INFO_NULL {
            return ours;
        }
        let standard =
            [NO_LOCKS, ORDERING, OPS, SAME_SIZE, SAME_DISP_UNIT, NONCONTIG, GRANULARITY, ALIGNMENT];
        // The host would return the last of these from `MPI_Win_get_info` even if it is not in
        // force.
        for key in standard.into_iter().chain([NOTIFY_PUTS.name]) {
            let found = matches!(text(info, key), Ok(Some(_)));
            if found && !ours.made {
                ours.made = host_calls::info_dup(info, &mut ours.info) == MPI_SUCCESS;
            }
            if found && ours.made {
                host_calls::info_delete(ours.info, key);
            }
        }
        ours
    }

    /// The info object, which is valid as long as this lives.
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
/// A key of Open MPI.
const SINGLE: &CStr = c"acc_single_intrinsic";
const ALIGNMENT: &CStr = c"mpi_minimum_memory_alignment";
/// What makes progress at a target that makes no MPI calls; read-only.
const PROGRESS: &CStr = c"mpix_rma_progress";
/// Larger alignments are ignored, since they can only be mistakes.
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

/// A value as the host writes it, truncated to 63 characters. Valid values are shorter.
#[derive(Clone, Copy)]
struct Text([u8; 64]);

impl Text {
    /// The value, without blanks around it.
    fn get(&self) -> &[u8] {
        // The host terminates what it writes.
        CStr::from_bytes_until_nul(&self.0).map_or(&b""[..], CStr::to_bytes).trim_ascii()
    }
}

/// The value of any key.
fn text(info: MPI_Info, name: &CStr) -> Result<Option<Text>, Fault> {
    let (mut text, mut flag) = (Text([0; 64]), 0);
    if host_calls::info_get(info, name, &mut text.0, &mut flag) != MPI_SUCCESS {
        return Err(unreadable());
    }
    Ok((flag != 0).then_some(text))
}

/// Longest value of a key of ours that is parsed. Valid values are shorter.
const VALUE_MOST: c_int = 15;

/// The value of a key of ours.
fn value<T>(info: MPI_Info, key: &Key, parse: fn(&[u8]) -> Option<T>) -> Result<Option<T>, Fault> {
    let (mut length, mut flag) = (0, 0);
    if host_calls::info_value_length(info, key.name, &mut length, &mut flag) != MPI_SUCCESS {
        return Err(unreadable());
    }
    if flag == 0 {
        return Ok(None);
    }
    let text = text(info, key.name)?.ok_or_else(unreadable)?;
    let parsed = if length <= VALUE_MOST { parse(text.get()) } else { None };
    parsed.map(Some).ok_or_else(|| Fault::new(MPI_ERR_INFO_VALUE, key.invalid))
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

/// Whether fences learn a pattern.
fn parse_fence(text: &[u8]) -> Option<bool> {
    match text.trim_ascii() {
        b"barrier" => Some(false),
        b"pattern" => Some(true),
        _ => None,
    }
}

fn parse_counters(text: &[u8]) -> Option<u32> {
    let number: c_int = std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()?;
    u32::try_from(number).ok()
}

/// The number of a counter, plus 1: the number of counters that there must be, which is an int.
/// `Some(None)`: none.
fn parse_counter(text: &[u8]) -> Option<Option<NonZeroU32>> {
    if text.trim_ascii() == b"none" {
        return Some(None);
    }
    let number = parse_counters(text)? + 1;
    c_int::try_from(number).ok()?;
    NonZeroU32::new(number).map(Some)
}

/// The key under which the host stores `key`: the short spelling if `key` is a reorder flag that is
/// too long for the host.
///
/// # Safety
/// `key` is null or a C string.
#[cfg(mpi_host = "openmpi")]
unsafe fn stored_key(key: *const c_char) -> *const c_char {
    if key.is_null() {
        return key;
    }
    // SAFETY: it is a C string, since it is not NULL (contract of this function).
    let text = unsafe { CStr::from_ptr(key) };
    if is_storable(text) {
        return key;
    }
    let flag = FLAGS.iter().find(|flag| flag.iter().any(|spelling| spelling.name == text));
    flag.map_or(key, |flag| stored_spelling(flag).name.as_ptr())
}

/// Interposes a call that takes a key.
#[cfg(mpi_host = "openmpi")]
macro_rules! keyed {
    ($($name:ident => $host:ident($key:ident $(, $arg:ident: $type:ty)*);)*) => {$(
        /// Interposed for keys of ours that the host has no room for.
        ///
        /// # Safety
        /// As MPI says of the call.
        #[inline(never)]
        pub unsafe extern "C" fn $name(
            info: MPI_Info, $key: *const c_char $(, $arg: $type)*
        ) -> c_int {
            // SAFETY: the application's arguments, passed on.
            crate::mpi::abi::error::boundary(stringify!($name), || unsafe {
                $host(info, stored_key($key) $(, $arg)*)
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
        assert_eq!(parse_fence(b"pattern "), Some(true));
        assert_eq!(parse_fence(b"barrier"), Some(false));
        assert_eq!(parse_fence(b"true"), None);
        assert_eq!(parse_counters(b" 12"), Some(12));
        assert_eq!(parse_counters(b"0"), Some(0));
        assert_eq!(parse_counters(b"-1"), None);
        assert_eq!(parse_counters(b"3000000000"), None);
        assert_eq!(parse_counters(b"many"), None);
        assert_eq!(parse_counter(b"0"), Some(NonZeroU32::new(1)));
        assert_eq!(parse_counter(b"2147483646"), Some(NonZeroU32::new(c_int::MAX as u32)));
        assert_eq!(parse_counter(b"none"), Some(None));
        assert_eq!(parse_counter(b"2147483647"), None);
    }
}
