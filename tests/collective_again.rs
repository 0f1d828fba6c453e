//! Programs over several nodes that run again and again: every process in one thread, in random
//! order and with puts that arrive in any order. Some processes are a run ahead of others.

use std::collections::HashMap;

use mpix_rma::collective::nodes::alltoallv::{NodePlan, needs_gate};
use mpix_rma::collective::nodes::{
    Allreduce, Area, Block, Broadcast, Counter, Machine, Move, Place, Placement, Program, Repeated,
    Totals, Turn, add_totals, allgather, barrier, broadcast,
};

/// A counter of a part and set.
type Line = (usize, usize, u32, u32);

/// A put that has not arrived.
struct Flying {
    turn: Turn,
    from: Place,
    to: Place,
    bytes: u32,
    counter: Counter,
}

/// What all processes share.
struct Shared {
    nodes: Placement,
    areas: Vec<[u32; 4]>,
    /// By part, set, process and area.
    memory: HashMap<(usize, u32, usize), Vec<u8>>,
    counters: HashMap<Line, u64>,
    flying: Vec<Flying>,
    /// By process: what it contributes to the run that it begins.
    contributions: Vec<Vec<u8>>,
}

impl Shared {
    fn bytes(&mut self, turn: Turn, place: Place, bytes: u32) -> &mut [u8] {
        let area = place.area.number();
        // A process has one `Receive`, which is its own.
        let set = if place.area == Area::Receive { 0 } else { turn.set };
        let length = self.areas[place.rank as usize][area] as usize;
        let memory = self.memory.entry((set, place.rank, area)).or_insert_with(|| vec![0; length]);
        &mut memory[place.at as usize..][..bytes as usize]
    }

    fn raise(&mut self, turn: Turn, counter: Counter) {
        let line = (turn.part, turn.set, counter.rank, counter.index);
        *self.counters.entry(line).or_insert(0) += 1;
    }

    fn land(&mut self, put: &Flying) {
        if put.bytes > 0 {
            let data = self.bytes(put.turn, put.from, put.bytes).to_vec();
            self.bytes(put.turn, put.to, put.bytes).copy_from_slice(&data);
        }
        self.raise(put.turn, put.counter);
    }
}

/// One process.
struct Process<'a> {
    me: u32,
    shared: &'a mut Shared,
}

impl Machine for Process<'_> {
    fn begin(&mut self, turn: Turn, _: u64) {
        if turn.part == 0 {
            let content = self.shared.contributions[self.me as usize].clone();
            let place = Place { rank: self.me, area: Area::Send, at: 0 };
            self.shared.bytes(turn, place, content.len() as u32).copy_from_slice(&content);
        }
    }

    fn count(&mut self, turn: Turn, counter: Counter) -> u64 {
        assert!(!self.is_far(counter.rank));
        let line = (turn.part, turn.set, counter.rank, counter.index);
        self.shared.counters.get(&line).copied().unwrap_or(0)
    }

    fn raise(&mut self, turn: Turn, counter: Counter) {
        assert!(!self.is_far(counter.rank));
        self.shared.raise(turn, counter);
    }

    fn transfer(&mut self, turn: Turn, program: &Program, moves: &Move) {
        for place in [moves.from, moves.to] {
            assert!(!self.is_far(place.rank));
            assert!(place.area != Area::Receive || place.rank == self.me, "{moves:?}");
        }
        for Block { from, to, with, bytes } in program.blocks(moves) {
            let mut data = self.shared.bytes(turn, from, bytes).to_vec();
            if let Some(with) = with {
                let other = self.shared.bytes(turn, with, bytes);
                data.iter_mut().zip(other).for_each(|(sum, byte)| *sum = sum.wrapping_add(*byte));
            }
            self.shared.bytes(turn, to, bytes).copy_from_slice(&data);
        }
    }

    fn is_far(&self, rank: u32) -> bool {
        self.shared.nodes.node_of(rank) != self.shared.nodes.node_of(self.me)
    }

    fn put(&mut self, turn: Turn, from: Place, to: Place, bytes: u32, counter: Counter) {
        self.shared.flying.push(Flying { turn, from, to, bytes, counter });
    }
}

/// Contents of a process in a run.
fn content(run: u32, me: u32, bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (run * 41 + me * 37 + at * 11) as u8).collect()
}

