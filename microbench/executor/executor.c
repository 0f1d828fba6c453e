#include "executor.h"

#include "../common/timing.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef PLAIN_HOST
/* Without the library there are no nonblocking calls, and no series needs them. */
#define NONBLOCKING_FORM(call) (abort(), MPI_SUCCESS)
#else
#include <mpix_rma.h>
#define NONBLOCKING_FORM(call) (call)
#endif

struct executor {
    MPI_Comm comm;
    MPI_Win win;
    void *memory;
    uint64_t bytes;
    int rank, ranks;
    bool nonblocking;
    MPI_Group everyone, others;
    MPI_Group *alone;     /* alone[r] has only rank r; created when needed */
    MPI_Request *closing; /* by number */
    uint64_t requests;
    uint64_t oldest; /* where to look for a pending closing request when there are too many */
    double computing_us;
};

static void must(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "%s: %s\n", call, text);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

#define MUST(call) must((call), #call)

static void *allocated(uint64_t count, size_t size)
{
    void *memory = count > SIZE_MAX / size ? NULL : malloc(count > 0 ? (size_t)count * size : 1);
    if (memory == NULL) {
        fprintf(stderr, "no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    return memory;
}

struct executor *executor_open(MPI_Comm comm, uint64_t window_bytes, bool nonblocking,
                               uint64_t requests, const char *const *reorder, void **memory)
{
    struct executor *x = allocated(1, sizeof *x);
    x->comm = comm;
    x->nonblocking = nonblocking;
    MPI_Comm_rank(comm, &x->rank);
    MPI_Comm_size(comm, &x->ranks);
    MPI_Comm_group(comm, &x->everyone);
    MPI_Group_excl(x->everyone, 1, &x->rank, &x->others);
    x->alone = allocated((uint64_t)x->ranks, sizeof *x->alone);
    for (int r = 0; r < x->ranks; r++)
        x->alone[r] = MPI_GROUP_NULL;
    x->requests = nonblocking ? requests : 0;
    x->closing = allocated(x->requests, sizeof *x->closing);
    for (uint64_t k = 0; k < x->requests; k++)
        x->closing[k] = MPI_REQUEST_NULL;
    x->oldest = 0;
    x->computing_us = 0.0;

    MPI_Info info;
    MPI_Info_create(&info);
    for (; *reorder != NULL; reorder++)
        MPI_Info_set(info, *reorder, "true");
    MUST(MPI_Win_allocate((MPI_Aint)window_bytes, 1, info, comm, memory, &x->win));
    MPI_Info_free(&info);
    MPI_Win_set_errhandler(x->win, MPI_ERRORS_RETURN);
    x->memory = *memory;
    x->bytes = window_bytes;
    return x;
}

void executor_clear(struct executor *x)
{
    MUST(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, x->rank, 0, x->win));
    memset(x->memory, 0, (size_t)x->bytes);
    MUST(MPI_Win_unlock(x->rank, x->win));
}

void executor_look(struct executor *x)
{
    MUST(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, x->rank, 0, x->win));
    MUST(MPI_Win_unlock(x->rank, x->win));
}

void executor_close(struct executor *x)
{
    MUST(MPI_Win_free(&x->win));
    for (int r = 0; r < x->ranks; r++)
        if (x->alone[r] != MPI_GROUP_NULL)
            MPI_Group_free(&x->alone[r]);
    MPI_Group_free(&x->others);
    MPI_Group_free(&x->everyone);
    free(x->alone);
    free(x->closing);
    free(x);
}

static MPI_Group only(struct executor *x, int rank)
{
    if (x->alone[rank] == MPI_GROUP_NULL)
        MUST(MPI_Group_incl(x->everyone, 1, &rank, &x->alone[rank]));
    return x->alone[rank];
}

/* Opening requests are complete at once; this frees the handle. */
static void opened(MPI_Request *opening)
{
    if (*opening != MPI_REQUEST_NULL)
        MUST(MPI_Wait(opening, MPI_STATUS_IGNORE));
}

static void open_epoch(struct executor *x, const schedule_step *step)
{
    MPI_Request opening = MPI_REQUEST_NULL;
    switch (step->kind) {
    case SCHEDULE_POST:
        if (x->nonblocking)
            MUST(NONBLOCKING_FORM(MPIX_Win_ipost(only(x, step->peer), 0, x->win, &opening)));
        else
            MUST(MPI_Win_post(only(x, step->peer), 0, x->win));
        break;
    case SCHEDULE_START:
        if (x->nonblocking)
            MUST(NONBLOCKING_FORM(MPIX_Win_istart(x->others, 0, x->win, &opening)));
        else
            MUST(MPI_Win_start(x->others, 0, x->win));
        break;
    default:
        if (x->nonblocking)
            MUST(NONBLOCKING_FORM(
                MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, step->peer, 0, x->win, &opening)));
        else
            MUST(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, step->peer, 0, x->win));
    }
    opened(&opening);
}

