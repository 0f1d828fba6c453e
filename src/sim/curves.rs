//! Cost of the engine as a function of the number of pending epochs.

use super::profile::Machine;
use super::script::{Group, How, Moment, Script, Step, byte_op};
use super::world::{Report, Settings, WindowSpec, World};
use super::{Memory, Slot};
use crate::engine::OpKind;
use crate::transport::sim::US;

/// Rank 0 opens, fills and closes access epochs; rank 1 posts for them only when all are closed.
struct PilesUp {
    epochs: u64,
    step: u64,
}

impl Script for PilesUp {
    fn next(&mut self, at: &mut Moment<'_>) -> Step {
        let (epoch, part) = (self.step / 3, self.step % 3);
        self.step += 1;
        let window = 0;
        if at.me == 1 && self.step == 1 {
            // Long enough for rank 0 to close all its epochs.
            return Step::Compute(self.epochs * 10 * US);
        }
        if at.me == 1 {
            let (epoch, part) = ((self.step - 2) / 2, (self.step - 2) % 2);
            return match part {
                _ if epoch == self.epochs => Step::End,
                0 => Step::Post { window, group: Group::One(0) },
                _ => Step::Wait { window, how: How::Blocking },
            };
        }
        match part {
            _ if epoch == self.epochs && part == 0 => Step::AwaitAll,
            _ if epoch == self.epochs => Step::End,
            0 => Step::Start { window, group: Group::One(1) },
            1 => Step::Issue { window, op: byte_op(OpKind::Put, 1, 0, 8) },
            _ => Step::Complete { window, how: How::Slot(epoch as Slot) },
        }
    }
}

/// Runs a rank with `epochs` closed access epochs pending, one put each, which then complete one
/// after the other. Returns the memory of its engine.
pub fn pending_epochs(machine: &Machine, epochs: u64) -> Result<(Report, Memory), String> {
    let mut machine = *machine;
    machine.network.ranks_per_node = 1;
    let mut world = World::new(2, Settings::new(machine), &[WindowSpec::default()], |_| PilesUp {
        epochs,
        step: 0,
    });
    let report = world.run().map_err(|stuck| stuck.to_string())?;
    Ok((report, world.memory(0)))
}
