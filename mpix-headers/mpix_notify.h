/*
 * mpix_notify.h - notified access: operations that notify their target, and waiting for them
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Included by mpix_rma.h.
 *
 * Sources
 *   [draft]  MPI Forum, notified RMA (draft for MPI 5.1, section 12.6): counters and their calls.
 *   [GASPI]  gaspi_notify_waitsome, and TAGASPI (2021), sections II.B to IV: waiting for any
 *            counter of a range.
 *   [TALPF]  TALPF (2023), chapter 5: waiting for a number of messages ("msg").
 *   [NA]     Belli and Hoefler, "Notified Access" (IPDPS 2015): tags, and persistent requests that
 *            match them.
 *
 * There are two families: counters, which the target polls or waits for, and tags, which are
 * matched like messages (below).
 *
 * COUNTERS
 *
 * Each process of a window may have notification counters of 64 bits, numbered from 0. It requests
 * them with MPIX_Win_set_num_notify. The notifying form of an operation does what the plain form
 * does, and then adds 1 to a counter of its target.
 *
 * The counter rises only after the data of the operation, and of all operations that the same
 * process issued towards the same target before, are visible at the target; for a get, after the
 * target's memory has been read. A process that has seen the count, by any call of this file, may
 * read the data, as after MPI_Win_sync. It needs no other synchronization, also in active-target
 * epochs.
 *
 * A notification belongs to the epoch of its operation. In a deferred epoch it is deferred too; a
 * flush or closing call completes only after it has taken effect. With a reorder flag set, a count
 * does not tell which epoch a notification belongs to. Notifying forms are allowed in every kind of
 * epoch; in the [draft], in passive ones only.
 *
 * An operation of 0 elements still notifies. An operation on MPI_PROC_NULL does not.
 *
 * Notifications are never lost and never counted twice, however many arrive before the target
 * looks. On windows from MPI_Win_allocate and MPI_Win_allocate_shared they need no call of the
 * target between processes of one node. On other windows, an origin that computes after a notifying
 * call may delay the notification until its next call, as with small puts (mpix_rma.h, section 4).
 * Between nodes, notification and data share one message if they fit, and take effect in a call of
 * the target, of MPI or of this library.
 *
 * Fortran: the module mpix_rma_f08 has all calls, those with large counts under the same generic
 * names as the others. Without the module, the calls take integer handles and a last argument
 * ierror.
 *
 * Errors of all calls: MPI_ERR_WIN, MPI_ERR_UNSUPPORTED_OPERATION (the host serves the window),
 * MPI_ERR_ARG (a NULL pointer, an invalid counter index, or a process without counters). A call
 * checks its arguments before it changes anything.
 */
#ifndef MPIX_NOTIFY_H
#define MPIX_NOTIFY_H

#ifndef MPIX_RMA_H
#error "include mpix_rma.h"
#endif

/*
 * COUNTED WINDOWS [TALPF]
 *
 * With the info key mpix_rma_notify_puts=IDX at its creation, a window counts its operations: each
 * put, get and accumulate of any form, with a request or without, raises counter IDX of its target,
 * as its notifying form would. So the target waits for n operations by
 *
 *     MPIX_Win_notify_ithreshold(win, IDX, n, &request)
 *
 * and the origin calls MPI_Put as on any other window. Each call counts once, however many messages
 * it takes. As above, an operation of 0 elements counts, and one on MPI_PROC_NULL does not. A call
 * that names a counter or a tag (MPIX_Put_notify, MPIX_Put_tagged, ...) raises or delivers that
 * alone, and does not count.
 *
 *   - IDX is at least 0. The window is created with IDX + 1 counters per process.
 *     MPIX_Win_set_num_notify may change that to any number above IDX. As always, it sets all
 *     counters to 0.
 *   - All processes pass the same value, or none passes the key. Otherwise all get
 *     MPI_ERR_INFO_VALUE. So they do if IDX is not a number, or not below the value of
 *     mpi_assert_max_num_notify.
 *   - "none" is as without the key. A duplicate has a value of its own (mpix_dup.h).
 *   - MPI_Win_set_info does not change it. MPI_Win_get_info returns it on windows that have it.
 */

