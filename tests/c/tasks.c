/*
 * Tasks of a runtime with ALPI (runtime.h) whose completion is bound to requests: epochs, messages
 * and notifications. A successor sees the data; outside a task, and with a runtime that is too old,
 * the calls wait. The runtime itself is tested too: tasks that pause.
 *
 *   tasks [NUMBER [old]]    NUMBER of tasks of each kind; beyond MOST, of those with an epoch only,
 *                           which must leave no memory behind
 */
#include "check.h"
#include <mpix_task.h>

#include "runtime.h"

#include <malloc.h>

enum { CELLS = 32, MOST = 500 };

static MPI_Win win;
static int64_t *cells;
static int wrong;

typedef struct {
    int number;
    int64_t got;
    int in[2], out[2];
    MPI_Status status[3];
    struct alpi_task first, second;
} Work;

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* Gets the right neighbour's cell, in an epoch of its own. */
static void get_cell(void *argument)
{
    Work *work = argument;
    MPI_Request opened, request;
    int right = (me + 1) % ranks, cell = work->number % CELLS;
    pthread_mutex_lock(&opening);
    MPI(MPIX_Win_ilock(MPI_LOCK_SHARED, right, 0, win, &opened));
    MPI(MPI_Get(&work->got, 1, MPI_INT64_T, right, cell, 1, MPI_INT64_T, win));
    MPI(MPIX_Win_iunlock(right, win, &request));
    pthread_mutex_unlock(&opening);
    MPI(MPIX_Task_iwait(&opened, MPI_STATUS_IGNORE));
    MPI(MPIX_Task_iwait(&request, work->status));
    EXPECT(request == MPI_REQUEST_NULL, "the request is left");
}

static void check_cell(void *argument)
{
    Work *work = argument;
    if (work->got != 1000 * ((me + 1) % ranks) + work->number % CELLS ||
        work->status[0].MPI_ERROR != MPI_SUCCESS)
        __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
}

/* Exchanges two numbers with the neighbours; one of the requests is null. */
static void exchange(void *argument)
{
    Work *work = argument;
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    MPI_Request r[5];
    for (int i = 0; i < 2; i++) {
        int tag = 2 * work->number + i;
        work->out[i] = 10 * me + tag;
        MPI(MPI_Irecv(work->in + i, 1, MPI_INT, left, tag, MPI_COMM_WORLD, r + i));
        MPI(MPI_Isend(work->out + i, 1, MPI_INT, right, tag, MPI_COMM_WORLD, r + 3 + i));
    }
    r[2] = MPI_REQUEST_NULL;
    MPI(MPIX_Task_iwaitall(3, r, work->status));
    MPI(MPIX_Task_iwaitall(2, r + 3, MPI_STATUSES_IGNORE));
    MPI(MPIX_Task_iwaitall(0, NULL, MPI_STATUSES_IGNORE));
}

static void check_exchange(void *argument)
{
    Work *work = argument;
    int left = (me + ranks - 1) % ranks;
    for (int i = 0; i < 2; i++)
        if (work->in[i] != 10 * left + 2 * work->number + i ||
            work->status[i].MPI_SOURCE != left)
            __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
}

/* Whether no more threads run than there are cores. */
static int active;

static void enter(void)
{
    if (__atomic_add_fetch(&active, 1, __ATOMIC_SEQ_CST) > pool.workers)
        __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
}

static void leave(void)
{
    __atomic_fetch_sub(&active, 1, __ATOMIC_SEQ_CST);
}

/* Pauses until `resume` of the same work, which may have run before. */
static void pause_once(void *argument)
{
    Work *work = argument;
    enter();
    leave();
    EXPECT(alpi_task_block(&work->first) == 0, "a task cannot block");
    enter();
    EXPECT(work->got == 1, "a task has not been blocked");
    leave();
}

