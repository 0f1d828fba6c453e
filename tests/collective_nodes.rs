//! Schedules over several nodes: every process in one thread, in random order and with puts that
//! arrive in any order, against a reference.

use std::collections::HashMap;

use mpix_rma::collective::nodes::alltoallv::{NodePlan, pairwise};
use mpix_rma::collective::nodes::halo::{Grid, NodeHalo};
use mpix_rma::collective::nodes::{
    Allreduce, Area, Block, Broadcast, Counter, Kind, Move, Place, Placement, Program, Progress,
    StepId, barrier, broadcast,
};

/// Contents that no step has written.
const GARBAGE: u8 = 0xa5;

/// All processes, in the middle of a collective.
struct World {
    /// Who may load and store whose memory.
    nodes: Placement,
    programs: Vec<Program>,
    progress: Vec<Progress>,
    /// Steps that wait for no other step.
    free: Vec<Vec<StepId>>,
    /// By process and area.
    memory: Vec<[Vec<u8>; 4]>,
    counters: HashMap<(u32, u32), u32>,
    /// Puts that have not arrived: process and step.
    flying: Vec<(u32, StepId)>,
    /// Puts by nodes.
    puts: HashMap<(u32, u32), u32>,
    fold: fn(&[u8], &mut [u8]),
    random: fastrand::Rng,
}

fn add_bytes(input: &[u8], inout: &mut [u8]) {
    inout.iter_mut().zip(input).for_each(|(sum, byte)| *sum = sum.wrapping_add(*byte));
}

fn add_doubles(input: &[u8], inout: &mut [u8]) {
    for (sum, number) in inout.as_chunks_mut::<8>().0.iter_mut().zip(input.as_chunks::<8>().0) {
        *sum = (f64::from_ne_bytes(*sum) + f64::from_ne_bytes(*number)).to_ne_bytes();
    }
}

