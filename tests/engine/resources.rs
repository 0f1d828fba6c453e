//! "No resource now" is a normal answer. The engine retries operations in order, and signals with
//! their latest value.

use mpix_rma::engine::*;

use crate::world::*;

/// Refused operations are posted in call order, with later ones behind them, so accumulates stay in
/// order.
#[test]
fn refused_operations_are_retried_in_order() {
    for mode in [Mode::Immediate, Mode::LocalThenRemote, Mode::Pending] {
        for refusals in [1, 2, 7] {
            let mut w = World::with_mode(2, mode);
            w.rank(0).exclusive(1);
            w.progress_all();
            w.net.refuse_ops(0, 1, refusals);
            for value in 1..=20 {
                w.replace(0, 1, 0, value);
                w.add(0, 1, 8, value);
            }
            let flush = w.rank(0).flush(1);
            let unlock = w.rank(0).unlock(1);
            w.finish();
            assert_eq!(w.net.refusals_left(0, 1), 0);
            assert!(w.done_at(flush) <= w.done_at(unlock));
            assert_eq!((w.cell(1, 0), w.cell(1, 8)), (20, 210), "{mode:?}, {refusals} refusals");
        }
    }
}

/// Operations refused during the replay of a recorded epoch are retried, for each kind of epoch.
#[test]
fn refused_operations_of_recorded_epochs_are_retried() {
    let mut w = World::new(3);
    w.net.refuse_ops(0, 1, 9);
    w.net.refuse_ops(0, 2, 4);
    w.rank(0).fence();
    for value in 1..=5 {
        w.replace(0, 1, 0, value);
        w.replace(0, 2, 0, value);
    }
    w.rank(0).fence();
    w.rank(0).start(&[1, 2]);
    for value in 6..=9 {
        w.replace(0, 1, 8, value);
        w.replace(0, 2, 8, value);
    }
    w.rank(0).complete();
    w.rank(0).lock_all();
    w.replace(0, 1, 16, 3);
    w.rank(0).unlock_all();
    w.drive();
    for me in [1, 2] {
        w.rank(me).fence();
        w.rank(me).fence();
        w.rank(me).post(&[0]);
        w.rank(me).wait();
    }
    w.finish();
    assert_eq!(
        [w.cell(1, 0), w.cell(2, 0), w.cell(1, 8), w.cell(2, 8), w.cell(1, 16)],
        [5, 5, 9, 9, 3]
    );
}

/// A refused target does not delay another.
#[test]
fn a_refused_target_does_not_delay_another() {
    let mut w = World::new(3);
    w.rank(0).lock_all();
    w.progress_all();
    w.net.refuse_ops(0, 1, 50);
    w.put(0, 1, 0, &[1]);
    let put = w.put(0, 2, 0, &[1]);
    assert_eq!(w.posted(put), Some(w.now()));
    let (slow, fast) = (w.rank(0).flush(1), w.rank(0).flush(2));
    w.drive();
    assert!(w.done_at(fast) <= w.done_at(slow));
    w.rank(0).unlock_all();
    w.finish();
}

/// Refused operations are posted in the order of ranks from the origin's on, not in that of the
/// grants: a target that grants late once would else be the last one each time.
#[test]
fn refused_operations_are_posted_to_the_next_ranks_first() {
    let mut w = World::new(4);
    w.net.most_in_flight = Some(1);
    w.rank(2).start(&[0, 1, 3]);
    let puts = [3, 0, 1].map(|target| w.put(2, target, 0, &[1]));
    w.rank(2).complete();
    // All grants arrive while the first operation is in flight, the next rank's as the last.
    for (target, signal_latency) in [(1, 1), (0, 3), (3, 5)] {
        w.net.link(target, 2, Link { signal_latency, ..Link::default() });
        w.rank(target).post(&[2]);
        w.rank(target).wait();
    }
    w.finish();
    let [first, second, third] = puts.map(|put| w.posted(put).expect("it is complete"));
    assert!(third < first, "granted when nothing was in flight");
    assert!(first < second, "{first} {second}");
}

/// An operation of an older epoch is posted first.
#[test]
fn refused_operations_are_posted_in_the_order_of_their_epochs() {
    let mut w = World::new(4);
    w.net.most_in_flight = Some(1);
    w.rank(0).shared(3);
    w.rank(0).shared(2);
    w.rank(0).shared(1);
    w.progress_all();
    w.drive();
    let puts = [1, 2, 3].map(|target| w.put(0, target, 0, &[1]));
    for target in [1, 2, 3] {
        w.rank(0).unlock(target);
    }
    w.finish();
    let [first, second, third] = puts.map(|put| w.posted(put).expect("it is complete"));
    assert!(first < third && third < second, "{first} {second} {third}");
}

