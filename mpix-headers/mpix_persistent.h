/*
 * mpix_persistent.h - persistent epochs and operations: recorded once, started many times
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Included by mpix_rma.h.
 *
 * Sources
 *   [MPI]     MPI-4.1, section 3.9 (persistent requests) and chapter 12
 *   [INTER]   INTERTWinE deliverable 3.3 (2018), which asks for persistent one-sided communication
 *
 * An iterative program makes the same calls on a window in every iteration. A persistent epoch
 * records them once, and MPI_Start makes them again. That takes about half as long as the calls,
 * or, with fences, about two thirds, since most of it is waiting for the other processes:
 *
 *     MPIX_Win_epoch_init(win, &request);          (records from here on)
 *     MPI_Win_start(neighbours, 0, win);
 *     MPI_Put(left, n, MPI_DOUBLE, 0, ..., win);
 *     MPI_Put(right, n, MPI_DOUBLE, 1, ..., win);
 *     MPI_Win_complete(win);
 *     MPIX_Win_epoch_end(win);                     (nothing has been moved yet)
 *     for (...) {
 *         MPI_Start(&request);
 *         MPI_Wait(&request, MPI_STATUS_IGNORE);
 *     }
 *     MPI_Request_free(&request);
 *
 * A start makes the calls of the record in their nonblocking forms (MPIX_Win_istart, ...), in the
 * order in which they were recorded. So it never waits, and the targets match it like any other
 * epoch: they may use persistent epochs too, or plain calls. The request completes when every
 * closing call of the record would have returned.
 *
 * WHAT A RECORD CONTAINS
 *
 * - Any number of whole epochs, one behind the other or overlapping as MPI allows: fence, start,
 *   post, lock and lock_all epochs. "post; start; put; complete; wait" is one record. Each epoch
 *   that is opened in a record is closed in it. A fence closes an epoch and opens the next, so a
 *   record of one fence epoch has two fences.
 * - Or first operations, and then a fence. They belong to the fence epoch that is open when the
 *   record is started. So an iteration has one fence: "put; put; fence" is a record.
 * - MPI_Put, MPI_Get, MPI_Accumulate, MPI_Get_accumulate, MPI_Fetch_and_op, MPI_Compare_and_swap,
 *   their large-count and notifying forms, and MPIX_Notify.
 * - MPIX_Win_istart and the other nonblocking calls that open or close an epoch. The requests that
 *   they return are complete.
 *
 * All other calls on the window return MPI_ERR_RMA_SYNC while the record is made: flushes, requests
 * for single operations (MPI_Rput, ...), MPI_Win_test, MPI_Win_sync, waits for notifications,
 * MPI_Win_free, and calls of other threads. Calls that only ask for attributes, info and group of
 * the window, and calls on other windows, are not affected. A call that returns an error is not
 * part of the record.
 *
 * Arguments are checked when they are recorded. Buffers are recorded by address: each start reads
 * or writes them anew, and they belong to the library from the start to the completion. Datatypes
 * and groups may be freed once they are recorded. Memory of a dynamic window that a record accesses
 * must be attached at each start.
 *
 * THE REQUEST
 *
 * All calls that take requests accept it, alone or in arrays with others. An inactive one counts as
 * complete there. Several persistent epochs of one window may be active at the same time; they take
 * effect in the order of their starts.
 *
 * MPI_Start and MPI_Startall return, and start nothing,
 *   MPI_ERR_REQUEST    if the request is active, or its window has been freed or is broken;
 *   MPI_ERR_RMA_SYNC   if an epoch is open that the record's epochs may not be opened beside; if no
 *                      fence epoch is open for operations that the record begins with; if an epoch
 *                      is being recorded on the window; if a pattern fence has not learned a
 *                      target, or will not have when it is accessed (mpix_rma_fence); or, for an
 *                      operation, if no open epoch covers the target.
 *
 * MPI_Request_free of an active request lets it finish. MPI_Win_free completes active persistent
 * epochs; from then on their requests can only be waited for and freed. MPI_Cancel has no effect.
 */
