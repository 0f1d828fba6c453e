//! Programs of tasks: the scheduler and the Gauss-Seidel method against closed forms.

use std::collections::{BTreeMap, HashMap};

use mpix_rma::sim::profile;
use mpix_rma::sim::tasks::{Band, Graph, Kind, Ran, Scheduler, Task, Version, Work};
use mpix_rma::transport::sim::{NS, SECOND};

/// A graph by the predecessors of each task.
struct Listed(Vec<Vec<usize>>);

impl Graph for Listed {
    type Task = usize;

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn roots(&self, each: &mut dyn FnMut(usize)) {
        (0..self.0.len()).filter(|task| self.0[*task].is_empty()).for_each(each);
    }

    fn predecessors(&self, task: usize, each: &mut dyn FnMut(usize)) {
        self.0[task].iter().copied().for_each(each);
    }

    fn successors(&self, task: usize, each: &mut dyn FnMut(usize)) {
        (0..self.0.len()).filter(|other| self.0[*other].contains(&task)).for_each(each);
    }
}

/// Number of rounds in which `cores` cores finish a graph whose tasks take one round each.
fn rounds(graph: Listed, cores: u32) -> u64 {
    let mut scheduler = Scheduler::new(graph, cores);
    let mut count = 0;
    while !scheduler.is_done() {
        let running: Vec<_> = std::iter::from_fn(|| scheduler.assign()).collect();
        assert!(!running.is_empty(), "nothing is ready after {} tasks", scheduler.finished());
        for (core, task) in running {
            scheduler.finish(task);
            scheduler.release(core);
        }
        count += 1;
    }
    count
}

/// A wave front over `rows` x `columns` tasks: each waits for those above and to the left.
fn wave_front(rows: usize, columns: usize) -> Listed {
    let task = |at: usize| {
        let above = (at >= columns).then(|| at - columns);
        let left = (!at.is_multiple_of(columns)).then(|| at - 1);
        above.into_iter().chain(left).collect()
    };
    Listed((0..rows * columns).map(task).collect())
}

#[test]
fn independent_tasks_fill_the_cores() {
    for (tasks, cores) in [(1, 1), (12, 1), (12, 5), (12, 12), (12, 40)] {
        let listed = Listed(vec![Vec::new(); tasks]);
        assert_eq!(rounds(listed, cores), (tasks as u64).div_ceil(cores.into()), "{cores} cores");
    }
}

#[test]
fn a_chain_takes_its_length_on_any_number_of_cores() {
    for cores in [1, 4] {
        let chain = (0..9).map(|at: usize| at.checked_sub(1).into_iter().collect()).collect();
        assert_eq!(rounds(Listed(chain), cores), 9);
    }
}

#[test]
fn a_wave_front_takes_its_diagonals() {
    assert_eq!(rounds(wave_front(4, 7), 4), 4 + 7 - 1);
    assert_eq!(rounds(wave_front(4, 7), 1), 4 * 7);
}

/// A task that gave its core back may complete later.
#[test]
fn a_core_may_be_free_before_its_task_is_complete() {
    let mut scheduler = Scheduler::new(Listed(vec![vec![], vec![], vec![0]]), 1);
    let (core, first) = scheduler.assign().unwrap();
    assert_eq!((first, scheduler.assign()), (0, None), "the core is taken");
    scheduler.release(core);
    assert_eq!(scheduler.assign(), Some((core, 1)));
    scheduler.finish(1);
    scheduler.release(core);
    assert_eq!(scheduler.assign(), None, "task 2 waits for task 0");
    scheduler.finish(0);
    assert_eq!(scheduler.assign(), Some((core, 2)));
}

/// Both directions of each graph have the same edges, no edge twice, and all tasks can run.
#[test]
fn predecessors_and_successors_are_the_same_edges() {
    for version in Version::ALL {
        for (rows, columns) in [(1, 1), (1, 3), (3, 1), (2, 3)] {
            for sides in 0..4 {
                let (upper, lower) = (sides & 1 == 1, sides & 2 == 2);
                let band = Band { version, rows, columns, iterations: 3, upper, lower };
                // With one rank per core a band has one row of blocks, and `Pure` one block.
                if rows > 1 && !version.is_hybrid() || columns > 1 && version == Version::Pure {
                    continue;
                }
                let mut edges = BTreeMap::new();
                let mut tasks = 0;
                each_task(&band, |task| {
                    tasks += 1;
                    band.predecessors(task, &mut |other| {
                        *edges.entry(format!("{other:?} {task:?}")).or_insert(0) += 1;
                    });
                    band.successors(task, &mut |other| {
                        *edges.entry(format!("{task:?} {other:?}")).or_insert(0) += 10;
                    });
                });
                assert_eq!(tasks, band.len(), "{band:?}");
                let wrong = edges.iter().find(|(_, count)| **count != 11);
                assert_eq!(wrong, None, "{band:?}");
                let mut scheduler = Scheduler::new(band, 2);
                while let Some((core, task)) = scheduler.assign() {
                    scheduler.finish(task);
                    scheduler.release(core);
                }
                assert!(scheduler.is_done(), "{band:?}: {} tasks", scheduler.finished());
            }
        }
    }
}