/*
 * Attributes of windows, for MPI_Win_get_attr [draft: MPI_WIN_NOTIFICATION_*]; fixed when the
 * window is created. On windows of the host, flag is false.
 *
 *   MPIX_WIN_NOTIFICATION_NUM_SB     int *: number of counters per process up to which each is as
 *                                    fast as a single one, or the value of the info key
 *                                    mpi_assert_max_num_notify
 *   MPIX_WIN_NOTIFICATION_NUM_UB     int *: largest number of counters per process
 *   MPIX_WIN_NOTIFICATION_VALUE_UB   MPI_Count *: largest value of a counter
 *
 * Info key of window creation [draft]:
 *
 *   mpi_assert_max_num_notify   the largest number that this process will ever pass to
 *                               MPIX_Win_set_num_notify; larger ones are MPI_ERR_ARG. May differ
 *                               between processes. 0 (default) asserts nothing. If the value in one
 *                               process is negative or not an int, all get MPI_ERR_INFO_VALUE
 *
 * MPI_Win_get_info returns it; MPI_Win_set_info does not change it.
 */
#define MPIX_WIN_NOTIFICATION_NUM_SB (-7301)
#define MPIX_WIN_NOTIFICATION_NUM_UB (-7302)
#define MPIX_WIN_NOTIFICATION_VALUE_UB (-7303)

/* ---- Operations ----------------------------------------------------------------------------- */

/*
 * MPIX_Put_notify, MPIX_Get_notify, MPIX_Accumulate_notify, MPIX_Get_accumulate_notify;
 * MPIX_Rput_notify, MPIX_Rget_notify, MPIX_Raccumulate_notify, MPIX_Rget_accumulate_notify -
 * notifying forms of MPI's communication calls [draft; MPI 12.3]
 *
 *   notification_idx   counter of the target to raise: 0 to its number of counters - 1
 *   the others         as in the plain call
 *
 * The request of an R form completes when origin buffers may be used again and results have
 * arrived, possibly before the notification takes effect. Errors: those of the plain call,
 * MPI_ERR_ARG (notification_idx).
 */
int MPIX_Put_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                    int target_rank, MPI_Aint target_disp, int target_count,
                    MPI_Datatype target_datatype, int notification_idx, MPI_Win win);
int MPIX_Get_notify(void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                    int target_rank, MPI_Aint target_disp, int target_count,
                    MPI_Datatype target_datatype, int notification_idx, MPI_Win win);
int MPIX_Accumulate_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                           int target_rank, MPI_Aint target_disp, int target_count,
                           MPI_Datatype target_datatype, MPI_Op op, int notification_idx,
                           MPI_Win win);
int MPIX_Get_accumulate_notify(const void *origin_addr, int origin_count,
                               MPI_Datatype origin_datatype, void *result_addr, int result_count,
                               MPI_Datatype result_datatype, int target_rank, MPI_Aint target_disp,
                               int target_count, MPI_Datatype target_datatype, MPI_Op op,
                               int notification_idx, MPI_Win win);
int MPIX_Rput_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                     int target_rank, MPI_Aint target_disp, int target_count,
                     MPI_Datatype target_datatype, int notification_idx, MPI_Win win,
                     MPI_Request *request);
int MPIX_Rget_notify(void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                     int target_rank, MPI_Aint target_disp, int target_count,
                     MPI_Datatype target_datatype, int notification_idx, MPI_Win win,
                     MPI_Request *request);
int MPIX_Raccumulate_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                            int target_rank, MPI_Aint target_disp, int target_count,
                            MPI_Datatype target_datatype, MPI_Op op, int notification_idx,
                            MPI_Win win, MPI_Request *request);
int MPIX_Rget_accumulate_notify(const void *origin_addr, int origin_count,
                                MPI_Datatype origin_datatype, void *result_addr, int result_count,
                                MPI_Datatype result_datatype, int target_rank, MPI_Aint target_disp,
                                int target_count, MPI_Datatype target_datatype, MPI_Op op,
                                int notification_idx, MPI_Win win, MPI_Request *request);

