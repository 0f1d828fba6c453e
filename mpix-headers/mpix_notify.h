/*
 * mpix_notify.h - notified access: operations that tell their target, and waiting to be told
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Included by mpix_rma.h.
 *
 * Sources
 *   [draft]  MPI Forum, notified RMA (drafted for MPI 5.1, section 12.6): the counters and their calls.
 *   [GASPI]  gaspi_notify_waitsome, and TAGASPI (2021), sections II.B to IV: waiting for some of many.
 *   [NA]     Belli and Hoefler, "Notified Access" (IPDPS 2015): tags, and persistent requests that match them.
 *
 * Two families: counters, which are polled or waited for; and tags, which are matched like messages (below).
 *
 * COUNTERS
 *
 * Each process of a window may have notification counters, numbered from 0, as many as it asks for in
 * MPIX_Win_set_num_notify. An operation in its notifying form does what its plain form does and then adds 1 to a
 * counter of its target. Counters have 64 bits.
 *
 * The counter rises only after the data of that operation, and of all operations that the same process issued
 * towards the same target before, are visible at the target; for a get, after the target's memory has been read.
 * Whoever has seen the count, by any call of this file, may read the data, as after MPI_Win_sync. No other
 * synchronisation is needed for that, in active-target epochs neither.
 *
 * A notification belongs to the epoch of its operation: in an epoch that is recorded it is given once the epoch has
 * begun; a flush or a closing call is complete when it has been given. With a reorder flag on, counts do not tell
 * epochs apart. Notifying forms may be called in every kind of epoch; the [draft] has them in passive ones only.
 *
 * An operation without data (0 elements) gives its notification all the same; towards MPI_PROC_NULL nothing happens.
 *
 * Notifications are never lost and never counted twice, however many come while their target looks elsewhere.
 * They need no call of the target on MPI_Win_allocate and MPI_Win_allocate_shared windows, between processes of one node. On
 * windows of other kinds an origin that computes after a notifying call may delay the notification until its next call, as
 * it may delay small puts (mpix_rma.h, section 4). Between nodes the notification goes in one message with its data where
 * that fits, and takes effect in a call of its target, of MPI or of this library.
 *
 * Fortran has all of these calls: by the module mpix_rma_f08, where those with large counts have the same names as the others; or with
 * integer handles and an error code behind the arguments.
 *
 * Errors of all calls: MPI_ERR_WIN, MPI_ERR_UNSUPPORTED_OPERATION (a window of the host); MPI_ERR_ARG for a NULL place, for
 * an index that is no counter, and for counters of a process that has none. Checked before anything moves.
 */
#ifndef MPIX_NOTIFY_H
#define MPIX_NOTIFY_H

#ifndef MPIX_RMA_H
#error "include mpix_rma.h"
#endif

/*
 * Attributes of windows, for MPI_Win_get_attr [draft: MPI_WIN_NOTIFICATION_*]; fixed when the window is made. Windows of the
 * host have none (flag is false).
 *
 *   MPIX_WIN_NOTIFICATION_NUM_SB     int *: counters of a process up to which each is as fast as one alone, or the value of
 *                                    the info key mpi_assert_max_num_notify
 *   MPIX_WIN_NOTIFICATION_NUM_UB     int *: counters that a process may have
 *   MPIX_WIN_NOTIFICATION_VALUE_UB   MPI_Count *: largest value of a counter
 *
 * Info key of windows, given when they are made [draft]:
 *
 *   mpi_assert_max_num_notify   the calling process will ask for no more counters than this in MPIX_Win_set_num_notify; it
 *                               may differ between processes. 0 (default): nothing is asserted. Beyond it, MPI_ERR_ARG.
 *                               A value that is no int, or negative, in one process: MPI_ERR_INFO_VALUE in all
 *
 * MPI_Win_get_info tells it; MPI_Win_set_info does not change it.
 */
