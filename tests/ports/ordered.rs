//! [OR-1] Order without completion. Nobody waits for an operation before the next one is posted.

use mpix_rma::engine::*;
use mpix_rma::transport::datatype::element::{native, reduction};

use crate::conformance::{Call, World, finish, op, until};
use crate::programs::run;
use crate::world::InFlight;

/// Posts an operation that follows an order, as the engine does.
fn post_ordered<W: World>(world: &mut W, me: Rank, flight: &mut InFlight, op: &Op) {
    until(world, "room for an operation", |world| {
        flight.collect(&mut world.port(me));
        world.port(me).order(op.target).is_ok() && flight.try_post(&mut world.port(me), op)
    });
}

/// Operations of every kind and size of one origin on overlapping memory take effect one after the
/// other, whatever their paths.
pub fn or1_operations_take_effect_in_order<W: World>() {
    run(|seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let ranks = rng.u32(2..=3);
        let size = 40_000 * ranks as usize;
        let mut world = W::new(ranks, size, seed);
        world.make_counters(ranks);
        let mut model = vec![vec![0; size]; ranks as usize];
        let mut flights: Vec<InFlight> = (0..ranks).map(|_| InFlight::default()).collect();
        let (mut results, mut counts) = (Vec::new(), vec![vec![0; ranks as usize]; ranks as usize]);
        for _ in 0..40 {
            let me = rng.u32(0..ranks);
            let call = Call::draw(&mut rng, me, size, &mut model);
            let target = call.op.target as usize;
            let notification = rng.u8(0..4) == 0;
            counts[target][me as usize] += u64::from(notification);
            let result = world.buffer(me, &vec![0; call.origin.len()]);
            let posted = Op {
                origin: world.buffer(me, &call.origin),
                compare: world.buffer(me, &call.compare),
                result,
                notification: notification.then(|| Notification::counter(me)),
                ..call.op
            };
            post_ordered(&mut world, me, &mut flights[me as usize], &posted);
            results.extend(call.expected.map(|expected| (me, result, expected, posted)));
        }
        for (me, flight) in (0..).zip(&mut flights) {
            finish(&mut world, me, flight);
        }
        for (me, result, expected, posted) in results {
            assert!(world.read(me, result, expected.len()) == expected, "result of {posted:?}");
        }
        for me in 0..ranks {
            assert!(world.memory(me) == model[me as usize], "memory of {me}");
            for (from, count) in (0..).zip(&counts[me as usize]) {
                assert_eq!(world.port(me).counter(from), *count, "notifications of {from} at {me}");
            }
        }
        world.end();
    });
}

const DATA: usize = 40_000;
/// Places of the flag and of a word.
const FLAG: usize = DATA;
const WORD: usize = DATA + 8;

/// A target that polls its memory for a flag finds what was ordered before it: puts and sums are
/// visible, and gets have read.
pub fn or1_a_flag_is_seen_behind_its_data<W: World>() {
    run(|seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = W::new(2, DATA + 16, seed);
        let mut flight = InFlight::default();
        let (mut sum, mut results) = (0u64, Vec::new());
        for round in 1..=12u64 {
            let len = *rng.choice(&[8, 64, 700, 5000, 16_384, 20_000, DATA]).unwrap();
            let old = vec![round as u8; DATA];
            world.set_memory(1, 0, &old);
            let (mut data, mut at) = (old.clone(), 0);
            for _ in 0..rng.usize(1..4) {
                // Of what this round has not written yet, since nothing orders these.
                let len = len.min(DATA - at);
                let next = match rng.u8(0..3) {
                    0 => {
                        let result = world.buffer(0, &vec![0; len]);
                        results.push((result, old[at..at + len].to_vec()));
                        Op { result, ..op(OpKind::Get, 1, at, len) }
                    }
                    1 => {
                        data[at..at + len].fill(!(round as u8));
                        let origin = world.buffer(0, &vec![!(round as u8); len]);
                        Op { origin, ..op(OpKind::Put, 1, at, len) }
                    }
                    _ => {
                        sum += round;
                        Op {
                            origin: world.buffer(0, &round.to_ne_bytes()),
                            element: native::U64,
                            extent: 8,
                            reduction: reduction::SUM,
                            ..op(OpKind::Accumulate, 1, WORD, 8)
                        }
                    }
                };
                at += len;
                until(&mut world, "room for an operation", |world| {
                    flight.collect(&mut world.port(0));
                    flight.try_post(&mut world.port(0), &next)
                });
            }
            let origin = world.buffer(0, &round.to_ne_bytes());
            let flag = Op { origin, ..op(OpKind::Put, 1, FLAG, 8) };
            post_ordered(&mut world, 0, &mut flight, &flag);
            until(&mut world, "the flag", |world| {
                flight.collect(&mut world.port(0));
                let there = world.memory(1);
                let word = |at: usize| u64::from_ne_bytes(there[at..at + 8].try_into().unwrap());
                if word(FLAG) != round {
                    return false;
                }
                assert!(there[..DATA] == data, "round {round}: the flag overtook data");
                assert_eq!(word(WORD), sum, "round {round}: the flag overtook a sum");
                // Gets have read their data before the flag, so they do not see this.
                world.set_memory(1, 0, &vec![0xEE; DATA]);
                true
            });
            finish(&mut world, 0, &mut flight);
            for (at, expected) in results.drain(..) {
                assert!(world.read(0, at, expected.len()) == expected, "round {round}: a get");
            }
        }
        world.end();
    });
}