/*
 * With large counts [MPI 2.5.8]: MPIX_Put_notify_c, MPIX_Get_notify_c, MPIX_Accumulate_notify_c,
 * MPIX_Get_accumulate_notify_c, MPIX_Rput_notify_c, MPIX_Rget_notify_c, MPIX_Raccumulate_notify_c,
 * MPIX_Rget_accumulate_notify_c
 */
int MPIX_Put_notify_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                      int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                      MPI_Datatype target_datatype, int notification_idx, MPI_Win win);
int MPIX_Get_notify_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                      int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                      MPI_Datatype target_datatype, int notification_idx, MPI_Win win);
int MPIX_Accumulate_notify_c(const void *origin_addr, MPI_Count origin_count,
                             MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                             MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op,
                             int notification_idx, MPI_Win win);
int MPIX_Get_accumulate_notify_c(const void *origin_addr, MPI_Count origin_count,
                                 MPI_Datatype origin_datatype, void *result_addr,
                                 MPI_Count result_count, MPI_Datatype result_datatype,
                                 int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                                 MPI_Datatype target_datatype, MPI_Op op, int notification_idx,
                                 MPI_Win win);
int MPIX_Rput_notify_c(const void *origin_addr, MPI_Count origin_count,
                       MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                       MPI_Count target_count, MPI_Datatype target_datatype, int notification_idx,
                       MPI_Win win, MPI_Request *request);
int MPIX_Rget_notify_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                       int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                       MPI_Datatype target_datatype, int notification_idx, MPI_Win win,
                       MPI_Request *request);
int MPIX_Raccumulate_notify_c(const void *origin_addr, MPI_Count origin_count,
                              MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                              MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op,
                              int notification_idx, MPI_Win win, MPI_Request *request);
int MPIX_Rget_accumulate_notify_c(const void *origin_addr, MPI_Count origin_count,
                                  MPI_Datatype origin_datatype, void *result_addr,
                                  MPI_Count result_count, MPI_Datatype result_datatype,
                                  int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                                  MPI_Datatype target_datatype, MPI_Op op, int notification_idx,
                                  MPI_Win win, MPI_Request *request);

/* MPIX_Fetch_and_op_notify, MPIX_Compare_and_swap_notify - the same for one element */
int MPIX_Fetch_and_op_notify(const void *origin_addr, void *result_addr, MPI_Datatype datatype,
                             int target_rank, MPI_Aint target_disp, MPI_Op op, int notification_idx,
                             MPI_Win win);
int MPIX_Compare_and_swap_notify(const void *origin_addr, const void *compare_addr,
                                 void *result_addr, MPI_Datatype datatype, int target_rank,
                                 MPI_Aint target_disp, int notification_idx, MPI_Win win);

/* MPIX_Notify - notify target_rank alone, after everything issued towards it before */
int MPIX_Notify(int target_rank, int notification_idx, MPI_Win win);

/* ---- Counters ------------------------------------------------------------------------------- */

/*
 * MPIX_Win_set_num_notify - set the number of counters of this process
 *
 *   info      MPI_INFO_NULL, or hints; none are defined yet
 *   num       number of counters; may differ between processes; 0: none
 *
 * Collective over the window's group; blocks until all have called. Sets all counters to 0,
 * including those that existed before. Once the call has returned in a process, that process may
 * raise counters of the others. Up to 512 counters of a process each have a cache line of their
 * own; beyond that they share lines.
 *
 * If one process fails, no counters change and all processes get an error: MPI_ERR_ARG (num is
 * negative, exceeds mpi_assert_max_num_notify or leaves out the counter of mpix_rma_notify_puts, or
 * another process fails), MPI_ERR_RMA_SYNC (the caller has incomplete operations, or a pending wait
 * for a counter), MPI_ERR_NO_MEM.
 */
int MPIX_Win_set_num_notify(MPI_Win win, MPI_Info info, int num);

/* MPIX_Win_get_num_notify - number of counters of a process. Error: MPI_ERR_RANK. */
int MPIX_Win_get_num_notify(MPI_Win win, int rank, int *num);

/*
 * MPIX_Win_get_notify_value - value of a counter of this process: notifications since the last
 * reset
 *
 * Makes progress, so a program may poll with it.
 */