static void resume(void *argument)
{
    Work *work = argument;
    enter();
    uint64_t slept = 0, wanted = work->number % 3 ? 0 : 20000;
    leave();
    EXPECT(alpi_task_waitfor_ns(wanted, &slept) == 0 && slept >= wanted, "slept too short");
    enter();
    work->got = 1;
    leave();
    EXPECT(alpi_task_unblock(&work->first) == 0, "a task cannot be unblocked");
}

/* More tasks pause than there are cores. In every second pair the one that unblocks comes first. */
static void test_pauses(Work *work, int number)
{
    for (int i = 0; i < number; i++) {
        work[i] = (Work){.number = i};
        work[i].first = (struct alpi_task){.body = pause_once, .argument = work + i};
        work[i].second = (struct alpi_task){.body = resume, .argument = work + i};
        submit(i % 2 ? &work[i].first : &work[i].second);
        submit(i % 2 ? &work[i].second : &work[i].first);
    }
    await_tasks();
    EXPECT(alpi_task_block(NULL) == 5 && alpi_task_unblock(NULL) == 3, "wrong errors");
}

/* Bytes that this process has allocated. */
static size_t memory_in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void submit_pairs(Work *work, int number, void (*first)(void *), void (*second)(void *))
{
    for (int i = 0; i < number; i++) {
        work[i].number = i;
        work[i].second = (struct alpi_task){.body = second, .argument = work + i};
        work[i].first = (struct alpi_task){.body = first, .argument = work + i,
                                           .successor = &work[i].second};
        submit(&work[i].first);
    }
}

static void bad(void *argument)
{
    MPI_Request persistent;
    (void)argument;
    MPI(MPI_Send_init(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &persistent));
    REFUSED(MPI_ERR_REQUEST, MPIX_Task_iwait(NULL, MPI_STATUS_IGNORE));
    REFUSED(MPI_ERR_REQUEST, MPIX_Task_iwait(&persistent, MPI_STATUS_IGNORE));
    REFUSED(MPI_ERR_COUNT, MPIX_Task_iwaitall(-1, &persistent, MPI_STATUSES_IGNORE));
    MPI(MPI_Request_free(&persistent));
}

int main(int argc, char **argv)
{
    test_begin_threads(&argc, &argv, MPI_THREAD_MULTIPLE);
    int number = argc > 1 ? atoi(argv[1]) : 500, old = argc > 2;
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    if (old)
        pool.minor = -1;
    MPI(MPI_Win_allocate(CELLS * sizeof *cells, sizeof *cells, MPI_INFO_NULL, MPI_COMM_WORLD,
                         &cells, &win));
    for (int i = 0; i < CELLS; i++)
        cells[i] = 1000 * me + i;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    Work *gets = calloc((size_t)number, sizeof *gets), *messages = calloc((size_t)number,
                                                                         sizeof *messages);
    REQUIRE(gets && messages);

    /* Outside a task. */
    MPI_Request r;
    MPI_Status s;
    MPI(MPI_Irecv(NULL, 0, MPI_BYTE, me, 1 << 14, MPI_COMM_WORLD, &r));
    send_token(me, 1 << 14);
    MPI(MPIX_Task_iwait(&r, &s));
    EXPECT(r == MPI_REQUEST_NULL && s.MPI_TAG == 1 << 14, "outside a task: not complete");

    start_workers();
    int some = number < MOST ? number : MOST;
    test_pauses(gets, some);
    submit_pairs(gets, some, get_cell, check_cell);
    submit_pairs(messages, old ? 0 : some, exchange, check_exchange);
    if (number > some) {
        await_tasks();
        size_t before = memory_in_use();
        submit_pairs(gets, number, get_cell, check_cell);
        await_tasks();
        size_t after = memory_in_use();
        EXPECT(after < before + (64 << 10), "%d tasks have left %zu KiB", number,
               (after - before) >> 10);
    }
    struct alpi_task last = {.body = bad};
    if (!old)
        submit(&last);
    stop_workers();
    EXPECT(!wrong, "%d tasks have seen wrong data", wrong);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_free(&win));
    free(gets);
    free(messages);
    return test_end();
}
