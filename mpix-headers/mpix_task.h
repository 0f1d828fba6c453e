/*
 * mpix_task.h - tasks that are complete when requests are
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Not included by mpix_rma.h. MPIX_Task_detach is declared where <omp.h> is there, which means
 * compiling with OpenMP (gcc -fopenmp, clang -fopenmp). The other calls find a task-aware runtime
 * that implements ALPI (nOS-V, Nanos6, NODES, OpenMP-V) when they are first called.
 *
 * Source: OpenMP 5.0, section 2.10.1 (the detach clause); Sala et al., "Integrating blocking and
 * non-blocking MPI primitives with task-based programming models" (Parallel Computing 85, 2019).
 */
#ifndef MPIX_TASK_H
#define MPIX_TASK_H

#include "mpix_rma.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * MPIX_Task_iwait, MPIX_Task_iwaitall - the current task completes only when requests have [2019,
 * section 4: TAMPI_Iwait]
 *
 * They return at once. The task may end its body, but its dependencies are released only when the
 * requests are complete, so its successors may use the data. The task itself must not.
 *
 *   requests   requests of this library and of the host; MPI_REQUEST_NULL counts as complete. They
 *              are MPI_REQUEST_NULL when the call returns, and may go away
 *   statuses   filled before the task completes, or MPI_STATUS_IGNORE, MPI_STATUSES_IGNORE
 *
 * Outside a task, without such a runtime, with one whose version of ALPI is too old (the log
 * warns), and below MPI_THREAD_MULTIPLE, they are MPI_Wait and MPI_Waitall. A request that fails
 * does not keep the task from completing; the error is in its status and in the log.
 *
 * Errors, on MPI_COMM_WORLD: those of MPIX_Continueall, MPI_ERR_OTHER (the runtime refuses).
 */
int MPIX_Task_iwait(MPI_Request *request, MPI_Status *status);
int MPIX_Task_iwaitall(int n, MPI_Request requests[], MPI_Status *statuses);
int PMPIX_Task_iwait(MPI_Request *request, MPI_Status *status);
int PMPIX_Task_iwaitall(int n, MPI_Request requests[], MPI_Status *statuses);

/*
 * MPI_TASK_MULTIPLE - the thread level at which blocking calls pause their task [2019, section 5]
 *
 * The level above MPI_THREAD_MULTIPLE, for MPI_Init_thread. All processes of the job should ask for
 * it. MPI_Init_thread and MPI_Query_thread return it if the host provides MPI_THREAD_MULTIPLE and a
 * runtime that implements ALPI is loaded. Then these calls pause a task that has to wait, and its
 * core runs other tasks:
 *
 *   MPI_Wait, MPI_Waitall, MPI_Waitany, MPI_Waitsome
 *   MPI_Send, MPI_Recv and their kin, MPI_Probe, blocking collectives
 *   MPI_Win_fence, complete, wait, lock, unlock, flush and their kin, MPI_Win_free and the calls
 *   that make windows, MPIX_Win_notify_threshold, MPIX_Win_notify_waitsome
 *
 * Outside tasks they wait as always. Two tasks of a process must not be in collectives of one
 * communicator at a time, as MPI says of threads.
 */
#ifndef MPI_TASK_MULTIPLE
#define MPI_TASK_MULTIPLE (MPI_THREAD_MULTIPLE + 1)
#endif

/*
 * MPIX_Task_set_blocking - sets whether blocking calls of this thread pause its tasks
 *
 *   pauses   0: they wait in place; otherwise they pause, which is the initial state
 *   before   the state before the call, 0 or 1; or NULL
 *
 * Has an effect with MPI_TASK_MULTIPLE only. Always successful.
 */
int MPIX_Task_set_blocking(int pauses, int *before);
int PMPIX_Task_set_blocking(int pauses, int *before);

#ifdef _OPENMP
/*
 * MPIX_Task_detach - the event of an OpenMP task is fulfilled when requests are complete
 *
 *     omp_event_handle_t event;
 *     #pragma omp task detach(event) depend(out : row)
 *     {
 *         MPI_Request request;
 *         MPI_Win_start(neighbours, 0, win);
 *         MPI_Get(row, ..., win);
 *         MPIX_Win_icomplete(win, &request);
 *         MPIX_Task_detach(1, &request, MPI_STATUSES_IGNORE, event);
 *     }
 *     #pragma omp task depend(in : row)
 *     use(row);                                    (starts when the epoch is complete)
 *
 *   n          number of requests; 0 fulfils the event at once
 *   reqs       requests of this library and of the host; MPI_REQUEST_NULL counts as complete. They
 *              are MPI_REQUEST_NULL when the call returns, and may go away
 *   statuses   filled before the event is fulfilled, or MPI_STATUSES_IGNORE. They must be there
 *              until then
 *   event      the event of a detach clause
 *
 * The call returns at once, and no thread waits. Under MPI_THREAD_MULTIPLE the first call starts
 * the progress thread, so the event is fulfilled even if all threads compute or wait in OpenMP. On
 * lower thread levels it is fulfilled in calls of MPI and of this library.
 *
 * A request that fails fulfils the event too; the error is in its status and in the log.
 *
 * Errors, on MPI_COMM_WORLD: those of MPIX_Continueall, MPI_ERR_UNSUPPORTED_OPERATION (no OpenMP
 * runtime that has omp_fulfill_event is loaded).
 */
int MPIX_Task_detach(int n, MPI_Request reqs[], MPI_Status *statuses, omp_event_handle_t event);
int PMPIX_Task_detach(int n, MPI_Request reqs[], MPI_Status *statuses, omp_event_handle_t event);
#endif

#ifdef __cplusplus
}
#endif

#endif /* MPIX_TASK_H */