int MPIX_Win_get_notify_value(MPI_Win win, int notification_idx, MPI_Count *value);

/* MPIX_Win_reset_notify_value - read a counter of this process and set it to 0, atomically */
int MPIX_Win_reset_notify_value(MPI_Win win, int notification_idx, MPI_Count *value);

/* ---- Waiting -------------------------------------------------------------------------------- */

/*
 * MPIX_Win_notify_ithreshold - wait until a counter of this process reaches a value
 *
 *   expected  value to reach or exceed; at least 0
 *
 * Never blocks. The request works with all wait and test calls, together with requests of other
 * kinds. It completes when the counter's value is at least `expected`. It does not change the
 * counter; a reset while it is pending makes the count start at 0 again. Any number of waits may be
 * pending, also on one counter. MPI_Win_free with a pending wait returns MPI_ERR_RMA_SYNC in all
 * processes. Errors: MPI_ERR_ARG (expected is negative), MPI_ERR_NO_MEM.
 */
int MPIX_Win_notify_ithreshold(MPI_Win win, int notification_idx, MPI_Count expected,
                               MPI_Request *request);

/* MPIX_Win_notify_threshold - the same, blocking; the fastest way from notification to data */
int MPIX_Win_notify_threshold(MPI_Win win, int notification_idx, MPI_Count expected);

/* MPIX_Win_notify_test_threshold - the same as a test */
int MPIX_Win_notify_test_threshold(MPI_Win win, int notification_idx, MPI_Count expected,
                                   int *flag);

/*
 * MPIX_Win_notify_iwaitsome - wait for any nonzero counter of a range, in this process [GASPI]
 *
 *   first, num   the counters first to first + num - 1
 *   idx, value   out, when the request completes: the first nonzero counter, and its value. They
 *                belong to the library until then
 *
 * Never blocks; the request works as that of MPIX_Win_notify_ithreshold. The counter keeps its
 * value; MPIX_Win_reset_notify_value sets it to 0. Errors: MPI_ERR_ARG (num is not positive),
 * MPI_ERR_NO_MEM.
 */
int MPIX_Win_notify_iwaitsome(MPI_Win win, int first, int num, int *idx, MPI_Count *value,
                              MPI_Request *request);

/* MPIX_Win_notify_waitsome - the same, blocking */
int MPIX_Win_notify_waitsome(MPI_Win win, int first, int num, int *idx, MPI_Count *value);

/* MPIX_Win_notify_testsome - the same as a test; sets idx and value if it sets flag */
int MPIX_Win_notify_testsome(MPI_Win win, int first, int num, int *idx, MPI_Count *value,
                             int *flag);

/*
 * MPIX_Win_notify_iwaitall - wait for each counter of a range, in this process [TAGASPI, section
 * III.C: tagaspi_notify_awaitall]
 *
 *   first, num   the counters first to first + num - 1
 *   thresholds   for each, the value to reach or exceed; at least 0. NULL: 1 for each. It may be
 *                changed when the call returns
 *   values       for each, out, when the request completes: a value that it had, which is at least
 *                its threshold; or NULL. The array belongs to the library until then
 *
 * Never blocks; one request, which works as that of MPIX_Win_notify_ithreshold. Counters need not
 * reach their thresholds at the same time. They keep their values; a reset while the request is
 * pending counts for those that had not reached theirs. A pending wait costs as much as one for a
 * single counter, however many there are. Errors: MPI_ERR_ARG (num is not positive, a threshold is
 * negative), MPI_ERR_NO_MEM.
 */
int MPIX_Win_notify_iwaitall(MPI_Win win, int first, int num, const MPI_Count thresholds[],
                             MPI_Count values[], MPI_Request *request);

/* ---- Tags ----------------------------------------------------------------------------------- */

