//! `MPI_Allreduce`, `MPI_Reduce`, `MPI_Scan`, `MPI_Exscan`, `MPI_Reduce_scatter_block` and
//! `MPI_Reduce_scatter`. Long operands pass in pieces, each a collective of the board.

use std::ffi::{c_int, c_void};
use std::ptr::copy_nonoverlapping;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use super::calls::pass;
use super::communicators::{Collective, Communicator, bytes_of};
use super::exchanges::{PerRank, list, number, valid_root};
use super::limits::Row;
use super::message::{Number, Typed};
use super::nodes::{self, Nodes};
use super::serve::{Failed, Host, Served, code, differs, serve, serve_across};
use super::single_copy::{self, Operand};
use crate::collective::schedule::FLAT_MAX;
use crate::collective::{Content, Draft, Mismatch, Published, Work};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::datatype::{Predefined, is_defined, predefined, reduction_of};
use crate::transport::datatype::element::reduction;

/// Most bytes of an operand among more than a few processes, which pass it along a tree.
const TREE_BYTES_MAX: usize = 2048;

/// Code of an operation of the application, beside those of predefined ones.
const USER: u32 = 0xff;

/// A reduction of elements in a row.
#[derive(Clone, Copy)]
struct Operation {
    datatype: MPI_Datatype,
    op: MPI_Op,
    known: &'static Predefined,
    /// The operation's code, of which processes learn whether they differ.
    code: u32,
    /// The application's function sees all elements at once.
    whole: bool,
}

/// Who can reduce.
enum Reducer {
    Ours(Operation),
    /// The host, as all processes know.
    Host,
    /// The arguments are wrong.
    Wrong,
}

/// Whether a handle is that of an operation of the application, valid or freed: MPICH's handles say
/// what they are handles of.
fn is_user(op: MPI_Op) -> bool {
    const KIND: u64 = 0x3c00_0000;
    const OP: u64 = 0x1800_0000;
    const BUILT_IN: u64 = 1;
    let key = op.key() & 0xffff_ffff;
    cfg!(mpi_host = "mpich") && key & KIND == OP && key >> 30 > BUILT_IN
}

impl Reducer {
    fn of(datatype: MPI_Datatype, op: MPI_Op) -> Self {
        let Some(known) = predefined(datatype) else {
            return match Typed::of(datatype) {
                Some(_) if is_user(op) => Reducer::Host,
                _ => Reducer::Wrong,
            };
        };
        let operation = |code, whole| Operation { datatype, op, known, code, whole };
        match reduction_of(op) {
            Some(reduction::REPLACE | reduction::NO_OP) => Reducer::Wrong,
            Some(code) if is_defined(code, known) && known.supports(code) => {
                Reducer::Ours(operation(u32::from(code.0), false))
            }
            Some(_) => Reducer::Wrong,
            None if is_user(op) => Reducer::Ours(operation(USER, true)),
            None => Reducer::Wrong,
        }
    }
}

impl Operation {
    fn extent(&self) -> usize {
        usize::from(self.known.extent)
    }

    /// Bytes from the first to the last of so many elements, of which there are not many.
    fn span(&self, count: usize) -> usize {
        self.known.bytes(count as u64).unwrap_or(0) as usize
    }

    /// Whether an operand of so many elements is reduced here, as all processes know.
    fn is_short(&self, own: &Communicator, row: Row, count: usize) -> bool {
        let max = match own.ranks() {
            _ if self.whole => own.content_max(),
            few @ ..=FLAT_MAX => row.most(few),
            _ => TREE_BYTES_MAX,
        };
        (1..=max / self.extent()).contains(&count)
    }

    /// Whether a longer operand of so many elements is reduced from buffer to buffer.
    fn is_long(&self, own: &Communicator, count: usize) -> bool {
        count.checked_mul(self.extent()).is_some_and(|bytes| single_copy::serves(own, bytes))
    }

    /// Reduces the first operand into the second, as the left one.
    fn fold(&self, input: &[u8], inout: &mut [u8]) {
        let count = input.len().div_ceil(self.extent()) as c_int;
        // SAFETY: both have `count` elements, and neither overlaps the other.
        unsafe {
            PMPI_Reduce_local(
                input.as_ptr().cast(),
                inout.as_mut_ptr().cast(),
                count,
                self.datatype,
                self.op,
            );
        }
    }

