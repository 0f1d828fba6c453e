//! Makes a [`Layout`] from a derived datatype of the host.
//!
//! Where the bytes lie follows from the constructor that the host returns (MPI-4.1 chapter 5). The
//! bounds are the host's, since hosts differ in how some constructors round them up for alignment.

use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::datatype::constructor::{Constructor, Envelope, refused};
use crate::mpi::datatype::{Kind, Predefined, predefined, unnamed};
use crate::transport::datatype::{Block, Layout};

/// What a layout is to contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Bytes of data, and nothing else.
    Data,
    /// Whole elements, as reductions need them: with the padding inside a pair.
    Elements,
}

/// Which elements a datatype has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Elements {
    None,
    /// All of one predefined datatype.
    Alike(&'static Predefined),
    Mixed,
}

impl Elements {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Elements::None, one) | (one, Elements::None) => one,
            (Elements::Alike(one), Elements::Alike(other)) if one.element == other.element => self,
            _ => Elements::Mixed,
        }
    }
}

type Flat = Result<(Layout, Elements), Fault>;

fn too_large() -> Fault {
    Fault::new(MPI_ERR_TYPE, "a datatype reaches beyond 64-bit addresses")
}

/// A datatype that is being flattened.
struct Open {
    datatype: MPI_Datatype,
    how: Constructor,
    /// Those of its inner datatypes that have been flattened.
    inner: Vec<(Layout, Elements)>,
}

impl Open {
    /// Skips members that need not be flattened: those without blocks, and those whose datatype is
    /// that of an earlier member. Otherwise n nested structures, each with the next one twice,
    /// would take 2^n steps. (They do on Open MPI, which returns a new handle for each member.)
    fn skip_known(&mut self) {
        while let Some(wanted) = self.how.types.get(self.inner.len()) {
            let at = self.inner.len();
            let known = self.how.types[..at].iter().position(|earlier| earlier.0 == wanted.0);
            match known {
                _ if self.how.is_empty_member(at) => {
                    self.inner.push((Layout::empty(), Elements::None))
                }
                Some(known) if !self.how.is_empty_member(known) => {
                    self.inner.push(self.inner[known].clone())
                }
                _ => return,
            }
        }
    }
}

/// Flattens a datatype, committed or not. The open ones are in a list and not on the stack, since
/// datatypes may be nested to any depth.
pub(crate) fn flatten(datatype: MPI_Datatype, view: View) -> Flat {
    let mut open: Vec<Open> = Vec::new();
    let mut next = datatype;
    loop {
        let mut flat = match flat_or_constructor(next, view)? {
            Ok(flat) => Some(flat),
            Err(how) => {
                let inner = Vec::with_capacity(how.types.len());
                let mut around = Open { datatype: next, how, inner };
                around.skip_known();
                open.push(around);
                None
            }
        };
        // Finish the datatypes all of whose inner ones are flattened, from the inside out.
        loop {
            let Some(around) = open.last_mut() else { return Ok(flat.expect("nothing is open")) };
            around.inner.extend(flat.take());
            around.skip_known();
            if let Some(wanted) = around.how.types.get(around.inner.len()) {
                next = wanted.0;
                break;
            }
            let Open { datatype, how, inner } = open.pop().expect("the last one");
            let (layout, elements) = apply(&how, inner)?;
            let (lower, extent) = bounds_of(datatype)?;
            flat = Some((layout.resized(lower, extent), elements));
        }
    }
}

/// Flattens a datatype that is not made of others, or returns the constructor of one that is.
fn flat_or_constructor(
    datatype: MPI_Datatype,
    view: View,
) -> Result<Result<(Layout, Elements), Constructor>, Fault> {
    if let Some(predefined) = predefined(datatype) {
        return Ok(Ok((element(predefined, view), Elements::Alike(predefined))));
    }
    let envelope = Envelope::of(datatype)?;
    if envelope.combiner == MPI_COMBINER_NAMED {
        return named(datatype).map(Ok);
    }
    if envelope.is_unnamed_predefined() {
        let predefined = unnamed(envelope.combiner, size_of(datatype)?).ok_or_else(refused)?;
        return Ok(Ok((element(predefined, view), Elements::Alike(predefined))));
    }
    Constructor::of(datatype, envelope).map(Err)
}

