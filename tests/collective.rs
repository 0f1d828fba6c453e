//! Schedules of collectives: every process of a communicator in one thread, in random order,
//! against a reference.

use std::sync::atomic::AtomicU64;

use mpix_rma::collective::schedule::{
    FLAT_MAX, allreduce, announced_gather, barrier, broadcast, exchange, gather, ordered_exchange,
    reduce, scan, scatter,
};
use mpix_rma::collective::{
    Action, Board, BoardShape, Buffers, Content, Draft, InBlock, Mismatch, Position, Published,
    RANKS_MAX, Run, Schedule, Work,
};

/// Numbers of processes on both sides of each change of algorithm.
const SIZES: [u32; 11] = [1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 40];

/// One collective of a program.
#[derive(Clone, Copy, Debug)]
enum Call {
    Barrier,
    Broadcast { root: u32 },
    Allreduce,
    Reduce { root: u32 },
    Scan { inclusive: bool },
    Gather { root: u32 },
    AnnouncedGather { root: u32 },
    Scatter { root: u32 },
    Exchange,
    OrderedExchange,
}

impl Call {
    fn schedule(self, me: u32, ranks: u32) -> Schedule {
        match self {
            Call::Barrier => barrier(me, ranks),
            Call::Broadcast { root } => broadcast(me, ranks, root),
            Call::Allreduce => allreduce(me, ranks),
            Call::Reduce { root } => reduce(me, ranks, root),
            Call::Scan { inclusive } => scan(me, ranks, inclusive),
            Call::Gather { root } => gather(me, ranks, root),
            Call::AnnouncedGather { root } => announced_gather(me, ranks, root),
            Call::Scatter { root } => scatter(me, ranks, root),
            Call::Exchange => exchange(ranks),
            Call::OrderedExchange => ordered_exchange(me, ranks),
        }
    }

    fn all(root: u32, ranks: u32) -> Vec<Self> {
        let mut calls = vec![
            Call::Barrier,
            Call::Broadcast { root },
            Call::Allreduce,
            Call::Reduce { root },
            Call::Gather { root },
            Call::AnnouncedGather { root },
            Call::Scatter { root },
            Call::Exchange,
        ];
        if ranks <= FLAT_MAX {
            let [inclusive, exclusive] = [true, false].map(|inclusive| Call::Scan { inclusive });
            calls.extend([Call::OrderedExchange, inclusive, exclusive]);
        }
        calls
    }

    fn random(ranks: u32, random: &mut fastrand::Rng) -> Self {
        let calls = Call::all(random.u32(..ranks), ranks);
        calls[random.usize(..calls.len())]
    }

    /// The processes whose contents `me` collects.
    fn collects(self, me: u32, ranks: u32) -> Vec<u32> {
        let others = || (0..ranks).filter(|rank| *rank != me);
        match self {
            Call::Gather { root } if me != root => Vec::new(),
            Call::AnnouncedGather { root } | Call::Scatter { root } if me != root => vec![root],
            Call::Gather { .. } | Call::AnnouncedGather { .. } => others().collect(),
            Call::Exchange | Call::OrderedExchange => others().collect(),
            _ => Vec::new(),
        }
    }
}

/// What a process collects, beside what it does with its block.
struct Collecting<'a, 'b, F> {
    block: InBlock<'a, 'b, F>,
    collected: &'a mut Vec<(u32, Vec<u8>)>,
}

impl<F: FnMut(&[u8], &mut [u8])> Work for Collecting<'_, '_, F> {
    fn write(&mut self, content: Content, draft: &Draft<'_>) {
        self.block.write(content, draft);
    }
    fn take(&mut self, published: &Published<'_>) {
        self.block.take(published);
    }
    fn fold(&mut self, published: &Published<'_>, side: mpix_rma::collective::Side) {
        self.block.fold(published, side);
    }
    fn collect(&mut self, from: u32, published: &Published<'_>) -> Option<Mismatch> {
        // In two parts.
        let mut data = vec![0; published.content.bytes as usize];
        let half = data.len() / 2 / 8 * 8;
        published.read_part(0, &mut data[..half]);
        published.read_part(half, &mut data[half..]);
        self.collected.push((from, data));
        None
    }
}