    /// Runs a reduction of `count` elements at `input`, in pieces. The result is written to
    /// `output`, if the process gets one.
    ///
    /// # Safety
    /// `input` has `count` elements, and so has `output`, which is the same or does not overlap it.
    unsafe fn run(
        &self,
        own: &mut Communicator,
        (which, code): (Collective, u32),
        input: *const u8,
        output: Option<*mut u8>,
        count: usize,
    ) -> Result<(), Fault> {
        let room = (own.content_max() / self.extent()).max(1);
        let note = ((count.div_ceil(room) - 1) as u32) << 16;
        for from in (0..count).step_by(room) {
            let bytes = self.span(room.min(count - from));
            let at = from * self.extent();
            let input = input.wrapping_add(at);
            let content = Content { bytes: bytes as u32, code: (code + self.code) | note };
            let fold = |input: &[u8], inout: &mut [u8]| self.fold(input, inout);
            // The block of a process that gets no result.
            let mut memory = std::mem::take(own.memory());
            let mismatch = {
                let (block, input) = match output.map(|output| output.wrapping_add(at)) {
                    // SAFETY: within the caller's elements; the output is not the input.
                    Some(output) if output.cast_const() != input => unsafe {
                        (from_raw_parts_mut(output, bytes), Some(from_raw_parts(input, bytes)))
                    },
                    // SAFETY: within the caller's elements, which are the input, too.
                    Some(output) => unsafe { (from_raw_parts_mut(output, bytes), None) },
                    // SAFETY: within the caller's elements.
                    None => unsafe {
                        let block = &mut bytes_of(&mut memory)[..bytes];
                        (block, Some(from_raw_parts(input, bytes)))
                    },
                };
                own.reduce(which, content, input, (block, output.is_some()), fold)
            };
            *own.memory() = memory;
            if let Some(mismatch) = mismatch {
                return Err(differs(mismatch, MPI_ERR_TRUNCATE, MPI_ERR_OP));
            }
        }
        Ok(())
    }
}

/// The buffers of a reduction: what is reduced. `None`: the arguments are wrong.
fn operand(sendbuf: *const c_void, recvbuf: *mut c_void) -> Option<*const u8> {
    let in_place = sendbuf == MPI_IN_PLACE.cast_const();
    let from = if in_place { recvbuf.cast_const() } else { sendbuf };
    let aliased = !in_place && sendbuf == recvbuf.cast_const();
    let wrong = from.is_null() || recvbuf.is_null() || recvbuf == MPI_IN_PLACE || aliased;
    (!wrong).then(|| from.cast())
}

/// The arguments of a reduction.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub(super) sendbuf: *const c_void,
    pub(super) recvbuf: *mut c_void,
    pub(super) count: i64,
    pub(super) datatype: MPI_Datatype,
    pub(super) op: MPI_Op,
}

impl Operands {
    /// The operation and the count. `None`: the host reduces, as all processes know.
    fn operation(&self) -> Result<Option<(Operation, usize)>, Failed> {
        let count = usize::try_from(self.count).map_err(|_| Failed::Wrong)?;
        match Reducer::of(self.datatype, self.op) {
            Reducer::Ours(operation) => Ok(Some((operation, count))),
            Reducer::Host => Ok(None),
            Reducer::Wrong => Err(Failed::Wrong),
        }
    }

    /// The same for a reduction of several nodes.
    fn operation_across(&self) -> Result<Option<(Operation, usize)>, Failed> {
        let is_served = |(operation, count): &(Operation, usize)| {
            let most = nodes::BYTES_MAX / operation.extent();
            !operation.whole && (1..=most).contains(count)
        };
        Ok(self.operation()?.filter(is_served))
    }
}

/// Sums of a node, and of all nodes: memory for elements of every datatype.
struct Sums {
    node: Vec<u128>,
    all: Vec<u128>,
    bytes: usize,
}

impl Sums {
    fn new(bytes: usize) -> Self {
        let words = bytes.div_ceil(size_of::<u128>());
        Sums { node: vec![0; words], all: vec![0; words], bytes }
    }
}

