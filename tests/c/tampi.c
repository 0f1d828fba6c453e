/*
 * A program written for TAMPI, on libmpix_tampi: tasks of runtime.h that are bound to requests or
 * paused by blocking calls, properties, and the names for Fortran.
 *
 *   tampi [NUMBER]    NUMBER of tasks of each kind
 */
#include "check.h"
#include <TAMPI.h>

#include "runtime.h"

typedef struct {
    int number, in[2], out[2];
    MPI_Request requests[2];
    MPI_Status statuses[2];
    struct {
        int odd; /* so that the status is aligned like an array of integers */
        MPI_Fint status[sizeof(MPI_Status) / sizeof(MPI_Fint)];
    } fortran;
    struct alpi_task task[2], successor[2];
} Work;

static int left, right, wrong;

static void check(int condition)
{
    if (!condition)
        __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
}

/* A message from the left neighbour, by one of the ways that the interface offers. */
static void exchange(void *argument)
{
    Work *work = argument;
    int tag = work->number;
    MPI_Fint count = 2, error, in_fortran[2];
    work->out[0] = 100 * me + tag;
    if (work->number % 3 == 0) {
        MPI(TAMPI_Irecv(&work->in[0], 1, MPI_INT, left, tag, MPI_COMM_WORLD, work->requests,
                        work->statuses));
        MPI(TAMPI_Isend(&work->out[0], 1, MPI_INT, right, tag, MPI_COMM_WORLD, work->requests + 1));
        return;
    }
    MPI(MPI_Irecv(&work->in[0], 1, MPI_INT, left, tag, MPI_COMM_WORLD, work->requests));
    MPI(MPI_Isend(&work->out[0], 1, MPI_INT, right, tag, MPI_COMM_WORLD, work->requests + 1));
    if (work->number % 3 == 1) {
        MPI(TAMPI_Iwaitall(2, work->requests, work->statuses));
        return;
    }
    for (int i = 0; i < 2; i++)
        in_fortran[i] = MPI_Request_c2f(work->requests[i]);
    tampi_iwait_(in_fortran, work->fortran.status, &error);
    MPI(error);
    count = 1;
    tampi_iwaitall_(&count, in_fortran + 1, MPI_F_STATUSES_IGNORE, &error);
    MPI(error);
    check(MPI_Request_f2c(in_fortran[0]) == MPI_REQUEST_NULL);
}

static void after_exchange(void *argument)
{
    Work *work = argument;
    MPI_Status status = work->statuses[0];
    if (work->number % 3 == 2)
        MPI_Status_f2c(work->fortran.status, &status);
    check(work->in[0] == 100 * left + work->number);
    check(status.MPI_SOURCE == left && status.MPI_TAG == work->number);
}

/* The same in blocking calls. */
static void blocking(void *argument)
{
    Work *work = argument;
    int tag = 10000 + work->number;
    MPI_Request request;
    work->out[1] = 100 * me + work->number;
    MPI(MPI_Isend(&work->out[1], 1, MPI_INT, right, tag, MPI_COMM_WORLD, &request));
    MPI(MPI_Recv(&work->in[1], 1, MPI_INT, left, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void after_blocking(void *argument)
{
    Work *work = argument;
    check(work->in[1] == 100 * left + work->number);
}

static void properties(void *unused)
{
    int value = -1;
    MPI_Fint id = TAMPI_PROPERTY_THREAD_TASKAWARE, zero = 0, error, flag = -1;
    (void)unused;
    MPI(TAMPI_Property_get(TAMPI_PROPERTY_BLOCKING_MODE, &value));
    check(value == 1);
    MPI(TAMPI_Property_get(TAMPI_PROPERTY_NONBLOCKING_MODE, &value));
    check(value == 1);
    MPI(TAMPI_Property_get(TAMPI_PROPERTY_THREAD_TASKAWARE, &value));
    check(value == 1);
    tampi_property_set_(&id, &zero, &error);
    MPI(error);
    tampi_property_get_(&id, &flag, &error);
    check(error == MPI_SUCCESS && flag == 0);
    MPI(TAMPI_Property_set(TAMPI_PROPERTY_THREAD_TASKAWARE, 1));
    check(TAMPI_Property_set(TAMPI_PROPERTY_BLOCKING_MODE, 1) == MPI_ERR_ARG);
    check(TAMPI_Property_set(TAMPI_PROPERTY_AUTO_INIT, 0) == MPI_ERR_ARG); /* too late */
    check(TAMPI_Property_get(17, &value) == MPI_ERR_ARG);
    check(TAMPI_Property_get(TAMPI_PROPERTY_AUTO_INIT, NULL) == MPI_ERR_ARG);
}

int main(int argc, char **argv)
{
    int flag = -1, sum = 0, one = 1;
    MPI_Request request;
    EXPECT(TAMPI_Property_get(TAMPI_PROPERTY_AUTO_INIT, &flag) == MPI_SUCCESS && flag == 1,
           "TAMPI_PROPERTY_AUTO_INIT is not set");
    EXPECT(TAMPI_Blocking_enabled(&flag) == MPI_SUCCESS && flag == 0, "enabled before MPI_Init");
    pool.workers = 1;
    test_begin_threads(&argc, &argv, MPI_TASK_MULTIPLE);
    int number = argc > 1 ? atoi(argv[1]) : 100;
    left = (me + ranks - 1) % ranks, right = (me + 1) % ranks;
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(TAMPI_Blocking_enabled(&flag));
    EXPECT(flag == 1, "the blocking mode is off");
    MPI(TAMPI_Nonblocking_enabled(&flag));
    EXPECT(flag == 1, "the nonblocking mode is off");
    MPI(TAMPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
    EXPECT(sum == ranks, "outside a task, the call has not waited");

    Work *work = calloc((size_t)number, sizeof *work);
    REQUIRE(work);
    start_workers();
    for (int i = 0; i < number; i++) {
        Work *w = work + i;
        void (*bodies[2][2])(void *) = {{exchange, after_exchange}, {blocking, after_blocking}};
        w->number = i;
        for (int kind = 0; kind < 2; kind++) {
            w->successor[kind] = (struct alpi_task){.body = bodies[kind][1], .argument = w};
            w->task[kind] = (struct alpi_task){.body = bodies[kind][0], .argument = w,
                                               .successor = w->successor + kind};
            submit(w->task + kind);
        }
    }
    struct alpi_task last = {.body = properties};
    submit(&last);
    stop_workers();
    EXPECT(!wrong, "%d checks in tasks have failed", wrong);
    free(work);
    return test_end();
}
