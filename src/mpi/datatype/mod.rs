//! Predefined datatypes and reductions: from the host's handles to the engine's codes.
//!
//! The library reduces integers and the common floating-point types itself
//! (`transport::datatype::element::native`). All others (long double, complex, logical, pairs …)
//! have *foreign* codes, and the host reduces them by `MPI_Reduce_local`. The codes follow the
//! order of `shim.c`, which is the same in every process of a job. Derived datatypes are in
//! `derived`.

pub(crate) mod constructor;
pub(crate) mod derived;
pub(crate) mod flatten;
mod table;

use std::ffi::c_int;
use std::sync::OnceLock;

use crate::engine::{Element, Reduction};
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::transport::am::wire::ElementOp;
use crate::transport::datatype::Combine;
use crate::transport::datatype::element::{FIRST_FOREIGN, native, reduction};

pub(crate) use table::{Kind, Predefined, predefined, reduction_of};
use table::{REDUCTIONS, TYPES};

/// The keys of the host's datatypes with foreign codes, in the order of the codes.
static FOREIGN: OnceLock<Vec<u64>> = OnceLock::new();

/// The predefined datatype of this size for which a datatype of `MPI_Type_create_f90_real`,
/// `_complex` or `_integer` stands.
pub(crate) fn unnamed(combiner: c_int, size: u64) -> Option<&'static Predefined> {
    let kind = match combiner {
        combiner if combiner == MPI_COMBINER_F90_REAL => Kind::Floating,
        combiner if combiner == MPI_COMBINER_F90_COMPLEX => Kind::Complex,
        _ => Kind::Signed,
    };
    let mut known = listed_f90_types()
        .iter()
        .filter(|entry| Kind::of(entry.kind) == kind)
        .filter_map(|entry| predefined(entry.handle));
    known.find(|datatype| u64::from(datatype.size) == size)
}

impl Predefined {
    /// How a collective reduces elements. `None`: MPI does not define it.
    pub(crate) fn combine(&self, reduction: Reduction) -> Option<Combine> {
        let is_combined = ![reduction::REPLACE, reduction::NO_OP].contains(&reduction)
            && is_defined(reduction, self)
            && self.supports(reduction);
        let (element, extent) = (self.element, self.extent);
        is_combined.then_some(Combine { element, reduction, extent, foreign: reduce })
    }
}

/// True if MPI defines the reduction for such a datatype (MPI-4.1 section 6.9.2). Where both hosts
/// allow more than the standard, so do we: logical reductions of Fortran and multi-language
/// integers, and `MPI_CHAR` as an integer.
pub(crate) fn is_defined(op: Reduction, datatype: &Predefined) -> bool {
    is_defined_for(op, datatype.kind)
}

fn is_defined_for(op: Reduction, kind: Kind) -> bool {
    use Kind::{Byte, Complex, Floating, Logical, Pair, Signed, Unsigned};
    match op {
        reduction::REPLACE | reduction::NO_OP => true,
        reduction::SUM | reduction::PROD => matches!(kind, Signed | Unsigned | Floating | Complex),
        reduction::MIN | reduction::MAX => matches!(kind, Signed | Unsigned | Floating),
        reduction::LAND | reduction::LOR | reduction::LXOR => {
            matches!(kind, Signed | Unsigned | Logical)
        }
        reduction::BAND | reduction::BOR | reduction::BXOR => {
            matches!(kind, Signed | Unsigned | Byte)
        }
        reduction::MINLOC | reduction::MAXLOC => kind == Pair,
        _ => false,
    }
}

/// True if `MPI_Compare_and_swap` is defined for such a datatype (MPI-4.1 section 12.3.4).
pub(crate) fn is_comparable(datatype: &Predefined) -> bool {
    matches!(datatype.kind, Kind::Signed | Kind::Unsigned | Kind::Logical | Kind::Byte)
}