fn each_task(band: &Band, mut each: impl FnMut(Task)) {
    let columns = if band.version.sends_whole_rows() { 1 } else { band.columns };
    for iteration in 0..band.iterations {
        for (kind, there) in [
            (Kind::SendUp, band.upper),
            (Kind::ReceiveUpper, band.upper),
            (Kind::ReceiveLower, band.lower),
            (Kind::SendDown, band.lower),
        ] {
            (0..columns)
                .filter(|_| there)
                .for_each(|column| each(Task { kind, row: 0, column, iteration }));
        }
        for row in 0..band.rows {
            for column in 0..band.columns {
                each(Task { kind: Kind::Compute, row, column, iteration });
            }
        }
    }
}

/// A matrix of 24 x 8 blocks of 32 x 32, each of which takes about 1 ms.
fn work(version: Version, nodes: u32, cores: u32) -> Work {
    let mut machine = profile("ndr-2024").unwrap();
    machine.network.ranks_per_node = cores;
    Work {
        machine,
        version,
        nodes,
        rows: 24 * 32,
        columns: 8 * 32,
        block: 32,
        iterations: 5,
        element_ns: 1000.0,
        task_ns: 0.0,
        jitter: 0.0,
        seed: 1,
    }
}

/// Time to update one block.
const BLOCK: f64 = 32.0 * 32.0 * 1000.0 * NS as f64 / SECOND as f64;

/// The time of a run, in updates of a block. Communication takes less than a percent.
fn blocks(work: &Work) -> f64 {
    work.run().unwrap_or_else(|problem| panic!("{work:?}: {problem}")).seconds / BLOCK
}

fn assert_near(found: f64, expected: f64, of: &str) {
    assert!((found / expected - 1.0).abs() < 0.02, "{of}: {found} updates instead of {expected}");
}

#[test]
fn one_core_computes_one_block_after_the_other() {
    for version in Version::ALL {
        assert_near(blocks(&work(version, 1, 1)), 24.0 * 8.0 * 5.0, version.name());
    }
}

/// One node has no messages, so only the wave fronts and the joins count.
#[test]
fn one_node_with_enough_cores_takes_its_wave_fronts() {
    let (one, next) = (24.0 + 8.0 - 1.0, 4.0);
    for version in [Version::Sentinel, Version::Interop, Version::Notified] {
        // An iteration follows the one before it two blocks behind.
        assert_near(blocks(&work(version, 1, 64)), one + 2.0 * next, version.name());
    }
    assert_near(blocks(&work(Version::ForkJoin, 1, 64)), 5.0 * one, "forkjoin");
}

/// A rank computes an iteration after the rank above did, and after the rank below did the one
/// before.
#[test]
fn blocking_exchanges_let_every_other_rank_wait() {
    let (ranks, iterations) = (6.0, 5.0);
    let steps = 2.0 * (iterations - 1.0) + ranks;
    let band = |ranks: f64| 24.0 / ranks * 8.0;
    assert_near(blocks(&work(Version::Pure, 3, 2)), steps * band(6.0), "pure");
    let join = |nodes: f64| 24.0 / nodes + 8.0 - 1.0;
    assert_near(blocks(&work(Version::ForkJoin, 6, 64)), steps * join(6.0), "forkjoin");
}

/// All other versions pass each block on at once.
#[test]
fn early_exchanges_keep_the_wave_front_across_ranks() {
    // Six ranks with one core each: the last one starts after five blocks, and then computes.
    let (band, piece) = (24.0 / 6.0 * 8.0, 24.0 / 6.0);
    assert_near(blocks(&work(Version::NBuffer, 3, 2)), 5.0 * band + 5.0 * piece, "nbuffer");
    for version in [Version::Interop, Version::Notified] {
        let expected = 24.0 + 8.0 - 1.0 + 2.0 * 4.0;
        assert_near(blocks(&work(version, 6, 64)), expected, version.name());
    }
}