/// The layout of a predefined datatype.
pub(crate) fn element(datatype: &Predefined, view: View) -> Layout {
    let whole = |span: u8, extent: u8| {
        Layout::element(u64::from(span), i64::from(extent)).expect("a datatype with data")
    };
    let Predefined { size, span, extent, kind, .. } = *datatype;
    if view == View::Elements || size == span || kind != Kind::Pair {
        return whole(span, extent);
    }
    // A pair with padding between value and index, which is an int.
    let (index, one) = (4, Block { count: 1, at: 0 });
    let parts = [
        (one, &whole(size - index, size - index)),
        (Block { at: i64::from(span - index), ..one }, &whole(index, index)),
    ];
    Layout::structure(parts).expect("a pair is small").resized(0, i64::from(extent))
}

/// The layout of a named datatype that is not in our table: it can be moved but not reduced.
fn named(datatype: MPI_Datatype) -> Flat {
    let (lower, extent) = bounds_of(datatype)?;
    if size_of(datatype)? == 0 {
        return Ok((Layout::empty().resized(lower, extent), Elements::None));
    }
    let byte = Layout::element(1, 1).ok_or_else(too_large)?;
    let layout = byte.repeated(size_of(datatype)?, 1).ok_or_else(too_large)?;
    Ok((layout.resized(lower, extent), Elements::Mixed))
}

fn size_of(datatype: MPI_Datatype) -> Result<u64, Fault> {
    let mut size = 0;
    let status = host_calls::type_size(datatype, &mut size);
    u64::try_from(size).ok().filter(|_| status == MPI_SUCCESS).ok_or_else(too_large)
}

fn bounds_of(datatype: MPI_Datatype) -> Result<(i64, i64), Fault> {
    let (mut lower, mut extent) = (0, 0);
    let status = host_calls::type_extent(datatype, &mut lower, &mut extent);
    if status == MPI_SUCCESS { Ok((lower, extent)) } else { Err(too_large()) }
}

/// Applies a constructor to its flattened inner datatypes. The caller sets the bounds.
fn apply(how: &Constructor, inner: Vec<(Layout, Elements)>) -> Flat {
    let combiner = how.combiner;
    if [MPI_COMBINER_STRUCT, MPI_COMBINER_STRUCT_INTEGER].contains(&combiner) {
        return structure(how, &inner);
    }
    let Ok([(inner, elements)]) = <[_; 1]>::try_from(inner) else { return Err(refused()) };
    let extent = inner.extent();
    let mut arguments = Arguments::of(how);
    let layout = if combiner == MPI_COMBINER_DUP || combiner == MPI_COMBINER_RESIZED {
        Some(inner)
    } else if combiner == MPI_COMBINER_CONTIGUOUS {
        inner.repeated(arguments.count()?, extent)
    } else if combiner == MPI_COMBINER_VECTOR {
        let (count, block, stride) = (arguments.count()?, arguments.count()?, arguments.number()?);
        inner.strided(count, block, stride.checked_mul(extent).ok_or_else(too_large)?)
    } else if combiner == MPI_COMBINER_HVECTOR || combiner == MPI_COMBINER_HVECTOR_INTEGER {
        let (count, block, stride) =
            (arguments.count()?, arguments.count()?, arguments.displacement()?);
        inner.strided(count, block, stride)
    } else if combiner == MPI_COMBINER_INDEXED {
        let counts = arguments.counts()?;
        inner.blocks(blocks(&counts, arguments.numbers(counts.len())?, extent)?)
    } else if combiner == MPI_COMBINER_HINDEXED || combiner == MPI_COMBINER_HINDEXED_INTEGER {
        let counts = arguments.counts()?;
        inner.blocks(blocks(&counts, arguments.displacements(counts.len())?, 1)?)
    } else if combiner == MPI_COMBINER_INDEXED_BLOCK {
        let (count, block) = (arguments.length()?, arguments.count()?);
        inner.blocks(blocks(&vec![block; count], arguments.numbers(count)?, extent)?)
    } else if combiner == MPI_COMBINER_HINDEXED_BLOCK {
        let (count, block) = (arguments.length()?, arguments.count()?);
        inner.blocks(blocks(&vec![block; count], arguments.displacements(count)?, 1)?)
    } else if combiner == MPI_COMBINER_SUBARRAY {
        Some(subarray(inner, &mut arguments)?)
    } else if combiner == MPI_COMBINER_DARRAY {
        Some(distributed(inner, &mut arguments)?)
    } else {
        return Err(refused());
    };
    Ok((layout.ok_or_else(too_large)?, elements))
}