/*
 * The tagged form of an operation does what the plain form does, and then delivers a tag to its
 * target. Tags are delivered as counters are raised: after the data are visible at the target (for
 * a get, after its memory was read), in every kind of epoch, with any datatype and size, and for 0
 * elements too. A process that has received the tag may read the data. A flush or closing call
 * completes only after delivery. No setup is needed: every window has tags.
 *
 * Tagged notifications of one process to one target stay in order. The target matches each one
 * once, by the rules of messages. It goes to the first started request that accepts its source and
 * tag. If there is none it is kept, and the next request that accepts it takes the oldest. Matching
 * is by hashing and never searches, however many requests and notifications there are.
 *
 * No notification is lost. A target stores unmatched ones in its own memory whenever it makes
 * progress: in any call of this library, and in MPI calls that wait or test. A target that makes no
 * progress can receive about a thousand on MPI_Win_allocate windows. After that, operations towards
 * it are recorded at their origin, and a flush or closing call waits for progress of the target,
 * not for a particular call.
 *
 * A tag is any int from 0 on, even above the host's MPI_TAG_UB.
 */

/*
 * MPIX_Put_tagged, MPIX_Get_tagged, MPIX_Rput_tagged, MPIX_Rget_tagged -
 * put and get that deliver a tag [NA]
 *
 *   tag          the tag to deliver, at least 0
 *   the others   as in the plain call
 *
 * The R forms return requests like those of counters. Errors: those of the plain call, MPI_ERR_TAG
 * (tag is negative).
 */
int MPIX_Put_tagged(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                    int target_rank, MPI_Aint target_disp, int target_count,
                    MPI_Datatype target_datatype, int tag, MPI_Win win);
int MPIX_Get_tagged(void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                    int target_rank, MPI_Aint target_disp, int target_count,
                    MPI_Datatype target_datatype, int tag, MPI_Win win);
int MPIX_Rput_tagged(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                     int target_rank, MPI_Aint target_disp, int target_count,
                     MPI_Datatype target_datatype, int tag, MPI_Win win, MPI_Request *request);
int MPIX_Rget_tagged(void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                     int target_rank, MPI_Aint target_disp, int target_count,
                     MPI_Datatype target_datatype, int tag, MPI_Win win, MPI_Request *request);

/*
 * With large counts [MPI 2.5.8]: MPIX_Put_tagged_c, MPIX_Get_tagged_c, MPIX_Rput_tagged_c,
 * MPIX_Rget_tagged_c
 */
int MPIX_Put_tagged_c(const void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                      int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                      MPI_Datatype target_datatype, int tag, MPI_Win win);
int MPIX_Get_tagged_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                      int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                      MPI_Datatype target_datatype, int tag, MPI_Win win);
int MPIX_Rput_tagged_c(const void *origin_addr, MPI_Count origin_count,
                       MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                       MPI_Count target_count, MPI_Datatype target_datatype, int tag, MPI_Win win,
                       MPI_Request *request);
int MPIX_Rget_tagged_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                       int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                       MPI_Datatype target_datatype, int tag, MPI_Win win, MPI_Request *request);

/*
 * MPIX_Notify_init - create a persistent request that receives tagged notifications [NA]
 *
 *   source           rank in the window's group, MPI_ANY_SOURCE, or MPI_PROC_NULL (complete as soon
 *                    as it is started)
 *   tag              a tag, or MPI_ANY_TAG
 *   expected_count   number of notifications per start; at least 1
 *
 * Local. MPI_Start and MPI_Startall, all wait and test calls of MPI-3.1, MPI_Request_get_status and
 * MPI_Request_free accept the request, alone or in one array with others. It completes when it has
 * taken expected_count notifications; the status has source and tag of the last of them, and 0
 * elements. It may be started again after a wait or test has completed it.
 *
 * MPI_Request_free of an active request lets it take its notifications first. MPI_Cancel has no
 * effect. MPI_Win_free with an incomplete active request returns MPI_ERR_RMA_SYNC in all processes.
 * After MPI_Win_free, a request can only be waited for and freed.
 *
 * Errors: MPI_ERR_RANK (source), MPI_ERR_TAG, MPI_ERR_COUNT (expected_count is not positive),
 * MPI_ERR_ARG (request is NULL). MPI_Start of an active request, or after MPI_Win_free:
 * MPI_ERR_REQUEST.
 */
int MPIX_Notify_init(MPI_Win win, int source, int tag, MPI_Count expected_count,
                     MPI_Request *request);

