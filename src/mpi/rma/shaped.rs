//! Checks the arguments of communication calls with derived datatypes.
//!
//! Data that are one run of bytes on each side become a plain operation. All others get a shape.

use std::cell::Cell;
use std::sync::Arc;

use crate::engine::{Addr, Op, OpKind};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::datatype::derived::{self, Datatype};
use crate::mpi::datatype::flatten::{Elements, View};
use crate::mpi::datatype::{Predefined, predefined, reduction_of};
use crate::mpi::rma::args::{
    BEYOND, Buffer, NEGATIVE_DISP, Sender, Target, changing, count, defined, nothing_at, op,
    present, rank, unlike, unseen,
};
use crate::mpi::rma::call::Checked;
use crate::runtime::Window;
use crate::transport::datatype::element::{native, reduction};
use crate::transport::datatype::{Layout, Runs, Shape, Side};

/// No buffer lies below this address: data there are displacements from a null pointer.
const FIRST_PAGE: i64 = 4096;

/// Items of a predefined or derived datatype.
struct Items<'a> {
    datatype: &'a Datatype,
    elements: Elements,
    count: u64,
}

impl<'a> Items<'a> {
    fn new(
        datatype: MPI_Datatype,
        items: i64,
        null: &'static str,
        negative: &'static str,
    ) -> Checked<Self> {
        if datatype == MPI_DATATYPE_NULL {
            return Err(Fault::new(MPI_ERR_TYPE, null));
        }
        let known = derived::known(datatype)?;
        // Predefined datatypes may share a layout but differ in their reductions.
        let elements = predefined(datatype).map_or(known.elements, Elements::Alike);
        Ok(Items { datatype: known, elements, count: count(items, negative)? })
    }

    fn origin(buffer: &Buffer) -> Checked<Self> {
        Self::new(
            buffer.datatype,
            buffer.count,
            "origin_datatype is MPI_DATATYPE_NULL",
            "origin_count is negative",
        )
    }

    fn result(buffer: &Buffer) -> Checked<Self> {
        Self::new(
            buffer.datatype,
            buffer.count,
            "result_datatype is MPI_DATATYPE_NULL",
            "result_count is negative",
        )
    }

    fn target(target: &Target) -> Checked<Self> {
        Self::new(
            target.datatype,
            target.count,
            "target_datatype is MPI_DATATYPE_NULL",
            "target_count is negative",
        )
    }

    fn layout(&self, view: View) -> &Arc<Layout> {
        if view == View::Data { &self.datatype.data } else { &self.datatype.units }
    }

    /// Bytes of data.
    fn size(&self, view: View) -> Option<u64> {
        self.layout(view).size_of(self.count)
    }

    /// The first `len` bytes of the data.
    fn side(&self, view: View, len: u64) -> Side {
        Side::items(self.layout(view).clone(), self.count).first(len)
    }

    /// The predefined datatype of all elements; `None` if there are none.
    fn element(&self) -> Checked<Option<&'static Predefined>> {
        match self.elements {
            Elements::Alike(predefined) => Ok(Some(predefined)),
            Elements::None => Ok(None),
            Elements::Mixed => Err(Fault::new(
                MPI_ERR_TYPE,
                "a derived datatype in a reduction has elements of different predefined datatypes",
            )),
        }
    }
}

/// Checks the address of a buffer. It may be null as `MPI_BOTTOM`, with displacements that are
/// addresses.
fn address(buffer: &Buffer, side: &Side, null: &'static str) -> Checked<Addr> {
    if buffer.address.is_null() && side.bounds().0 < FIRST_PAGE {
        return present(buffer.address, null);
    }
    Ok(Addr(buffer.address as usize))
}

/// Displacement in bytes of the target's items in its window. All bytes that are accessed must lie
/// in the window; items beyond the data that are moved need not.
#[allow(clippy::unnecessary_cast, reason = "addresses are not i64 on every host")]
fn place(window: &Window, rank: u32, disp: MPI_Aint, side: &Side) -> Checked<i64> {
    let disp = disp as i64;
    if disp < 0 {
        return Err(Fault::new(MPI_ERR_DISP, NEGATIVE_DISP));
    }
    let (low, high) = side.bounds();
    let (size, unit) = window.port.extent_of(rank);
    let at = disp.checked_mul(i64::from(unit));
    let lies_within = |at: &i64| {
        let begins = at.checked_add(low).is_some_and(|first| first >= 0);
        begins && at.checked_add(high).is_some_and(|end| end as u64 <= size)
    };
    match at.filter(lies_within) {
        Some(at) => Ok(at),
        None => attached_place(window, rank, disp, side),
    }
}

