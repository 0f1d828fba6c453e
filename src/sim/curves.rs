//! What the engine costs as epochs pile up.

use super::profile::Machine;
use super::script::{Group, How, Moment, Script, Step};
use super::world::{Report, Settings, WindowSpec, World};
use super::{Memory, Slot};
use crate::engine::{Addr, Op, OpKind};
use crate::transport::datatype::element::{native, reduction};
use crate::transport::sim::US;

/// Opens, fills and closes access epochs to a target that is late with all of them; or is that
/// target.
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
            // Long enough for the other to have closed them all.
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
            1 => {
                let op = Op {
                    origin: Addr(0),
                    result: Addr(0),
                    compare: Addr(0),
                    disp: 0,
                    len: 8,
                    target: 1,
                    kind: OpKind::Put,
                    element: native::BYTE,
                    reduction: reduction::REPLACE,
                    extent: 1,
                    shape: None,
                };
                Step::Issue { window, op }
            }
            _ => Step::Complete { window, how: How::Slot(epoch as Slot) },
        }
    }
}

/// So many closed access epochs with one put each are pending in one rank, and then complete one
/// after the other.
///
/// # Errors
/// If that does not end.
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
