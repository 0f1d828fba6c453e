//! Puts and gets of derived datatypes by cross-memory attach: up to 1,024 runs by one system call.
//!
//! The kernel looks up the pages of each run anew, so this pays for runs of about 1 KB and more.
//! Within the caches, it takes 0.4 to 0.7 of the channel's time. For longer data in short runs, the
//! channel is faster, because both processors copy. So the faster way is learned, by length and by
//! length of the runs.

use std::time::Instant;

use crate::engine::{Op, Posted, Ticket};
use crate::transport::datatype::{Pair, Shape, Shapes};

use super::adaptive::{self, CLASSES, Choice, Way};
use super::channels::Channels;
use super::cma::Direction;
use super::reference::buffer_of;

/// Shortest operation that is copied so, in bytes.
pub(super) const SCATTERED_MIN: u64 = 16 * 1024;
/// Shortest runs, on average.
const RUN_MIN: u64 = 1024;
/// Runs from this length on, on average, are a class of their own.
const LONG_RUN: u64 = 8 * 1024;
/// Classes of operations; see [`class`].
pub(super) const SCATTERED_CLASSES: usize = 2 * CLASSES;
/// Runs and bytes between two system calls, about.
const RUNS_PER_CALL: usize = 1024;
const BYTES_PER_CALL: u64 = 4 << 20;

/// The class of an operation of `len` bytes in runs of `run` bytes on average.
fn class(len: u64, run: u64) -> usize {
    adaptive::class(len, SCATTERED_MIN) + if run < LONG_RUN { 0 } else { CLASSES }
}

/// The buffer of a put or get, and the walk through its data on this side and at the target.
fn walk<'a>(op: &Op, shape: &'a Shape) -> Option<(*mut u8, Pair<'a>)> {
    let side = shape.local(op.kind)?;
    Some((buffer_of(op) as *mut u8, Pair::new(side, &shape.target, 0)))
}

/// Number of runs that an operation is divided into. `None` if there are more than `most`.
fn count_runs(op: &Op, shape: &Shape, most: u64) -> Option<u64> {
    let (_, mut pair) = walk(op, shape)?;
    let mut count = 0_u64;
    while let Some(pieces) = pair.next_pieces(u64::MAX) {
        count = count.checked_add(pieces.count).filter(|count| *count <= most)?;
    }
    Some(count)
}

impl Channels {
    /// Makes a put or get of derived datatypes in the way that has been the fastest for such.
    /// `None`: its runs are too short, so it goes through the channel.
    #[allow(clippy::disallowed_methods, reason = "only to learn which way is the fastest")]
    pub(super) fn post_scattered(
        &mut self,
        index: u32,
        op: &Op,
        ticket: Ticket,
        shapes: &mut Shapes,
    ) -> Option<Posted> {
        let shaped = op.shape?;
        let runs = count_runs(op, shapes.get(shaped), op.len / RUN_MIN)?;
        let class = class(op.len, op.len / runs.max(1));
        let outbox = &mut self.outboxes[index as usize];
        let Choice { way, timed } = outbox.scattered_ways[class].choose();
        let begin = timed.then(Instant::now);
        let posted = if way == Way::Alone && self.copy_runs(op, shapes.get(shaped)) {
            shapes.take(shaped);
            Posted::Complete
        } else {
            self.send_shaped(index, op, ticket, shapes)
        };
        if let Some(took) = self.end_trial(index, begin, posted) {
            self.outboxes[index as usize].scattered_ways[class].note(way, took);
        }
        Some(posted)
    }

    /// Copies all runs of an operation. False if the kernel refuses; then some may be copied.
    fn copy_runs(&mut self, op: &Op, shape: &Shape) -> bool {
        let Some((buffer, mut pair)) = walk(op, shape) else { return false };
        let info = &self.context.parts.rank(op.target).info.0;
        let (pid, there) = (info.process.pid, info.memory.wrapping_add_signed(shape.disp));
        let direction = Direction::of(op.kind);
        let mut left = true;
        while left {
            self.runs.clear();
            let mut count = 0;
            while count < RUNS_PER_CALL {
                let Some(pieces) = pair.next_pieces(BYTES_PER_CALL) else {
                    left = false;
                    break;
                };
                for i in 0..pieces.count as i64 {
                    let [here, remote] =
                        [0, 1].map(|side| pieces.at[side] + i * pieces.stride[side]);
                    let local = buffer.wrapping_offset(here as isize);
                    self.runs.push(local, there.wrapping_add_signed(remote), pieces.len as usize);
                }
                count += pieces.count as usize;
            }
            // SAFETY: the application keeps the buffer valid for its side until the operation
            // completes [EP-8]; the caller has checked the target's runs against its window.
            if let (_, Err(error)) = unsafe { self.runs.run(direction, pid) } {
                self.disable_cma(&error);
                return false;
            }
        }
        true
    }
}