/*
 * MPIX_Notify_probe, MPIX_Notify_iprobe - find a tagged notification that no request has taken, and
 * leave it there
 *
 *   source, tag   as in MPIX_Notify_init
 *   flag          out: whether there is one
 *   status        out, if so: source and tag of the oldest; or MPI_STATUS_IGNORE
 *
 * MPIX_Notify_probe blocks until there is one. Errors: MPI_ERR_RANK (source), MPI_ERR_TAG,
 * MPI_ERR_ARG (flag is NULL).
 */
int MPIX_Notify_probe(MPI_Win win, int source, int tag, MPI_Status *status);
int MPIX_Notify_iprobe(MPI_Win win, int source, int tag, int *flag, MPI_Status *status);

/* ---- Names for profiling tools -------------------------------------------------------------- */

int PMPIX_Put_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                     int target_rank, MPI_Aint target_disp, int target_count,
                     MPI_Datatype target_datatype, int notification_idx, MPI_Win win);
int PMPIX_Get_notify(void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                     int target_rank, MPI_Aint target_disp, int target_count,
                     MPI_Datatype target_datatype, int notification_idx, MPI_Win win);
int PMPIX_Accumulate_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                            int target_rank, MPI_Aint target_disp, int target_count,
                            MPI_Datatype target_datatype, MPI_Op op, int notification_idx,
                            MPI_Win win);
int PMPIX_Get_accumulate_notify(const void *origin_addr, int origin_count,
                                MPI_Datatype origin_datatype, void *result_addr, int result_count,
                                MPI_Datatype result_datatype, int target_rank, MPI_Aint target_disp,
                                int target_count, MPI_Datatype target_datatype, MPI_Op op,
                                int notification_idx, MPI_Win win);
int PMPIX_Rput_notify(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                      int target_rank, MPI_Aint target_disp, int target_count,
                      MPI_Datatype target_datatype, int notification_idx, MPI_Win win,
                      MPI_Request *request);
int PMPIX_Rget_notify(void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                      int target_rank, MPI_Aint target_disp, int target_count,
                      MPI_Datatype target_datatype, int notification_idx, MPI_Win win,
                      MPI_Request *request);
int PMPIX_Raccumulate_notify(const void *origin_addr, int origin_count,
                             MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                             int target_count, MPI_Datatype target_datatype, MPI_Op op,
                             int notification_idx, MPI_Win win, MPI_Request *request);
int PMPIX_Rget_accumulate_notify(const void *origin_addr, int origin_count,
                                 MPI_Datatype origin_datatype, void *result_addr, int result_count,
                                 MPI_Datatype result_datatype, int target_rank,
                                 MPI_Aint target_disp, int target_count,
                                 MPI_Datatype target_datatype, MPI_Op op, int notification_idx,
                                 MPI_Win win, MPI_Request *request);
int PMPIX_Put_notify_c(const void *origin_addr, MPI_Count origin_count,
                       MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                       MPI_Count target_count, MPI_Datatype target_datatype, int notification_idx,
                       MPI_Win win);
int PMPIX_Get_notify_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                       int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                       MPI_Datatype target_datatype, int notification_idx, MPI_Win win);
int PMPIX_Accumulate_notify_c(const void *origin_addr, MPI_Count origin_count,
                              MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                              MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op,
                              int notification_idx, MPI_Win win);
int PMPIX_Get_accumulate_notify_c(const void *origin_addr, MPI_Count origin_count,
                                  MPI_Datatype origin_datatype, void *result_addr,
                                  MPI_Count result_count, MPI_Datatype result_datatype,
                                  int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                                  MPI_Datatype target_datatype, MPI_Op op, int notification_idx,
                                  MPI_Win win);
int PMPIX_Rput_notify_c(const void *origin_addr, MPI_Count origin_count,
                        MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                        MPI_Count target_count, MPI_Datatype target_datatype, int notification_idx,
                        MPI_Win win, MPI_Request *request);
int PMPIX_Rget_notify_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                        int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                        MPI_Datatype target_datatype, int notification_idx, MPI_Win win,
                        MPI_Request *request);
int PMPIX_Raccumulate_notify_c(const void *origin_addr, MPI_Count origin_count,
                               MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                               MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op,
                               int notification_idx, MPI_Win win, MPI_Request *request);