/// As [`place`], in a dynamic window: displacements are addresses, and the target must have
/// attached the memory, possibly in several regions.
#[cold]
#[inline(never)]
fn attached_place(window: &Window, rank: u32, at: i64, side: &Side) -> Checked<i64> {
    if window.attributes.flavor != MPI_WIN_FLAVOR_DYNAMIC {
        let text = "target_disp, target_count and target_datatype reach beyond the target's window";
        return Err(Fault::new(MPI_ERR_RMA_RANGE, text));
    }
    let failure = Cell::new(None);
    let reaches = |(low, high): (i64, i64)| {
        let (Some(first), Some(end)) = (at.checked_add(low), at.checked_add(high)) else {
            return false;
        };
        first >= 0
            && window.port.reaches(rank, first as u64, (end - first) as u64).unwrap_or_else(
                |unreachable| {
                    failure.set(Some(unreachable));
                    false
                },
            )
    };
    let mut walk = side.walk(0);
    // Checks run by run, if not all runs lie in one region.
    let each = |runs: Runs| {
        (0..runs.count as i64).all(|number| {
            let low = runs.at + number * runs.stride;
            reaches((low, low + runs.len as i64))
        })
    };
    let whole = |runs: &Runs| runs.bounds().is_some_and(reaches);
    if reaches(side.bounds())
        || std::iter::from_fn(|| walk.next_runs(u64::MAX)).all(|runs| whole(&runs) || each(runs))
    {
        Ok(at)
    } else if let Some(unreachable) = failure.get() {
        Err(unseen(rank, unreachable))
    } else {
        Err(Fault::new(
            MPI_ERR_RMA_RANGE,
            "the target has not attached all of the memory that target_datatype reaches",
        ))
    }
}

/// `MPI_Put` and `MPI_Get`.
#[inline(never)]
pub(crate) fn transfer(
    window: &mut Window,
    kind: OpKind,
    origin: Buffer,
    target: Target,
) -> Checked<Option<Op>> {
    let rank = rank(window, target.rank, BEYOND)?;
    let (here, there) = (Items::origin(&origin)?, Items::target(&target)?);
    let view = View::Data;
    let len = Sender::of(kind).moves(here.size(view), there.size(view))?;
    let Some(rank) = rank else { return Ok(None) };
    if len == 0 {
        return nothing_at(window, rank, target.disp);
    }
    let (near, far) = (here.side(view, len), there.side(view, len));
    let disp = place(window, rank, target.disp, &far)?;
    let address = address(&origin, &near, "origin_addr is NULL")?;
    let mut made = Op { element: native::BYTE, extent: 1, len, ..op(kind, rank, 0, len, byte()) };
    let address = if let (Some(first), Some(at)) = (near.run(), far.run()) {
        made.disp = (disp + at) as u64;
        Addr(address.0.wrapping_add(first as usize))
    } else {
        let (origin, result) =
            if kind == OpKind::Put { (Some(near), None) } else { (None, Some(near)) };
        made.shape = Some(window.port.add_shape(rank, Shape { origin, result, target: far, disp }));
        address
    };
    if kind == OpKind::Put {
        made.origin = address;
    } else {
        made.result = address;
    }
    Ok(Some(made))
}

/// `MPI_Accumulate`.
#[inline(never)]
pub(crate) fn accumulate(
    window: &mut Window,
    origin: Buffer,
    target: Target,
    handle: MPI_Op,
) -> Checked<Option<Op>> {
    let rank = rank(window, target.rank, BEYOND)?;
    let (here, there) = (Items::origin(&origin)?, Items::target(&target)?);
    let element = alike(&[&here, &there])?;
    let len = Sender::Origin.moves(here.size(View::Elements), there.size(View::Elements))?;
    let Some(element) = element else { return nothing(handle) };
    let made =
        Op { reduction: changing(handle, element)?, ..op(OpKind::Accumulate, 0, 0, len, element) };
    reduce(window, made, rank, (&target, &there), [Some((&origin, &here, len)), None])
}