/// A chain of communications costs the sentinel its overlap: between two ranks, an iteration takes
/// as long as a whole row of blocks.
#[test]
fn a_sentinel_serializes_the_rows() {
    let sentinel = blocks(&work(Version::Sentinel, 2, 64));
    let interop = blocks(&work(Version::Interop, 2, 64));
    assert!(sentinel > interop + 3.0 * 4.0, "{sentinel} {interop}");
    assert!(blocks(&work(Version::Sentinel, 4, 64)) > sentinel, "{sentinel}");
}

/// Runs with jitter: each block of each iteration is updated once, after the values that it needs.
#[test]
fn all_versions_update_all_elements_in_a_legal_order() {
    for version in Version::ALL {
        let work = Work { jitter: 0.9, seed: 3, task_ns: 100.0, ..work(version, 4, 3) };
        let mut ran = HashMap::new();
        let mut elements = 0;
        let (mut across, mut down) = (0, 0);
        let outcome = work.run_watched(|it: Ran| {
            let band = work.band(it.rank);
            let row = it.rank * band.rows + it.task.row;
            (across, down) = (band.columns, work.ranks() * band.rows);
            let before = ran.insert((row, it.task.column, it.task.iteration), it);
            assert_eq!(before, None, "twice");
            elements += work.rows * work.columns / u64::from(across * down);
        });
        outcome.unwrap_or_else(|problem| panic!("{}: {problem}", version.name()));
        assert_eq!(elements, work.rows * work.columns * 5, "{}", version.name());
        for (&(row, column, iteration), it) in &ran {
            let mut needs = vec![];
            needs.extend(row.checked_sub(1).map(|row| (row, column, iteration)));
            needs.extend(column.checked_sub(1).map(|column| (row, column, iteration)));
            if let Some(before) = iteration.checked_sub(1) {
                needs.push((row, column, before));
                needs.extend((row + 1 < down).then_some((row + 1, column, before)));
                needs.extend((column + 1 < across).then_some((row, column + 1, before)));
            }
            for place in needs {
                let need = ran.get(&place).unwrap_or_else(|| panic!("{place:?} did not run"));
                assert!(need.ended <= it.began, "{}: {it:?} before {need:?}", version.name());
            }
        }
    }
}

/// No rank computes more blocks at a time than it has cores.
#[test]
fn cores_compute_one_block_at_a_time() {
    let work = work(Version::Notified, 2, 3);
    let mut edges = Vec::new();
    work.run_watched(|it| edges.extend([(it.rank, it.ended, -1), (it.rank, it.began, 1)])).unwrap();
    edges.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, _, change) in edges {
        now += change;
        most = now.max(most);
    }
    assert_eq!((now, most), (0, 3));
}

#[test]
fn equal_seeds_give_equal_runs() {
    for version in Version::ALL {
        let run = |seed, jitter| {
            let outcome = Work { seed, jitter, ..work(version, 3, 4) }.run().unwrap();
            (outcome.seconds.to_bits(), outcome.trace, outcome.tasks)
        };
        assert_eq!(run(1, 0.5), run(1, 0.5), "{}", version.name());
        assert_ne!(run(1, 0.5).0, run(2, 0.5).0, "{}", version.name());
        assert_eq!(run(1, 0.0).0, run(2, 0.0).0, "{}: no jitter", version.name());
    }
}

/// The memory of a scheduler depends on the front of the execution and not on its length.
#[test]
fn more_iterations_take_no_more_memory() {
    for version in Version::ALL {
        let most =
            |iterations| Work { iterations, ..work(version, 2, 4) }.run().unwrap().waiting_max;
        assert_eq!(most(30), most(60), "{}", version.name());
    }
}

/// Long pieces take a handshake, which all versions but n buffers make.
#[test]
fn long_pieces_go_by_rendezvous() {
    for version in Version::ALL {
        let mut long = work(version, 3, 2);
        long.machine.eager_max = 100;
        match version {
            Version::NBuffer => {
                let problem = long.run().unwrap_err();
                assert_eq!(problem, "pieces of 256 bytes are not eager (up to 100)");
            }
            _ => {
                let messages = |work: &Work| work.run().unwrap().messages;
                let (short, long) = (messages(&work(version, 3, 2)), messages(&long));
                let times = if version == Version::Notified { 1 } else { 3 };
                assert!(long >= times * short, "{}: {short} {long}", version.name());
            }
        }
    }
}

#[test]
fn invalid_divisions_are_rejected() {
    let uneven = work(Version::Interop, 5, 2);
    assert_eq!(
        uneven.run().unwrap_err(),
        "768 rows do not give each node whole blocks, or each core one"
    );
    let columns = Work { columns: 100, ..work(Version::Interop, 2, 2) };
    assert_eq!(columns.run().unwrap_err(), "100 columns are not a multiple of the block's 32");
}
