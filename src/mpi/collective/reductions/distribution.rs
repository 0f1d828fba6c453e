//! `MPI_Reduce_scatter_block` and `MPI_Reduce_scatter`: the result is distributed.

use std::ffi::c_int;
use std::ptr::copy_nonoverlapping;
use std::slice::from_raw_parts;

use super::{Means, Operands, Operation, Reducer, operand};
use crate::collective::schedule::FLAT_MAX;
use crate::collective::{Content, Draft, Mismatch, Published, Work};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::collective::communicators::{Collective, Communicator, bytes_of};
use crate::mpi::collective::exchanges::{PerRank, list, number};
use crate::mpi::collective::limits::Row;
use crate::mpi::collective::message::Number;
use crate::mpi::collective::serve::{Failed, Host, Served, code, differs, serve};
use crate::mpi::collective::single_copy;

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
        if operation.is_users() || own.ranks() > FLAT_MAX {
            return Ok(Served::AtHost);
        }
        let Some(means) = operation.means(own, Row::ReduceScatter, total) else {
            return Ok(Served::AtHost);
        };
        let input = operand(all.sendbuf, all.recvbuf).ok_or(Failed::Wrong)?;
        let output = all.recvbuf.cast();
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe {
            match means {
                Means::Pieces => distribute(own, &operation, &lengths, input, output)?,
                Means::SingleCopy(combine) => {
                    let operand = operation.operand(code::REDUCE_SCATTER, input, total, combine);
                    single_copy::reduce_scatter(own, operand, &lengths, output)?;
                }
            }
        }
        Ok(Served::Done)
    })
}

/// # Safety
/// As MPI says of `MPI_Reduce_scatter_block`.
pub(in crate::mpi::collective) unsafe fn reduce_scatter_block(
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
pub(in crate::mpi::collective) unsafe fn reduce_scatter<C: Number>(
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
