//! The log of a long wait names the ranks that the window waits for [EP-10].

use mpix_rma::engine::*;

use crate::world::*;

fn says(w: &World, me: Rank, words: &[&str]) {
    let text = w.window(me).waits().to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

#[test]
fn ep10_the_log_names_the_ranks_waited_for() {
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
            "first behind an earlier Access epoch",
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
fn ep10_the_log_names_a_fence_or_lock_waited_for() {
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
