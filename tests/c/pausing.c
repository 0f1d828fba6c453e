/*
 * Blocking calls in tasks, with MPI_TASK_MULTIPLE and one core per process [CO-4]: each call can
 * end only after a later task has run, so it would hang if it kept the core.
 *
 *   pausing [ROUNDS]    ROUNDS rounds of all pairs; also a crowd of ROUNDS paused tasks
 */
#include "check.h"
#include <mpix_task.h>

#include "runtime.h"

enum { TAG = 7, CROWD_TAG = 1000 };

static MPI_Win win;            /* of MPI_COMM_SELF, allocated, with two counters */
static MPI_Win common;         /* of MPI_COMM_WORLD */
static int64_t *memory, *shared;
static MPI_Group self_group;
static MPI_Comm comm;          /* of its own for collectives in tasks */
static int value, other;

static void send_value(int tag)
{
    static int sent = 41;
    MPI(MPI_Send(&sent, 1, MPI_INT, me, tag, MPI_COMM_WORLD));
}

/* ---- Pairs of one process: the first task waits, the second one ends the wait. ---- */

static void wait_recv(void)
{
    MPI_Status status;
    MPI(MPI_Recv(&value, 1, MPI_INT, me, TAG, MPI_COMM_WORLD, &status));
    EXPECT(value == 41 && status.MPI_SOURCE == me && status.MPI_TAG == TAG, "wrong message");
}

static void end_send(void)
{
    send_value(TAG);
}

static void wait_ssend(void)
{
    value = 42;
    MPI(MPI_Ssend(&value, 1, MPI_INT, me, TAG, MPI_COMM_WORLD));
}