fn structure(how: &Constructor, inner: &[(Layout, Elements)]) -> Flat {
    let mut arguments = Arguments::of(how);
    let counts = arguments.counts()?;
    let displacements = arguments.displacements(counts.len())?;
    let members = || counts.iter().zip(displacements).zip(inner);
    let elements = members()
        .filter(|((count, _), (layout, _))| **count > 0 && layout.size() > 0)
        .fold(Elements::None, |all, (_, (_, elements))| all.and(*elements));
    let layout = Layout::structure(
        members().map(|((count, at), (layout, _))| (Block { count: *count, at: *at }, layout)),
    );
    Ok((layout.ok_or_else(too_large)?, elements))
}

/// Blocks of these lengths, at displacements in multiples of `unit`.
fn blocks(counts: &[u64], at: &[i64], unit: i64) -> Result<Vec<Block>, Fault> {
    let block =
        |(count, at): (&u64, &i64)| Some(Block { count: *count, at: at.checked_mul(unit)? });
    counts.iter().zip(at).map(block).collect::<Option<_>>().ok_or_else(too_large)
}

/// `MPI_Type_create_subarray`.
fn subarray(inner: Layout, arguments: &mut Arguments<'_>) -> Result<Layout, Fault> {
    let dimensions = arguments.plain_length()?;
    let (sizes, parts, starts) = (
        arguments.numbers(dimensions)?,
        arguments.numbers(dimensions)?,
        arguments.numbers(dimensions)?,
    );
    let order = arguments.plain()?;
    let mut extent = inner.extent();
    let mut layout = inner;
    for at in fastest_first(dimensions, order) {
        let count = u64::try_from(parts[at]).map_err(|_| refused())?;
        let start = starts[at].checked_mul(extent).ok_or_else(too_large)?;
        let block = Block { count, at: start };
        layout = layout.resized(0, extent).blocks([block]).ok_or_else(too_large)?;
        extent = extent.checked_mul(sizes[at]).ok_or_else(too_large)?;
    }
    Ok(layout)
}

/// The dimensions of an array in `order`, beginning with the one that varies fastest.
fn fastest_first(dimensions: usize, order: i64) -> Vec<usize> {
    if order == i64::from(MPI_ORDER_FORTRAN) {
        (0..dimensions).collect()
    } else {
        (0..dimensions).rev().collect()
    }
}

/// `MPI_Type_create_darray`: one process's part of a distributed array. The grid of processes is
/// row-major, whatever the order of the array.
fn distributed(inner: Layout, arguments: &mut Arguments<'_>) -> Result<Layout, Fault> {
    let (_, mut rank) = (arguments.plain()?, arguments.plain()?);
    let dimensions = arguments.plain_length()?;
    let sizes = arguments.numbers(dimensions)?;
    let (ways, with, grid) = (
        arguments.plains(dimensions)?,
        arguments.plains(dimensions)?,
        arguments.plains(dimensions)?,
    );
    let order = arguments.plain()?;
    let mut coordinates = vec![0; dimensions];
    for at in (0..dimensions).rev() {
        if grid[at] <= 0 || sizes[at] < 0 {
            return Err(refused());
        }
        (coordinates[at], rank) = (rank % grid[at], rank / grid[at]);
    }
    let mut extent = inner.extent();
    let mut layout = inner;
    for at in fastest_first(dimensions, order) {
        let (size, processes, me) = (sizes[at], grid[at], coordinates[at]);
        let default = with[at] == i64::from(MPI_DISTRIBUTE_DFLT_DARG);
        let (block, processes, me) = if ways[at] == i64::from(MPI_DISTRIBUTE_BLOCK) {
            (if default { (size + processes - 1) / processes } else { with[at] }, processes, me)
        } else if ways[at] == i64::from(MPI_DISTRIBUTE_CYCLIC) {
            (if default { 1 } else { with[at] }, processes, me)
        } else {
            (size, 1, 0)
        };
        layout =
            cyclic(&layout.resized(0, extent), size, block, processes, me).ok_or_else(too_large)?;
        extent = extent.checked_mul(size).ok_or_else(too_large)?;
    }
    Ok(layout)
}

