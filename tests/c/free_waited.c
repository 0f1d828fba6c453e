/*
 * A request outlives its window (MPI-4.1 12.2.5). MPI_Win_free runs while other threads wait for a
 * request of the window that the end of the epoch has completed; they have entered the wait or are
 * about to.
 */
#include "check.h"
#include <pthread.h>
#include <semaphore.h>

enum { TURNS = 60, THREADS = 3, PART = 1 << 19, BYTES = THREADS * PART };

static sem_t begin[THREADS], done;
static MPI_Request requests[THREADS];
static int stop, form, entering;

static void *waiter(void *arg)
{
    int i = (int)(intptr_t)arg, index, flag = 0;
    MPI_Request *r = &requests[i];
    for (;; flag = 0) {
        sem_wait(&begin[i]);
        if (stop)
            return NULL;
        __atomic_fetch_add(&entering, 1, __ATOMIC_RELEASE);
        switch (form) {
            case 0: MPI(MPI_Wait(r, MPI_STATUS_IGNORE)); break;
            case 1: MPI(MPI_Waitall(1, r, MPI_STATUSES_IGNORE)); break;
            case 2: MPI(MPI_Waitany(1, r, &index, MPI_STATUS_IGNORE)); break;
            default:
                while (!flag)
                    MPI(MPI_Test(r, &flag, MPI_STATUS_IGNORE));
        }
        sem_post(&done);
    }
}

/* With `now`, returns only when all are about to wait. */
static void start_waiters(int now)
{
    __atomic_store_n(&entering, 0, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        sem_post(&begin[i]);
    while (now && __atomic_load_n(&entering, __ATOMIC_ACQUIRE) != THREADS)
        ;
}

static void once(int kind, int turn, char *origin)
{
    Window w = window(kind, BYTES, 1);
    int right = (me + 1) % ranks, early = turn % 3;
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    MPI(MPI_Win_lock_all(0, w.win));
    for (int i = 0; i < THREADS; i++)
        MPI(MPI_Rput(origin + i * PART, PART, MPI_BYTE, right, i * PART, PART, MPI_BYTE, w.win,
                     &requests[i]));
    if (early == 0)
        start_waiters(1);
    MPI(MPI_Win_unlock_all(w.win));
    if (early == 1)
        start_waiters(turn % 2);
    int code = MPI_Win_free(&w.win), any;
    EXPECT(code == MPI_SUCCESS, "%s turn %d, form %d: MPI_Win_free: %s", kind_name[kind], turn,
           form, error_text(code));
    if (early == 2)
        start_waiters(0);
    for (int i = 0; i < THREADS; i++)
        sem_wait(&done);
    /* A failed MPI_Win_free fails in all processes, and may succeed on retry. */
    code = code != MPI_SUCCESS;
    MPI(MPI_Allreduce(&code, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    if (code)
        MPI(MPI_Win_free(&w.win));
    if (w.created) {
        EXPECT(*(char *)w.base == 1, "turn %d: the put is not there", turn);
        free(w.base);
    }
}

int main(int argc, char **argv)
{
    pthread_t thread[THREADS];
    test_begin_threads(&argc, &argv, MPI_THREAD_MULTIPLE);
    char *origin = malloc(BYTES);
    REQUIRE(origin && sem_init(&done, 0, 0) == 0);
    memset(origin, 1, BYTES);
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(sem_init(&begin[i], 0, 0) == 0);
        REQUIRE(pthread_create(&thread[i], NULL, waiter, (void *)(intptr_t)i) == 0);
    }
    for (int kind = 0; kind < KINDS; kind++)
        for (int turn = 0; turn < TURNS; turn++) {
            form = turn / 3 % 4;
            once(kind, turn, origin);
        }
    stop = 1;
    start_waiters(0);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_join(thread[i], NULL) == 0);
    free(origin);
    return test_end();
}