static void end_recv(void)
{
    MPI(MPI_Recv(&other, 1, MPI_INT, me, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    EXPECT(other == 42, "wrong message");
}

static void wait_probe(void)
{
    MPI_Status status;
    MPI(MPI_Probe(me, TAG, MPI_COMM_WORLD, &status));
    MPI(MPI_Recv(&value, 1, MPI_INT, me, TAG, MPI_COMM_WORLD, &status));
}

static void wait_wait(void)
{
    MPI_Request request;
    MPI_Status status = {.MPI_ERROR = 1234};
    MPI(MPI_Irecv(&value, 1, MPI_INT, me, TAG, MPI_COMM_WORLD, &request));
    MPI(MPI_Wait(&request, &status));
    EXPECT(request == MPI_REQUEST_NULL && status.MPI_TAG == TAG && status.MPI_ERROR == 1234,
           "MPI_Wait: wrong handle or status");
}

static void wait_truncated(void)
{
    MPI_Request request;
    MPI(MPI_Irecv(&value, 0, MPI_INT, me, TAG, MPI_COMM_WORLD, &request));
    REFUSED(MPI_ERR_TRUNCATE, MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void wait_persistent(void)
{
    MPI_Request request;
    MPI(MPI_Recv_init(&value, 1, MPI_INT, me, TAG, MPI_COMM_WORLD, &request));
    MPI(MPI_Start(&request));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    EXPECT(request != MPI_REQUEST_NULL, "a persistent request was freed");
    MPI(MPI_Request_free(&request));
}

/* A message, a notification and a null request. */
static void start_list(MPI_Request list[3])
{
    MPI(MPI_Irecv(&value, 1, MPI_INT, me, TAG, MPI_COMM_WORLD, list));
    list[1] = MPI_REQUEST_NULL;
    MPI(MPIX_Win_reset_notify_value(win, 0, &(MPI_Count){0}));
    MPI(MPIX_Win_notify_ithreshold(win, 0, 1, list + 2));
}

static void wait_all(void)
{
    MPI_Request list[3];
    MPI_Status status[3];
    start_list(list);
    MPI(MPI_Waitall(3, list, status));
    EXPECT(status[0].MPI_TAG == TAG, "MPI_Waitall: wrong status");
    for (int i = 0; i < 3; i++)
        EXPECT(list[i] == MPI_REQUEST_NULL, "MPI_Waitall: request %d is left", i);
}

static void wait_any(void)
{
    MPI_Request list[3];
    int index;
    start_list(list);
    for (int left = 2; left; left--) {
        MPI(MPI_Waitany(3, list, &index, MPI_STATUS_IGNORE));
        EXPECT(index == 0 || index == 2, "MPI_Waitany: index %d", index);
    }
}

static void wait_some(void)
{
    MPI_Request list[3];
    int number, index[3];
    start_list(list);
    for (int left = 2; left > 0; left -= number)
        MPI(MPI_Waitsome(3, list, &number, index, MPI_STATUSES_IGNORE));
}

static void notify(int counter)
{
    int64_t put = 5;
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    MPI(MPIX_Put_notify(&put, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, counter, win));
    MPI(MPI_Win_unlock(0, win));
}

static void end_list(void)
{
    send_value(TAG);
    notify(0);
}

static void wait_threshold(void)
{
    MPI(MPIX_Win_reset_notify_value(win, 1, &(MPI_Count){0}));
    MPI(MPIX_Win_notify_threshold(win, 1, 1));
    EXPECT(memory[1] == 5, "the notified data are not there");
}

static void wait_waitsome(void)
{
    int index = -1;
    MPI_Count seen = 0;
    MPI(MPIX_Win_reset_notify_value(win, 0, &seen));
    MPI(MPIX_Win_reset_notify_value(win, 1, &seen));
    MPI(MPIX_Win_notify_waitsome(win, 0, 2, &index, &seen));
    EXPECT(index == 1 && seen == 1, "waitsome: counter %d, value %lld", index, (long long)seen);
}

static void end_notify(void)
{
    notify(1);
}

static void wait_exposure(void)
{
    MPI(MPI_Win_post(self_group, 0, win));
    MPI(MPI_Win_wait(win));
    EXPECT(memory[0] == 17, "the epoch's data are not there");
    memory[0] = 0;
}

static void end_access(void)
{
    int64_t put = 17;
    MPI(MPI_Win_start(self_group, 0, win));
    MPI(MPI_Put(&put, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, win));
    MPI(MPI_Win_complete(win));
}

static void wait_complete(void)
{
    int64_t put = 18;
    MPI(MPI_Win_start(self_group, 0, win));
    MPI(MPI_Put(&put, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, win));
    MPI(MPI_Win_complete(win));
}

static void end_exposure(void)
{
    MPI(MPI_Win_post(self_group, 0, win));
    MPI(MPI_Win_wait(win));
    EXPECT(memory[0] == 18, "the epoch's data are not there");
    memory[0] = 0;
}

/* A persistent request, for which the host has only an inactive one. */
static void wait_tagged(void)
{
    MPI_Request expected;
    MPI_Status status;
    MPI(MPIX_Notify_init(win, 0, TAG, 1, &expected));
    MPI(MPI_Start(&expected));
    MPI(MPI_Wait(&expected, &status));
    EXPECT(status.MPI_TAG == TAG && memory[1] == 6, "the announced data are not there");
    MPI(MPI_Request_free(&expected));
}

static void end_tagged(void)
{
    int64_t put = 6;
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    MPI(MPIX_Put_tagged(&put, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, TAG, win));
    MPI(MPI_Win_unlock(0, win));
}

/* ---- Pairs of processes: rank 0 waits for the others, which its second task calls. ---- */

static void call_others(void)
{
    for (int to = 1; me == 0 && to < ranks; to++)
        send_token(to, TAG);
}

static void be_called(void)
{
    if (me != 0)
        recv_token(0, TAG);
}

static void wait_barrier(void)
{
    be_called();
    MPI(MPI_Barrier(comm));
}

static void wait_allreduce(void)
{
    int sum, one = 1;
    be_called();
    MPI(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    EXPECT(sum == ranks, "the sum of %d ones is %d", ranks, sum);
}

static void wait_fence(void)
{
    int64_t put = me + 1;
    MPI(MPI_Win_fence(0, common));
    MPI(MPI_Put(&put, 1, MPI_INT64_T, (me + 1) % ranks, 0, 1, MPI_INT64_T, common));
    be_called();
    MPI(MPI_Win_fence(0, common));
    EXPECT(shared[0] == (me + ranks - 1) % ranks + 1, "the fence's data are not there");
}

/* Rank 1 holds a lock that rank 0 waits for. */
static void wait_lock(void)
{
    int64_t got;
    if (me == 1) {
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, common));
        send_token(0, TAG + 1);
    }
    be_called();
    if (me == 1)
        MPI(MPI_Win_unlock(1, common));
    if (me != 0)
        return;
    recv_token(1, TAG + 1);
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, common));
    MPI(MPI_Get(&got, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, common));
    MPI(MPI_Win_flush(1, common));
    MPI(MPI_Win_unlock(1, common));
}

static void wait_window(void)
{
    MPI_Win made;
    int64_t *its;
    be_called();
    MPI(MPI_Win_allocate(8, 8, MPI_INFO_NULL, comm, &its, &made));
    MPI(MPI_Win_free(&made));
}

static const struct {
    const char *name;
    int ranks; /* at least */
    void (*waits)(void), (*ends)(void);
} PAIRS[] = {
    {"MPI_Recv", 1, wait_recv, end_send},
    {"MPI_Ssend", 1, wait_ssend, end_recv},
    {"MPI_Probe", 1, wait_probe, end_send},
    {"MPI_Wait", 1, wait_wait, end_send},
    {"MPI_Wait that fails", 1, wait_truncated, end_send},
    {"MPI_Wait for a persistent request", 1, wait_persistent, end_send},
    {"MPI_Waitall", 1, wait_all, end_list},
    {"MPI_Waitany", 1, wait_any, end_list},
    {"MPI_Waitsome", 1, wait_some, end_list},
    {"MPIX_Win_notify_threshold", 1, wait_threshold, end_notify},
    {"MPIX_Win_notify_waitsome", 1, wait_waitsome, end_notify},
    {"MPI_Win_wait", 1, wait_exposure, end_access},
    {"MPI_Win_complete", 1, wait_complete, end_exposure},
    {"MPI_Wait for a tagged notification", 1, wait_tagged, end_tagged},
    {"MPI_Barrier", 2, wait_barrier, call_others},
    {"MPI_Allreduce", 2, wait_allreduce, call_others},
    {"MPI_Win_fence", 2, wait_fence, call_others},
    {"MPI_Win_lock", 2, wait_lock, call_others},
    {"MPI_Win_allocate and free", 2, wait_window, call_others},
};
enum { NUMBER = sizeof PAIRS / sizeof *PAIRS };

static void run(void *function)
{
    (*(void (**)(void))function)();
}

/* The second task is submitted by the first, so it cannot run before. */
typedef struct {
    const int *pair;
    struct alpi_task *second;
} First;

static void run_first(void *argument)
{
    First *first = argument;
    submit(first->second);
    PAIRS[*first->pair].waits();
}

/* ---- Many paused tasks at a time ---- */

static int crowd, received;

static void crowd_recv(void *number)
{
    int tag = CROWD_TAG + (int)(intptr_t)number, got = -1;
    MPI(MPI_Recv(&got, 1, MPI_INT, me, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    EXPECT(got == tag, "task %d got %d", tag, got);
    received++;
}

static void crowd_send(void *unused)
{
    (void)unused;
    EXPECT(received == 0, "a receive is complete before its send");
    for (int i = crowd - 1; i >= 0; i--) {
        int tag = CROWD_TAG + i;
        MPI(MPI_Send(&tag, 1, MPI_INT, me, tag, MPI_COMM_WORLD));
    }
}

static void run_crowd(void)
{
    struct alpi_task *tasks = calloc((size_t)crowd + 1, sizeof *tasks);
    REQUIRE(tasks);
    received = 0;
    for (int i = 0; i <= crowd; i++) {
        tasks[i].body = i < crowd ? crowd_recv : crowd_send;
        tasks[i].argument = (void *)(intptr_t)i;
        submit(tasks + i);
    }
    await_tasks();
    EXPECT(received == crowd, "%d of %d tasks have received", received, crowd);
    free(tasks);
}

/* A task whose blocking calls wait in place. */
static void unaware(void *unused)
{
    (void)unused;
    int before = -1;
    MPI(MPIX_Task_set_blocking(0, &before));
    EXPECT(before == 1, "blocking calls did not pause before");
    MPI_Request request;
    MPI(MPI_Irecv(&value, 1, MPI_INT, me, TAG, MPI_COMM_WORLD, &request));
    send_value(TAG);
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MPI(MPIX_Task_set_blocking(1, &before));
    EXPECT(before == 0, "MPIX_Task_set_blocking has had no effect");
    MPI(MPIX_Task_set_blocking(1, NULL));
}

int main(int argc, char **argv)
{
    pool.workers = 1;
    test_begin_threads(&argc, &argv, MPI_TASK_MULTIPLE);
    int level, rounds = argc > 1 ? atoi(argv[1]) : 20;
    crowd = rounds;
    MPI(MPI_Query_thread(&level));
    EXPECT(level == MPI_TASK_MULTIPLE, "MPI_Query_thread: %d", level);
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI(MPI_Comm_group(MPI_COMM_SELF, &self_group));
    MPI(MPI_Win_allocate(16, 8, MPI_INFO_NULL, MPI_COMM_SELF, &memory, &win));
    MPI(MPIX_Win_set_num_notify(win, MPI_INFO_NULL, 2));
    MPI(MPI_Win_allocate(16, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &shared, &common));
    MPI(MPI_Barrier(MPI_COMM_WORLD));

    start_workers();
    for (int round = 0; round < rounds; round++)
        for (int pair = 0; pair < NUMBER; pair++) {
            if (ranks < PAIRS[pair].ranks)
                continue;
            struct alpi_task ends = {.body = run, .argument = (void *)&PAIRS[pair].ends};
            First argument = {&pair, &ends};
            struct alpi_task waits = {.body = run_first, .argument = &argument};
            submit(&waits);
            await_tasks();
            EXPECT(!failures, "in round %d: %s", round, PAIRS[pair].name);
        }
    run_crowd();
    struct alpi_task last = {.body = unaware};
    submit(&last);
    stop_workers();

    MPI(MPI_Win_free(&win));
    MPI(MPI_Win_free(&common));
    MPI(MPI_Group_free(&self_group));
    MPI(MPI_Comm_free(&comm));
    return test_end();
}
