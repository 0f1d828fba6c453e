/*
 * mpix_continue.h - continuations: functions that run when requests are complete
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Included by mpix_rma.h.
 *
 * Source
 *   [CONT]   MPI Forum, hybrid working group: MPI Continuations (issue 6), with the interface of
 *            its implementation for Open MPI; Schuchart et al., "Callback-based completion
 *            notification using MPI Continuations" (Parallel Computing 106, 2021).
 *
 * A continuation is a function of the application, its callback, and some requests. It runs once,
 * after all of them have completed. Any pending request will do: those of this library, whose
 * completion makes the continuation ready at once, and those of the host (sends, receives,
 * collectives, files), which calls test in turns. Both may be mixed.
 *
 * Continuations are registered with a continuation request, a persistent request that is complete
 * when all of its continuations have ended. It works in every call that takes requests.
 *
 *     int received(int error, void *buffer);       (the callback)
 *
 *     MPI_Request all, request;
 *     MPIX_Continue_init(0, 0, MPI_INFO_NULL, &all);
 *     MPI_Start(&all);
 *     MPI_Irecv(buffer, ..., &request);
 *     MPIX_Continue(&request, received, buffer, 0, MPI_STATUS_IGNORE, all);
 *     ...                                          (runs received(MPI_SUCCESS, buffer) some time)
 *     MPI_Wait(&all, MPI_STATUS_IGNORE);
 *     MPI_Request_free(&all);
 *
 * WHERE CALLBACKS RUN
 *
 * In calls of MPI and of this library: calls on windows, waits, tests, probes, blocking calls; and
 * in the call that registers a continuation if its requests are complete. Under
 * MPI_THREAD_MULTIPLE that may be a call of another thread. With the info key
 * mpi_continue_thread=all, the progress thread (MPIX_RMA_PROGRESS=thread) runs them too, while the
 * application computes. Under MPI_THREAD_MULTIPLE, collectives of MPICH 4.3 and later run none.
 *
 * A callback may communicate, open and close epochs, make windows, register continuations and wait.
 * But no callback runs inside another one in the same thread. So one that waits for what another
 * continuation does, or for its own continuation request, waits for another thread, or forever; the
 * log reports it after two seconds (MPIX_RMA_LOG=info).
 *
 * Errors of all calls are raised on MPI_COMM_WORLD. A call checks its arguments before it changes
 * anything.
 */
#ifndef MPIX_CONTINUE_H
#define MPIX_CONTINUE_H

#ifndef MPIX_RMA_H
#error "include mpix_rma.h"
#endif

/*
 * A callback. Gets MPI_SUCCESS, or with MPIX_CONT_INVOKE_FAILED the error code of the first request
 * that failed, and the address that was registered with it. Returns MPI_SUCCESS, or an error code
 * to mark the continuation as failed.
 */
typedef int(MPIX_Continue_cb_function)(int error, void *cb_data);

/* Flags of MPIX_Continue and MPIX_Continueall: 0, or several combined with | */

/* The requests are MPI_REQUEST_NULL when the call returns, and may go away. Otherwise they must
 * stay where they are, and become MPI_REQUEST_NULL before the callback runs. */
#define MPIX_CONT_REQUESTS_FREE (1 << 1)
/* Requests that are complete already do not make this call run the callback. */
#define MPIX_CONT_DEFER_COMPLETE (1 << 3)
/* The callback runs even if a request has failed. */
#define MPIX_CONT_INVOKE_FAILED (1 << 4)

/* Flag of MPIX_Continue_init: the callbacks run only in calls that test or wait for the
 * continuation request. */
#define MPIX_CONT_POLL_ONLY (1 << 2)

/*
 * MPIX_Continue_init - make a continuation request, which is inactive [CONT]
 *
 *   flags      0 or MPIX_CONT_POLL_ONLY
 *   max_poll   most callbacks that a test of cont_req runs; 0 for any number
 *   info       mpi_continue_thread: application (default), or all to let the progress thread of
 *              this library run callbacks too. Other keys are ignored
 *   cont_req   the new request. After MPI_Start it is complete whenever no registered continuation
 *              is left to run; a call that completes it makes it inactive
 *
 * Continuations may be registered with an inactive request. They run after the next MPI_Start.
 * MPI_Request_free on a request with continuations loses none: they still run, also if the request
 * was inactive or poll-only, but no more may be registered.
 *
 * Errors: MPI_ERR_ARG (flags, max_poll, cont_req is NULL), MPI_ERR_INFO_VALUE.
 */
int MPIX_Continue_init(int flags, int max_poll, MPI_Info info, MPI_Request *cont_req);

/*
 * MPIX_Continue, MPIX_Continueall - run cb(error, cb_data) after one or count requests [CONT]
 *
 *   requests   active requests that are not persistent. From now on they are the library's: the
 *              application may neither test, wait for nor free them. If count is 0, the
 *              continuation is ready at once
 *   cb         the callback
 *   cb_data    its second argument
 *   flags      see above
 *   statuses   filled before the callback runs, MPI_ERROR included; or MPI_STATUS_IGNORE,
 *              MPI_STATUSES_IGNORE
 *   cont_req   a request of MPIX_Continue_init
 *
 * If a request fails, the continuation fails and its callback does not run, unless it has
 * MPIX_CONT_INVOKE_FAILED. That needs an error handler that returns, on the communicator of the
 * failed operation or, for requests of this library, on MPI_COMM_WORLD.
 *
 * Errors: MPI_ERR_REQUEST (a request is MPI_REQUEST_NULL, persistent, or has a continuation;
 * cont_req is not a continuation request), MPI_ERR_ARG (cb is NULL, flags), MPI_ERR_COUNT.
 */
int MPIX_Continue(MPI_Request *request, MPIX_Continue_cb_function *cb, void *cb_data, int flags,
                  MPI_Status *status, MPI_Request cont_req);
int MPIX_Continueall(int count, MPI_Request requests[], MPIX_Continue_cb_function *cb,
                     void *cb_data, int flags, MPI_Status *statuses, MPI_Request cont_req);

/*
 * MPIX_Continue_get_failed - the continuations that have failed: one of their requests, or their
 * callback [CONT]
 *
 *   cont_req   a request of MPIX_Continue_init
 *   count      in: room in cb_data. out: number of addresses. If they are equal, there may be more
 *   cb_data    the addresses registered with the continuations, in the order in which they failed
 *
 * While there are any, calls that complete cont_req return an error of the first one's class.
 *
 * Errors: MPI_ERR_REQUEST (cont_req), MPI_ERR_COUNT (negative), MPI_ERR_ARG (a NULL pointer).
 */
int MPIX_Continue_get_failed(MPI_Request cont_req, int *count, void **cb_data);

/* Names for profiling tools [MPI 15.2] */

int PMPIX_Continue_init(int flags, int max_poll, MPI_Info info, MPI_Request *cont_req);
int PMPIX_Continue(MPI_Request *request, MPIX_Continue_cb_function *cb, void *cb_data, int flags,
                   MPI_Status *status, MPI_Request cont_req);
int PMPIX_Continueall(int count, MPI_Request requests[], MPIX_Continue_cb_function *cb,
                      void *cb_data, int flags, MPI_Status *statuses, MPI_Request cont_req);
int PMPIX_Continue_get_failed(MPI_Request cont_req, int *count, void **cb_data);

#endif /* MPIX_CONTINUE_H */
