/*
 * MPI_THREAD_MULTIPLE: several threads on one window, each thread with its own window, threads
 * that notify, and threads that block in host calls meanwhile.
 */
#include "check.h"
#include <pthread.h>

enum { THREADS = 3, TURNS = 300 };

typedef struct {
    int id;
    Window *w;
    MPI_Comm comm;
} Work;

static void together(void *(*body)(void *), Window *w, int windows, MPI_Comm *comms)
{
    pthread_t t[THREADS];
    Work work[THREADS];
    for (int i = 0; i < THREADS; i++) {
        work[i] = (Work){i, &w[windows > 1 ? i : 0], comms[i]};
        REQUIRE(pthread_create(&t[i], NULL, body, &work[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_join(t[i], NULL) == 0);
}

/* One window under lock_all: each thread adds, puts and flushes on its own [FL-1]. */
static void *within_lock_all(void *arg)
{
    Work *work = arg;
    MPI_Win win = work->w->win;
    for (int i = 0; i < TURNS; i++) {
        int target = (me + i) % ranks;
        int64_t value = i * 100 + work->id, back = -1, old, one = 1;
        MPI_Aint slot = 1 + me * THREADS + work->id;
        MPI_Request r;
        MPI(MPI_Put(&value, 1, MPI_INT64_T, target, slot, 1, MPI_INT64_T, win));
        if (i % 2) {
            MPI(MPIX_Win_iflush(target, win, &r));
            finish(&r);
        } else
            MPI(MPI_Win_flush(target, win));
        MPI(MPI_Rget(&back, 1, MPI_INT64_T, target, slot, 1, MPI_INT64_T, win, &r));
        MPI(MPI_Fetch_and_op(&one, &old, MPI_INT64_T, target, 0, MPI_SUM, win));
        finish(&r);
        EXPECT(back == value, "thread %d turn %d: %ld, not %ld", work->id, i, (long)back,
               (long)value);
        MPI(MPI_Win_flush_local(target, win));
        EXPECT(old >= 0, "fetch_and_op");
    }
    return NULL;
}

/* One window: each thread locks its own targets, so lock epochs on several targets are open at
 * once. */
static void *own_targets(void *arg)
{
    Work *work = arg;
    for (int i = 0; i < TURNS; i++)
        for (int target = work->id; target < ranks; target += THREADS) {
            int64_t seen;
            MPI_Request r;
            do_lock(i % 4, MPI_LOCK_EXCLUSIVE, target, work->w->win);
            MPI(MPI_Get(&seen, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, work->w->win));
            MPI(MPI_Win_flush(target, work->w->win));
            seen++;
            MPI(MPI_Put(&seen, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, work->w->win));
            do_unlock(i % 4, target, work->w->win, &r);
            finish(&r);
        }
    return NULL;
}

/* One window under lock_all: each thread notifies its own counter of the next process, more often
 * than a thread goes without entering the runtime. */
static void *own_counter(void *arg)
{
    Work *work = arg;
    MPI_Win win = work->w->win;
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    int64_t value = 0, *mine = work->w->base;
    for (int i = 0; i < TURNS; i++) {
        value = (int64_t)i * 100 + me * 10 + work->id;
        if (i % 3 == 0)
            MPI(MPIX_Notify(right, work->id, win));
        MPI(MPIX_Put_notify(&value, 1, MPI_INT64_T, right, 1 + work->id, 1, MPI_INT64_T,
                            work->id, win));
        MPI(MPI_Win_flush(right, win));
    }
    MPI(MPIX_Win_notify_threshold(win, work->id, TURNS + (TURNS + 2) / 3));
    value = (int64_t)(TURNS - 1) * 100 + left * 10 + work->id;
    EXPECT(load64(mine + 1 + work->id) == value, "thread %d: %ld, not %ld", work->id,
           (long)load64(mine + 1 + work->id), (long)value);
    return NULL;
}

/* One window under lock_all: all threads add to one element of the next process, and each steps an
 * element of its own by compare_and_swap. */
static void *single_elements(void *arg)
{
    static const int64_t one = 1;
    Work *work = arg;
    MPI_Win win = work->w->win;
    int right = (me + 1) % ranks;
    int64_t last = -1, old;
    for (int64_t i = 0; i < TURNS; i++) {
        int64_t next = i + 1;
        MPI(MPI_Fetch_and_op(&one, &old, MPI_INT64_T, right, 0, MPI_SUM, win));
        MPI(MPI_Win_flush(right, win));
        EXPECT(old > last, "thread %d: %ld after %ld", work->id, (long)old, (long)last);
        last = old;
        MPI(MPI_Compare_and_swap(&next, &i, &old, MPI_INT64_T, right, 1 + work->id, win));
        MPI(MPI_Win_flush(right, win));
        EXPECT(old == i, "thread %d: %ld, not %ld", work->id, (long)old, (long)i);
        MPI(MPI_Compare_and_swap(&one, &last, &old, MPI_INT64_T, right, 1 + work->id, win));
        MPI(MPI_Fetch_and_op(NULL, &old, MPI_INT64_T, right, 1 + work->id, MPI_NO_OP, win));
        MPI(MPI_Win_flush(right, win));
        EXPECT(old == (last == next ? one : next), "thread %d: %ld after a swap", work->id,
               (long)old);
        MPI(MPI_Fetch_and_op(&next, &old, MPI_INT64_T, right, 1 + work->id, MPI_REPLACE, win));
        MPI(MPI_Win_flush(right, win));
    }
    return NULL;
}

static void atomics(Window *w, MPI_Comm *comms)
{
    int64_t *mine = w->base;
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, w->win));
    for (int i = 0; i <= THREADS; i++)
        store64(mine + i, 0);
    MPI(MPI_Win_unlock(me, w->win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock_all(0, w->win));
    together(single_elements, w, 1, comms);
    MPI(MPI_Win_unlock_all(w->win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w->win));
    EXPECT(load64(mine) == (int64_t)TURNS * THREADS, "%ld additions", (long)load64(mine));
    for (int i = 0; i < THREADS; i++)
        EXPECT(load64(mine + 1 + i) == TURNS, "thread %d: %ld steps", i,
               (long)load64(mine + 1 + i));
    MPI(MPI_Win_unlock(me, w->win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/* Counters that are replaced, and a flush where none is permitted, after threads have gone the
 * short way. */
static void counters_and_flushes(Window *w, MPI_Comm *comms)
{
    for (int number = THREADS; number <= 600; number += 597) { /* two layouts of the counters */
        MPI(MPIX_Win_set_num_notify(w->win, MPI_INFO_NULL, number));
        MPI(MPI_Win_lock_all(0, w->win));
        together(own_counter, w, 1, comms);
        MPI(MPI_Win_unlock_all(w->win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    int64_t value = 5;
    int right = (me + 1) % ranks;
    MPI(MPI_Win_set_errhandler(w->win, MPI_ERRORS_RETURN));
    MPI(MPI_Win_fence(0, w->win));
    for (int i = 0; i < 3; i++) {
        MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 1, 1, MPI_INT64_T, w->win));
        REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_flush(right, w->win));
        REFUSED(MPI_ERR_RMA_SYNC, MPI_Win_flush_local(right, w->win));
    }
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win));
}

/* A window and a communicator per thread: fences, post/start, locks, and host calls between
 * them. */
static void *own_window(void *arg)
{
    Work *work = arg;
    Window *w = work->w;
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    MPI_Group to = group_one(right), from = group_one(left);
    for (int i = 0; i < TURNS / 3; i++) {
        int64_t value = i * 1000 + me * 10 + work->id, *mine = w->base;
        MPI_Request r[3];
        MPI(MPI_Win_fence(0, w->win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, w->win));
        MPI(MPIX_Win_ifence(MPI_MODE_NOSUCCEED, w->win, &r[0]));
        finish(&r[0]);
        EXPECT(load64(mine) == i * 1000 + left * 10 + work->id, "thread %d: fence: %ld", work->id,
               (long)load64(mine));
        do_post(i % 16, from, 0, w->win);
        do_start(i % 16, to, 0, w->win);
        MPI(MPI_Put(&value, 1, MPI_INT64_T, right, 1, 1, MPI_INT64_T, w->win));
        do_complete(i % 16, w->win, &r[0]);
        do_wait(i % 16, w->win, &r[1]);
        MPI(MPI_Irecv(NULL, 0, MPI_BYTE, left, 1, work->comm, &r[2]));
        MPI(MPI_Send(NULL, 0, MPI_BYTE, right, 1, work->comm));
        MPI(MPI_Waitall(3, r, MPI_STATUSES_IGNORE));
        EXPECT(load64(mine + 1) == i * 1000 + left * 10 + work->id, "thread %d: post: %ld",
               work->id, (long)load64(mine + 1));
        if (i % 10 == 0)
            MPI(MPI_Barrier(work->comm));
    }
    MPI(MPI_Group_free(&to));
    MPI(MPI_Group_free(&from));
    return NULL;
}

int main(int argc, char **argv)
{
    test_begin_threads(&argc, &argv, MPI_THREAD_MULTIPLE);
    MPI_Comm comms[THREADS];
    for (int i = 0; i < THREADS; i++)
        MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
    for (int kind = 0; kind < KINDS; kind++) {
        Window w = window(kind, (1 + ranks * THREADS) * sizeof(int64_t), sizeof(int64_t)),
               many[THREADS];
        MPI(MPI_Win_lock_all(0, w.win));
        together(within_lock_all, &w, 1, comms);
        MPI(MPI_Win_unlock_all(w.win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        int64_t mine, sum;
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, w.win));
        mine = load64(w.base);
        store64(w.base, 0);
        MPI(MPI_Win_unlock(me, w.win));
        MPI(MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
        EXPECT(sum == (int64_t)TURNS * THREADS * ranks, "%s: %ld adds", kind_name[kind], (long)sum);
        together(own_targets, &w, 1, comms);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w.win));
        EXPECT(load64(w.base) == (int64_t)TURNS * ranks, "%s: %ld increments", kind_name[kind],
               (long)load64(w.base));
        MPI(MPI_Win_unlock(me, w.win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        atomics(&w, comms);
        counters_and_flushes(&w, comms);
        window_free(&w);
        for (int i = 0; i < THREADS; i++)
            many[i] = window(kind, 2 * sizeof(int64_t), sizeof(int64_t));
        together(own_window, many, THREADS, comms);
        for (int i = 0; i < THREADS; i++)
            window_free(&many[i]);
    }
    for (int i = 0; i < THREADS; i++)
        MPI(MPI_Comm_free(&comms[i]));
    return test_end();
}
