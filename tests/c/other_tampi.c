/*
 * Stands for TAMPI 3 itself, a library that a program is linked with beside ours. It does what that
 * one does to MPI: it raises the thread level, tests requests for tasks that are bound to them, and
 * replaces blocking calls in tasks by tests between which the task pauses.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "other_tampi.h"

struct alpi_task;
extern int alpi_task_self(struct alpi_task **);
extern int alpi_task_events_increase(struct alpi_task *, uint64_t);
extern int alpi_task_events_decrease(struct alpi_task *, uint64_t);
extern int alpi_task_waitfor_ns(uint64_t, uint64_t *);

enum { PAUSE_NS = 20000 };

struct bound {
    MPI_Request request;
    struct alpi_task *task;
    struct bound *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bound *pending;
static int calls;

int other_tampi_calls(void)
{
    return __atomic_load_n(&calls, __ATOMIC_RELAXED);
}

static void count_call(void)
{
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
}

static struct alpi_task *this_task(void)
{
    struct alpi_task *task = NULL;
    return alpi_task_self(&task) == 0 ? task : NULL;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    count_call();
    int least = required > MPI_THREAD_MULTIPLE ? MPI_THREAD_MULTIPLE : required;
    int code = PMPI_Init_thread(argc, argv, least, provided);
    if (required > MPI_THREAD_MULTIPLE && *provided >= MPI_THREAD_MULTIPLE)
        *provided = required;
    return code;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    count_call();
    if (!this_task())
        return PMPI_Wait(request, status);
    for (int done = 0;;) {
        int code = PMPI_Test(request, &done, status);
        if (done || code != MPI_SUCCESS)
            return code;
        alpi_task_waitfor_ns(PAUSE_NS, NULL);
    }
}

int MPI_Recv(void *to, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
             MPI_Status *status)
{
    MPI_Request request;
    int code = PMPI_Irecv(to, count, type, source, tag, comm, &request);
    return code == MPI_SUCCESS ? MPI_Wait(&request, status) : code;
}

int TAMPI_Iwait(MPI_Request *request, MPI_Status *status)
{
    count_call();
    struct alpi_task *task = this_task();
    if (!task)
        return PMPI_Wait(request, status);
    struct bound *bound = malloc(sizeof *bound);
    if (!bound)
        return MPI_ERR_NO_MEM;
    alpi_task_events_increase(task, 1);
    *bound = (struct bound){*request, task, NULL};
    *request = MPI_REQUEST_NULL;
    pthread_mutex_lock(&lock);
    bound->next = pending;
    pending = bound;
    pthread_mutex_unlock(&lock);
    return MPI_SUCCESS;
}

int other_tampi_poll(void)
{
    pthread_mutex_lock(&lock);
    for (struct bound **at = &pending; *at;) {
        struct bound *bound = *at;
        int done = 0;
        PMPI_Test(&bound->request, &done, MPI_STATUS_IGNORE);
        if (!done) {
            at = &bound->next;
            continue;
        }
        alpi_task_events_decrease(bound->task, 1);
        *at = bound->next;
        free(bound);
    }
    int left = pending != NULL;
    pthread_mutex_unlock(&lock);
    return left;
}
