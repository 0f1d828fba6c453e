/*
 * A program that is linked with ours and with another TAMPI, in either order [CO-4]. Which of the
 * two answers a call depends on the order, and neither may lose a request of the other: tasks are
 * bound to messages and to epochs, or wait for them in blocking calls, with one core.
 *
 *   two_tampis ours|other    which comes first, and so answers
 */
#include "check.h"
#include <TAMPI.h>

#include "other_tampi.h"
#include "runtime.h"

enum { ROUNDS = 200 };

typedef struct {
    int number, in, out;
    MPI_Request receive, send;
    struct alpi_task task, successor;
} Work;

static Work exchanges[ROUNDS];
static int left, right, wrong, unfinished;
static MPI_Win windows[2];
static int64_t *base[2];

static void check(int condition)
{
    if (!condition)
        __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
}

static void exchange(void *argument)
{
    Work *w = argument;
    w->out = 100 * me + w->number;
    MPI(MPI_Irecv(&w->in, 1, MPI_INT, left, w->number, MPI_COMM_WORLD, &w->receive));
    MPI(MPI_Isend(&w->out, 1, MPI_INT, right, w->number, MPI_COMM_WORLD, &w->send));
    if (w->number % 2) {
        MPI(TAMPI_Iwait(&w->receive, MPI_STATUS_IGNORE));
        MPI(TAMPI_Iwait(&w->send, MPI_STATUS_IGNORE));
    } else {
        MPI(MPI_Wait(&w->receive, MPI_STATUS_IGNORE));
        MPI(MPI_Wait(&w->send, MPI_STATUS_IGNORE));
    }
}

static void after_exchange(void *argument)
{
    Work *w = argument;
    check(w->in == 100 * left + w->number);
    __atomic_fetch_sub(&unfinished, 1, __ATOMIC_RELAXED);
}

/* Fences with a put, one after the other in each of two windows; tasks are bound to those of the
 * first, and wait for those of the second. */
typedef struct {
    int number, in_second;
    int64_t value;
    MPI_Request request;
    struct alpi_task task;
} Fence;

static Fence fences[2][ROUNDS];

static void fence(void *argument)
{
    Fence *f = argument;
    int i = f->in_second;
    check(f->number == 0 || base[i][(f->number - 1) % 2] == f->number - 1);
    f->value = f->number;
    MPI(MPI_Put(&f->value, 1, MPI_INT64_T, right, f->number % 2, 1, MPI_INT64_T, windows[i]));
    MPI(MPIX_Win_ifence(0, windows[i], &f->request));
    if (i == 0)
        MPI(TAMPI_Iwait(&f->request, MPI_STATUS_IGNORE));
    else
        MPI(MPI_Wait(&f->request, MPI_STATUS_IGNORE));
    __atomic_fetch_sub(&unfinished, 1, __ATOMIC_RELAXED);
}

/* The other library polls in a task of its own, as TAMPI does. */
static void poll_other(void *unused)
{
    (void)unused;
    while (other_tampi_poll() || __atomic_load_n(&unfinished, __ATOMIC_RELAXED) > 0)
        alpi_task_waitfor_ns(20000, NULL);
}

static void submit_all(void)
{
    static struct alpi_task poller = {.body = poll_other};
    unfinished = 3 * ROUNDS;
    for (int n = 0; n < ROUNDS; n++) {
        Work *w = exchanges + n;
        w->number = n;
        w->successor = (struct alpi_task){.body = after_exchange, .argument = w};
        w->task = (struct alpi_task){.body = exchange, .argument = w, .successor = &w->successor};
        for (int i = 0; i < 2; i++) {
            Fence *f = &fences[i][n];
            f->number = n;
            f->in_second = i;
            f->task = (struct alpi_task){.body = fence, .argument = f};
            if (n > 0)
                fences[i][n - 1].task.successor = &f->task;
        }
    }
    start_workers();
    submit(&poller);
    for (int i = 0; i < 2; i++)
        submit(&fences[i][0].task);
    for (int n = 0; n < ROUNDS; n++)
        submit(&exchanges[n].task);
    stop_workers();
}

int main(int argc, char **argv)
{
    pool.workers = 1;
    test_begin_threads(&argc, &argv, MPI_TASK_MULTIPLE);
    REQUIRE(argc == 2);
    int other_first = strcmp(argv[1], "other") == 0;
    left = (me + ranks - 1) % ranks, right = (me + 1) % ranks;
    for (int i = 0; i < 2; i++) {
        MPI(MPI_Win_allocate(2 * sizeof *base[i], sizeof *base[i], MPI_INFO_NULL, MPI_COMM_WORLD,
                             &base[i], windows + i));
        MPI(MPI_Win_fence(0, windows[i]));
    }
    submit_all();
    EXPECT(!wrong, "%d checks in tasks have failed", wrong);
    EXPECT((other_tampi_calls() > 0) == other_first, "the other library has answered %d calls",
           other_tampi_calls());
    for (int i = 0; i < 2; i++) {
        MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, windows[i]));
        EXPECT(base[i][(ROUNDS - 1) % 2] == ROUNDS - 1, "window %d: the last put is missing", i);
        MPI(MPI_Win_free(windows + i));
    }
    return test_end();
}
