//! Tagged notifications by messages and shared memory in one window: behind their data, and in the
//! order of each origin.

use mpix_rma::engine::{self, *};

use crate::world::*;

/// Notifications per pair of processes, and maximum bytes of the put before each.
const EACH: usize = 12;
const ROOM: usize = 20_000;

/// Each process puts data and notifies the target with their number. The data are there when the
/// notification arrives. None is lost or doubled, and those of one origin keep their order.
#[test]
fn tags_come_in_order_behind_their_data() {
    let nodes: [Vec<Vec<Rank>>; 4] = [
        vec![vec![0, 1], vec![2, 3]],
        vec![vec![0, 2], vec![1, 3]],
        vec![vec![0], vec![1, 2, 3]],
        vec![vec![0, 1, 2, 3]],
    ];
    let ways = [
        Near::Allocated,
        Near::Created { cma: true },
        Near::Created { cma: false },
        Near::Messages,
    ];
    for seed in 0..48 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut memories = vec![vec![0u8; 4 * EACH * ROOM]; 4];
        let near = ways[seed as usize / 4 % 4];
        let (hub, mut ports) = mixed(&nodes[seed as usize % 4], &mut memories, near, seed);
        hub.lock().unwrap().delay = seed as u8 % 5;
        let mut engines: Vec<_> =
            (0..4).map(|me| engine::Window::new(me, 4, ReorderFlags::default())).collect();
        let data: Vec<Vec<u8>> = (0..EACH).map(|number| vec![number as u8 + 1; ROOM]).collect();
        let mut sent = [[0usize; 4]; 4];
        let mut lens = vec![[[0usize; EACH]; 4]; 4];
        // Per process, one expectation for each source.
        let mut expectations: Vec<Vec<ExpectationId>> = Vec::new();
        for (me, engine) in engines.iter_mut().enumerate() {
            engine.lock_all(&mut ports[me], Assert::default()).unwrap();
            expectations.push(
                (0..4)
                    .map(|source| {
                        let id = engine.expect(Wanted { source: Some(source), tag: None }, 1);
                        engine.start_expecting(id);
                        id
                    })
                    .collect(),
            );
        }
        let mut taken = [[0usize; 4]; 4];
        let mut outcomes = [None; 4];
        for turn in 0.. {
            assert!(turn < 400_000, "seed {seed}, {near:?}: it does not end: {taken:?}");
            let (me, target) = (rng.usize(0..4), rng.usize(0..4));
            let number = sent[me][target];
            if number < EACH {
                let len = *rng.choice(&[0, 8, 700, ROOM]).unwrap();
                let (engine, port) = (&mut engines[me], &mut ports[me]);
                let disp = ((me * EACH + number) * ROOM) as u64;
                let put = Op {
                    origin: Addr(data[number].as_ptr() as usize),
                    ..op(OpKind::Put, target as Rank, disp, len)
                };
                let told = Notification::tag(number as u32);
                if rng.u8(0..3) == 0 {
                    engine.issue(port, &put).unwrap();
                    engine.issue(port, &Op::notify(target as Rank, told)).unwrap();
                } else {
                    engine.issue(port, &Op { notification: Some(told), ..put }).unwrap();
                }
                lens[me][target][number] = len;
                sent[me][target] += 1;
            } else if sent[me] == [EACH; 4] && outcomes[me].is_none() {
                outcomes[me] = Some(engines[me].unlock_all(&mut ports[me]).unwrap());
            }
            let who = rng.usize(0..4);
            engines[who].progress(&mut ports[who]);
            while engines[who].next_completed().is_some() {}
            for source in 0..4 {
                let id = expectations[who][source];
                while let ExpectationState::Met(arrival) = engines[who].expectation_state(id) {
                    let number = taken[who][source];
                    assert_eq!(
                        arrival,
                        Arrival { source: source as Rank, tag: number as u32 },
                        "seed {seed}, {near:?}"
                    );
                    let at = ports[who].base().0 + (source * EACH + number) * ROOM;
                    let there = unsafe {
                        std::slice::from_raw_parts(at as *const u8, lens[source][who][number])
                    };
                    assert!(
                        there.iter().all(|byte| *byte == number as u8 + 1),
                        "seed {seed}, {near:?}: notified before the data"
                    );
                    taken[who][source] += 1;
                    engines[who].make_idle(id);
                    engines[who].start_expecting(id);
                }
            }
            let is_over = |me: usize| {
                outcomes[me].is_some_and(|outcome| match outcome {
                    Outcome::Complete => true,
                    Outcome::Pending(id) => !engines[me].is_pending(id),
                })
            };
            if taken == [[EACH; 4]; 4] && (0..4).all(is_over) {
                break;
            }
        }
        for (me, engine) in engines.iter().enumerate() {
            assert_eq!(engine.unexpected(), 0, "seed {seed}: rank {me} was notified too often");
        }
        end(&hub, ports);
    }
}