static int close_without_waiting(struct executor *x, const schedule_step *step)
{
    MPI_Request *closing = &x->closing[step->request];
    (void)closing;
    switch (step->kind) {
    case SCHEDULE_COMPLETE:
        return NONBLOCKING_FORM(MPIX_Win_icomplete(x->win, closing));
    case SCHEDULE_WAIT:
        return NONBLOCKING_FORM(MPIX_Win_iwait(x->win, closing));
    default:
        return NONBLOCKING_FORM(MPIX_Win_iunlock(step->peer, x->win, closing));
    }
}

/* Completes the oldest pending closing request; a later AWAIT finds it complete. */
static bool complete_oldest(struct executor *x)
{
    for (uint64_t seen = 0; seen < x->requests; seen++) {
        MPI_Request *oldest = &x->closing[x->oldest];
        x->oldest = (x->oldest + 1) % x->requests;
        if (*oldest != MPI_REQUEST_NULL) {
            MUST(MPI_Wait(oldest, MPI_STATUS_IGNORE));
            return true;
        }
    }
    return false;
}

static void close_epoch(struct executor *x, const schedule_step *step)
{
    if (x->nonblocking) {
        int code;
        while ((code = close_without_waiting(x, step)) != MPI_SUCCESS) {
            int class;
            MPI_Error_class(code, &class);
            if (class != MPI_ERR_NO_MEM || !complete_oldest(x)) /* the limit of pending requests */
                must(code, "closing an epoch");
        }
        return;
    }
    switch (step->kind) {
    case SCHEDULE_COMPLETE:
        MUST(MPI_Win_complete(x->win));
        break;
    case SCHEDULE_WAIT:
        MUST(MPI_Win_wait(x->win));
        break;
    default:
        MUST(MPI_Win_unlock(step->peer, x->win));
    }
}

static void put(struct executor *x, const schedule_step *step, const void *source, int target)
{
    int words = (int)(step->bytes / 8);
    MUST(MPI_Put(source, words, MPI_INT64_T, target, (MPI_Aint)step->disp, words, MPI_INT64_T,
                 x->win));
}

static void check_length(const schedule_step *step)
{
    if (step->bytes / 8 > INT_MAX || step->bytes % 8 != 0) {
        fprintf(stderr, "%llu bytes do not fit into one call\n", (unsigned long long)step->bytes);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

static void get(struct executor *x, const schedule_step *step, void *destination)
{
    int words = (int)(step->bytes / 8);
    check_length(step);
    MUST(MPI_Get(destination, words, MPI_INT64_T, step->peer, (MPI_Aint)step->disp, words,
                 MPI_INT64_T, x->win));
}

static void operate(struct executor *x, const schedule_step *step, const void *source)
{
    check_length(step);
    if (step->kind == SCHEDULE_ACCUMULATE) {
        int words = (int)(step->bytes / 8);
        MUST(MPI_Accumulate(source, words, MPI_INT64_T, step->peer, (MPI_Aint)step->disp, words,
                            MPI_INT64_T, MPI_SUM, x->win));
    } else if (step->peer != SCHEDULE_OTHERS) {
        put(x, step, source, step->peer);
    } else {
        for (int k = 1; k < x->ranks; k++)
            put(x, step, source, (x->rank + k) % x->ranks);
    }
}

struct elapsed executor_run(struct executor *x, const struct application *app, void *schedule,
                            void *data)
{
    schedule_step step;
    x->computing_us = 0.0;
    MPI_Barrier(x->comm);
    double begin = now_us();
    while (app->next(schedule, &step) != SCHEDULE_END) {
        switch ((schedule_kind)step.kind) {
        case SCHEDULE_POST:
        case SCHEDULE_START:
        case SCHEDULE_LOCK:
            open_epoch(x, &step);
            break;
        case SCHEDULE_PUT:
        case SCHEDULE_ACCUMULATE:
            operate(x, &step, app->source(data, &step));
            break;
        case SCHEDULE_GET:
            get(x, &step, app->destination(data, &step));
            break;
        case SCHEDULE_COMPLETE:
        case SCHEDULE_WAIT:
        case SCHEDULE_UNLOCK:
            close_epoch(x, &step);
            break;
        case SCHEDULE_AWAIT:
            MUST(MPI_Wait(&x->closing[step.request], MPI_STATUS_IGNORE));
            break;
        case SCHEDULE_COMPUTE: {
            double before = now_us();
            app->compute(data, &step);
            x->computing_us += now_us() - before;
            break;
        }
        case SCHEDULE_END:
            break;
        }
    }
    MPI_Barrier(x->comm); /* from the first start to the last end, by the common clock */
    return (struct elapsed){now_us() - begin, x->computing_us};
}
