/*
 * Producer and consumer in tasks, after TAGASPI (2021), section V: rank 0 sent blocks into rank 1's
 * window, step after step into the same place. All tasks are submitted at once; what holds a put
 * back until the step before was read is an event that its task binds before its body may run.
 *
 *   onready [STEPS]
 */
#include "check.h"
#include <mpix_task.h>

#include "runtime.h"

enum { BLOCKS = 8, LENGTH = 100, DATA = 0, ACK = BLOCKS };

static MPI_Win win;
static int64_t *memory;
static int steps, wrong, sent;

typedef struct {
    int block, step;
    int64_t data[LENGTH];
    struct alpi_task first, second;
} Work;

static int64_t expected(const Work *work, int i)
{
    return 1000000 * (int64_t)work->step + 1000 * work->block + i;
}

static void await_counter(int counter, int value)
{
    MPI_Request request;
    MPI(MPIX_Win_notify_ithreshold(win, counter, value, &request));
    MPI(MPIX_Task_iwait(&request, MPI_STATUS_IGNORE));
}

/* ---- The producer ---- */

static void await_ack(void *argument)
{
    Work *work = argument;
    await_counter(ACK + work->block, work->step);
}

static void put(void *argument)
{
    Work *work = argument;
    MPI_Count read;
    MPI(MPIX_Win_get_notify_value(win, ACK + work->block, &read));
    if (read < work->step)
        __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < LENGTH; i++)
        work->data[i] = expected(work, i);
    MPI(MPIX_Put_notify(work->data, LENGTH, MPI_INT64_T, 1, work->block * LENGTH, LENGTH,
                        MPI_INT64_T, DATA + work->block, win));
    __atomic_fetch_add(&sent, 1, __ATOMIC_RELAXED);
}

/* ---- The consumer ---- */

static void await_data(void *argument)
{
    Work *work = argument;
    await_counter(DATA + work->block, work->step + 1);
}

static void read_block(void *argument)
{
    Work *work = argument;
    for (int i = 0; i < LENGTH; i++)
        if (memory[work->block * LENGTH + i] != expected(work, i))
            __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    MPI(MPIX_Notify(0, ACK + work->block, win));
}

int main(int argc, char **argv)
{
    test_begin_threads(&argc, &argv, MPI_THREAD_MULTIPLE);
    REQUIRE(ranks == 2);
    steps = argc > 1 ? atoi(argv[1]) : 200;
    MPI(MPI_Win_allocate(BLOCKS * LENGTH * (MPI_Aint)sizeof *memory, sizeof *memory, MPI_INFO_NULL,
                         MPI_COMM_WORLD, &memory, &win));
    MPI(MPIX_Win_set_num_notify(win, MPI_INFO_NULL, 2 * BLOCKS));
    MPI(MPI_Win_lock_all(0, win));
    Work *work = calloc((size_t)steps * BLOCKS, sizeof *work);
    REQUIRE(work);
    start_workers();
    for (int step = 0; step < steps; step++)
        for (int block = 0; block < BLOCKS; block++) {
            Work *w = work + step * BLOCKS + block;
            w->step = step;
            w->block = block;
            w->second = (struct alpi_task){.body = read_block, .argument = w};
            if (me == 0)
                w->first = (struct alpi_task){.body = put, .onready = await_ack, .argument = w};
            else
                w->first = (struct alpi_task){.body = await_data, .argument = w,
                                              .successor = &w->second};
            submit(&w->first);
        }
    stop_workers();
    MPI(MPI_Win_flush_all(win));
    EXPECT(!wrong, "%d times too early, or wrong data", wrong);
    EXPECT(me != 0 || sent == steps * BLOCKS, "%d puts", sent);
    MPI(MPI_Win_unlock_all(win));
    MPI(MPI_Win_free(&win));
    free(work);
    return test_end();
}
