//! Long reductions of many processes, divided among them: each process reduces one part of each
//! piece, and publishes the sum, which the others take [CL-5].
//!
//! So each copies and folds three times the bytes of the result, and not once for each process.
//! The order of the folds in each part is that of the ranks, as without a division [CL-2].

use std::ops::Range;

use super::folding::Folding;
use super::movement::{Exchanged, LINE, Movement, Schedule, memory, place};
use super::{NotServed, serves_always};
use crate::collective::steps::{Content, Mover, Pieces, Plan, Rings, Turn};
use crate::mpi::collective::communicators::Carrier;
use crate::runtime::collectives::PersistentCollective;
use crate::runtime::progress::oversubscribed;
use crate::sync::AtomicU64;
use crate::transport::crossing::{Stores, copy_in, copy_out};

/// Fewest processes and bytes: the sums pass in a second round. With three processes, that costs
/// about as much as the division saves.
const FEWEST: usize = 4;
const SHORTEST: usize = 8192;

/// Whether this process would divide reductions. Where ranks outnumber cores, the second round
/// costs more than it saves: with 4 ranks on 2 cores, an allreduce takes twice as long.
pub(super) fn is_wanted() -> bool {
    serves_always() || !oversubscribed()
}

/// Whether it saves time to divide a collective, whose longest content has so many bytes. The same
/// in all processes. Each process must get the whole sum, or nothing.
pub(super) fn is_worthwhile(exchanged: &Exchanged, movement: &Movement, longest: usize) -> bool {
    let ranks = exchanged.ranks;
    let is_all_or_none = |to: usize| {
        let whole = exchanged.sent(0, to);
        [0, longest].contains(&whole) && (0..ranks).all(|from| exchanged.sent(from, to) == whole)
    };
    movement.combine.is_some()
        && exchanged.all_divide()
        && movement.is_same
        && ranks >= FEWEST
        && longest >= SHORTEST
        && (0..ranks).all(is_all_or_none)
}

/// What one process moves.
struct Divided {
    pieces: Pieces,
    /// Which parts are this process's: those that it reduces, and publishes as sums.
    own: Content,
    contribution: *const u8,
    /// The result, or NULL.
    result: *mut u8,
    /// Without a result: the sums of this process's parts, in places of equal length.
    sums: Vec<u128>,
    place: usize,
    folding: Folding,
    stores: Stores,
}

// SAFETY: the application's buffers, which belong to the library while the collective is active;
// any thread may use them then.
unsafe impl Send for Divided {}

impl Divided {
    /// Where the sum of this process's part of a piece is built: `range` of the result.
    fn sum(&mut self, range: &Range<usize>) -> *mut u8 {
        if !self.result.is_null() {
            return self.result.wrapping_add(range.start);
        }
        let number = range.start / self.pieces.piece;
        self.sums.as_mut_ptr().cast::<u8>().wrapping_add(number * self.place)
    }
}

impl Mover for Divided {
    fn publish(&mut self, step: u32, slot: &[AtomicU64]) {
        let Some((piece, is_second)) = self.own.piece(step) else { return };
        let range = if is_second { self.own.of(step) } else { Some(piece.clone()) };
        let Some(range) = range else { return };
        let from = match is_second {
            true => self.sum(&range).cast_const(),
            false => self.contribution.wrapping_add(range.start),
        };
        let to = place(slot, range.start - piece.start);
        self.stores.fill(range.len(), |way| {
            // SAFETY: the range lies in the application's buffer, which belongs to the library now,
            // or in the sums; the slot has room for a piece, and nobody reads it now.
            unsafe { copy_out(way, from, to, range.len()) };
        });
    }

    fn take(&mut self, _: u32, range: Range<usize>, turn: Turn, slot: Option<&[AtomicU64]>) {
        let Some((piece, is_second)) = self.own.piece(turn.step) else { return };
        let source = match slot {
            Some(slot) => place(slot, range.start - piece.start).cast_const(),
            None => self.contribution.wrapping_add(range.start),
        };
        let sum = if is_second { self.result.wrapping_add(range.start) } else { self.sum(&range) };
        // SAFETY: all ranges lie in the application's buffers, which belong to the library now, in
        // the sums, or in a slot that has been published and is not reused before the step is
        // finished. In place, this process's part has been published before it is overwritten.
        unsafe {
            match is_second {
                true => copy_in(source, sum, range.len()),
                false => self.folding.add(source, sum, range.len(), turn),
            }
        }
    }
}

/// Sets up a collective of so many bytes. Collective.
pub(super) fn set_up(
    carrier: &mut Carrier,
    exchanged: &Exchanged,
    movement: Movement,
    total: usize,
) -> Result<Box<dyn PersistentCollective>, NotServed> {
    let combine = movement.combine.expect("it is a reduction");
    let (me, ranks) = (carrier.me, carrier.ranks);
    let all = 0..exchanged.ranks;
    // Parts are equal, so that all processes have as much to do.
    let unit = exchanged.ranks * LINE;
    let piece = (exchanged.slot_bytes() / unit * unit).max(unit).min(total.next_multiple_of(unit));
    let pieces = Pieces { total, piece };
    let content = |first, second| Content::divided(pieces, ranks, first, second);
    let gets_sum = |rank: usize| exchanged.sent(0, rank) > 0;
    let i_get_it = gets_sum(me as usize);
    let others_get_it = all.clone().any(|rank| rank != me as usize && gets_sum(rank));
    let takes = (0..ranks).map(|from| {
        let sum = (i_get_it && from != me).then_some(from);
        (from, content(Some(me), sum))
    });
    let number = pieces.steps();
    let last = content(Some(ranks - 1), None);
    let plan = Plan {
        steps: 2 * number,
        publishes: content(Some(0), others_get_it.then_some(me)),
        takes: takes.collect(),
        readers: (0..ranks).filter(|rank| *rank != me).collect(),
        synchronizes: all.clone().all(gets_sum) && last.of(number - 1).is_some(),
    };
    let rings = Rings::new(me, ranks, piece);
    let scratch = memory(carrier, &rings, true, 0..ranks)?;
    let place = piece / exchanged.ranks;
    let sums = if i_get_it { 0 } else { number as usize * place };
    let moves = Divided {
        pieces,
        own: content(Some(me), Some(me)),
        contribution: movement
            .sends
            .iter()
            .map(|part| part.at)
            .find(|at| !at.is_null())
            .expect("each process contributes")
            .cast_const(),
        result: movement.receives[0].at,
        sums: vec![0; sums.div_ceil(size_of::<u128>())],
        place,
        folding: Folding::new(combine, if movement.in_place && i_get_it { place } else { 0 }),
        stores: Stores::new(),
    };
    Ok(Box::new(Schedule { scratch, rings, plan, moves }))
}