#ifndef MPIX_PERSISTENT_H
#define MPIX_PERSISTENT_H

#ifndef MPIX_RMA_H
#error "include mpix_rma.h"
#endif

/*
 * MPIX_Win_epoch_init - begin to record a persistent epoch [INTER]
 *
 *   win       the window. Calls of this thread on it are recorded, not executed, from now on
 *   request   the persistent request, inactive
 *
 * Local. If MPI_Request_free frees the request before MPIX_Win_epoch_end, that call drops the
 * record.
 *
 * Errors: MPI_ERR_ARG (request is NULL), MPI_ERR_RMA_SYNC (a record is being made on the window).
 */
int MPIX_Win_epoch_init(MPI_Win win, MPI_Request *request);

/*
 * MPIX_Win_epoch_end - end the record [INTER]
 *
 *   win   the window
 *
 * Local. From now on calls on the window are executed, and the request may be started.
 *
 * Errors: MPI_ERR_RMA_SYNC (no record is being made on the window, or an epoch of the record is
 * open, or no fence follows the operations with which the record begins; the record then goes on).
 */
int MPIX_Win_epoch_end(MPI_Win win);

/*
 * MPIX_Put_init, MPIX_Get_init, MPIX_Accumulate_init - create a persistent request for an operation
 *
 *   all others   as in MPI_Put, MPI_Get and MPI_Accumulate
 *   request      the persistent request, inactive
 *
 * Local. Each start issues the operation within the epochs that are open then, and the request
 * completes as that of MPI_Rput, MPI_Rget or MPI_Raccumulate does: when the origin's buffer may be
 * used again, or holds the data. A closing call or flush completes the operation at the target. An
 * operation without data and notification needs no epoch.
 *
 * Errors: as in MPI_Put, MPI_Get and MPI_Accumulate, except that no epoch has to be open; and
 * MPI_ERR_ARG (request is NULL).
 */
int MPIX_Put_init(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                  int target_rank, MPI_Aint target_disp, int target_count,
                  MPI_Datatype target_datatype, MPI_Win win, MPI_Request *request);
int MPIX_Get_init(void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                  int target_rank, MPI_Aint target_disp, int target_count,
                  MPI_Datatype target_datatype, MPI_Win win, MPI_Request *request);
int MPIX_Accumulate_init(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                         int target_rank, MPI_Aint target_disp, int target_count,
                         MPI_Datatype target_datatype, MPI_Op op, MPI_Win win,
                         MPI_Request *request);

/*
 * MPIX_Put_notify_init, MPIX_Get_notify_init, MPIX_Accumulate_notify_init - the same, with a
 * notification
 *
 *   notification_idx   the target's counter that each start raises by one, as in MPIX_Put_notify
 *
 * Errors: also MPI_ERR_ARG (notification_idx is not below the target's number of counters).
 */
int MPIX_Put_notify_init(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                         int target_rank, MPI_Aint target_disp, int target_count,
                         MPI_Datatype target_datatype, int notification_idx, MPI_Win win,
                         MPI_Request *request);
int MPIX_Get_notify_init(void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                         int target_rank, MPI_Aint target_disp, int target_count,
                         MPI_Datatype target_datatype, int notification_idx, MPI_Win win,
                         MPI_Request *request);
int MPIX_Accumulate_notify_init(const void *origin_addr, int origin_count,
                                MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                                int target_count, MPI_Datatype target_datatype, MPI_Op op,
                                int notification_idx, MPI_Win win, MPI_Request *request);

/*
 * MPIX_Put_init_c, MPIX_Get_init_c, MPIX_Accumulate_init_c, MPIX_Put_notify_init_c,
 * MPIX_Get_notify_init_c, MPIX_Accumulate_notify_init_c - the same, with large counts
 */