#define MPIX_WIN_NOTIFICATION_NUM_SB (-7301)
#define MPIX_WIN_NOTIFICATION_NUM_UB (-7302)
#define MPIX_WIN_NOTIFICATION_VALUE_UB (-7303)

/* ---- Operations ---------------------------------------------------------------------------------------------- */

/*
 * MPIX_Put_notify, MPIX_Get_notify, MPIX_Accumulate_notify, MPIX_Get_accumulate_notify, and with requests
 * MPIX_Rput_notify, MPIX_Rget_notify, MPIX_Raccumulate_notify, MPIX_Rget_accumulate_notify -
 * the notifying forms of MPI's communication calls [draft; MPI 12.3]
 *
 *   notification_idx   counter of the target that is raised: 0 to its number of counters - 1
 *   the others         as in the plain call
 *
 * The R forms give a request that completes when the origin's buffers may be used again and results are in place, which
 * may be before the notification is given. Errors: those of the plain call, MPI_ERR_ARG (notification_idx).
 */
int MPIX_Put_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank, MPI_Aint
                    target_disp, int target_count, MPI_Datatype target_datatype, int notification_idx, MPI_Win win);
int MPIX_Get_notify(void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank, MPI_Aint
                    target_disp, int target_count, MPI_Datatype target_datatype, int notification_idx, MPI_Win win);
int MPIX_Accumulate_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                           MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, MPI_Op op, int
                           notification_idx, MPI_Win win);
int MPIX_Get_accumulate_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype, void
                               *result_addr, int result_count, MPI_Datatype result_datatype, int target_rank, MPI_Aint
                               target_disp, int target_count, MPI_Datatype target_datatype, MPI_Op op, int
                               notification_idx, MPI_Win win);
int MPIX_Rput_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                     MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, int notification_idx,
                     MPI_Win win, MPI_Request *request);
int MPIX_Rget_notify(void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank, MPI_Aint
                     target_disp, int target_count, MPI_Datatype target_datatype, int notification_idx, MPI_Win win,
                     MPI_Request *request);
int MPIX_Raccumulate_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                            MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, MPI_Op op, int
                            notification_idx, MPI_Win win, MPI_Request *request);
int MPIX_Rget_accumulate_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype, void
                                *result_addr, int result_count, MPI_Datatype result_datatype, int target_rank,
                                MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, MPI_Op op, int
                                notification_idx, MPI_Win win, MPI_Request *request);

/*
 * With large counts [MPI 2.5.8]: MPIX_Put_notify_c, MPIX_Get_notify_c, MPIX_Accumulate_notify_c,
 * MPIX_Get_accumulate_notify_c, MPIX_Rput_notify_c, MPIX_Rget_notify_c, MPIX_Raccumulate_notify_c,
 * MPIX_Rget_accumulate_notify_c
 */
int MPIX_Put_notify_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                      MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int
                      notification_idx, MPI_Win win);
int MPIX_Get_notify_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                      MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int
                      notification_idx, MPI_Win win);
int MPIX_Accumulate_notify_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int
                             target_rank, MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype,
                             MPI_Op op, int notification_idx, MPI_Win win);
int MPIX_Get_accumulate_notify_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, void
                                 *result_addr, MPI_Count result_count, MPI_Datatype result_datatype, int target_rank,
                                 MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op
                                 op, int notification_idx, MPI_Win win);
int MPIX_Rput_notify_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                       MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int
                       notification_idx, MPI_Win win, MPI_Request *request);
int MPIX_Rget_notify_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                       MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int
                       notification_idx, MPI_Win win, MPI_Request *request);
int MPIX_Raccumulate_notify_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int
                              target_rank, MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype,
                              MPI_Op op, int notification_idx, MPI_Win win, MPI_Request *request);