impl World {
    fn new(nodes: &Placement, programs: Vec<Program>, seed: u64) -> Self {
        let mut free = vec![Vec::new(); programs.len()];
        let progress = programs.iter().zip(&mut free);
        let progress = progress.map(|(program, free)| Progress::new(program, |at| free.push(at)));
        let progress = progress.collect();
        let memory = programs.iter().map(|program| {
            let areas = program.areas();
            areas.map(|bytes| vec![GARBAGE; bytes as usize])
        });
        World {
            nodes: nodes.clone(),
            memory: memory.collect(),
            programs,
            progress,
            free,
            counters: HashMap::new(),
            flying: Vec::new(),
            puts: HashMap::new(),
            fold: add_bytes,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    fn area(&mut self, rank: u32, area: Area) -> &mut Vec<u8> {
        &mut self.memory[rank as usize][area.number()]
    }

    fn bytes(&mut self, place: Place, bytes: u32) -> &mut [u8] {
        &mut self.area(place.rank, place.area)[place.at as usize..][..bytes as usize]
    }

    fn shares_node(&self, me: u32, other: u32) -> bool {
        self.nodes.node_of(me) == self.nodes.node_of(other)
    }

    fn apply(&mut self, me: u32, moves: &Move) {
        let blocks: Vec<Block> = self.programs[me as usize].blocks(moves).collect();
        for Block { from, to, with, bytes } in blocks {
            let mut data = self.bytes(from, bytes).to_vec();
            if let Some(with) = with {
                let mut sum = self.bytes(with, bytes).to_vec();
                (self.fold)(&data, &mut sum);
                data = sum;
            }
            self.bytes(to, bytes).copy_from_slice(&data);
        }
    }

    fn raise(&mut self, counter: Counter) {
        *self.counters.entry((counter.rank, counter.index)).or_insert(0) += 1;
    }

    /// Does one of the free steps of a process, if its counter allows one.
    fn step(&mut self, me: u32) -> bool {
        let free = &self.free[me as usize];
        let steps = self.programs[me as usize].steps();
        let counters = &self.counters;
        let may = |id: &StepId| {
            steps[*id as usize].awaits.is_none_or(|wait| {
                let Counter { rank, index } = wait.counter;
                counters.get(&(rank, index)).copied().unwrap_or(0) >= wait.value
            })
        };
        let ready: Vec<usize> = (0..free.len()).filter(|at| may(&free[*at])).collect();
        let Some(at) = self.random.choice(ready) else { return false };
        let id = self.free[me as usize].swap_remove(at);
        let step = self.programs[me as usize].steps()[id as usize];
        if let Some(wait) = step.awaits {
            assert!(
                self.shares_node(me, wait.counter.rank),
                "{me} waits on another node: {step:?}"
            );
        }
        let puts = step.moves.is_some_and(|moves| moves.kind == Kind::Put);
        if let Some(moves) = step.moves {
            assert!(
                self.shares_node(me, moves.from.rank),
                "{me} loads from another node: {step:?}"
            );
            if puts {
                let nodes = (self.nodes.node_of(me), self.nodes.node_of(moves.to.rank));
                *self.puts.entry(nodes).or_insert(0) += 1;
                let notified = step.notifies.expect("puts notify");
                assert!(self.shares_node(notified.rank, moves.to.rank), "{step:?}");
                self.flying.push((me, id));
            } else {
                assert!(
                    self.shares_node(me, moves.to.rank),
                    "{me} stores to another node: {step:?}"
                );
                self.apply(me, &moves);
            }
        }
        if let Some(counter) = step.notifies.filter(|_| !puts) {
            assert!(self.shares_node(me, counter.rank), "{me} notifies another node: {step:?}");
            self.raise(counter);
        }
        let free = &mut self.free[me as usize];
        self.progress[me as usize].done(id, |next| free.push(next));
        true
    }

    /// Lets a put arrive.
    fn land(&mut self) {
        let at = self.random.usize(..self.flying.len());
        let (me, id) = self.flying.swap_remove(at);
        let step = self.programs[me as usize].steps()[id as usize];
        // The source is read now: nothing may have changed it meanwhile.
        self.apply(me, &step.moves.expect("a put moves"));
        self.raise(step.notifies.expect("a put notifies"));
    }

    fn run(&mut self) {
        let ranks = self.programs.len() as u32;
        let mut idle = 0;
        while !self.progress.iter().all(Progress::is_done) || !self.flying.is_empty() {
            let moved = if !self.flying.is_empty() && self.random.u8(..3) == 0 {
                self.land();
                true
            } else {
                let me = self.random.u32(..ranks);
                self.step(me)
            };
            idle = if moved { 0 } else { idle + 1 };
            if idle > 200 * ranks {
                let left = self.progress.iter().filter(|progress| !progress.is_done());
                panic!("nothing moves, and {} processes are not done", left.count());
            }
        }
    }
}

/// Nodes of all kinds: one, many, uneven, one process each.
fn placements() -> Vec<Placement> {
    let mut all: Vec<Placement> = (1..=9).map(Placement::flat).collect();
    all.extend([13, 16, 17, 31].map(Placement::flat));
    all.extend((1..=5).map(|ranks| Placement::of(&[ranks])));
    all.extend(
        [(6, 3), (8, 3), (12, 4), (16, 3), (20, 4), (33, 4), (64, 48)]
            .map(|(ranks, per_node)| Placement::even(ranks, per_node)),
    );
    all.extend(
        [&[1, 5][..], &[4, 1, 2], &[3, 3, 1, 2, 4], &[1, 1, 7, 1, 1, 1, 2]].map(Placement::of),
    );
    all
}

fn contribution(me: u32, bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (me.wrapping_mul(37).wrapping_add(at * 11) >> 2) as u8).collect()
}

fn algorithms() -> Vec<Allreduce> {
    let gathers = [2, 3, 4, 8, 64].map(|radix| Allreduce::Gather { radix });
    [Allreduce::Doubling, Allreduce::Halving, Allreduce::Direct]
        .into_iter()
        .chain(gathers)
        .collect()
}

fn allreduce(
    placement: &Placement,
    algorithm: Allreduce,
    bytes: u32,
    seed: u64,
    fold: fn(&[u8], &mut [u8]),
) -> World {
    let ranks = placement.ranks();
    let programs = (0..ranks).map(|me| algorithm.program(placement, me, bytes)).collect();
    let mut world = World::new(placement, programs, seed);
    world.fold = fold;
    for me in 0..ranks {
        *world.area(me, Area::Send) = contribution(me, bytes);
    }
    world.run();
    world
}

/// [CL-1] Each algorithm of an allreduce gives the sum, for any nodes and any size.
#[test]
fn an_allreduce_gives_the_sum() {
    for (seed, placement) in (1..).zip(placements()) {
        for algorithm in algorithms() {
            for bytes in [8, 100, 0, 1] {
                let ranks = placement.ranks();
                let mut sum = vec![0; bytes as usize];
                (0..ranks).for_each(|me| add_bytes(&contribution(me, bytes), &mut sum));
                let mut world = allreduce(&placement, algorithm, bytes, seed, add_bytes);
                for me in 0..ranks {
                    let found = world.area(me, Area::Receive);
                    assert_eq!(*found, sum, "{placement:?} {algorithm:?} {bytes} bytes: {me}");
                }
            }
        }
    }
}

/// [CL-2] A sum of floating-point numbers has the same bits in all processes and in every run.
#[test]
fn an_allreduce_gives_the_same_bits_everywhere() {
    for placement in placements() {
        for algorithm in algorithms() {
            // Segments of an allreduce consist of whole elements if there are enough of them.
            let bytes = match algorithm {
                Allreduce::Gather { .. } | Allreduce::Doubling => 32,
                Allreduce::Halving if placement.size_max() == 1 => 8 * 64,
                _ => continue,
            };
            let sums = |seed| {
                let mut world = allreduce(&placement, algorithm, bytes, seed, add_doubles);
                let ranks = 0..placement.ranks();
                ranks.map(|me| world.area(me, Area::Receive).clone()).collect::<Vec<_>>()
            };
            let first = sums(1);
            assert!(first.iter().all(|sum| *sum == first[0]), "{placement:?} {algorithm:?}");
            assert_eq!(first, sums(2), "{placement:?} {algorithm:?}: the order of steps matters");
        }
    }
}

/// A node puts to each other node at most once in a phase: one phase where nodes exchange their
/// sums, two where they reduce and then gather segments.
#[test]
fn a_node_puts_to_another_one_once() {
    for placement in placements() {
        for (algorithm, phases, bytes) in
            [(Allreduce::Gather { radix: 3 }, 1, 8), (Allreduce::Direct, 2, 100)]
        {
            let world = allreduce(&placement, algorithm, bytes, 1, add_bytes);
            let nodes = placement.nodes();
            assert!(world.puts.values().all(|puts| *puts <= phases), "{:?}", world.puts);
            if algorithm == Allreduce::Direct {
                assert_eq!(world.puts.len() as u32, nodes * (nodes - 1), "{placement:?}");
            }
        }
    }
}

/// A process leaves a barrier only after all have entered it.
#[test]
fn a_barrier_waits_for_every_process() {
    for (seed, placement) in (1..).zip(placements()) {
        for radix in [2, 3, 5, 64] {
            let ranks = placement.ranks();
            let programs = || (0..ranks).map(|me| barrier(&placement, me, radix)).collect();
            World::new(&placement, programs(), seed).run();
            let late = ranks / 2;
            let mut world = World::new(&placement, programs(), seed);
            for _ in 0..100 * ranks {
                let me = world.random.u32(..ranks);
                if me != late {
                    world.step(me);
                }
                while !world.flying.is_empty() {
                    world.land();
                }
            }
            let left = (0..ranks).filter(|me| world.progress[*me as usize].is_done());
            assert_eq!(left.collect::<Vec<_>>(), [], "{placement:?}, radix {radix}, late {late}");
            world.run();
        }
    }
}

#[test]
fn a_broadcast_reaches_every_process() {
    for (seed, placement) in (1..).zip(placements()) {
        let ranks = placement.ranks();
        for root in [0, ranks / 2, ranks - 1] {
            for (radix, pieces, bytes) in [(2, 1, 8), (3, 4, 101), (64, 2, 5), (2, 7, 3)] {
                let how = Broadcast { root, radix, pieces };
                let programs = (0..ranks).map(|me| broadcast(&placement, me, bytes, how));
                let mut world = World::new(&placement, programs.collect(), seed);
                let content = contribution(7, bytes);
                *world.area(root, Area::Send) = content.clone();
                world.run();
                for me in 0..ranks {
                    assert_eq!(*world.area(me, Area::Receive), content, "{placement:?} {how:?}");
                }
                let nodes = placement.nodes();
                assert_eq!(world.puts.values().sum::<u32>(), (nodes - 1) * pieces, "{how:?}");
            }
        }
    }
}

/// Sizes of the blocks: all equal, irregular with empty ones, and few.
const SIZES: [fn(u32, u32) -> u32; 4] = [
    |_, _| 3,
    |from, to| (from * 7 + to * 13) % 5,
    |from, to| if (from + 3 * to).is_multiple_of(11) { 9 } else { 0 },
    |_, _| 0,
];

fn block(from: u32, to: u32, bytes: u32) -> impl Iterator<Item = u8> {
    (0..bytes).map(move |at| (from * 31 + to * 5 + at) as u8)
}

#[test]
fn an_alltoallv_moves_each_block_to_its_place() {
    for (seed, placement) in (1..).zip(placements()) {
        let (ranks, nodes) = (placement.ranks(), placement.nodes());
        for size in SIZES {
            let plans: Vec<_> =
                (0..nodes).map(|node| NodePlan::new(&placement, node, &size)).collect();
            let aware = (0..ranks).map(|me| {
                let node = placement.node_of(me);
                plans[node as usize].program(me, |to| plans[to as usize].arrivals()[node as usize])
            });
            let there = |me, to| (0..me).map(|from| size(from, to)).sum();
            let flat = (0..ranks).map(|me| pairwise(ranks, me, &size, |to| there(me, to)));
            for (programs, knows_nodes) in [(aware.collect(), true), (flat.collect(), false)] {
                let mut world = World::new(&placement, programs, seed);
                for me in 0..ranks {
                    *world.area(me, Area::Send) =
                        (0..ranks).flat_map(|to| block(me, to, size(me, to))).collect();
                }
                world.run();
                for me in 0..ranks {
                    let expected: Vec<u8> =
                        (0..ranks).flat_map(|from| block(from, me, size(from, me))).collect();
                    let found = world.area(me, Area::Receive);
                    assert_eq!(*found, expected, "{placement:?}: {me}, nodes: {knows_nodes}");
                }
                if knows_nodes {
                    assert!(world.puts.values().all(|puts| *puts == 1), "{:?}", world.puts);
                }
            }
        }
    }
}

/// A cell by the process that owns it and its place there.
fn cell(rank: u32, at: usize) -> u8 {
    (rank as usize * 53 + at * 7 + 1) as u8
}

/// Each ghost cell has the value of the neighbour's cell, and nothing else has changed.
#[test]
fn a_halo_exchange_fills_the_ghost_cells() {
    let split =
        |ranks: u32| [Placement::flat(ranks), Placement::even(ranks, 5), Placement::of(&[ranks])];
    for (sides, cells) in
        [([1, 1, 1], 2), ([2, 1, 1], 3), ([2, 2, 2], 1), ([3, 2, 4], 3), ([4, 3, 3], 2)]
    {
        let grid = Grid { sides, cells, cell: 2 };
        let ranks = grid.ranks();
        let side = cells as i32 + 2;
        let [_, rows, columns] = sides.map(|side| (side * cells) as i32);
        let planes = (sides[0] * cells) as i32;
        // The value of the field at global coordinates, and where process `me` has it.
        let owner = |at: [i32; 3]| {
            let inside =
                at.iter().zip([planes, rows, columns]).all(|(at, end)| (0..end).contains(at));
            inside.then(|| {
                let block = at.map(|at| at as u32 / cells);
                (block[0] * sides[1] + block[1]) * sides[2] + block[2]
            })
        };
        let place = |at: [i32; 3]| ((at[0] * side + at[1]) * side + at[2]) as usize * 2;
        for placement in split(ranks) {
            let halos: Vec<_> =
                (0..placement.nodes()).map(|node| NodeHalo::new(&placement, grid, node)).collect();
            let aware = (0..ranks).map(|me| {
                let node = placement.node_of(me);
                halos[node as usize].program(me, |to| halos[to as usize].arrival(node))
            });
            let flat = (0..ranks).map(|me| grid.flat(me));
            for (programs, knows_nodes) in [(aware.collect(), true), (flat.collect(), false)] {
                let mut world = World::new(&placement, programs, u64::from(ranks));
                let ours = |me: u32| {
                    let corner =
                        [me / (sides[1] * sides[2]), me / sides[2] % sides[1], me % sides[2]];
                    corner.map(|at| (at * cells) as i32 - 1)
                };
                let value = |rank: u32, global: [i32; 3], byte| {
                    let corner = ours(rank);
                    let local = [0, 1, 2].map(|at| global[at] - corner[at]);
                    cell(rank, place(local) + byte)
                };
                for me in 0..ranks {
                    let field = world.area(me, Area::Receive);
                    for (at, byte) in field.iter_mut().enumerate() {
                        let local = (at / 2) as i32;
                        let local = [local / (side * side), local / side % side, local % side];
                        let inner = local.iter().all(|at| (1..=cells as i32).contains(at));
                        *byte = if inner { cell(me, at) } else { GARBAGE };
                    }
                }
                world.run();
                for me in 0..ranks {
                    let corner = ours(me);
                    let field = world.area(me, Area::Receive);
                    for (at, got) in field.iter().enumerate() {
                        let local = (at / 2) as i32;
                        let local = [local / (side * side), local / side % side, local % side];
                        let global = [0, 1, 2].map(|at| local[at] + corner[at]);
                        let expected =
                            owner(global).map_or(GARBAGE, |rank| value(rank, global, at % 2));
                        assert_eq!(*got, expected, "{grid:?} {placement:?} {me} {local:?}");
                    }
                }
                if knows_nodes {
                    assert!(world.puts.values().all(|puts| *puts == 1), "{:?}", world.puts);
                }
            }
        }
    }
}

#[test]
fn a_grid_is_as_cubic_as_the_number_allows() {
    assert_eq!(Grid::of(64, 4, 8).sides, [4, 4, 4]);
    assert_eq!(Grid::of(16_384, 4, 8).sides, [32, 32, 16]);
    assert_eq!(Grid::of(7, 4, 8).sides, [7, 1, 1]);
}
