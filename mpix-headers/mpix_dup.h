/*
 * mpix_dup.h - duplicates of windows: completion and order of their own, for each thread
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * mpix_rma.h includes this file. It describes one call.
 *
 * A flush completes all operations of the process to its target, those of other threads included. A
 * duplicate is another handle of the same window, whose flushes complete its own operations only.
 * So threads that have a duplicate each do not wait for each other [J. Schuchart et al.: "Quo Vadis
 * MPI RMA?", EuroMPI 2021]:
 *
 *     MPI_Win_lock_all(0, win);
 *     each thread:
 *         MPIX_Win_dup(win, MPI_INFO_NULL, &mine);
 *         MPI_Put(..., mine); MPI_Win_flush(target, mine); ...
 *         MPI_Win_free(&mine);
 *     MPI_Win_unlock_all(win);
 *
 * Any call takes a duplicate where it takes the window.
 *
 *   memory       The memory, the group, the notification counters and arriving tags are the
 *                window's. Accumulates on all handles are atomic with each other.
 *   completion   A flush, of one target or all, blocking or not, completes operations that were
 *                called on the same handle. So do requests of operations.
 *   order        Operations of different handles are unordered, accumulates too. MPIX_Win_order
 *                concerns its handle.
 *   epochs       An epoch is the window's. It may be opened and closed on any handle, and covers
 *                operations on all of them; the call that closes it completes all its operations.
 *                In such calls a duplicate stands for the window: a fence on a duplicate is one on
 *                the window, so that all processes have to call it. A target that is locked through
 *                one handle cannot be locked through another (MPI_ERR_RMA_SYNC).
 *   lock_all     May be called on several handles, once on each. The epoch ends with the last
 *                unlock_all. Each earlier one completes the operations of its own handle, and the
 *                others may go on. If one of these calls had the assertion MPI_MODE_NOCHECK when it
 *                opened the epoch, those that join it need the assertion too (MPI_ERR_RMA_SYNC).
 *   the handle   A duplicate has a name, attributes, an error handler and info of its own, at first
 *                the error handler and info of the handle that was duplicated, no name and no
 *                attributes but the predefined ones. MPI_Win_set_info on it is local.
 *   freeing      MPI_Win_free of a duplicate is local and waits for nothing: operations that are
 *                outstanding complete with their epoch. It is MPI_ERR_RMA_SYNC while a lock_all
 *                that was called on the duplicate is open. MPI_Win_free of the window is
 *                MPI_ERR_RMA_SYNC in all processes while any of them has a duplicate.
 *   errors       An access to memory that its target has not attached is reported once, by the
 *                first call on any handle that completes operations to that target.
 *   epoch_init   MPIX_Win_epoch_init records the calls on its handle; those on other handles are
 *                executed. One record is made at a time (MPI_ERR_RMA_SYNC). A start makes the
 *                record's operations on its handle. Once that is freed, on the original.
 *
 * Under MPI_THREAD_MULTIPLE, threads that put to memory of the same node, and flush, do so at the
 * same time. Where messages, RDMA or the kernel move the data, they take turns within each call, as
 * on one window.
 */

/*
 * MPIX_Win_dup - another handle of a window
 *
 * Local: no other process takes part, or learns of it.
 *
 *   win      the window, or a duplicate of it, which is then duplicated with its info
 *   info     keys that replace those of win on the duplicate, or MPI_INFO_NULL:
 *              mpix_rma_fast_path     as for a window
 *              mpix_rma_notify_puts   the counter that each operation on the duplicate raises at
 *                                     its target, or "none". An operation is MPI_ERR_ARG if its
 *                                     target has no such counter
 *              the standard's keys that MPI_Win_set_info may change
 *            Other keys of this library concern the window as a whole and have no effect.
 *   newwin   the duplicate
 *
 * Errors: MPI_ERR_WIN, MPI_ERR_UNSUPPORTED_OPERATION (the host serves win), MPI_ERR_ARG (newwin is
 * NULL), MPI_ERR_INFO_VALUE, MPI_ERR_RMA_SYNC (an epoch is being recorded on win), MPI_ERR_INTERN
 * or the host's error (the host has no room for another window).
 */
int MPIX_Win_dup(MPI_Win win, MPI_Info info, MPI_Win *newwin);

int PMPIX_Win_dup(MPI_Win win, MPI_Info info, MPI_Win *newwin);