/// Runs programs several times, and checks what each process receives in each run. `expected` says
/// what that is, by run and process.
fn check(
    nodes: &Placement,
    programs: &[Program],
    is_gated: bool,
    seed: u64,
    expected: impl Fn(u32, u32) -> Vec<u8>,
) {
    const RUNS: u32 = 7;
    let (ranks, mut random) = (nodes.ranks(), fastrand::Rng::with_seed(seed));
    let (mut totals, mut gate_totals) = (Totals::new(), Totals::new());
    let gates: Vec<Program> = (0..ranks).map(|me| barrier(nodes, me, 2)).collect();
    programs.iter().for_each(|program| add_totals(program, &mut totals));
    gates.iter().for_each(|program| add_totals(program, &mut gate_totals));
    let mut all: Vec<Repeated> = programs
        .iter()
        .zip(gates)
        .map(|(program, gate)| {
            let gate = is_gated.then_some((gate, &gate_totals));
            Repeated::new((program.clone(), &totals), gate)
        })
        .collect();
    let mut shared = Shared {
        nodes: nodes.clone(),
        areas: programs.iter().map(Program::areas).collect(),
        memory: HashMap::new(),
        counters: HashMap::new(),
        flying: Vec::new(),
        contributions: vec![Vec::new(); ranks as usize],
    };
    let (mut runs, mut idle) = (vec![0; ranks as usize], 0);
    while runs.iter().any(|runs| *runs < RUNS) || all.iter().any(|one| !one.is_done()) {
        idle += 1;
        assert!(idle < 1000 * ranks, "nothing moves: {nodes:?}, seed {seed}, runs {runs:?}");
        if !shared.flying.is_empty() && random.u8(..3) == 0 {
            let put = shared.flying.swap_remove(random.usize(..shared.flying.len()));
            shared.land(&put);
            idle = 0;
        }
        // Some processes are much faster.
        let me = random.u32(..ranks).min(random.u32(..ranks));
        let at = me as usize;
        if all[at].is_done() && runs[at] < RUNS {
            let bytes = programs[at].areas()[0];
            shared.contributions[at] = content(runs[at], me, bytes);
            runs[at] += 1;
            all[at].start();
        }
        let was_done = all[at].is_done();
        if all[at].advance(&mut Process { me, shared: &mut shared }) {
            idle = 0;
        }
        if all[at].is_done() && !was_done {
            let bytes = programs[at].areas()[1];
            let turn = Turn { part: 0, set: 0 };
            let place = Place { rank: me, area: Area::Receive, at: 0 };
            let expected = expected(runs[at] - 1, me);
            let found = shared.bytes(turn, place, bytes);
            assert_eq!(*found, expected, "{nodes:?}, seed {seed}: process {me}, run {}", runs[at]);
        }
    }
}

fn placements() -> Vec<Placement> {
    [&[1, 1][..], &[2, 2], &[3, 1], &[1, 1, 1], &[4, 1, 2], &[2, 2, 2, 2], &[3, 3, 1, 2, 4]]
        .map(Placement::of)
        .to_vec()
}

/// Nobody completes an allreduce before all have begun it, so it needs no gate.
#[test]
fn allreduces_in_a_row() {
    for nodes in placements() {
        for algorithm in
            [Allreduce::Gather { radix: 2 }, Allreduce::Gather { radix: 4 }, Allreduce::Direct]
        {
            for (seed, bytes) in (1..).zip([8, 1, 100]) {
                let ranks = nodes.ranks();
                let programs: Vec<Program> =
                    (0..ranks).map(|me| algorithm.program(&nodes, me, bytes)).collect();
                check(&nodes, &programs, false, seed, |run, _| {
                    (0..ranks).fold(vec![0; bytes as usize], |mut sum, me| {
                        let one = content(run, me, bytes);
                        sum.iter_mut().zip(one).for_each(|(sum, byte): (&mut u8, _)| {
                            *sum = sum.wrapping_add(byte);
                        });
                        sum
                    })
                });
            }
        }
    }
}

#[test]
fn barriers_in_a_row() {
    for nodes in placements() {
        for radix in [2, 3, 8] {
            let programs: Vec<Program> =
                (0..nodes.ranks()).map(|me| barrier(&nodes, me, radix)).collect();
            check(&nodes, &programs, false, 1, |_, _| Vec::new());
        }
    }
}