int MPIX_Rget_accumulate_notify_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, void
                                  *result_addr, MPI_Count result_count, MPI_Datatype result_datatype, int target_rank,
                                  MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op
                                  op, int notification_idx, MPI_Win win, MPI_Request *request);

/* MPIX_Fetch_and_op_notify, MPIX_Compare_and_swap_notify - the same for one element */
int MPIX_Fetch_and_op_notify(const void *origin_addr, void *result_addr, MPI_Datatype datatype, int target_rank,
                             MPI_Aint target_disp, MPI_Op op, int notification_idx, MPI_Win win);
int MPIX_Compare_and_swap_notify(const void *origin_addr, const void *compare_addr, void *result_addr, MPI_Datatype
                                 datatype, int target_rank, MPI_Aint target_disp, int notification_idx, MPI_Win win);

/* MPIX_Notify - a notification alone, behind what this process issued towards the target before */
int MPIX_Notify(int target_rank, int notification_idx, MPI_Win win);

/* ---- Counters ------------------------------------------------------------------------------------------------ */

/*
 * MPIX_Win_set_num_notify - give this process counters
 *
 *   info      MPI_INFO_NULL, or hints, of which none is known yet
 *   num       counters of this process; may differ between processes. 0: none
 *
 * Collective over the window's group; blocks until all have called. All counters are 0 afterwards, those that there were before
 * too, and may be raised as soon as the call has returned in the process that raises them. Counters are on cache lines of their own up to 512 of a process, side by side
 * beyond. If one process cannot, none changes, and all get an error: MPI_ERR_ARG (num is negative, or beyond mpi_assert_max_num_notify),
 * MPI_ERR_RMA_SYNC (operations of the caller are not complete, or a wait for a counter is pending), MPI_ERR_NO_MEM; MPI_ERR_ARG where
 * it is another process that cannot.
 */
int MPIX_Win_set_num_notify(MPI_Win win, MPI_Info info, int num);

/* MPIX_Win_get_num_notify - tell how many counters a process has. Error: MPI_ERR_RANK. */
int MPIX_Win_get_num_notify(MPI_Win win, int rank, int *num);

/*
 * MPIX_Win_get_notify_value - tell the value of a counter of this process: notifications since the last reset
 *
 * May be called again and again: it makes progress.
 */
int MPIX_Win_get_notify_value(MPI_Win win, int notification_idx, MPI_Count *value);

/* MPIX_Win_reset_notify_value - tell the value of a counter of this process and make it 0, in one: no count is lost */
int MPIX_Win_reset_notify_value(MPI_Win win, int notification_idx, MPI_Count *value);

/* ---- Waiting ------------------------------------------------------------------------------------------------- */

/*
 * MPIX_Win_notify_ithreshold - wait for a counter of this process
 *
 *   expected  value that it must have, or pass; at least 0
 *
 * Never blocks. The request is one of the MPI library, for all its wait and test calls, together with any others. It
 * completes when the counter's value is at least `expected`. The counter stays as it is. A reset while the wait is pending
 * counts: the value begins at 0 again. Any number of waits may be pending, on one counter too.
 * MPI_Win_free with a wait pending gives MPI_ERR_RMA_SYNC in all processes.
 * Errors: MPI_ERR_ARG (expected is negative), MPI_ERR_NO_MEM.
 */
int MPIX_Win_notify_ithreshold(MPI_Win win, int notification_idx, MPI_Count expected, MPI_Request *request);

/* MPIX_Win_notify_threshold - the same, blocking: the shortest way from a notification to its data */
int MPIX_Win_notify_threshold(MPI_Win win, int notification_idx, MPI_Count expected);

/* MPIX_Win_notify_test_threshold - the same as a question */
int MPIX_Win_notify_test_threshold(MPI_Win win, int notification_idx, MPI_Count expected, int *flag);

