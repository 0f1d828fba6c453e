//! Worlds: programs end, equal inputs give equal runs, and deadlocks are reported.

use mpix_rma::engine::*;
use mpix_rma::sim::*;
use mpix_rma::transport::datatype::element::{native, reduction};
use mpix_rma::transport::sim::{Carry, FaultInjection, US};

pub fn op(kind: OpKind, target: Rank, len: u64) -> Op {
    Op {
        origin: Addr(0),
        result: Addr(0),
        compare: Addr(0),
        disp: 0,
        len,
        target,
        kind,
        element: native::I64,
        reduction: reduction::SUM,
        extent: 8,
        shape: None,
        notification: None,
    }
}

/// A put in a post-start-complete-wait epoch moves its bytes, and an exposure ends after its data
/// has arrived.
#[test]
fn a_put_in_a_gats_epoch_moves_its_bytes() {
    let settings = Settings { carry: Carry::Bytes, ..Settings::new(profile("qdr-2014").unwrap()) };
    let mut at = 0;
    let mut world =
        World::new(16, settings, &[WindowSpec { bytes: 1 << 16, ..Default::default() }], |_| {
            let mut steps = Vec::new().into_iter();
            let mut asked = 0;
            Box::new(move |moment: &mut Moment<'_>| {
                asked += 1;
                let (me, len) = (moment.me, 5000);
                if asked == 1 {
                    let origin = moment.net.allocate(me, len);
                    moment.net.private_mut(me, origin, len).fill(me as u8 + 1);
                    let put =
                        Op { origin, disp: 100, ..op(OpKind::Put, (me + 9) % 16, len as u64) };
                    steps = vec![
                        Step::Post { window: 0, group: Group::One((me + 7) % 16) },
                        Step::Start { window: 0, group: Group::One((me + 9) % 16) },
                        Step::Issue { window: 0, op: put },
                        Step::Complete { window: 0, how: How::Slot(0) },
                        Step::Wait { window: 0, how: How::Blocking },
                    ]
                    .into_iter();
                }
                steps.next().unwrap_or_else(|| {
                    let from = ((me + 7) % 16) as u8 + 1;
                    assert!(
                        moment.net.window(0, me)[100..][..len].iter().all(|byte| *byte == from),
                        "rank {me}"
                    );
                    Step::End
                })
            }) as Box<dyn Script>
        });
    at += world.run().unwrap_or_else(|stuck| panic!("{stuck}")).end;
    assert!(at > 0 && at < 100 * US, "{at}");
}

/// A script of these steps.
fn list(steps: Vec<Step>) -> impl Script {
    let mut steps = steps.into_iter();
    move |_: &mut Moment<'_>| steps.next().unwrap_or(Step::End)
}

/// Fences, and puts of every rank to every other rank.
fn all_to_all(ranks: u32, faults: FaultInjection) -> Report {
    let machine = profile("qdr-2014").unwrap();
    let fence = |how| Step::Fence { window: 0, assert: Assert::default(), how };
    let mut world = World::new(
        ranks,
        Settings { faults, ..Settings::new(machine) },
        &[WindowSpec::default()],
        |me| {
            let mut steps = vec![fence(How::Blocking)];
            for round in 0..3u64 {
                steps.push(Step::IssueOthers {
                    window: 0,
                    op: op(OpKind::Put, 0, 8 << (5 * round)),
                });
                steps.push(Step::Issue { window: 0, op: op(OpKind::Accumulate, me, 64) });
                steps.push(fence(How::Slot(0)));
                steps.push(Step::Compute(u64::from(me) * US));
                steps.push(Step::Await(0));
            }
            list(steps)
        },
    );
    world.run().unwrap_or_else(|stuck| panic!("{stuck}"))
}

/// Equal seeds give equal runs, different seeds different ones.
#[test]
fn equal_seeds_give_equal_runs() {
    let wild = |seed| FaultInjection {
        seed,
        delay_max: 5 * US,
        burst_one_in: 50,
        burst: 100 * US,
        refuse_one_in: 10,
        refuse_max: US,
        slow_rank_one_in: 4,
        slow_rank_factor: 5,
        slow_nic_one_in: 2,
        slow_nic_factor: 3,
    };
    assert_eq!(
        all_to_all(24, FaultInjection::default()),
        all_to_all(24, FaultInjection::default())
    );
    assert_eq!(all_to_all(24, wild(1)), all_to_all(24, wild(1)));
    assert_ne!(all_to_all(24, wild(1)).trace, all_to_all(24, wild(2)).trace);
}

/// A deadlock is reported with the rank that waits and what it waits for.
#[test]
fn a_deadlock_is_reported() {
    let mut world = World::new(
        2,
        Settings::new(profile("qdr-2014").unwrap()),
        &[WindowSpec::default()],
        |me| {
            list(if me == 0 {
                vec![
                    Step::Start { window: 0, group: Group::One(1) },
                    Step::Issue { window: 0, op: op(OpKind::Put, 1, 8) },
                    Step::Complete { window: 0, how: How::Blocking },
                ]
            } else {
                Vec::new()
            })
        },
    );
    let stuck = world.run().unwrap_err();
    assert_eq!(stuck.because, StuckBecause::DeadLock);
    assert!(stuck.text.contains("access epochs wait for a post of rank 1"), "{stuck}");
}

/// [EP-10] Ranks that hold locks of two windows, always taken in the same order, do not deadlock:
/// none takes its second lock before it holds the first.
#[test]
fn nested_locks_in_one_order_do_not_deadlock() {
    let assert = Assert::default();
    let lock = |window, target| Step::Lock {
        window,
        mode: LockMode::Exclusive,
        target,
        assert,
        blocking: true,
    };
    let put = |window, target| Step::Issue { window, op: op(OpKind::Put, target, 8) };
    let unlock = |window, target| Step::Unlock { window, target, how: How::Blocking };
    let flush = |window| Step::Flush { window, target: None, local: false, how: How::Blocking };
    for seed in 1..=200 {
        let faults = FaultInjection { seed, delay_max: 20 * US, ..FaultInjection::default() };
        let settings = Settings { faults, ..Settings::new(profile("qdr-2014").unwrap()) };
        let mut world = World::new(16, settings, &[WindowSpec::default(); 2], |me| {
            let mut steps = Vec::new();
            for _ in 0..if me < 8 { 4 } else { 0 } {
                steps.extend([
                    lock(0, 14),
                    lock(1, 15),
                    put(0, 14),
                    put(1, 15),
                    flush(0),
                    flush(1),
                ]);
                steps.extend([unlock(1, 15), unlock(0, 14)]);
            }
            list(steps)
        });
        if let Err(stuck) = world.run() {
            panic!("seed {seed}: {stuck}");
        }
    }
}
