//! `MPI_Allreduce`, `MPI_Reduce`, `MPI_Scan`, `MPI_Exscan`, `MPI_Reduce_scatter_block` and
//! `MPI_Reduce_scatter`. Long operands pass in pieces, each a collective of the board, and longer
//! ones from buffer to buffer.

mod distribution;

use std::ffi::{c_int, c_void};
use std::ptr::copy_nonoverlapping;
use std::slice::{from_raw_parts, from_raw_parts_mut};

pub(super) use self::distribution::{reduce_scatter, reduce_scatter_block};
use super::calls::pass;
use super::communicators::{Collective, Communicator, bytes_of};
use super::exchanges::valid_root;
use super::limits::Row;
use super::message::Typed;
use super::nodes::{self, Nodes};
use super::serve::{Failed, Host, Served, code, differs, serve, serve_across};
use super::single_copy::{self, Operand};
use crate::collective::Content;
use crate::collective::schedule::FLAT_MAX;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::datatype::{Predefined, predefined, reduction_of};
use crate::transport::datatype::Combine;

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
    /// How elements are reduced. `None`: by a function of the application, which sees all of them
    /// at once.
    combine: Option<Combine>,
}

/// How operands are reduced here.
#[derive(Clone, Copy)]
enum Means {
    /// By the board, in pieces.
    Pieces,
    /// From buffer to buffer.
    SingleCopy(Combine),
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
        let ours = |code, combine| Reducer::Ours(Operation { datatype, op, known, code, combine });
        match reduction_of(op) {
            Some(code) => known
                .combine(code)
                .map_or(Reducer::Wrong, |combine| ours(u32::from(code.0), Some(combine))),
            None if is_user(op) => ours(USER, None),
            None => Reducer::Wrong,
        }
    }
}

impl Operation {
    fn is_users(&self) -> bool {
        self.combine.is_none()
    }

    fn extent(&self) -> usize {
        usize::from(self.known.extent)
    }

    /// Bytes from the first to the last of so many elements, of which there are not many.
    fn span(&self, count: usize) -> usize {
        self.known.bytes(count as u64).unwrap_or(0) as usize
    }

    /// How an operand of so many elements is reduced here, as all processes know. `None`: at the
    /// host.
    fn means(&self, own: &Communicator, row: Row, count: usize) -> Option<Means> {
        let max = match own.ranks() {
            _ if self.is_users() => own.content_max(),
            few @ ..=FLAT_MAX => row.most(few),
            _ => TREE_BYTES_MAX,
        };
        if (1..=max / self.extent()).contains(&count) {
            return Some(Means::Pieces);
        }
        let (combine, bytes) = (self.combine?, count.checked_mul(self.extent())?);
        single_copy::serves(own, bytes).then_some(Means::SingleCopy(combine))
    }

    /// So many elements at `base`, for a reduction from buffer to buffer.
    fn operand(&self, code: u32, base: *const u8, count: usize, combine: Combine) -> Operand {
        Operand { code: code + self.code, base, count, bytes: self.span(count), combine }
    }

    /// Reduces the first operand into the second, as the left one.
    fn fold(&self, input: &[u8], inout: &mut [u8]) {
        if let Some(combine) = self.combine {
            // SAFETY: both have whole elements, and neither overlaps the other.
            return unsafe { combine.apply(input.as_ptr(), inout.as_mut_ptr(), input.len()) };
        }
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

    /// The same with the means that reduce so many elements.
    fn served(
        &self,
        own: &Communicator,
        row: Row,
    ) -> Result<Option<(Operation, usize, Means)>, Failed> {
        let with_means = |(operation, count): (Operation, usize)| {
            Some((operation, count, operation.means(own, row, count)?))
        };
        Ok(self.operation()?.and_then(with_means))
    }

    /// The same for a reduction of several nodes.
    fn operation_across(&self) -> Result<Option<(Operation, usize)>, Failed> {
        let is_served = |(operation, count): &(Operation, usize)| {
            let most = nodes::BYTES_MAX / operation.extent();
            !operation.is_users() && (1..=most).contains(count)
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
        let Some((operation, count, means)) = all.served(own, Row::Allreduce)? else {
            return Ok(Served::AtHost);
        };
        let input = operand(all.sendbuf, all.recvbuf).ok_or(Failed::Wrong)?;
        let output = all.recvbuf.cast();
        let which = (Collective::Allreduce, code::ALLREDUCE);
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe {
            match means {
                Means::Pieces => operation.run(own, which, input, Some(output), count)?,
                Means::SingleCopy(combine) => {
                    let operand = operation.operand(code::ALLREDUCE, input, count, combine);
                    single_copy::allreduce(own, operand, output)?;
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
    let ours = |own: &mut Communicator| {
        let Some((operation, count, means)) = all.served(own, Row::Reduce)? else {
            return Ok(Served::AtHost);
        };
        let root = valid_root(own, root).ok_or(Failed::Wrong)?;
        let is_root = own.me() == root;
        let input = operand_of_reduce(&all, is_root).ok_or(Failed::Wrong)?;
        let output = is_root.then(|| all.recvbuf.cast());
        let which = (Collective::Reduce { root }, code::REDUCE);
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe {
            match means {
                Means::Pieces => operation.run(own, which, input, output, count)?,
                Means::SingleCopy(combine) => {
                    let operand = operation.operand(code::REDUCE, input, count, combine);
                    single_copy::reduce(own, root, operand, all.recvbuf.cast())?;
                }
            }
        }
        Ok(Served::Done)
    };
    serve_across("MPI_Reduce", comm, host, ours, across)
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
    let ours = |own: &mut Communicator| {
        let Some((operation, count, Means::Pieces)) = all.served(own, Row::Scan)? else {
            return Ok(Served::AtHost);
        };
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
    serve(call, comm, host, ours)
}