/// `MPI_Get_accumulate`. With `MPI_NO_OP` the origin is ignored.
#[inline(never)]
pub(crate) fn get_accumulate(
    window: &mut Window,
    origin: Buffer,
    result: Buffer,
    target: Target,
    handle: MPI_Op,
) -> Checked<Option<Op>> {
    let rank = rank(window, target.rank, BEYOND)?;
    let fetches_only = reduction_of(handle) == Some(reduction::NO_OP);
    let (back, there) = (Items::result(&result)?, Items::target(&target)?);
    let here = if fetches_only { None } else { Some(Items::origin(&origin)?) };
    let view = View::Elements;
    let len = Sender::TargetToResult.moves(back.size(view), there.size(view))?;
    let mut element = alike(&[&back, &there])?;
    let mut sent = 0;
    if let Some(here) = &here {
        element = alike(&[here, &back, &there])?;
        sent = Sender::Origin.moves(here.size(view), there.size(view))?;
    }
    let Some(element) = element else { return nothing(handle) };
    let code = defined(handle, element)?;
    // An origin without data changes nothing.
    let origin = here.as_ref().filter(|_| sent > 0).map(|here| (&origin, here, sent));
    let code = if origin.is_some() { code } else { reduction::NO_OP };
    let made = Op { reduction: code, ..op(OpKind::GetAccumulate, 0, 0, len, element) };
    reduce(window, made, rank, (&target, &there), [origin, Some((&result, &back, len))])
}

/// A reduction of datatypes without elements.
#[cold]
fn nothing(handle: MPI_Op) -> Checked<Option<Op>> {
    match reduction_of(handle) {
        Some(_) => Ok(None),
        None => defined(handle, byte()).map(|_| None),
    }
}

/// The predefined datatype of all elements, if there are any. Items without data are ignored,
/// unless none has data.
fn alike(items: &[&Items<'_>]) -> Checked<Option<&'static Predefined>> {
    let has_none = |items: &Items<'_>| items.size(View::Elements) == Some(0);
    let empty = items.iter().all(|items| has_none(items));
    let mut found: Option<&'static Predefined> = None;
    for items in items.iter().filter(|items| empty || !has_none(items)) {
        let Some(element) = items.element()? else { continue };
        match found {
            Some(known) if known.element != element.element && !empty => return Err(unlike()),
            Some(_) => {}
            None => found = Some(element),
        }
    }
    Ok(found)
}

fn byte() -> &'static Predefined {
    predefined(MPI_BYTE).expect("every host has MPI_BYTE")
}

/// A buffer of the caller, its items, and how many bytes of their data belong to the operation.
type Part<'a> = (&'a Buffer, &'a Items<'a>, u64);

/// Completes a reduction; `buffers` are the origin's and the result's.
fn reduce(
    window: &mut Window,
    mut made: Op,
    rank: Option<u32>,
    (target, there): (&Target, &Items<'_>),
    buffers: [Option<Part<'_>>; 2],
) -> Checked<Option<Op>> {
    let view = View::Elements;
    let Some(rank) = rank else { return Ok(None) };
    made.target = rank;
    if made.len == 0 {
        return nothing_at(window, rank, target.disp);
    }
    let far = there.side(view, made.len);
    let disp = place(window, rank, target.disp, &far)?;
    let texts = ["origin_addr is NULL", "result_addr is NULL"];
    let mut addresses = [Addr(0); 2];
    let mut sides = [None, None];
    for (at, (buffer, items, len)) in
        buffers.iter().enumerate().filter_map(|(at, given)| given.map(|given| (at, given)))
    {
        let side = items.side(view, len);
        addresses[at] = address(buffer, &side, texts[at])?;
        sides[at] = Some(side);
    }
    // A plain operation has the same amount of data on each side.
    let alike = |side: &Side| side.run().filter(|_| side.size() == made.len);
    let runs = sides.each_ref().map(|side| side.as_ref().map_or(Some(0), alike));
    if let ([Some(first), Some(second)], Some(at)) = (runs, far.run()) {
        made.disp = (disp + at) as u64;
        addresses = [
            Addr(addresses[0].0.wrapping_add(first as usize)),
            Addr(addresses[1].0.wrapping_add(second as usize)),
        ];
    } else {
        let [origin, result] = sides;
        made.shape = Some(window.port.add_shape(rank, Shape { origin, result, target: far, disp }));
    }
    [made.origin, made.result] = addresses;
    Ok(Some(made))
}