/// Fills the tables from those of `shim.c`, with sizes and supported reductions as the host reports
/// them. Datatypes that this host lacks are left out. `world`: there is an `MPI_COMM_WORLD`.
///
/// # Safety
/// Only while MPI is being initialized, after `PMPI_Init` or `PMPI_Session_init`.
pub(crate) unsafe fn fill(world: bool) {
    let mut foreign = Vec::new();
    let probe = if world { ReductionProbe::new() } else { ReductionProbe::none() };
    for entry in listed_types() {
        let Some((size, extent, span)) = measure(entry.handle) else { continue };
        let kind = Kind::of(entry.kind);
        let (element, unsupported) = match native_element(kind, size) {
            Some(element) if size == extent => (element, 0),
            _ => (Element(FIRST_FOREIGN + foreign.len() as u8), probe.unsupported(entry, kind)),
        };
        let datatype = Predefined { kind, element, size, extent, span, unsupported };
        // SAFETY: only while MPI is being initialized (contract of this function), so nobody reads.
        let added = unsafe { TYPES.insert(entry.handle.key(), datatype) };
        if added && element.0 >= FIRST_FOREIGN {
            foreign.push(entry.handle.key());
        }
    }
    for (code, op) in listed_ops().iter().enumerate() {
        // SAFETY: only while MPI is being initialized (contract of this function), so nobody reads.
        unsafe { REDUCTIONS.insert(op.key(), Reduction(code as u8)) };
    }
    let _ = FOREIGN.set(foreign);
}

/// Probes which reductions the host supports. Meanwhile errors return: the application's error
/// handlers must not run before `MPI_Init` has returned.
///
/// A probe reduces zero elements, so the host only checks the pair of datatype and operation. A
/// host that does not check it (Open MPI with `mpi_param_check` 0) is not probed further, since it
/// would jump through a null pointer.
struct ReductionProbe {
    /// The previous handlers of `MPI_COMM_WORLD` and `MPI_COMM_SELF`. Hosts differ in which of them
    /// they call.
    handlers: Option<[MPI_Errhandler; 2]>,
    /// The host checks the pair of datatype and operation.
    checks: bool,
}

impl ReductionProbe {
    fn new() -> Self {
        let mut handlers = [MPI_ERRORS_ARE_FATAL; 2];
        for (comm, handler) in Self::comms().into_iter().zip(&mut handlers) {
            host_calls::comm_get_errhandler(comm, handler);
            host_calls::comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        }
        // No host that checks accepts MPI_MAXLOC on MPI_INT.
        ReductionProbe { handlers: Some(handlers), checks: !accepts(MPI_INT, reduction::MAXLOC) }
    }

    /// Without `MPI_COMM_WORLD` an error may abort the job, so nothing is probed.
    fn none() -> Self {
        ReductionProbe { handlers: None, checks: false }
    }

    fn comms() -> [MPI_Comm; 2] {
        [MPI_COMM_WORLD, MPI_COMM_SELF]
    }

    /// The reductions that MPI defines for a datatype and the host does not support: a bit for each
    /// code.
    fn unsupported(&self, entry: &ListedType, kind: Kind) -> u16 {
        let computed = (reduction::SUM.0..listed_ops().len() as u8)
            .map(Reduction)
            .filter(|op| is_defined_for(*op, kind));
        let adds = entry.quad == 0 || (self.checks && adds_quads(entry.handle));
        let fails = |op: &Reduction| !adds || (self.checks && !accepts(entry.handle, *op));
        computed.filter(fails).fold(0, |mask, op| mask | 1 << op.0)
    }
}

impl Drop for ReductionProbe {
    fn drop(&mut self) {
        for (comm, mut handler) in
            Self::comms().into_iter().zip(self.handlers.into_iter().flatten())
        {
            host_calls::comm_set_errhandler(comm, handler);
            host_calls::errhandler_free(&mut handler);
        }
    }
}

/// The host's handle of a reduction.
fn handle_of(op: Reduction) -> MPI_Op {
    listed_ops()[usize::from(op.0)]
}

/// True if the host accepts a reduction of such elements.
fn accepts(datatype: MPI_Datatype, op: Reduction) -> bool {
    reduce_wide([0; 2], &mut [0; 2], 0, datatype, op)
}

/// True if the host's sum of 1 and 2 is 3. Hosts that mistake `REAL*16` for the `long double` of
/// x86 report success and leave the result unchanged.
fn adds_quads(datatype: MPI_Datatype) -> bool {
    // 128-bit numbers of IEEE 754, which have the exponent above 112 bits of fraction.
    let [one, two, three] = [0x3fff_0000u128, 0x4000_0000, 0x4000_8000].map(|top| top << 96);
    let mut inout = [two; 2];
    accepts(datatype, reduction::SUM)
        && reduce_wide([one; 2], &mut inout, 1, datatype, reduction::SUM)
        && inout[0] == three
}