int PMPIX_Rget_accumulate_notify_c(const void *origin_addr, MPI_Count origin_count,
                                   MPI_Datatype origin_datatype, void *result_addr,
                                   MPI_Count result_count, MPI_Datatype result_datatype,
                                   int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                                   MPI_Datatype target_datatype, MPI_Op op, int notification_idx,
                                   MPI_Win win, MPI_Request *request);
int PMPIX_Fetch_and_op_notify(const void *origin_addr, void *result_addr, MPI_Datatype datatype,
                              int target_rank, MPI_Aint target_disp, MPI_Op op,
                              int notification_idx, MPI_Win win);
int PMPIX_Compare_and_swap_notify(const void *origin_addr, const void *compare_addr,
                                  void *result_addr, MPI_Datatype datatype, int target_rank,
                                  MPI_Aint target_disp, int notification_idx, MPI_Win win);
int PMPIX_Notify(int target_rank, int notification_idx, MPI_Win win);
int PMPIX_Win_set_num_notify(MPI_Win win, MPI_Info info, int num);
int PMPIX_Win_get_num_notify(MPI_Win win, int rank, int *num);
int PMPIX_Win_get_notify_value(MPI_Win win, int notification_idx, MPI_Count *value);
int PMPIX_Win_reset_notify_value(MPI_Win win, int notification_idx, MPI_Count *value);
int PMPIX_Win_notify_ithreshold(MPI_Win win, int notification_idx, MPI_Count expected,
                                MPI_Request *request);
int PMPIX_Win_notify_threshold(MPI_Win win, int notification_idx, MPI_Count expected);
int PMPIX_Win_notify_test_threshold(MPI_Win win, int notification_idx, MPI_Count expected,
                                    int *flag);
int PMPIX_Win_notify_iwaitsome(MPI_Win win, int first, int num, int *idx, MPI_Count *value,
                               MPI_Request *request);
int PMPIX_Win_notify_iwaitall(MPI_Win win, int first, int num, const MPI_Count thresholds[],
                              MPI_Count values[], MPI_Request *request);
int PMPIX_Win_notify_waitsome(MPI_Win win, int first, int num, int *idx, MPI_Count *value);
int PMPIX_Win_notify_testsome(MPI_Win win, int first, int num, int *idx, MPI_Count *value,
                              int *flag);
int PMPIX_Put_tagged(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                     int target_rank, MPI_Aint target_disp, int target_count,
                     MPI_Datatype target_datatype, int tag, MPI_Win win);
int PMPIX_Get_tagged(void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                     int target_rank, MPI_Aint target_disp, int target_count,
                     MPI_Datatype target_datatype, int tag, MPI_Win win);
int PMPIX_Rput_tagged(const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                      int target_rank, MPI_Aint target_disp, int target_count,
                      MPI_Datatype target_datatype, int tag, MPI_Win win, MPI_Request *request);
int PMPIX_Rget_tagged(void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
                      int target_rank, MPI_Aint target_disp, int target_count,
                      MPI_Datatype target_datatype, int tag, MPI_Win win, MPI_Request *request);
int PMPIX_Put_tagged_c(const void *origin_addr, MPI_Count origin_count,
                       MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                       MPI_Count target_count, MPI_Datatype target_datatype, int tag, MPI_Win win);
int PMPIX_Get_tagged_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                       int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                       MPI_Datatype target_datatype, int tag, MPI_Win win);
int PMPIX_Rput_tagged_c(const void *origin_addr, MPI_Count origin_count,
                        MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                        MPI_Count target_count, MPI_Datatype target_datatype, int tag, MPI_Win win,
                        MPI_Request *request);
int PMPIX_Rget_tagged_c(void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                        int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                        MPI_Datatype target_datatype, int tag, MPI_Win win, MPI_Request *request);
int PMPIX_Notify_init(MPI_Win win, int source, int tag, MPI_Count expected_count,
                      MPI_Request *request);
int PMPIX_Notify_probe(MPI_Win win, int source, int tag, MPI_Status *status);
int PMPIX_Notify_iprobe(MPI_Win win, int source, int tag, int *flag, MPI_Status *status);

#endif /* MPIX_NOTIFY_H */
