/*
 * OpenMP tasks that detach on requests: a task opens an epoch, closes it and detaches, and its
 * successor reads the data; messages likewise. No thread waits in MPI.
 *
 *   omp_detach [TASKS]    of each kind
 */
#include "check.h"
#include <mpix_task.h>

enum { CELLS = 64 };

static MPI_Win win;
static int64_t *cells, got[CELLS];
static int in[CELLS], out[CELLS], wrong;

/* Gets the right neighbour's cell, in an epoch of its own. A process has one epoch per target open
 * at a time, but any number of closed ones pending. */
static void get_cell(int cell, omp_event_handle_t event)
{
    MPI_Request request, opening;
    int right = (me + 1) % ranks;
#pragma omp critical
    {
        MPI(MPIX_Win_ilock(MPI_LOCK_SHARED, right, 0, win, &opening));
        MPI(MPI_Get(got + cell, 1, MPI_INT64_T, right, cell, 1, MPI_INT64_T, win));
        MPI(MPIX_Win_iunlock(right, win, &request));
    }
    MPI(MPI_Wait(&opening, MPI_STATUS_IGNORE));
    MPI(MPIX_Task_detach(1, &request, MPI_STATUSES_IGNORE, event));
}

/* Sends a number to the right and receives one from the left. */
static void exchange(int cell, omp_event_handle_t event)
{
    MPI_Request r[2];
    MPI(MPI_Irecv(in + cell, 1, MPI_INT, (me + ranks - 1) % ranks, cell, MPI_COMM_WORLD, r));
    MPI(MPI_Isend(out + cell, 1, MPI_INT, (me + 1) % ranks, cell, MPI_COMM_WORLD, r + 1));
    MPI(MPIX_Task_detach(2, r, MPI_STATUSES_IGNORE, event));
}

int main(int argc, char **argv)
{
    test_begin_threads(&argc, &argv, MPI_THREAD_MULTIPLE);
    int tasks = argc > 1 ? atoi(argv[1]) : 500;
    MPI(MPI_Win_allocate(CELLS * sizeof *cells, sizeof *cells, MPI_INFO_NULL, MPI_COMM_WORLD,
                         &cells, &win));
    for (int i = 0; i < CELLS; i++)
        cells[i] = 1000 * me + i;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
#pragma omp parallel num_threads(2)
#pragma omp single
    {
        for (int t = 0; t < tasks; t++) {
            int cell = t % CELLS;
            omp_event_handle_t event;
#pragma omp task detach(event) depend(out : got[cell])
            get_cell(cell, event);
#pragma omp task depend(in : got[cell])
            {
                if (got[cell] != 1000 * right + cell)
                    __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
                got[cell] = 0;
            }
        }
#pragma omp taskwait
        for (int t = 0; t < tasks; t++) {
            int cell = t % CELLS;
            omp_event_handle_t event;
#pragma omp task depend(inout : in[cell])
            out[cell] = 7 * me + t;
#pragma omp task detach(event) depend(inout : in[cell])
            exchange(cell, event);
#pragma omp task depend(inout : in[cell])
            {
                if (in[cell] != 7 * left + t)
                    __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
            }
        }
#pragma omp task
        {
            omp_event_handle_t event;
#pragma omp task detach(event)
            MPI(MPIX_Task_detach(0, NULL, MPI_STATUSES_IGNORE, event));
        }
    }
    EXPECT(!wrong, "%d tasks have read wrong data", wrong);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_free(&win));
    return test_end();
}
