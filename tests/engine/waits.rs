//! What a window says it waits for [EP-10]: whoever reads the log must learn whom to look at.

use mpix_rma::engine::*;

use crate::world::*;

fn says(w: &World, me: Rank, words: &[&str]) {
    let text = w.window(me).waits().to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

#[test]
fn ep10_a_wait_names_whom_it_waits_for() {
    let mut w = World::new(3);
    w.rank(0).start(&[1]);
    w.put(0, 1, 0, &[1]);
    w.rank(0).complete();
    w.rank(0).post(&[2]);
    w.drive();
    says(
        &w,
        0,
        &[
            "2 epochs pending, 1 deferred",
            "blocked by Earlier(Access)",
            "a post of rank 1;",
            "1 operations",
        ],
    );
    w.rank(1).post(&[0]);
    w.rank(1).wait();
    w.drive();
    says(&w, 0, &["1 epochs pending, 0 deferred", "a complete of rank 2"]);
    says(&w, 1, &["0 epochs pending"]);
}

#[test]
fn ep10_a_wait_for_a_fence_or_a_lock_names_it() {
    let mut w = World::new(2);
    w.rank(0).fence();
    w.drive();
    says(&w, 0, &["a fence waits for rank 1"]);

    let mut w = World::new(3);
    w.rank(1).exclusive(2);
    w.rank(0).exclusive(2);
    w.drive();
    says(&w, 0, &["locks are queued at target 2"]);
}