/// Reduces `input` within the nodes, and calls `between` in the first process of each: it reduces
/// the sums of the nodes.
///
/// # Safety
/// There are so many elements at `input`.
unsafe fn reduce_across(
    own: &mut Nodes,
    (operation, count): (Operation, usize),
    code: u32,
    input: *const u8,
    between: impl FnOnce(&Nodes, &mut Sums) -> Result<(), Fault>,
) -> Result<Sums, Fault> {
    let mut sums = Sums::new(operation.span(count));
    let output = (own.here().rank == 0).then(|| sums.node.as_mut_ptr().cast());
    let which = (Collective::Reduce { root: 0 }, code);
    // SAFETY: the contract of this function; the sums have room.
    let reduced = unsafe { operation.run(&mut own.mates, which, input, output, count) };
    // After an error, too: other nodes wait.
    between(own, &mut sums).and(reduced)?;
    Ok(sums)
}

/// # Safety
/// As MPI says of `MPI_Allreduce`.
unsafe fn allreduce_across(own: &mut Nodes, all: Operands) -> Result<Served, Failed> {
    let Some(reduction) = all.operation_across()? else { return Ok(Served::AtHost) };
    let input = operand(all.sendbuf, all.recvbuf).ok_or(Failed::Wrong)?;
    let between = |own: &Nodes, sums: &mut Sums| {
        let (from, to) = (sums.node.as_ptr().cast(), sums.all.as_mut_ptr().cast());
        // SAFETY: both have room for the elements; a short count.
        own.between(|comm, request| unsafe {
            PMPI_Iallreduce(from, to, all.count as c_int, all.datatype, all.op, comm, request)
        })
    };
    // SAFETY: the application's buffers, as MPI says of the call.
    unsafe {
        let mut sums = reduce_across(own, reduction, code::ALLREDUCE, input, between)?;
        let base = sums.all.as_mut_ptr().cast();
        pass(&mut own.mates, 0, base, sums.bytes)?;
        copy_nonoverlapping(base.cast_const(), all.recvbuf.cast(), sums.bytes);
    }
    Ok(Served::Done)
}

/// # Safety
/// As MPI says of `MPI_Reduce`.
unsafe fn reduce_to_node(own: &mut Nodes, all: Operands, root: c_int) -> Result<Served, Failed> {
    let Some(reduction) = all.operation_across()? else { return Ok(Served::AtHost) };
    let (to, here) = (own.place(root).ok_or(Failed::Wrong)?, own.here());
    let is_root = own.me() == root as u32;
    let input = operand_of_reduce(&all, is_root).ok_or(Failed::Wrong)?;
    let between = |own: &Nodes, sums: &mut Sums| {
        let (from, result) = (sums.node.as_ptr().cast(), sums.all.as_mut_ptr().cast());
        let (count, root) = (all.count as c_int, to.node as c_int);
        // SAFETY: both have room for the elements; a short count.
        own.between(|comm, request| unsafe {
            PMPI_Ireduce(from, result, count, all.datatype, all.op, root, comm, request)
        })
    };
    // SAFETY: the application's buffers, as MPI says of the call.
    unsafe {
        let mut sums = reduce_across(own, reduction, code::REDUCE, input, between)?;
        let base = sums.all.as_mut_ptr().cast();
        if here.node == to.node && to.rank != 0 {
            pass(&mut own.mates, 0, base, sums.bytes)?;
        }
        if is_root {
            copy_nonoverlapping(base.cast_const(), all.recvbuf.cast(), sums.bytes);
        }
    }
    Ok(Served::Done)
}

/// What a process reduces in `MPI_Reduce`. `None`: the arguments are wrong.
fn operand_of_reduce(all: &Operands, is_root: bool) -> Option<*const u8> {
    if is_root {
        return operand(all.sendbuf, all.recvbuf);
    }
    let wrong = all.sendbuf.is_null() || all.sendbuf == MPI_IN_PLACE.cast_const();
    (!wrong).then(|| all.sendbuf.cast())
}