/// Over a link with one credit, one operation at a time is in flight.
#[test]
fn operations_wait_for_credits() {
    let mut w = World::new(2);
    w.net.default_link.credits = 1;
    w.rank(0).shared(1);
    let puts: Vec<OpId> = (0..10).map(|i| w.put(0, 1, i, &[i as u8])).collect();
    let flush = w.rank(0).flush(1);
    w.drive();
    for pair in puts.windows(2) {
        assert!(w.posted(pair[1]) >= w.remote(pair[0]));
    }
    assert_eq!(w.done_at(flush), 100);
    w.rank(0).unlock(1);
    w.finish();
    assert_eq!(w.mem(1, 0, 10), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

/// R-forms and flushes wait for refused operations.
#[test]
fn requests_of_refused_operations_wait() {
    let mut w = World::with_mode(2, Mode::Immediate);
    w.rank(0).shared(1);
    w.progress_all();
    w.net.refuse_ops(0, 1, 3);
    let op = w.put_op(0, 1, 0, &[1]);
    let (id, req) = w.issue_request(0, op);
    let (local, remote) = (w.rank(0).flush_local(1), w.rank(0).flush(1));
    assert!(w.posted(id).is_none() && !w.done(req) && !w.done(local) && !w.done(remote));
    w.rank(0).unlock(1);
    w.finish();
}

/// A grant, done or barrier hop that was refused is sent later, and the program waits for it.
#[test]
fn refused_signals_are_retried() {
    for word in [Word::Grant, Word::Done, Word::Fence] {
        for refusals in [1, 2, 11] {
            let mut w = World::new(3);
            for from in 0..3 {
                for to in 0..3 {
                    w.net.refuse_signals(from, to, word, refusals);
                }
            }
            for me in 0..3 {
                let next = (me + 1) % 3;
                w.rank(me).fence();
                w.put(me, next, 0, &[1]);
                w.rank(me).fence();
                w.rank(me).post(&[(me + 2) % 3]);
                w.rank(me).start(&[next]);
                w.put(me, next, 1, &[2]);
                w.rank(me).complete();
                w.rank(me).wait();
                w.rank(me).fence();
            }
            w.finish();
            for me in 0..3 {
                assert_eq!(w.mem(me, 0, 2), [1, 2], "{word:?}");
            }
        }
    }
}

/// An access epoch is complete only when its dones have been sent (the paper's section VI,
/// "internal lifetime"). So a process that has seen the request complete may compute for any time
/// without delaying its target.
#[test]
fn an_access_is_not_complete_before_its_done_is_sent() {
    let mut w = World::with_mode(2, Mode::Immediate);
    w.rank(1).post(&[0]);
    let wait = w.rank(1).wait();
    w.drive();
    w.net.refuse_signals(0, 1, Word::Done, 3);
    w.rank(0).start(&[1]);
    w.put(0, 1, 0, &[1]);
    let complete = w.rank(0).complete();
    w.block(complete);
    w.freeze(0);
    w.drive();
    assert!(w.done(wait));
    w.thaw(0);
    w.finish();
}

/// Words only rise, so several refused grants or dones may be sent as the last value.
#[test]
fn refused_words_may_merge() {
    let flags = ReorderFlags {
        access_after_access: true,
        exposure_after_exposure: true,
        ..Default::default()
    };
    let mut w = World::with_flags(2, flags);
    w.net.refuse_signals(1, 0, Word::Grant, 6);
    w.net.refuse_signals(0, 1, Word::Done, 6);
    for _ in 0..5 {
        w.rank(1).post(&[0]);
        w.rank(1).wait();
    }
    for value in 1..=5 {
        w.rank(0).start(&[1]);
        w.put(0, 1, 0, &[value]);
        w.rank(0).complete();
    }
    w.finish();
    assert_eq!(w.signals(Word::Grant).last().map(|s| s.value), Some(5));
    assert_eq!(w.signals(Word::Done).last().map(|s| s.value), Some(5));
}

/// A refused value is not sent if a later value of the word was sent.
#[test]
fn a_superseded_value_is_not_sent() {
    let flags = ReorderFlags { exposure_after_exposure: true, ..Default::default() };
    let mut w = World::with_flags(2, flags);
    w.net.refuse_signals(1, 0, Word::Grant, 1);
    w.rank(1).post(&[0]);
    w.rank(1).wait();
    w.rank(1).post(&[0]);
    w.rank(1).wait();
    w.drive();
    let grants: Vec<u64> = w.signals(Word::Grant).iter().map(|s| s.value).collect();
    assert_eq!(grants, [2]);
    for _ in 0..2 {
        w.rank(0).start(&[1]);
        w.rank(0).complete();
    }
    w.finish();
}

/// A window with a refused signal is not quiet, because a peer waits for it.
#[test]
fn a_refused_signal_keeps_the_window_from_being_quiet() {
    let mut w = World::new(2);
    w.net.refuse_signals(1, 0, Word::Grant, 5);
    w.rank(1).post(&[0]);
    assert!(!w.window(1).is_quiet());
    w.drive();
    w.rank(0).start(&[1]);
    w.rank(0).complete();
    w.rank(1).wait();
    w.finish();
}