/*
 * MPIX_Win_notify_iwaitsome - wait for any of some counters of this process [GASPI]
 *
 *   first, num   the counters first to first + num - 1
 *   idx, value   out, when the request is complete: the first of them that was not 0, and its value. The library's
 *                until then
 *
 * Never blocks; the request is as above. The counter keeps its value: MPIX_Win_reset_notify_value takes it.
 * Errors: MPI_ERR_ARG (num is not positive), MPI_ERR_NO_MEM.
 */
int MPIX_Win_notify_iwaitsome(MPI_Win win, int first, int num, int *idx, MPI_Count *value, MPI_Request *request);

/* MPIX_Win_notify_waitsome - the same, blocking */
int MPIX_Win_notify_waitsome(MPI_Win win, int first, int num, int *idx, MPI_Count *value);

/* MPIX_Win_notify_testsome - the same as a question; idx and value are set where flag is */
int MPIX_Win_notify_testsome(MPI_Win win, int first, int num, int *idx, MPI_Count *value, int *flag);

/* ---- Tags ---------------------------------------------------------------------------------------------------- */

/*
 * An operation in its tagged form does what its plain form does and then tells its target a tag. What is said above of
 * counters holds of tags: the target is told only after the data are visible there (after its memory was read, for a get),
 * in every kind of epoch, with any datatype and size, alone where there are 0 elements; whoever has been told may read the data;
 * a flush or a closing call is complete when the target has been told. No call is needed before: every window has tags.
 *
 * Tagged notifications of one process to one target keep their order. At the target each is matched once, by the rules of
 * messages: it goes to the request that was started first, of those that accept its source and tag; where there is none, it
 * is kept, and a request that is started takes the oldest that it accepts. Requests and kept notifications are found by hashing,
 * and never by a search, however many there are.
 *
 * No notification is lost. Those that wait at a target lie in its own memory, into which it takes them whenever it makes progress:
 * in any call of this library, and in calls of the MPI library that wait or test. A target that makes none is told up to about
 * a thousand on MPI_Win_allocate windows; then operations towards it are recorded at their origin, and a flush or closing call waits
 * for the target's progress, and never for a particular call.
 *
 * Tags are ints from 0 on (all of them, also where the host's MPI_TAG_UB is less).
 */

/*
 * MPIX_Put_tagged, MPIX_Get_tagged, and with requests MPIX_Rput_tagged, MPIX_Rget_tagged - put and get that tell a tag [NA]
 *
 *   tag          what the target is told
 *   the others   as in the plain call
 *
 * The R forms give a request as those of counters do. Errors: those of the plain call, MPI_ERR_TAG (tag is negative). The tag is
 * checked before anything moves.
 */
int MPIX_Put_tagged(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank, MPI_Aint
                    target_disp, int target_count, MPI_Datatype target_datatype, int tag, MPI_Win win);
int MPIX_Get_tagged(void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank, MPI_Aint
                    target_disp, int target_count, MPI_Datatype target_datatype, int tag, MPI_Win win);
int MPIX_Rput_tagged(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank, MPI_Aint
                     target_disp, int target_count, MPI_Datatype target_datatype, int tag, MPI_Win win, MPI_Request
                     *request);
int MPIX_Rget_tagged(void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank, MPI_Aint
                     target_disp, int target_count, MPI_Datatype target_datatype, int tag, MPI_Win win, MPI_Request
                     *request);

/*
 * MPIX_Put_tagged_c, MPIX_Get_tagged_c, MPIX_Rput_tagged_c, MPIX_Rget_tagged_c - the same with counts of type MPI_Count, on every
 * host
 */
int MPIX_Put_tagged_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                      MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int tag, MPI_Win win);
int MPIX_Get_tagged_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                      MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int tag, MPI_Win win);
int MPIX_Rput_tagged_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                       MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int tag, MPI_Win
                       win, MPI_Request *request);
int MPIX_Rget_tagged_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                       MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int tag, MPI_Win
                       win, MPI_Request *request);

