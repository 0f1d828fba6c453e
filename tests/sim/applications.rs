//! LU and transactions: the C schedules, run by engines on the simulated network.

use mpix_rma::engine::ReorderFlags;
use mpix_rma::sim::*;
use mpix_rma::transport::sim::{Carry, FaultInjection, US};

const SERIES: [(Series, bool); 3] =
    [(Series::Blocking, false), (Series::Nonblocking, false), (Series::Nonblocking, true)];

/// Runs transactions with bytes, and checks the sums, the balances, two updates per transaction,
/// and the audits.
fn conserved(
    ranks: u32,
    series: Series,
    reorder: bool,
    window: u64,
    faults: FaultInjection,
    ranks_per_node: u32,
) {
    let (count, accounts) = (40, 3);
    let options = |rank: u32| TransactionsOptions {
        rank: rank.cast_signed(),
        ranks: ranks.cast_signed(),
        count,
        accounts,
        seed: 7,
        window,
        flops: 0.0,
        audits: 1,
        series,
    };
    let mut machine = profile("qdr-2014").unwrap();
    machine.network.ranks_per_node = ranks_per_node;
    let settings =
        Settings { carry: Carry::Bytes, faults, event_limit: 20_000_000, ..Settings::new(machine) };
    let flags = ReorderFlags { access_after_access: reorder, ..ReorderFlags::default() };
    let bytes = 2 * 16 * accounts as usize;
    let mut world =
        World::new(ranks, settings, &[WindowSpec { bytes, flags, ..Default::default() }], |rank| {
            Schedule::transactions(&options(rank)).unwrap_or_else(|problem| panic!("{problem}"))
        });
    world.run().unwrap_or_else(|stuck| panic!("{series:?} {reorder} {window} {faults:?}: {stuck}"));
    let (mut balance, mut updates, mut audits) = (0, 0, 0);
    for rank in 0..ranks {
        let cells: Vec<i64> = world
            .net()
            .window(0, rank)
            .chunks_exact(8)
            .map(|word| i64::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        let (left, right) = cells.split_at(cells.len() / 2);
        balance += cells.chunks_exact(2).map(|cell| cell[0]).sum::<i64>();
        updates += cells.chunks_exact(2).map(|cell| cell[1]).sum::<i64>();
        for (left, right) in left.chunks_exact(2).zip(right.chunks_exact(2)) {
            assert_eq!((left[0], left[1]), (-right[0], right[1]), "halves of rank {rank}");
        }
        let [made, failed] = world.script(rank).audited;
        assert_eq!(failed, 0, "rank {rank} read between two halves: two epochs at once [LK-1]");
        audits += made.cast_signed();
    }
    assert_eq!(audits, (count / 4 * u64::from(ranks)).cast_signed());
    assert_eq!((balance, updates), (0, 2 * ((count * u64::from(ranks)).cast_signed() - audits)));
}

/// Exclusive locks exclude each other and no update is lost, in every series, within and between
/// nodes.
#[test]
fn transactions_conserve_their_sums() {
    for (series, reorder) in SERIES {
        for window in [1, 5, 0] {
            conserved(24, series, reorder, window, FaultInjection::default(), 8);
        }
    }
}

/// The same with injected delays, bursts, refusals, and slow ranks.
#[test]
fn transactions_conserve_their_sums_under_injected_faults() {
    for seed in 0..12 {
        let faults = FaultInjection {
            seed,
            delay_max: 10 * US,
            burst_one_in: 100,
            burst: 50 * US,
            refuse_one_in: 7,
            refuse_max: 3 * US,
            slow_rank_one_in: 5,
            slow_rank_factor: 10,
            ..FaultInjection::default()
        };
        let (series, reorder) = SERIES[seed as usize % 3];
        conserved(9, series, reorder, seed % 4, faults, 1 + seed as u32 % 3);
    }
}

/// LU ends in every series. The nonblocking series is faster where it can overlap computation.
#[test]
fn lu_is_faster_where_nothing_blocks() {
    let machine = profile("qdr-2014").unwrap();
    for ahead in [false, true] {
        let times: Vec<f64> = [Series::Blocking, Series::Nonblocking]
            .map(|series| {
                applications::lu(&machine, false, 24, (1500, 4, ahead), series).unwrap().seconds
            })
            .into();
        assert!(times[1] <= times[0] * 1.02, "ahead {ahead}: {times:?}");
        assert!(ahead || times[1] * 1.3 < times[0], "{times:?}");
    }
}

/// Refused rows are posted later, by ranks that wait or by the progress thread of those that
/// compute. Where the adapters are the bottleneck, the bulk window costs nothing.
#[test]
fn lu_ends_with_a_bulk_window() {
    let mut machine = profile("qdr-2014").unwrap();
    machine.network.wire.byte_fs *= 8;
    let mut run = |window, progress_thread, series| {
        machine.network.bulk_window = window;
        applications::lu(&machine, progress_thread, 32, (700, 2, false), series).unwrap()
    };
    for series in [Series::Blocking, Series::Nonblocking] {
        for progress_thread in [false, true] {
            let without = run(u64::MAX, progress_thread, series);
            let with = run(16 << 10, progress_thread, series);
            assert!(without.refusals == 0 && with.refusals > 0, "{without:?} {with:?}");
            assert!(with.seconds < 1.05 * without.seconds, "{without:?} {with:?}");
        }
    }
}

/// Half of the transactions go to the hot targets.
#[test]
fn hot_targets_get_half_of_the_transactions() {
    let machine = profile("qdr-2014").unwrap();
    let run = |hot| {
        let work = applications::Transactions {
            warm_up: 0,
            count: 50,
            accounts: 10,
            seed: 1,
            window: 8,
            hot,
        };
        applications::transactions(&machine, false, 32, work, Series::Nonblocking, true)
    };
    let (even, hot) = (run(0).unwrap(), run(1).unwrap());
    let share = |of: &applications::Outcome| of.atomics_busy_max / of.atomics_busy_mean / 4.0;
    assert!(share(&even) < 0.35 && share(&hot) > 0.5, "{even:?} {hot:?}");
    assert!(even.peers_mean > 20.0 && hot.peers_mean < 20.0, "{even:?} {hot:?}");
    assert_eq!(run(33).unwrap_err(), "33 hot targets, but only 32 ranks");
}

/// The parameters of a machine are what `set` accepts, in its units.
#[test]
fn a_profile_prints_the_parameters_that_it_accepts() {
    for machine in PROFILES {
        for (name, value) in machine.parameters() {
            let mut same = machine;
            same.set(name, value).unwrap();
            assert_eq!(same, machine, "{name}={value}");
            if !["tree", "atomics_by_rank"].contains(&name) {
                let mut other = machine;
                let changed = if value.is_finite() { 2.0 * value } else { 1.0 };
                other.set(name, changed).unwrap();
                assert_ne!(other, machine, "{name}");
                assert!(other.parameters().contains(&(name, changed)), "{name}={changed}");
            }
        }
    }
    let mut machine = PROFILES[0];
    machine.set("tree", 0.0).unwrap();
    assert!(machine.parameters().contains(&("tree", 0.0)));
    machine.set("tree", 5.0).unwrap_err();
    machine.set("atomics_by_rank", 1.0).unwrap();
    assert!(machine.parameters().contains(&("atomics_by_rank", 1.0)));
}

/// Invalid options are rejected with the schedule's own message.
#[test]
fn invalid_options_are_rejected_with_a_reason() {
    let machine = profile("qdr-2014").unwrap();
    assert_eq!(
        applications::lu(&machine, false, 2, (0, 1, false), Series::Blocking).unwrap_err(),
        "the matrix has no rows"
    );
}
