//! Loom: threads that complete requests, and threads that run continuations.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use mpix_rma::runtime::continuations::*;
use mpix_rma::sync::Exclusive;

/// What a completed request has written, by continuation and request, and how often each
/// continuation has run. Loom reports every unordered access.
struct World {
    all: Exclusive<Continuations<usize>>,
    results: [[UnsafeCell<u32>; 2]; 2],
    runs: [UnsafeCell<u32>; 2],
}

impl World {
    fn with<R>(&self, body: impl FnOnce(&mut Continuations<usize>) -> R) -> R {
        unsafe { self.all.with(true, body) }
    }

    /// A request of a continuation is complete.
    fn complete(&self, id: ContinuationId, continuation: usize, request: usize) {
        self.results[continuation][request].with_mut(|result| unsafe { *result = 1 });
        self.with(|all| all.request_completed(id, 0));
    }

    /// Runs what is ready: each reads the results of its requests.
    fn run(&self, requests: [usize; 2]) {
        while let Some(ready) = self.with(|all| all.take(Thread::Application)) {
            let continuation = ready.callback;
            for result in &self.results[continuation][..requests[continuation]] {
                assert_eq!(
                    result.with(|result| unsafe { *result }),
                    1,
                    "a request is not complete"
                );
            }
            self.runs[continuation].with_mut(|runs| unsafe { *runs += 1 });
            self.with(|all| all.ended(ready, 0));
        }
    }
}

/// One continuation waits for two requests that different threads complete, the other for one. A
/// thread that has completed a request runs what is ready. When both threads have done so, each
/// continuation has run once, and the continuation request is complete.
#[test]
fn each_continuation_runs_once_after_its_requests() {
    loom::model(|| {
        const REQUESTS: [usize; 2] = [2, 1];
        let world = Arc::new(World {
            all: unsafe { Exclusive::new(Continuations::new()) },
            results: Default::default(),
            runs: Default::default(),
        });
        let (group, ids) = world.with(|all| {
            let group = all.make_group(Properties::default());
            all.start(group);
            let add = |at: usize| all.add(group, at, REQUESTS[at], false).expect("it exists");
            let ids = [0, 1].map(add);
            (group, ids)
        });
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.complete(ids[0], 0, 0);
                world.complete(ids[1], 1, 0);
                world.run(REQUESTS);
            })
        };
        world.complete(ids[0], 0, 1);
        world.run(REQUESTS);
        other.join().expect("the thread ends");
        assert_eq!(world.with(|all| all.state(group)), GroupState::Complete);
        let runs = world.runs.each_ref().map(|runs| runs.with(|runs| unsafe { *runs }));
        assert_eq!(runs, [1, 1]);
    });
}
