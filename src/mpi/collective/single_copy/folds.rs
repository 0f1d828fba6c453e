//! Reductions of long operands: each process folds a part of the elements, and reads that part of
//! the operands of the others in their buffers.

use std::slice::from_raw_parts_mut;

use super::{Span, announce, copy, differing, mismatch};
use crate::collective::Mismatch;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::collective::communicators::{Collective, Communicator, bytes_of};
use crate::mpi::collective::exchanges::PerRank;
use crate::mpi::collective::serve::{assemble, differs};
use crate::transport::datatype::Combine;
use crate::transport::shm::Direction;

/// Bytes of operands that are folded at a time.
const FOLDED: usize = 64 << 10;

/// The elements that a process contributes to a reduction.
#[derive(Clone, Copy)]
pub(in crate::mpi::collective) struct Operand {
    /// Code of the call and its operation.
    pub(in crate::mpi::collective) code: u32,
    pub(in crate::mpi::collective) base: *const u8,
    pub(in crate::mpi::collective) count: usize,
    /// Bytes from the first element to the last.
    pub(in crate::mpi::collective) bytes: usize,
    /// How elements are reduced. That is commutative.
    pub(in crate::mpi::collective) combine: Combine,
}

/// First byte, and number of bytes, of some of the elements.
type Part = (usize, usize);

impl Operand {
    /// Bytes from one element to the next.
    fn extent(&self) -> usize {
        usize::from(self.combine.extent)
    }

    fn part(&self, first: usize, count: usize) -> Part {
        // The last element has no padding behind it.
        let padding = self.count * self.extent() - self.bytes;
        (first * self.extent(), (count * self.extent()).saturating_sub(padding))
    }

    /// The elements that process `rank` of `ranks` folds, if all fold as many.
    fn even_part(&self, rank: u32, ranks: u32) -> Part {
        let at = |rank: u32| (self.count as u128 * u128::from(rank) / u128::from(ranks)) as usize;
        self.part(at(rank), at(rank + 1) - at(rank))
    }
}

/// Where the elements go that a process has folded.
#[derive(Clone, Copy)]
enum Output {
    Here(*mut u8),
    /// To an address in another process.
    At(u32, u64),
}

/// What a process folds, once it has learned where the operands are.
struct Fold {
    /// The operands of the others, from the elements on that this process folds.
    found: PerRank<Span>,
    /// The first byte of these elements, and their place in this process's operand.
    first: usize,
    mine: *const u8,
    bytes: usize,
    combine: Combine,
}

impl Fold {
    /// Folds the elements, from the last rank to the first.
    ///
    /// # Safety
    /// There are so many bytes at `mine`, and room for them at the output, which no other process
    /// reads, and which is the same or does not overlap `mine`.
    unsafe fn run(&self, own: &mut Communicator, output: Output) -> Result<(), Fault> {
        let mut room = std::mem::take(own.memory());
        let words = 2 * FOLDED / size_of::<u128>();
        room.resize(room.len().max(words), 0);
        let (theirs, apart) = bytes_of(&mut room).split_at_mut(FOLDED);
        let extent = usize::from(self.combine.extent);
        let step = FOLDED / extent * extent;
        let folded = (0..self.bytes).step_by(step).try_for_each(|at| {
            let bytes = step.min(self.bytes - at);
            let (theirs, apart) = (&mut theirs[..bytes], &mut apart[..bytes]);
            // SAFETY: the contract of this function.
            unsafe { self.run_at(own, at, output, theirs, apart) }
        });
        *own.memory() = room;
        folded
    }

    /// Folds the elements from byte `at` on. `theirs` and `apart` have room for them.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn run_at(
        &self,
        own: &Communicator,
        at: usize,
        output: Output,
        theirs: &mut [u8],
        apart: &mut [u8],
    ) -> Result<(), Fault> {
        let (me, last, bytes) = (own.me(), own.ranks() - 1, theirs.len());
        let mine = self.mine.wrapping_add(at);
        let read_of = |rank: u32, to: &mut [u8]| {
            let address = self.found[rank as usize].address + at as u64;
            // SAFETY: the slice has room for the bytes.
            unsafe { copy(own, (Direction::Read, rank), address, to.as_mut_ptr(), bytes) }
        };
        // Not in the place of the own operand, if another one comes first.
        let in_place = matches!(output, Output::Here(output) if output.cast_const() == self.mine);
        let (sum, is_there) = match output {
            Output::Here(output) if me == last || !in_place => {
                // SAFETY: within the output, which is not the own operand, unless the sum begins
                // with that.
                (unsafe { from_raw_parts_mut(output.add(at), bytes) }, true)
            }
            _ => (apart, false),
        };
        let fold = |operand: *const u8, sum: &mut [u8]| {
            // SAFETY: whole elements, elsewhere than the sum: the own operand is not folded where
            // the sum is in its place.
            unsafe { self.combine.apply(operand, sum.as_mut_ptr(), bytes) };
        };
        let mut others = last;
        if me != last {
            read_of(last, sum)?;
        } else if last == 0 {
            // SAFETY: within the elements.
            unsafe { std::ptr::copy(mine, sum.as_mut_ptr(), bytes) };
        } else if !in_place {
            // The operations are commutative, so that the own operand need not be copied.
            others = last - 1;
            read_of(others, sum)?;
            fold(mine, sum);
        }
        for rank in (0..others).rev() {
            if rank == me {
                fold(mine, sum);
            } else {
                read_of(rank, theirs)?;
                fold(theirs.as_ptr(), sum);
            }
        }
        match output {
            Output::Here(_) if is_there => Ok(()),
            // SAFETY: within the output.
            Output::Here(output) => unsafe {
                from_raw_parts_mut(output.add(at), bytes).copy_from_slice(sum);
                Ok(())
            },
            // SAFETY: the other process has room for the elements (contract of `run`).
            Output::At(rank, address) => unsafe {
                copy(own, (Direction::Write, rank), address + at as u64, sum.as_mut_ptr(), bytes)
            },
        }
    }
}