/// One process: where it is in the program, and its memory.
struct Process {
    position: Position,
    next: usize,
    run: Option<(Schedule, Run)>,
    block: Vec<u8>,
    operand: Vec<u8>,
    /// The contribution, as long as it is not in the block.
    beside: Option<Vec<u8>>,
    /// What the current collective has collected: from whom, and the content.
    collected: Vec<(u32, Vec<u8>)>,
    /// The block after each collective.
    results: Vec<Vec<u8>>,
}

/// What process `me` contributes to collective `at`.
fn contribution(at: usize, me: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|byte| (at * 31 + me as usize * 7 + byte) as u8).collect()
}

fn add(input: &[u8], inout: &mut [u8]) {
    for (sum, byte) in inout.iter_mut().zip(input) {
        *sum = sum.wrapping_add(*byte);
    }
}

/// Runs a program of collectives of `bytes` bytes each. Returns the results of each process.
fn execute(
    shape: BoardShape,
    program: &[Call],
    bytes: usize,
    fold: fn(&[u8], &mut [u8]),
    random: &mut fastrand::Rng,
) -> Vec<Vec<Vec<u8>>> {
    let words: Vec<AtomicU64> = (0..shape.words()).map(|_| AtomicU64::new(0)).collect();
    let mut processes: Vec<Process> = (0..shape.ranks)
        .map(|_| Process {
            position: Position::default(),
            next: 0,
            run: None,
            block: vec![0; shape.content_max],
            operand: vec![0; shape.content_max],
            beside: None,
            collected: Vec::new(),
            results: Vec::new(),
        })
        .collect();
    let content = |call| match call {
        Call::Barrier => Content::default(),
        _ => Content { bytes: bytes as u32, code: 1 },
    };
    let mut idle = 0;
    while processes.iter().any(|process| process.results.len() < program.len()) {
        let me = random.u32(..shape.ranks);
        let board = Board::new(&words, shape, me);
        let Process { position, next, run, block, operand, beside, collected, results } =
            &mut processes[me as usize];
        if run.is_none() && *next < program.len() {
            let call = program[*next];
            let schedule = call.schedule(me, shape.ranks);
            let own = contribution(*next, me, bytes);
            match *next % 2 {
                0 => block[..bytes].copy_from_slice(&own),
                _ => *beside = Some(own),
            }
            let begun = Run::new(&schedule, &board, position, content(call));
            *run = Some((schedule, begun));
            *next += 1;
        }
        idle += 1;
        assert!(idle < 2_000_000, "nothing moves: {program:?}");
        let Some((schedule, running)) = run else { continue };
        let at = *next - 1;
        let mut buffers = Buffers { block, operand };
        let in_block = InBlock { buffers: &mut buffers, input: beside.as_deref(), fold };
        let mut work = Collecting { block: in_block, collected };
        let done = running.advance_with(schedule, &board, position, &mut work);
        if done {
            work.block.settle();
        }
        if work.block.input.is_none() {
            *beside = None;
        }
        if done {
            assert_eq!(running.mismatch(), None);
            let mut wanted = program[at].collects(me, shape.ranks);
            if matches!(program[at], Call::OrderedExchange) {
                wanted.reverse();
            } else {
                wanted.sort_unstable();
                collected.sort_unstable();
            }
            let wanted: Vec<_> =
                wanted.into_iter().map(|from| (from, contribution(at, from, bytes))).collect();
            assert_eq!(*collected, wanted, "process {me} in {:?}", program[at]);
            collected.clear();
            results.push(block[..bytes].to_vec());
            *run = None;
            idle = 0;
        }
    }
    processes.into_iter().map(|process| process.results).collect()
}

/// The result that process `me` must have, if MPI defines one.
fn expected(call: Call, at: usize, me: u32, ranks: u32, bytes: usize) -> Option<Vec<u8>> {
    let sum = || {
        let mut sum = vec![0; bytes];
        (0..ranks).for_each(|rank| add(&contribution(at, rank, bytes), &mut sum));
        sum
    };
    match call {
        Call::Barrier => None,
        Call::Broadcast { root } => Some(contribution(at, root, bytes)),
        Call::Allreduce => Some(sum()),
        Call::Reduce { root } => (me == root).then(sum),
        Call::Scan { inclusive } => {
            let mut sum =
                if inclusive || me == 0 { contribution(at, me, bytes) } else { vec![0; bytes] };
            (0..me).for_each(|rank| add(&contribution(at, rank, bytes), &mut sum));
            Some(sum)
        }
        _ => None,
    }
}

