/*
 * Continuations under MPI_THREAD_MULTIPLE [CO-1, CO-2].
 *
 *   continuation_threads CASE    CASE: threads | computing | restarts | nested
 */
#include "continuations.h"

#include <pthread.h>

/* Threads that register continuations of their own with one request each, on messages and on their
 * windows, and run those of the others. */
enum { THREADS = 3, ROUNDS = 400 };
static MPI_Win windows[THREADS];

static void *one_thread(void *number)
{
    int t = (int)(intptr_t)number, right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    MPI_Request all = started(0, 0), r[3];
    int in, out;
    int64_t put;
    Seen seen = {0};
    MPI(MPI_Win_lock_all(0, windows[t]));
    for (int i = 1; i <= ROUNDS; i++) {
        out = t * ROUNDS + i;
        put = i;
        MPI(MPI_Irecv(&in, 1, MPI_INT, left, t, MPI_COMM_WORLD, r));
        MPI(MPI_Isend(&out, 1, MPI_INT, right, t, MPI_COMM_WORLD, r + 1));
        MPI(MPIX_Win_notify_ithreshold(windows[t], 0, i, r + 2));
        MPI(MPIX_Continueall(3, r, note, &seen, i % 2 ? MPIX_CONT_REQUESTS_FREE : 0,
                             MPI_STATUSES_IGNORE, all));
        MPI(MPIX_Put_notify(&put, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, 0, windows[t]));
        MPI(MPI_Wait(&all, MPI_STATUS_IGNORE));
        EXPECT(__atomic_load_n(&seen.ran, __ATOMIC_RELAXED) == i && in == out,
               "thread %d: round %d: the callback ran %d times, and got %d", t, i, seen.ran, in);
        MPI(MPI_Start(&all));
    }
    MPI(MPI_Win_unlock_all(windows[t]));
    end_all(&all);
    return NULL;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    int64_t *memory;
    for (int t = 0; t < THREADS; t++) {
        MPI(MPI_Win_allocate(8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, windows + t));
        MPI(MPIX_Win_set_num_notify(windows[t], MPI_INFO_NULL, 1));
    }
    for (intptr_t t = 0; t < THREADS; t++)
        REQUIRE(pthread_create(thread + t, NULL, one_thread, (void *)t) == 0);
    for (int t = 0; t < THREADS; t++)
        REQUIRE(pthread_join(thread[t], NULL) == 0);
    for (int t = 0; t < THREADS; t++)
        MPI(MPI_Win_free(windows + t));
}

/* A thread tests and restarts a continuation request to which another one adds continuations. A
 * test that says that it is complete leaves it inactive. */
enum { ADDED = 100000 };
static MPI_Request shared;
static Seen counted;

static void *add(void *unused)
{
    (void)unused;
    for (int i = 0; i < ADDED; i++) {
        MPI_Request r;
        MPI(MPI_Isend(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF, &r));
        MPI(MPIX_Continue(&r, note, &counted, MPIX_CONT_REQUESTS_FREE, MPI_STATUS_IGNORE, shared));
    }
    return NULL;
}

static void restarts(void)
{
    pthread_t thread;
    int flag;
    shared = started(0, 0);
    REQUIRE(pthread_create(&thread, NULL, add, NULL) == 0);
    while (__atomic_load_n(&counted.ran, __ATOMIC_RELAXED) < ADDED) {
        MPI(MPI_Test(&shared, &flag, MPI_STATUS_IGNORE));
        if (flag)
            MPI(MPI_Start(&shared));
    }
    REQUIRE(pthread_join(thread, NULL) == 0);
    end_all(&shared);
}

/* The progress thread runs a continuation while this process computes. */
static int64_t done;

static int set_done(int error, void *data)
{
    (void)data;
    store64(&done, error == MPI_SUCCESS ? 1 : 2);
    return MPI_SUCCESS;
}

static void computing(void)
{
    MPI_Request all, r[2];
    MPI_Info info;
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    MPI(MPI_Info_create(&info));
    MPI(MPI_Info_set(info, "mpi_continue_thread", "all"));
    MPI(MPIX_Continue_init(0, 0, info, &all));
    MPI(MPI_Info_free(&info));
    for (int ours = 0; ours < 2; ours++)
        for (int i = 0; i < 20; i++) {
            MPI(MPI_Start(&all));
            store64(&done, 0);
            MPI(MPI_Irecv(NULL, 0, MPI_BYTE, left, 1, MPI_COMM_WORLD, r));
            if (ours)
                MPI(MPIX_Win_notify_ithreshold(w.win, 0, i + 1, r + 1));
            MPI(MPIX_Continueall(1 + ours, r, set_done, NULL, MPIX_CONT_REQUESTS_FREE,
                                 MPI_STATUSES_IGNORE, all));
            if (ours) {
                MPI(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, w.win));
                MPI(MPIX_Notify(right, 0, w.win));
                MPI(MPI_Win_unlock(right, w.win));
            }
            MPI(MPI_Send(NULL, 0, MPI_BYTE, right, 1, MPI_COMM_WORLD));
            compute_until(&done, 1);
            MPI(MPI_Wait(&all, MPI_STATUS_IGNORE));
        }
    MPI(MPI_Request_free(&all));
}

/* A callback waits for a continuation that its own thread cannot run meanwhile: the log says so,
 * and another thread runs it. */
static MPI_Request awaited;
static Seen inner;

static int wait_inside(int error, void *data)
{
    (void)data;
    MPI(error);
    MPI(MPI_Wait(&awaited, MPI_STATUS_IGNORE));
    return MPI_SUCCESS;
}

static void *run_inner(void *unused)
{
    (void)unused;
    /* The delay itself is under test: a wait is logged after two seconds. */
    for (double end = seconds() + 5; seconds() < end;)
        ;
    MPI(MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_SELF));
    while (!__atomic_load_n(&inner.ran, __ATOMIC_RELAXED)) {
        int flag;
        MPI(MPI_Iprobe(MPI_ANY_SOURCE, 3, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE));
    }
    return NULL;
}

static void nested(void)
{
    pthread_t thread;
    MPI_Request outer = started(0, 0), r;
    awaited = started(0, 0);
    MPI(MPI_Irecv(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_SELF, &r));
    MPI(MPIX_Continue(&r, note, &inner, MPIX_CONT_REQUESTS_FREE, MPI_STATUS_IGNORE, awaited));
    REQUIRE(pthread_create(&thread, NULL, run_inner, NULL) == 0);
    MPI(MPI_Isend(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF, &r));
    MPI(MPIX_Continue(&r, wait_inside, NULL, MPIX_CONT_REQUESTS_FREE, MPI_STATUS_IGNORE, outer));
    REQUIRE(pthread_join(thread, NULL) == 0);
    expect_ran(&inner, 1, "the one that was waited for");
    end_all(&outer);
    MPI(MPI_Request_free(&awaited));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    test_begin_threads(&argc, &argv, MPI_THREAD_MULTIPLE);
    w = window(ALLOCATED, 8, 1);
    MPI(MPIX_Win_set_num_notify(w.win, MPI_INFO_NULL, 1));
    if (!strcmp(what, "threads"))
        threads();
    else if (!strcmp(what, "computing"))
        computing();
    else if (!strcmp(what, "restarts"))
        restarts();
    else if (!strcmp(what, "nested"))
        nested();
    else
        REQUIRE(!"a case");
    window_free(&w);
    return test_end();
}