/*
 * MPIX_Notify_init - make a persistent request that waits for tagged notifications to this process [NA]
 *
 *   source           rank in the window's group, MPI_ANY_SOURCE, or MPI_PROC_NULL (complete as soon as it is started)
 *   tag              a tag, or MPI_ANY_TAG
 *   expected_count   how many notifications complete it; at least 1
 *
 * Local. The request is for MPI_Start and MPI_Startall, all wait and test calls of MPI-3.1, MPI_Request_get_status, and
 * MPI_Request_free, alone or in one list with any others. It is complete when it has taken expected_count notifications that it
 * accepts; the status then has source and tag of the last of them, and 0 elements. It may be started again when it has
 * been waited for.
 * MPI_Request_free of an active one lets it take what it waits for. MPI_Cancel has no effect. MPI_Win_free with an active one that is
 * not complete gives MPI_ERR_RMA_SYNC in all processes; one whose window is freed can only be waited for and freed.
 * Errors: MPI_ERR_RANK (source), MPI_ERR_TAG, MPI_ERR_COUNT (expected_count is not positive), MPI_ERR_ARG (request is NULL);
 * MPI_Start of an active request, or of one whose window is freed: MPI_ERR_REQUEST.
 */
int MPIX_Notify_init(MPI_Win win, int source, int tag, MPI_Count expected_count, MPI_Request *request);

/*
 * MPIX_Notify_probe, MPIX_Notify_iprobe - look for a tagged notification that no request has taken, without taking it
 *
 *   source, tag   as in MPIX_Notify_init
 *   flag          out: there is one
 *   status        out, if there is one: source and tag of the oldest; or MPI_STATUS_IGNORE
 *
 * MPIX_Notify_probe waits for one. Errors: MPI_ERR_RANK (source), MPI_ERR_TAG, MPI_ERR_ARG (flag is NULL).
 */
int MPIX_Notify_probe(MPI_Win win, int source, int tag, MPI_Status *status);
int MPIX_Notify_iprobe(MPI_Win win, int source, int tag, int *flag, MPI_Status *status);

/* ---- Names for tools ----------------------------------------------------------------------------------------- */

int PMPIX_Put_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                     MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, int notification_idx,
                     MPI_Win win);
int PMPIX_Get_notify(void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank, MPI_Aint
                     target_disp, int target_count, MPI_Datatype target_datatype, int notification_idx, MPI_Win win);
int PMPIX_Accumulate_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                            MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, MPI_Op op, int
                            notification_idx, MPI_Win win);
int PMPIX_Get_accumulate_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype, void
                                *result_addr, int result_count, MPI_Datatype result_datatype, int target_rank,
                                MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, MPI_Op op, int
                                notification_idx, MPI_Win win);
int PMPIX_Rput_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                      MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, int notification_idx,
                      MPI_Win win, MPI_Request *request);
int PMPIX_Rget_notify(void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank, MPI_Aint
                      target_disp, int target_count, MPI_Datatype target_datatype, int notification_idx, MPI_Win win,
                      MPI_Request *request);
int PMPIX_Raccumulate_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                             MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, MPI_Op op, int
                             notification_idx, MPI_Win win, MPI_Request *request);
int PMPIX_Rget_accumulate_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype, void
                                 *result_addr, int result_count, MPI_Datatype result_datatype, int target_rank,
                                 MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, MPI_Op op, int
                                 notification_idx, MPI_Win win, MPI_Request *request);
int PMPIX_Put_notify_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                       MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int
                       notification_idx, MPI_Win win);
int PMPIX_Get_notify_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                       MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int
                       notification_idx, MPI_Win win);
int PMPIX_Accumulate_notify_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int
                              target_rank, MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype,
                              MPI_Op op, int notification_idx, MPI_Win win);
int PMPIX_Get_accumulate_notify_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, void
                                  *result_addr, MPI_Count result_count, MPI_Datatype result_datatype, int target_rank,
                                  MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op
                                  op, int notification_idx, MPI_Win win);