/// `inout = inout (op) input` by the host, of at most one element of at most 32 bytes: a complex
/// number of two 128-bit parts is the largest. True if the host reports success.
fn reduce_wide(
    input: [u128; 2],
    inout: &mut [u128; 2],
    count: c_int,
    datatype: MPI_Datatype,
    op: Reduction,
) -> bool {
    let fits = || measure(datatype).is_some_and(|(_, extent, _)| usize::from(extent) <= 32);
    if count != 0 && (count != 1 || !fits()) {
        return false;
    }
    // SAFETY: both buffers have room for `count` elements, as was just checked; the host keeps
    // neither.
    unsafe {
        PMPI_Reduce_local(
            input.as_ptr().cast(),
            inout.as_mut_ptr().cast(),
            count,
            datatype,
            handle_of(op),
        ) == MPI_SUCCESS
    }
}

/// Size, extent and span of a predefined datatype. `None`: this host does not have it.
fn measure(datatype: MPI_Datatype) -> Option<(u8, u8, u8)> {
    if datatype == MPI_DATATYPE_NULL {
        return None;
    }
    let (mut size, mut least, mut extent, mut start, mut span) = (0, 0, 0, 0, 0);
    let asked = [
        host_calls::type_size(datatype, &mut size),
        host_calls::type_extent(datatype, &mut least, &mut extent),
        host_calls::type_true_extent(datatype, &mut start, &mut span),
    ];
    if asked.iter().any(|status| *status != MPI_SUCCESS) || size <= 0 || start != 0 {
        return None;
    }
    // A datatype wider than the engine's records allow (none is known) is treated as a derived one.
    let extent = u8::try_from(extent).ok().filter(|extent| *extent <= 32)?;
    Some((u8::try_from(size).ok()?, extent, u8::try_from(span).ok()?))
}

fn native_element(kind: Kind, size: u8) -> Option<Element> {
    Some(match (kind, size) {
        (Kind::Signed, 1) => native::I8,
        (Kind::Signed, 2) => native::I16,
        (Kind::Signed, 4) => native::I32,
        (Kind::Signed, 8) => native::I64,
        // Wide characters have no reductions; they are only moved.
        (Kind::Unsigned, 1) => native::U8,
        (Kind::Unsigned | Kind::Character, 2) => native::U16,
        (Kind::Unsigned | Kind::Character, 4) => native::U32,
        (Kind::Unsigned, 8) => native::U64,
        (Kind::Floating, 4) => native::F32,
        (Kind::Floating, 8) => native::F64,
        (Kind::Byte | Kind::Character, 1) => native::BYTE,
        _ => return None,
    })
}

/// The host's datatype with a foreign code. `None`: no datatype has this code.
fn foreign_datatype(element: Element) -> Option<MPI_Datatype> {
    let at = usize::from(element.0.checked_sub(FIRST_FOREIGN)?);
    FOREIGN.get()?.get(at).map(|key| MPI_Datatype::of(*key))
}

/// Extent and span of a foreign element, if MPI defines this reduction for it. For
/// [`am::Settings`](crate::transport::am::Settings).
pub(crate) fn foreign(how: ElementOp) -> Option<(u8, u8)> {
    let datatype = predefined(foreign_datatype(how.element)?)?;
    is_defined(how.reduction, datatype).then_some((datatype.extent, datatype.span))
}

/// `inout = inout (op) input` by the host, for
/// [`ForeignReduce`](crate::transport::datatype::element::ForeignReduce).
///
/// # Safety
/// Both pointers are valid for `count` elements of the datatype and do not overlap.
pub(crate) unsafe fn reduce(
    element: Element,
    op: Reduction,
    input: *const u8,
    inout: *mut u8,
    count: usize,
) {
    let Some(datatype) = foreign_datatype(element) else {
        log::error!("no host datatype has code {}", element.0);
        return;
    };
    let extent = predefined(datatype).map_or(0, |datatype| usize::from(datatype.extent));
    let op = handle_of(op);
    let mut done = 0;
    while done < count {
        let part = (count - done).min(c_int::MAX as usize);
        // SAFETY: within the caller's `count` elements.
        let status = unsafe {
            PMPI_Reduce_local(
                input.add(done * extent).cast(),
                inout.add(done * extent).cast(),
                part as c_int,
                datatype,
                op,
            )
        };
        if status != MPI_SUCCESS {
            log::error!("MPI_Reduce_local failed with {status}");
            return;
        }
        done += part;
    }
}