#[test]
fn broadcasts_in_a_row() {
    for nodes in placements() {
        let ranks = nodes.ranks();
        for root in [0, ranks / 2, ranks - 1] {
            for (radix, pieces, bytes) in [(2, 1, 8), (3, 4, 101)] {
                let how = Broadcast { root, radix, pieces };
                let programs: Vec<Program> =
                    (0..ranks).map(|me| broadcast(&nodes, me, bytes, how)).collect();
                check(&nodes, &programs, true, 1, |run, _| content(run, root, bytes));
            }
        }
    }
}

/// The size of the block of a process, or from one to another.
type SizeOf<'a> = dyn Fn(u32) -> u32 + 'a;
type SizeFromTo<'a> = dyn Fn(u32, u32) -> u32 + 'a;

/// With an empty block in each node but one, nobody waits for the others.
#[test]
fn allgathers_in_a_row() {
    for nodes in placements() {
        let ranks = nodes.ranks();
        let few = |me: u32| if me == ranks - 1 { 5 } else { 0 };
        let sizes: [(&SizeOf<'_>, bool); 3] =
            [(&|_| 3, false), (&|me| (me * 7) % 5, true), (&few, true)];
        for (size, is_gated) in sizes {
            let sizes: Vec<u32> = (0..ranks).map(size).collect();
            let programs: Vec<Program> =
                (0..ranks).map(|me| allgather(&nodes, me, &sizes)).collect();
            check(&nodes, &programs, is_gated, 1, |run, _| {
                (0..ranks).flat_map(|me| content(run, me, sizes[me as usize])).collect()
            });
        }
    }
}

/// Exchanges blocks of these sizes again and again.
fn check_exchange(nodes: &Placement, size: &SizeFromTo<'_>, seed: u64) {
    let ranks = nodes.ranks();
    let plans: Vec<_> = (0..nodes.nodes()).map(|node| NodePlan::new(nodes, node, &size)).collect();
    let program = |me| {
        let node = nodes.node_of(me);
        plans[node as usize].program(me, |to| plans[to as usize].arrivals()[node as usize])
    };
    let programs: Vec<Program> = (0..ranks).map(program).collect();
    let sent = |from| (0..ranks).map(|to| size(from, to)).sum();
    check(nodes, &programs, needs_gate(nodes, &size), seed, |run, me| {
        (0..ranks)
            .flat_map(|from| {
                let begin = (0..me).map(|to| size(from, to)).sum::<u32>() as usize;
                let all = content(run, from, sent(from));
                all[begin..][..size(from, me) as usize].to_vec()
            })
            .collect()
    });
}

#[test]
fn alltoallvs_in_a_row() {
    for nodes in placements() {
        let sizes: [(&SizeFromTo<'_>, Option<bool>); 4] = [
            (&|_, _| 3, Some(false)),
            (&|from, to| (from * 7 + to * 13) % 5, None),
            // A gather and a scatter.
            (&|_, to| if to == 1 { 4 } else { 0 }, Some(true)),
            (&|from, _| if from == 0 { 4 } else { 0 }, Some(true)),
        ];
        for (size, is_gated) in sizes {
            assert!(is_gated.is_none_or(|is_gated| needs_gate(&nodes, &size) == is_gated));
            check_exchange(&nodes, size, 1);
        }
    }
}

/// Blocks between some processes of different nodes. If they are in both directions, no process
/// waits for any but its neighbours and its node.
#[test]
fn halos_in_a_row() {
    for nodes in placements() {
        for seed in 1..20 {
            let is_pair = |a: u32, b: u32| (u64::from(a * 31 + b * 19 + 5) * seed) % 7 < 3;
            let is_far = |a, b| nodes.node_of(a) != nodes.node_of(b);
            let both = |from: u32, to: u32| {
                let linked = is_far(from, to) && is_pair(from.min(to), from.max(to));
                if linked { 1 + (from * 5 + to) % 4 } else { 0 }
            };
            let one_way = |from, to| if is_far(from, to) && is_pair(from, to) { 2 } else { 0 };
            assert!(!needs_gate(&nodes, &both));
            check_exchange(&nodes, &both, seed);
            check_exchange(&nodes, &one_way, seed);
        }
    }
}