int PMPIX_Rput_notify_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int
                        target_rank, MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int
                        notification_idx, MPI_Win win, MPI_Request *request);
int PMPIX_Rget_notify_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                        MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int
                        notification_idx, MPI_Win win, MPI_Request *request);
int PMPIX_Raccumulate_notify_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int
                               target_rank, MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype
                               target_datatype, MPI_Op op, int notification_idx, MPI_Win win, MPI_Request *request);
int PMPIX_Rget_accumulate_notify_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, void
                                   *result_addr, MPI_Count result_count, MPI_Datatype result_datatype, int
                                   target_rank, MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype
                                   target_datatype, MPI_Op op, int notification_idx, MPI_Win win, MPI_Request
                                   *request);
int PMPIX_Fetch_and_op_notify(const void *origin_addr, void *result_addr, MPI_Datatype datatype, int target_rank,
                              MPI_Aint target_disp, MPI_Op op, int notification_idx, MPI_Win win);
int PMPIX_Compare_and_swap_notify(const void *origin_addr, const void *compare_addr, void *result_addr, MPI_Datatype
                                  datatype, int target_rank, MPI_Aint target_disp, int notification_idx, MPI_Win win);
int PMPIX_Notify(int target_rank, int notification_idx, MPI_Win win);
int PMPIX_Win_set_num_notify(MPI_Win win, MPI_Info info, int num);
int PMPIX_Win_get_num_notify(MPI_Win win, int rank, int *num);
int PMPIX_Win_get_notify_value(MPI_Win win, int notification_idx, MPI_Count *value);
int PMPIX_Win_reset_notify_value(MPI_Win win, int notification_idx, MPI_Count *value);
int PMPIX_Win_notify_ithreshold(MPI_Win win, int notification_idx, MPI_Count expected, MPI_Request *request);
int PMPIX_Win_notify_threshold(MPI_Win win, int notification_idx, MPI_Count expected);
int PMPIX_Win_notify_test_threshold(MPI_Win win, int notification_idx, MPI_Count expected, int *flag);
int PMPIX_Win_notify_iwaitsome(MPI_Win win, int first, int num, int *idx, MPI_Count *value, MPI_Request *request);
int PMPIX_Win_notify_waitsome(MPI_Win win, int first, int num, int *idx, MPI_Count *value);
int PMPIX_Win_notify_testsome(MPI_Win win, int first, int num, int *idx, MPI_Count *value, int *flag);
int PMPIX_Put_tagged(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                     MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, int tag, MPI_Win win);
int PMPIX_Get_tagged(void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank, MPI_Aint
                     target_disp, int target_count, MPI_Datatype target_datatype, int tag, MPI_Win win);
int PMPIX_Rput_tagged(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                      MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, int tag, MPI_Win win,
                      MPI_Request *request);
int PMPIX_Rget_tagged(void *origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank, MPI_Aint
                      target_disp, int target_count, MPI_Datatype target_datatype, int tag, MPI_Win win, MPI_Request
                      *request);
int PMPIX_Put_tagged_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                       MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int tag, MPI_Win
                       win);
int PMPIX_Get_tagged_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                       MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int tag, MPI_Win
                       win);
int PMPIX_Rput_tagged_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int
                        target_rank, MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int
                        tag, MPI_Win win, MPI_Request *request);
int PMPIX_Rget_tagged_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                        MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int tag, MPI_Win
                        win, MPI_Request *request);
int PMPIX_Notify_init(MPI_Win win, int source, int tag, MPI_Count expected_count, MPI_Request *request);
int PMPIX_Notify_probe(MPI_Win win, int source, int tag, MPI_Status *status);
int PMPIX_Notify_iprobe(MPI_Win win, int source, int tag, int *flag, MPI_Status *status);

#endif /* MPIX_NOTIFY_H */