/// [CL-1] All collectives give what MPI says, in any order of the processes' steps, with slots that
/// are used again and again.
#[test]
fn random_programs_give_the_results_of_the_reference() {
    let mut random = fastrand::Rng::with_seed(27);
    for ranks in SIZES {
        for (depth, bytes) in [(1, 8), (2, 3), (3, 48), (16, 49), (2, 2048), (1, 0)] {
            let shape = BoardShape { depth, ..BoardShape::of(ranks) };
            let program: Vec<Call> = (0..50).map(|_| Call::random(ranks, &mut random)).collect();
            let results = execute(shape, &program, bytes, add, &mut random);
            for (me, results) in (0..).zip(&results) {
                for (at, result) in results.iter().enumerate() {
                    if let Some(expected) = expected(program[at], at, me, ranks, bytes) {
                        assert_eq!(*result, expected, "{ranks} ranks: {me} in {:?}", program[at]);
                    }
                }
            }
        }
    }
}

/// A process leaves a barrier only after all have entered it.
#[test]
fn a_barrier_waits_for_every_process() {
    for ranks in SIZES.into_iter().filter(|ranks| *ranks > 1) {
        for late in 0..ranks {
            let shape = BoardShape::of(ranks);
            let words: Vec<AtomicU64> = (0..shape.words()).map(|_| AtomicU64::new(0)).collect();
            let mut runs: Vec<_> = (0..ranks)
                .map(|me| {
                    let (board, schedule) = (Board::new(&words, shape, me), barrier(me, ranks));
                    let mut position = Position::default();
                    let run = Run::new(&schedule, &board, &mut position, Content::default());
                    (board, schedule, position, run)
                })
                .collect();
            let mut advance = |me: u32| {
                let (board, schedule, position, run) = &mut runs[me as usize];
                let mut buffers = Buffers { block: &mut [], operand: &mut [] };
                run.advance(schedule, board, position, &mut buffers, add)
            };
            for _ in 0..2 * ranks {
                for me in (0..ranks).filter(|me| *me != late) {
                    assert!(!advance(me), "{me} of {ranks} left before {late} came");
                }
            }
            let mut left = 0;
            for _ in 0..2 * ranks {
                left = (0..ranks).filter(|me| advance(*me)).count();
            }
            assert_eq!(left as u32, ranks);
        }
    }
}

/// [CL-2] A sum of floating-point numbers has the same bits in all processes and in every run.
#[test]
fn an_allreduce_gives_the_same_bits_everywhere() {
    fn add_doubles(input: &[u8], inout: &mut [u8]) {
        // The contributions are arbitrary bit patterns, so the numbers' exponents differ widely.
        for (sum, number) in inout.chunks_exact_mut(8).zip(input.chunks_exact(8)) {
            let value = |bytes: &[u8]| f64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            let added = value(sum) + value(number);
            sum.copy_from_slice(&added.to_ne_bytes());
        }
    }
    for ranks in SIZES {
        let run = |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            execute(BoardShape::of(ranks), &[Call::Allreduce; 9], 64, add_doubles, &mut random)
        };
        let first = run(1);
        assert!(first.iter().all(|results| *results == first[0]), "{ranks} ranks differ");
        assert_eq!(first, run(2), "{ranks} ranks: the order of the steps changes the result");
    }
}

/// Operands stay in the order of the ranks, for operations that are not commutative.
#[test]
fn reductions_keep_the_order_of_the_ranks() {
    /// Products of 2 by 2 matrices over bytes.
    fn multiply(left: &[u8], right: &mut [u8]) {
        for (a, b) in left.chunks_exact(4).zip(right.chunks_exact_mut(4)) {
            let entry = |row: usize, column: usize| {
                a[row].wrapping_mul(b[column]).wrapping_add(a[row + 1].wrapping_mul(b[column + 2]))
            };
            let product = [entry(0, 0), entry(0, 1), entry(2, 0), entry(2, 1)];
            b.copy_from_slice(&product);
        }
    }
    let mut random = fastrand::Rng::with_seed(8);
    for ranks in SIZES {
        let root = ranks - 1;
        let mut program = vec![Call::Allreduce, Call::Reduce { root }, Call::Reduce { root: 0 }];
        if ranks <= FLAT_MAX {
            program.extend([true, false].map(|inclusive| Call::Scan { inclusive }));
        }
        let results = execute(BoardShape::of(ranks), &program, 64, multiply, &mut random);
        for (me, results) in (0..).zip(&results) {
            for (at, result) in results.iter().enumerate() {
                let until = match program[at] {
                    Call::Reduce { root } if root != me => continue,
                    Call::Scan { inclusive } if inclusive || me == 0 => me + 1,
                    Call::Scan { .. } => me,
                    _ => ranks,
                };
                let mut product = contribution(at, until - 1, 64);
                for rank in (0..until - 1).rev() {
                    multiply(&contribution(at, rank, 64), &mut product);
                }
                assert_eq!(*result, product, "{ranks} ranks: {me} in {:?}", program[at]);
            }
        }
    }
}