/// Serves a reduction by `ours`, which gets the operation and the count if they are valid and the
/// operand is short.
fn reduce_by(
    (call, row): (&'static str, Row),
    all: Operands,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
    ours: impl FnOnce(&mut Communicator, Operation, usize) -> Result<Served, Failed>,
    across: impl FnOnce(&mut Nodes) -> Result<Served, Failed>,
) -> c_int {
    let ours = |own: &mut Communicator| match all.operation()? {
        Some((operation, count)) if operation.is_short(own, row, count) => {
            ours(own, operation, count)
        }
        _ => Ok(Served::AtHost),
    };
    serve_across(call, comm, host, ours, across)
}

/// # Safety
/// As MPI says of `MPI_Allreduce`.
pub(super) unsafe fn allreduce(
    all: Operands,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
) -> c_int {
    // SAFETY: the contract of this function.
    let across = |own: &mut Nodes| unsafe { allreduce_across(own, all) };
    let ours = |own: &mut Communicator| {
        let Some((operation, count)) = all.operation()? else { return Ok(Served::AtHost) };
        let is_short = operation.is_short(own, Row::Allreduce, count);
        let is_long = !operation.whole && operation.is_long(own, count);
        if !is_short && !is_long {
            return Ok(Served::AtHost);
        }
        let input = operand(all.sendbuf, all.recvbuf).ok_or(Failed::Wrong)?;
        let output = all.recvbuf.cast();
        let which = (Collective::Allreduce, code::ALLREDUCE);
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe {
            match is_short {
                true => operation.run(own, which, input, Some(output), count)?,
                false => {
                    let (code, extent) = (code::ALLREDUCE + operation.code, operation.extent());
                    let bytes = operation.span(count);
                    let operand = Operand { code, input, output, count, extent, bytes };
                    single_copy::allreduce(own, operand, |from, to| operation.fold(from, to))?;
                }
            }
        }
        Ok(Served::Done)
    };
    serve_across("MPI_Allreduce", comm, host, ours, across)
}

/// # Safety
/// As MPI says of `MPI_Reduce`.
pub(super) unsafe fn reduce(
    all: Operands,
    root: c_int,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
) -> c_int {
    // SAFETY: the contract of this function.
    let across = |own: &mut Nodes| unsafe { reduce_to_node(own, all, root) };
    let ours = |own: &mut Communicator, operation: Operation, count| {
        let root = valid_root(own, root).ok_or(Failed::Wrong)?;
        let is_root = own.me() == root;
        let input = operand_of_reduce(&all, is_root).ok_or(Failed::Wrong)?;
        let output = is_root.then(|| all.recvbuf.cast());
        let which = (Collective::Reduce { root }, code::REDUCE);
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe { operation.run(own, which, input, output, count)? };
        Ok(Served::Done)
    };
    reduce_by(("MPI_Reduce", Row::Reduce), all, comm, host, ours, across)
}

/// Makes `MPI_Reduce` of the host by `call`, which gets the send buffer. MPICH 4.0 crashes in place
/// with more than 2,048 bytes, so the root gives it a copy.
///
/// # Safety
/// As MPI says of `MPI_Reduce`.
pub(super) unsafe fn reduce_at_host(
    all: Operands,
    root: c_int,
    comm: MPI_Comm,
    call: impl FnOnce(*const c_void) -> c_int,
) -> c_int {
    let mut rank = 0;
    host_calls::comm_rank(comm, &mut rank);
    let count = usize::try_from(all.count).unwrap_or(0);
    if all.sendbuf != MPI_IN_PLACE.cast_const()
        || rank != root
        || all.recvbuf.is_null()
        || count == 0
    {
        return call(all.sendbuf);
    }
    let (mut lower, mut extent, mut start, mut span) = (0, 0, 0, 0);
    host_calls::type_extent(all.datatype, &mut lower, &mut extent);
    host_calls::type_true_extent(all.datatype, &mut start, &mut span);
    let Some(bytes) = (count - 1)
        .checked_mul(extent.unsigned_abs() as usize)
        .and_then(|bytes| bytes.checked_add(usize::try_from(span).ok()?))
        .filter(|_| extent >= 0)
    else {
        return call(all.sendbuf);
    };
    let mut copy = vec![0u128; bytes.div_ceil(size_of::<u128>())];
    let begin = copy.as_mut_ptr().cast::<u8>();
    let from = all.recvbuf.cast::<u8>().wrapping_offset(start as isize);
    // SAFETY: the application's elements occupy these bytes, and the copy has room.
    unsafe { copy_nonoverlapping(from, begin, bytes) };
    call(begin.wrapping_offset(-(start as isize)).cast())
}

/// `MPI_Scan`, or `MPI_Exscan` if it is not `inclusive`.
///
/// # Safety
/// As MPI says of the call.
pub(super) unsafe fn scan(
    all: Operands,
    inclusive: bool,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
) -> c_int {
    let (call, code) = match inclusive {
        true => ("MPI_Scan", code::SCAN),
        false => ("MPI_Exscan", code::EXSCAN),
    };
    let ours = |own: &mut Communicator, operation: Operation, count| {
        if own.ranks() > FLAT_MAX {
            return Ok(Served::AtHost);
        }
        // The first process gets no exclusive result, but may have its operand in that place.
        let in_place = all.sendbuf == MPI_IN_PLACE.cast_const();
        let nothing = !inclusive && own.me() == 0;
        let (input, output) = match nothing {
            false => (operand(all.sendbuf, all.recvbuf), Some(all.recvbuf.cast())),
            true if in_place => (operand(all.sendbuf, all.recvbuf), None),
            true => ((!all.sendbuf.is_null()).then(|| all.sendbuf.cast()), None),
        };
        let input = input.ok_or(Failed::Wrong)?;
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe {
            operation.run(own, (Collective::Scan { inclusive }, code), input, output, count)?
        };
        Ok(Served::Done)
    };
    reduce_by((call, Row::Scan), all, comm, host, ours, |_| Ok(Served::AtHost))
}

/// One piece of a reduction whose result is distributed: each process publishes the parts of the
/// others, and folds its own part of each of them.
struct Distribution<'a> {
    operation: &'a Operation,
    me: u32,
    ranks: u32,
    input: *const u8,
    /// First element and number of elements of each process's part of this piece.
    parts: &'a [(usize, usize)],
    /// Bytes from one part to the next in a content.
    stride: usize,
    called: Content,
    /// What has been folded so far, from the last rank on, and an operand. Both have room for a
    /// content.
    block: &'a mut [u8],
    operand: &'a mut [u8],
    begun: bool,
    own_is_folded: bool,
}