/// The items of process `me` if `size` items are dealt out to `processes` in turn, in blocks of
/// `block` items. `None`: they reach beyond 64-bit addresses.
fn cyclic(inner: &Layout, size: i64, block: i64, processes: i64, me: i64) -> Option<Layout> {
    let round = block.checked_mul(processes)?;
    let first = block.checked_mul(me)?;
    if block <= 0 || first >= size {
        return Some(Layout::empty());
    }
    let whole = if size - first < block { 0 } else { (size - first - block) / round + 1 };
    let rest = (size - first - whole.checked_mul(round)?).clamp(0, block);
    let extent = inner.extent();
    let blocks = inner.strided(whole as u64, block as u64, round.checked_mul(extent)?)?;
    let last = inner.repeated(rest as u64, extent)?;
    let at = |item: i64| item.checked_mul(extent);
    let parts = [(at(first)?, &blocks), (at(first + whole.checked_mul(round)?)?, &last)];
    Layout::structure(parts.map(|(at, part)| (Block { count: 1, at }, part)))
}

/// The arguments of a constructor that have not been read yet, in their order. Large-count
/// constructors have counts and displacements in one list.
struct Arguments<'a> {
    integers: &'a [i64],
    wide: &'a [i64],
    large: bool,
}

impl<'a> Arguments<'a> {
    fn of(how: &'a Constructor) -> Self {
        Arguments { integers: &how.integers, wide: &how.wide, large: how.large }
    }

    fn next_of(list: &mut &'a [i64], length: usize) -> Result<&'a [i64], Fault> {
        let (taken, rest) = list.split_at_checked(length).ok_or_else(refused)?;
        *list = rest;
        Ok(taken)
    }

    /// Arguments that are ints in both forms.
    fn plains(&mut self, length: usize) -> Result<&'a [i64], Fault> {
        Self::next_of(&mut self.integers, length)
    }

    fn plain(&mut self) -> Result<i64, Fault> {
        Ok(self.plains(1)?[0])
    }

    fn plain_length(&mut self) -> Result<usize, Fault> {
        usize::try_from(self.plain()?).map_err(|_| refused())
    }

    /// Arguments that are counts in the large form, and ints in the other.
    fn numbers(&mut self, length: usize) -> Result<&'a [i64], Fault> {
        Self::next_of(if self.large { &mut self.wide } else { &mut self.integers }, length)
    }

    fn number(&mut self) -> Result<i64, Fault> {
        Ok(self.numbers(1)?[0])
    }

    fn count(&mut self) -> Result<u64, Fault> {
        u64::try_from(self.number()?).map_err(|_| refused())
    }

    fn length(&mut self) -> Result<usize, Fault> {
        usize::try_from(self.number()?).map_err(|_| refused())
    }

    /// A length, and that number of counts.
    fn counts(&mut self) -> Result<Vec<u64>, Fault> {
        let length = self.length()?;
        self.numbers(length)?
            .iter()
            .map(|count| u64::try_from(*count).map_err(|_| refused()))
            .collect()
    }

    /// Displacements in bytes: addresses, or integers in old Fortran constructors.
    fn displacements(&mut self, length: usize) -> Result<&'a [i64], Fault> {
        Self::next_of(
            if self.large || !self.wide.is_empty() { &mut self.wide } else { &mut self.integers },
            length,
        )
    }

    fn displacement(&mut self) -> Result<i64, Fault> {
        Ok(self.displacements(1)?[0])
    }
}