/// Every step waits for something that is published, and no process publishes twice in a stage.
#[test]
fn each_wait_has_its_publication() {
    for ranks in SIZES.into_iter().chain([RANKS_MAX]) {
        for root in [0, ranks / 2, ranks - 1] {
            for call in Call::all(root, ranks) {
                let all: Vec<_> = (0..ranks).map(|me| call.schedule(me, ranks)).collect();
                let published = |rank: u32| {
                    all[rank as usize].steps().iter().filter_map(|step| match step.action {
                        Action::Publish { stage } => Some(stage),
                        _ => None,
                    })
                };
                for (me, schedule) in (0..).zip(&all) {
                    let mut own: Vec<_> = published(me).collect();
                    own.sort_unstable();
                    let number = own.len();
                    own.dedup();
                    assert_eq!(own.len(), number, "{call:?}: {me} publishes twice");
                    for step in schedule.steps() {
                        if let Action::Await { from, stage }
                        | Action::Take { from, stage }
                        | Action::Fold { from, stage }
                        | Action::Append { from, stage }
                        | Action::Collect { from, stage } = step.action
                        {
                            assert!(published(from).any(|theirs| theirs == stage));
                        }
                        if let Action::CollectAll { stage } = step.action {
                            for from in (0..ranks).filter(|from| *from != me) {
                                assert!(published(from).any(|theirs| theirs == stage));
                            }
                        }
                    }
                }
            }
        }
    }
}

/// [CL-3] Each process learns that its call does not match the others'.
#[test]
fn calls_that_do_not_match_are_found() {
    let differing = |called: [Content; 2], call: Call| {
        let shape = BoardShape::of(2);
        let words: Vec<AtomicU64> = (0..shape.words()).map(|_| AtomicU64::new(0)).collect();
        let mut block = [vec![0; shape.content_max], vec![0; shape.content_max]];
        let mut operand = vec![0; shape.content_max];
        let mut runs = [0, 1].map(|me| {
            let (board, schedule) = (Board::new(&words, shape, me), call.schedule(me, 2));
            let mut position = Position::default();
            let run = Run::new(&schedule, &board, &mut position, called[me as usize]);
            (board, schedule, position, run)
        });
        for _ in 0..2 {
            for ((board, schedule, position, run), block) in runs.iter_mut().zip(&mut block) {
                let mut buffers = Buffers { block, operand: &mut operand };
                run.advance(schedule, board, position, &mut buffers, add);
            }
        }
        runs.map(|(.., run)| run.mismatch())
    };
    let of = |bytes, code| Content { bytes, code };
    let root = 0;
    let found = differing([of(8, 1), of(4, 1)], Call::Broadcast { root });
    assert_eq!(found, [None, Some(Mismatch::Longer)]);
    let found = differing([of(4, 1), of(8, 1)], Call::Broadcast { root });
    assert_eq!(found, [None, Some(Mismatch::Shorter)]);
    // The number of pieces of a long content.
    let found = differing([of(8, 1 | 1 << 16), of(8, 1)], Call::Broadcast { root });
    assert_eq!(found, [None, Some(Mismatch::Longer)]);
    let found = differing([of(8, 1), of(8, 2)], Call::Exchange);
    assert_eq!(found, [Some(Mismatch::Operation); 2]);
    let found = differing([of(8, 1), of(8, 2)], Call::Allreduce);
    assert_eq!(found, [Some(Mismatch::Operation); 2]);
    let found = differing([of(8, 1), of(16, 1)], Call::Allreduce);
    assert_eq!(found, [Some(Mismatch::Longer), Some(Mismatch::Shorter)]);
}