impl<'a> Distribution<'a> {
    /// The operand of this process for the part of `rank`.
    fn part(&self, rank: u32) -> &'a [u8] {
        let (first, count) = self.parts[rank as usize];
        let at = self.input.wrapping_add(first * self.operation.extent());
        // SAFETY: within the caller's operand (contract of `distribute`), which outlives this.
        if count == 0 { &[] } else { unsafe { from_raw_parts(at, self.operation.span(count)) } }
    }

    /// Folds an operand of this process's part, which `read` writes.
    fn fold(&mut self, read: impl FnOnce(&mut [u8])) {
        let bytes = self.operation.span(self.parts[self.me as usize].1);
        if bytes == 0 {
            return;
        }
        let (block, operand) = (&mut self.block[..bytes], &mut self.operand[..bytes]);
        if self.begun {
            read(operand);
            self.operation.fold(operand, block);
        } else {
            read(block);
            self.begun = true;
        }
    }

    /// Folds the own operand in its turn.
    fn fold_own(&mut self) {
        if !self.own_is_folded {
            self.own_is_folded = true;
            let part = self.part(self.me);
            self.fold(|operand| operand.copy_from_slice(part));
        }
    }
}

impl Work for Distribution<'_> {
    fn write(&mut self, _: Content, draft: &Draft<'_>) {
        for rank in (0..self.ranks).filter(|rank| *rank != self.me) {
            draft.write(number(rank, self.me) * self.stride, self.part(rank));
        }
    }

    fn collect(&mut self, from: u32, published: &Published<'_>) -> Option<Mismatch> {
        let mismatch = self.called.mismatch(published.content);
        if mismatch.is_none() {
            if from < self.me {
                self.fold_own();
            }
            let place = number(self.me, from) * self.stride;
            self.fold(|operand| published.read_part(place, operand));
        }
        mismatch
    }
}

