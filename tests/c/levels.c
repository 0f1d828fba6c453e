/*
 * MPI_THREAD_FUNNELED and MPI_THREAD_SERIALIZED: other threads compute, or call MPI in turns.
 * Epochs, requests and windows pass from thread to thread.
 *
 *   levels funneled | serialized
 */
#include "check.h"
#include <pthread.h>

enum { THREADS = 3, TURNS = 200 };

static int serialized;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int64_t computed[THREADS];

/* One step of a sequence; each step may run on another thread. */
static struct {
    Window w;
    MPI_Request request;
    int64_t value, back;
    int step;
} shared;

static void step(void)
{
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks, i = shared.step / 6;
    MPI_Win win = shared.w.win;
    int64_t *mine = shared.w.base;
    switch (shared.step++ % 6) {
        case 0:
            shared.value = i * 100 + me;
            MPI(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win));
            break;
        case 1:
            MPI(MPI_Rput(&shared.value, 1, MPI_INT64_T, right, 1 + me, 1, MPI_INT64_T, win,
                         &shared.request));
            break;
        case 2:
            MPI(MPI_Wait(&shared.request, MPI_STATUS_IGNORE));
            MPI(MPI_Win_flush(right, win));
            MPI(MPI_Rget(&shared.back, 1, MPI_INT64_T, right, 1 + me, 1, MPI_INT64_T, win,
                         &shared.request));
            break;
        case 3:
            MPI(MPI_Waitall(1, &shared.request, MPI_STATUSES_IGNORE));
            EXPECT(shared.back == shared.value, "turn %d: %ld, not %ld", i, (long)shared.back,
                   (long)shared.value);
            MPI(MPI_Win_unlock(right, win));
            break;
        case 4:
            MPI(MPI_Sendrecv(NULL, 0, MPI_BYTE, right, 1, NULL, 0, MPI_BYTE, left, 1,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            break;
        default:
            MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
            EXPECT(load64(mine + 1 + left) == i * 100 + left, "%s, turn %d: %ld from %d",
                   kind_name[shared.w.kind], i, (long)load64(mine + 1 + left), left);
            MPI(MPI_Win_unlock(me, win));
            MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
}

static void *other(void *arg)
{
    int id = (int)(intptr_t)arg;
    if (!serialized) {
        for (int i = 0; i < 1000000; i++)
            __atomic_fetch_add(&computed[id], 1, __ATOMIC_RELAXED);
        return NULL;
    }
    for (int more = 1; more;) {
        pthread_mutex_lock(&turn);
        if ((more = shared.step < 6 * TURNS))
            step();
        pthread_mutex_unlock(&turn);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread[THREADS];
    REQUIRE(argc == 2);
    serialized = strcmp(argv[1], "serialized") == 0;
    test_begin_threads(&argc, &argv, serialized ? MPI_THREAD_SERIALIZED : MPI_THREAD_FUNNELED);
    for (int kind = 0; kind < KINDS; kind++) {
        if (kind == CREATED && ranks == 1)
            continue; /* Some hosts cannot create a window of one process. */
        shared.w = window(kind, 64 * sizeof(int64_t), sizeof(int64_t));
        shared.step = 0;
        for (int i = 0; i < THREADS; i++)
            REQUIRE(pthread_create(&thread[i], NULL, other, (void *)(intptr_t)i) == 0);
        while (!serialized && shared.step < 6 * TURNS)
            step();
        for (int i = 0; i < THREADS; i++)
            REQUIRE(pthread_join(thread[i], NULL) == 0);
        window_free(&shared.w);
    }
    return test_end();
}