fn differing_operands(mismatch: Mismatch) -> Fault {
    differs(mismatch, MPI_ERR_TRUNCATE, MPI_ERR_OP)
}

/// Announces the operand: to each process from the elements on that it folds, as `part` says.
/// Returns what this one folds. If lengths differ, all processes see that.
fn share(
    own: &mut Communicator,
    operand: Operand,
    part: impl Fn(u32) -> Part,
) -> Result<Fold, Fault> {
    let which = (Collective::Exchange, operand.code);
    // The bytes are those of all elements.
    let span = |peer| Span::of((operand.base.cast_mut().wrapping_add(part(peer).0), operand.bytes));
    let found = announce(own, which, span).map_err(differing_operands)?;
    let others = (0..own.ranks()).filter(|rank| *rank != own.me());
    let differing =
        others.filter_map(|rank| mismatch(found[rank as usize].bytes as usize, operand.bytes));
    if let Some(mismatch) = { differing }.next() {
        return Err(differing_operands(mismatch));
    }
    let (first, bytes) = part(own.me());
    let (mine, combine) = (operand.base.wrapping_add(first), operand.combine);
    Ok(Fold { found, first, mine, bytes, combine })
}

/// Reduces operands to all processes: each folds a part of the elements, and then reads the parts
/// of the others.
///
/// # Safety
/// The operand has all elements, and there is room for them at `output`, which is the same or does
/// not overlap it.
pub(in crate::mpi::collective) unsafe fn allreduce(
    own: &mut Communicator,
    operand: Operand,
    output: *mut u8,
) -> Result<(), Fault> {
    let (me, ranks) = (own.me(), own.ranks());
    let part = |rank| operand.even_part(rank, ranks);
    let folding = share(own, operand, part)?;
    let sum = output.wrapping_add(folding.first);
    // SAFETY: the contract of this function. Other processes read other elements.
    let mut done = unsafe { folding.run(own, Output::Here(sum)) };
    let which = (Collective::Exchange, operand.code);
    let sums = announce(own, which, |_| Span::of((sum, folding.bytes))).map_err(differing)?;
    // Not all from the same process at a time.
    for rank in (1..ranks).map(|step| (me + step) % ranks) {
        let (first, bytes) = part(rank);
        let address = sums[rank as usize].address;
        let to = output.wrapping_add(first);
        // SAFETY: within the output; its process has folded the part.
        let taken = unsafe { copy(own, (Direction::Read, rank), address, to, bytes) };
        done = done.and(taken);
    }
    assemble(own).and(done)
}

/// Reduces operands to the root: each process folds a part of the elements, and writes it there.
///
/// # Safety
/// As [`allreduce`], but only the root has an output.
pub(in crate::mpi::collective) unsafe fn reduce(
    own: &mut Communicator,
    root: u32,
    operand: Operand,
    output: *mut u8,
) -> Result<(), Fault> {
    let (is_root, ranks) = (own.me() == root, own.ranks());
    let part = |rank| operand.even_part(rank, ranks);
    let folding = share(own, operand, part)?;
    let place = |peer: u32| match is_root {
        true => Span::of((output.wrapping_add(part(peer).0), part(peer).1)),
        false => Span::default(),
    };
    let which = (Collective::Exchange, operand.code);
    let places = announce(own, which, place).map_err(differing)?;
    let to = match is_root {
        true => Output::Here(output.wrapping_add(folding.first)),
        false => Output::At(root, places[root as usize].address),
    };
    // SAFETY: the contract of this function. Nobody else reads these elements of the root, or
    // writes them.
    let done = unsafe { folding.run(own, to) };
    assemble(own).and(done)
}

/// Reduces operands, and leaves in each process the elements that `lengths` says, one after the
/// other.
///
/// # Safety
/// The operand has as many elements as all lengths together, and the output those of this process.
/// They begin at the same place or do not overlap.
pub(in crate::mpi::collective) unsafe fn reduce_scatter(
    own: &mut Communicator,
    operand: Operand,
    lengths: &[usize],
    output: *mut u8,
) -> Result<(), Fault> {
    let part = |rank: u32| {
        let (before, from) = lengths.split_at(rank as usize);
        operand.part(before.iter().sum(), from[0])
    };
    let folding = share(own, operand, part)?;
    let bytes = folding.bytes;
    // In place, others read the operand where the result goes.
    let in_place = operand.base == output.cast_const();
    let room = if in_place { bytes } else { 0 };
    let mut sum = vec![0u128; room.div_ceil(size_of::<u128>())];
    let to = if in_place { bytes_of(&mut sum).as_mut_ptr() } else { output };
    // SAFETY: the contract of this function; the sum has room.
    let done = unsafe { folding.run(own, Output::Here(to)) };
    assemble(own).and(done)?;
    if in_place {
        // SAFETY: the contract of this function.
        unsafe { from_raw_parts_mut(output, bytes) }.copy_from_slice(&bytes_of(&mut sum)[..bytes]);
    }
    Ok(())
}