/// Runs a reduction whose result is distributed: `lengths` has the elements of each process.
///
/// # Safety
/// `input` has as many elements as all lengths together, and `output` those of this process. They
/// may overlap.
unsafe fn distribute(
    own: &mut Communicator,
    operation: &Operation,
    lengths: &[usize],
    input: *const u8,
    output: *mut u8,
) -> Result<(), Fault> {
    let (me, ranks) = (own.me(), own.ranks());
    let extent = operation.extent();
    let others = (ranks as usize - 1).max(1);
    // A part begins at a multiple of 8 bytes.
    let room = (((own.content_max() / others) & !7) / extent).max(1);
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let mut results = Vec::with_capacity(lengths[me as usize] * extent);
    let mut memory = [0; 2].map(|_| vec![0u128; own.content_max() / size_of::<u128>()]);
    let pieces = longest.div_ceil(room) as u32;
    for from in (0..longest).step_by(room) {
        let chunk = room.min(longest - from);
        let mut first = 0;
        let parts: PerRank<(usize, usize)> = lengths
            .iter()
            .map(|length| {
                let part = (first + from, length.saturating_sub(from).min(chunk));
                first += length;
                part
            })
            .collect();
        let stride = (chunk * extent).next_multiple_of(8);
        let bytes = (others * stride) as u32;
        let called =
            Content { bytes, code: (code::REDUCE_SCATTER + operation.code) | (pieces - 1) << 16 };
        let mine = parts[me as usize].1 * extent;
        let [block, operand] = &mut memory;
        let mut work = Distribution {
            operation,
            me,
            ranks,
            input,
            parts: &parts,
            stride,
            called,
            block: bytes_of(block),
            operand: bytes_of(operand),
            begun: false,
            own_is_folded: false,
        };
        let (_, mismatch) = own.run_with(Collective::OrderedExchange, called, &mut work);
        work.fold_own();
        results.extend_from_slice(&work.block[..mine]);
        if let Some(mismatch) = mismatch {
            return Err(differs(mismatch, MPI_ERR_TRUNCATE, MPI_ERR_OP));
        }
    }
    // Not before: the input may be in the same place.
    let bytes = operation.span(lengths[me as usize]);
    // SAFETY: the contract of this function.
    unsafe { copy_nonoverlapping(results.as_ptr(), output, bytes) };
    Ok(())
}

/// Serves a reduction whose result is distributed. `None` for the lengths: they are wrong.
///
/// # Safety
/// As MPI says of `MPI_Reduce_scatter`.
unsafe fn reduce_scatter_by(
    call: &'static str,
    all: Operands,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
    lengths: impl FnOnce(u32) -> Option<PerRank<usize>>,
) -> c_int {
    serve(call, comm, host, |own| {
        let lengths = lengths(own.ranks()).ok_or(Failed::Wrong)?;
        let total = lengths.iter().try_fold(0, |sum: usize, length| sum.checked_add(*length));
        let (operation, total) = match (Reducer::of(all.datatype, all.op), total) {
            (Reducer::Ours(operation), Some(total)) => (operation, total),
            (Reducer::Wrong, _) => return Err(Failed::Wrong),
            _ => return Ok(Served::AtHost),
        };
        // The application's function would see a part of the elements.
        if operation.whole
            || own.ranks() > FLAT_MAX
            || !operation.is_short(own, Row::ReduceScatter, total)
        {
            return Ok(Served::AtHost);
        }
        let input = operand(all.sendbuf, all.recvbuf).ok_or(Failed::Wrong)?;
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe { distribute(own, &operation, &lengths, input, all.recvbuf.cast())? };
        Ok(Served::Done)
    })
}

/// # Safety
/// As MPI says of `MPI_Reduce_scatter_block`.
pub(super) unsafe fn reduce_scatter_block(
    all: Operands,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
) -> c_int {
    let length = usize::try_from(all.count).ok();
    let lengths = |ranks: u32| Some(PerRank::from_elem(length?, ranks as usize));
    // SAFETY: the contract of this function.
    unsafe { reduce_scatter_by("MPI_Reduce_scatter_block", all, comm, host, lengths) }
}

/// # Safety
/// As MPI says of `MPI_Reduce_scatter`.
pub(super) unsafe fn reduce_scatter<C: Number>(
    all: Operands,
    counts: *const C,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
) -> c_int {
    let lengths = |ranks: u32| {
        // SAFETY: the application's array, as MPI says of the call.
        let counts = unsafe { list(counts, ranks)? };
        counts.iter().map(|count| usize::try_from(count.wide()).ok()).collect()
    };
    // SAFETY: the contract of this function.
    unsafe { reduce_scatter_by("MPI_Reduce_scatter", all, comm, host, lengths) }
}