int MPIX_Put_init_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                    int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                    MPI_Datatype target_datatype, MPI_Win win, MPI_Request *request);
int MPIX_Get_init_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                    int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                    MPI_Datatype target_datatype, MPI_Win win, MPI_Request *request);
int MPIX_Accumulate_init_c(const void *origin_addr, MPI_Count origin_count,
                           MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                           MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op,
                           MPI_Win win, MPI_Request *request);
int MPIX_Put_notify_init_c(const void *origin_addr, MPI_Count origin_count,
                           MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                           MPI_Count target_count, MPI_Datatype target_datatype,
                           int notification_idx, MPI_Win win, MPI_Request *request);
int MPIX_Get_notify_init_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                           int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                           MPI_Datatype target_datatype, int notification_idx, MPI_Win win,
                           MPI_Request *request);
int MPIX_Accumulate_notify_init_c(const void *origin_addr, MPI_Count origin_count,
                                  MPI_Datatype origin_datatype, int target_rank,
                                  MPI_Aint target_disp, MPI_Count target_count,
                                  MPI_Datatype target_datatype, MPI_Op op, int notification_idx,
                                  MPI_Win win, MPI_Request *request);

/* Entry points for tools that interpose the calls above. */
int PMPIX_Win_epoch_init(MPI_Win win, MPI_Request *request);
int PMPIX_Win_epoch_end(MPI_Win win);
int PMPIX_Put_init(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                   int target_rank, MPI_Aint target_disp, int target_count,
                   MPI_Datatype target_datatype, MPI_Win win, MPI_Request *request);
int PMPIX_Get_init(void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                   int target_rank, MPI_Aint target_disp, int target_count,
                   MPI_Datatype target_datatype, MPI_Win win, MPI_Request *request);
int PMPIX_Accumulate_init(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                          int target_rank, MPI_Aint target_disp, int target_count,
                          MPI_Datatype target_datatype, MPI_Op op, MPI_Win win,
                          MPI_Request *request);
int PMPIX_Put_notify_init(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                          int target_rank, MPI_Aint target_disp, int target_count,
                          MPI_Datatype target_datatype, int notification_idx, MPI_Win win,
                          MPI_Request *request);
int PMPIX_Get_notify_init(void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                          int target_rank, MPI_Aint target_disp, int target_count,
                          MPI_Datatype target_datatype, int notification_idx, MPI_Win win,
                          MPI_Request *request);
int PMPIX_Accumulate_notify_init(const void *origin_addr, int origin_count,
                                 MPI_Datatype origin_datatype, int target_rank,
                                 MPI_Aint target_disp, int target_count,
                                 MPI_Datatype target_datatype, MPI_Op op, int notification_idx,
                                 MPI_Win win, MPI_Request *request);
int PMPIX_Put_init_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                     int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                     MPI_Datatype target_datatype, MPI_Win win, MPI_Request *request);
int PMPIX_Get_init_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                     int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                     MPI_Datatype target_datatype, MPI_Win win, MPI_Request *request);
int PMPIX_Accumulate_init_c(const void *origin_addr, MPI_Count origin_count,
                            MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                            MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op,
                            MPI_Win win, MPI_Request *request);
int PMPIX_Put_notify_init_c(const void *origin_addr, MPI_Count origin_count,
                            MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                            MPI_Count target_count, MPI_Datatype target_datatype,
                            int notification_idx, MPI_Win win, MPI_Request *request);
int PMPIX_Get_notify_init_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                            int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                            MPI_Datatype target_datatype, int notification_idx, MPI_Win win,
                            MPI_Request *request);
int PMPIX_Accumulate_notify_init_c(const void *origin_addr, MPI_Count origin_count,
                                   MPI_Datatype origin_datatype, int target_rank,
                                   MPI_Aint target_disp, MPI_Count target_count,
                                   MPI_Datatype target_datatype, MPI_Op op, int notification_idx,
                                   MPI_Win win, MPI_Request *request);

#endif /* MPIX_PERSISTENT_H */
