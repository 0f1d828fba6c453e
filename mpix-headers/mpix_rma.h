/*
 * mpix_rma.h - nonblocking epochs for MPI one-sided communication
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * This file is the C documentation of the library. It describes nineteen calls on plain MPI_Win
 * handles, one version query, the info keys, the environment, and what a program may rely on. Calls
 * that MPI itself defines (MPI_Win_fence, MPI_Put, ...) keep their meaning in MPI-4.1 and are not
 * repeated here.
 *
 * Sources
 *   [paper]  J. A. Zounmevo, X. Zhao, P. Balaji, W. Gropp, A. Afsahi: "Nonblocking Epochs in MPI
 *            One-Sided Communication", SC14. Section V is the interface, VI the semantics, VII the
 *            design.
 *   [MPI]    MPI-4.1, chapter 12 "One-Sided Communications"; 12.5 has the synchronization calls.
 * Where the two disagree, or the paper says nothing, [MPI] decides.
 *
 *
 * 1. EPOCHS AND REQUESTS
 *
 * An epoch is a period in which a process accesses the windows of others or exposes its own:
 *
 *   fence      both, between two fences             MPI_Win_fence
 *   access     to a group of processes              MPI_Win_start ... MPI_Win_complete
 *   exposure   to a group of processes              MPI_Win_post ... MPI_Win_wait
 *   lock       access to one passive target         MPI_Win_lock ... MPI_Win_unlock
 *   lock_all   access to all, as passive targets    MPI_Win_lock_all ... MPI_Win_unlock_all
 *
 * Each of these calls, and each flush, has an `i` form that never blocks and takes an MPI_Request
 * as its last argument. Blocking and nonblocking calls may be mixed within one epoch.
 *
 * The requests belong to the host, the MPI library that the program was built with. MPI_Wait,
 * MPI_Test, their all, any and some forms, MPI_Request_get_status and MPI_Request_free accept them,
 * alone or in one array with requests of other kinds. There are three kinds:
 *
 *   opening requests (ipost, istart, ilock, ilock_all) are complete when the call returns, even if
 *       the epoch is deferred. They exist for uniformity; wait for them or free them.
 *   closing requests (icomplete, iwait, iunlock, iunlock_all, ifence) complete when the blocking
 *       call would have returned.
 *   flush requests (iflush...) complete when the operations issued before the call are complete.
 *
 * Their status is empty: source MPI_ANY_SOURCE or MPI_PROC_NULL, count 0, not cancelled. MPI_Cancel
 * has no effect. After MPI_Request_free the epoch or flush still runs to completion, at the latest
 * in MPI_Win_free or MPI_Finalize. A request outlives its window.
 *
 * Buffers are recorded by address and never copied. From the operation until the closing request is
 * seen complete they belong to the library, as with MPI_Isend and MPI_Irecv: do not write to origin
 * buffers, do not read result buffers, do not free either.
 *
 *
 * 2. ORDER
 *
 * Epochs of one process on one window take effect in the order of their opening calls. By default
 * an epoch that is opened after another was closed is deferred until that one is complete: its
 * calls return at once and are recorded. Two epochs that MPI allows to be open together (post and
 * start; locks of different targets) never wait for each other. If every process calls
 *
 *     MPI_Win_post; MPI_Win_start; MPI_Put; MPI_Win_complete; MPI_Win_wait
 *
 * at once, all complete, in any mix of blocking and nonblocking calls, also behind a pending fence.
 *
 * Access and exposure epochs of two processes match in the order in which each side opened them.
 *
 * A fence that ends an epoch is a barrier for the completion of its request, not for the caller.
 * Operations after a fence are posted only when all processes have reached it. The epoch after a
 * fence starts with its first operation; until then post, start, lock, lock_all and MPI_Win_free
 * are allowed.
 *
 *
 * 3. PROGRAMS THAT RELY ON A HOST'S BUFFERING
 *
 * MPI permits MPI_Win_start, MPI_Win_complete and MPI_Win_lock to block. A program that completes
 * even then also completes here, in every mix of blocking and nonblocking calls. The following
 * programs do not, although they may complete on a host that buffers or delays operations:
 *
 *   - Two or more processes call `start; put; complete; post; wait` towards each other. Each
 *     complete may wait for a post that its target calls later. Post first, or set
 *     mpix_win_exposure_after_access_reorder and use icomplete.
 *   - Two processes take two exclusive locks in opposite order and hold both. A host that requests
 *     a lock only in MPI_Win_unlock hides the deadlock; this library requests a lock when it is
 *     opened. Take locks in one order.
 *   - New with nonblocking locks: locks of different targets are granted independently. Suppose a
 *     process holds one lock from MPIX_Win_ilock, is still queued for an earlier one, and waits for
 *     something else. It may then wait for a process that waits for the lock it holds. Before
 *     waiting for anything else, wait for the locks in opening order (MPIX_Win_iflush, MPI_Wait).
 *   - New with nonblocking calls: a closed epoch is not a complete one. Ordering by other means
 *     (MPI_Barrier, a message, another window) covers only epochs that were complete before. A
 *     blocking lock waits for earlier pending epochs of its window; a process that holds a lock of
 *     another window meanwhile may keep others from completing them. A process that has announced
 *     that it is done with a lock, but has not waited for its MPIX_Win_iunlock, may still hold it.
 *     Wait for such requests first.
 *
 * The library does not detect these as errors. With MPIX_RMA_LOG=info, a call that has
 * waited for two seconds logs what it waits for.
 *
 *
 * 4. PROGRESS
 *
 * Every call of this library, and every MPI call that waits or tests (MPI_Wait..., MPI_Test...,
 * MPI_Recv, MPI_Probe, MPI_Barrier and the other collectives, ...), drives all pending epochs of
 * the process, and the host's communication as well. A process inside such a call never delays a
 * peer.
 *
 * On shared memory, without any call of the target:
 *   - put, get and accumulate on windows from MPI_Win_allocate and MPI_Win_allocate_shared;
 *   - the same on windows from MPI_Win_create and MPI_Win_create_dynamic where the system permits
 *     cross-memory attach: if the target does not poll, the origin does its part;
 *   - acquiring and releasing locks, after first contact. The releasing process hands the lock
 *     over.
 *
 * What needs a call, and of which process:
 *   - A deferred epoch is activated by a later call of its own process. For example, a process that
 *     computes after MPIX_Win_iunlock of a lock that is not granted yet delays the processes behind
 *     it until its next MPI call: its transfers and the release are its own work.
 *   - A fence of P processes takes about log2(P) steps, and each process takes part in each.
 *   - Windows from MPI_Win_create and MPI_Win_create_dynamic: a put or get of less than 64 KB that
 *     follows others may stay at its origin until that makes its next call on the window, or its
 *     next MPI call that waits.
 *   - Windows from MPI_Win_create and MPI_Win_create_dynamic without cross-memory attach
 *     (MPIX_RMA_CMA=off, or forbidden by the system): the target carries out operations in any of
 *     its MPI calls; the origin sees their completion, and tells others, in its next call.
 *   - Only the peer itself knows what it has attached to a dynamic window on another node. It drops
 *     an operation on memory that is not attached. The call that completes the operation (flush,
 *     unlock, complete, fence, or the wait for its request) returns MPI_ERR_RMA_RANGE, and the
 *     peer's log has origin, address and length.
 *   - Peers on other nodes are reached by RDMA if both have a device for it (with verbs, section 7:
 *     all peers). After first contact, which takes a call of the peer, its calls are needed for
 *       - accumulates, including fetch_and_op and compare_and_swap, except those of eight bytes
 *         with acc_single_intrinsic (section 6);
 *       - derived datatypes of more than 16 runs of bytes at the target that are shorter than 1 KB
 *         on average;
 *       - dynamic windows;
 *       - seeing a notification;
 *       - locks, if a process of the window has no device with atomics.
 *   - Other peers are reached by messages of the host (with host_mpi, section 7: all peers): the
 *     target carries out operations and locks in any of its MPI calls. A put of less than 1 KB may
 *     stay at its origin until that makes its next call on any window, or its next MPI call that
 *     waits.
 *
 * MPI_Win_get_info describes the weakest target of a window under the key mpix_rma_progress:
 *
 *   load_store           transfers, accumulates, locks and flushes complete without any call of the
 *                        target
 *   cross_memory_attach  the same; while the target does not poll, each completing call takes the
 *                        origin a few microseconds more, and the origin executes long accumulates
 *   rdma                 puts and gets of few or long runs of bytes, locks and flushes complete
 *                        without any call of the target; the list above has the exceptions
 *   progress_thread      the target's progress thread does its part (MPIX_RMA_PROGRESS=thread)
 *   target_calls         transfers and accumulates wait for a call of the target; over messages,
 *                        locks do too
 *
 * On a host without a progress hook (MPICH before 4.3), MPI_Comm_create_from_group and similar
 * calls do not drive epochs: they have no nonblocking form and no communicator. Before you call
 * them, complete what others may wait for.
 *
 *
 * 5. LOAD AND STORE
 *
 * A lock may protect loads and stores. So MPI_Win_lock and MPI_Win_lock_all return only when the
 * lock is held if the target is the caller itself or memory that it reaches by load and store.
 * Otherwise MPI_Win_lock returns at once, and the next blocking lock of the process first waits
 * until this one is held (section 3). After MPIX_Win_ilock or MPIX_Win_ilock_all, loads and stores
 * are allowed once an MPIX_Win_iflush (or MPI_Win_flush) of that target has completed. A flush
 * never completes before the lock is granted.
 *
 * MPI_Win_shared_query returns the address of such memory on windows from MPI_Win_allocate_shared,
 * MPI_Win_allocate and MPI_Win_create (MPI-4.1 12.2.3). Memory out of reach has size 0 and address
 * NULL. MPI_PROC_NULL stands for the lowest rank with memory within reach.
 *
 * On windows from MPI_Win_create_dynamic, displacements are addresses of the target. An operation
 * may span several adjacent attached regions. The memory must be attached when the operation is
 * called.
 *
 *
 * 6. INFO KEYS
 *
 * Pass them to the call that creates the window, with the same value in all processes.
 * mpix_rma_transport takes "auto", "shm", "host_mpi" or "verbs" and overrides MPIX_RMA_TRANSPORT
 * (section 7) on this window. mpix_rma_fence takes "barrier" or "pattern". mpix_notify.h describes
 * mpix_rma_notify_puts. The other keys of this library take "true" or "1", "false" or "0". Any
 * other value is MPI_ERR_INFO_VALUE. Keys that are not listed here go to the host.
 *
 *   mpix_rma            default: by MPIX_RMA   this library (true) or the host (false) serves the
 *                                              window
 *   mpix_rma_fast_path  default: true          false: puts and gets that are copies go through the
 *                                              engine like all others; slower, otherwise equal
 *
 *   mpix_rma_fence      default: barrier       pattern: fences wait only for the processes that
 *                                              accessed this one in the first fence epoch, and
 *                                              grant access to these only
 *
 *   mpix_win_access_after_access_reorder      default: false    A_A_A_R in the paper
 *   mpix_win_access_after_exposure_reorder    default: false    A_A_E_R
 *   mpix_win_exposure_after_exposure_reorder  default: false    E_A_E_R
 *   mpix_win_exposure_after_access_reorder    default: false    E_A_A_R
 *
 * With mpix_rma_fence = "pattern", the first fence epoch runs as usual and is learned: the first
 * one that a fence without MPI_MODE_NOSUCCEED opens and a fence without MPI_MODE_NOPRECEDE closes.
 * Give these assertions to fences around epochs without accesses, or such an epoch is learned. From
 * the fence that closes it on, each process may access itself and the targets that it accessed
 * there, or fewer. Any other access is MPI_ERR_RMA_SYNC and has no effect. Such fences are not
 * barriers: they do not order processes that are not neighbours, directly or by way of others, and
 * a process without neighbours passes them at once. A process may rely on these: its fence
 * completes after its origins have called it and their operations are complete here; its operations
 * reach a target after the target's fence; its locks of a learned target are granted after it.
 * Order a lock of any other process by other means. Do not wait for a second lock while you hold
 * one that a process may want which has not called the fence yet: the second lock's target may wait
 * for that process.
 *
 * Beside the calls that make windows, MPI_Win_set_info takes this key, with the same value in all
 * processes. It completes outstanding fences. Then the next fence that opens an epoch begins to
 * learn anew (pattern), or all fences are barriers (barrier). The present epoch, if it has no
 * operations yet, is open to all targets. With operations in it in any process, all get
 * MPI_ERR_RMA_SYNC; if the values differ, MPI_ERR_INFO_VALUE.
 *
 * Each of the four reorder keys lifts the default order of section 2 for one pair of kinds. With
 * the first, an access or lock epoch may be activated while earlier access or lock epochs are not
 * complete. You promise that epochs in progress together touch disjoint memory. The flags never
 * apply if one of the two epochs is a fence or lock_all epoch, nor between an exposure and a lock
 * of the process itself, nor between two lock epochs on one target. The paper's spelling
 * (MPI_WIN_ACCESS_AFTER_ACCESS_REORDER, ...) and the short keys mpix_a_a_a_r, mpix_a_a_e_r,
 * mpix_e_a_e_r, mpix_e_a_a_r are accepted too. Open MPI limits keys to 35 characters. There
 * MPI_Info_set and its variants store the long keys under the short ones, and MPI_Info_get_nthkey
 * returns the short ones.
 *
 * The standard's keys. MPI_Win_set_info may change all but the last two, and ignores invalid
 * values. MPI_Win_get_info returns the values in force, the keys of the host, and mpix_rma_progress
 * (section 4).
 *
 *   no_locks                      locks are served all the same; the log warns once per window
 *   accumulate_ordering           accepted; all four orderings are always provided
 *   accumulate_ops                accepted; any mix of operations is atomic
 *   same_size, same_disp_unit     accepted
 *   mpi_accumulate_granularity    accepted
 *   alloc_shared_noncontig        true: each process's part begins a page; false: parts are
 *                                 contiguous
 *   mpi_minimum_memory_alignment  alignment of allocated memory in bytes, a power of two. Memory is
 *                                 page-aligned in any case, except for parts of a contiguous shared
 *                                 window: each begins where the one before ends
 *   acc_single_intrinsic          (Open MPI's key.) true in all processes asserts that every
 *                                 accumulate of the window is of one element of a predefined
 *                                 datatype. Over RDMA, accumulates of eight bytes at addresses that
 *                                 are multiples of eight then need no processor of the target
 *
 *
 * 7. ENVIRONMENT
 *
 *   MPIX_RMA               default all; all | marked | off: which windows the library serves: all
 *                          that it can, those with info key mpix_rma=true, or none
 *   MPIX_RMA_CMA           default on; on | off: cross-memory attach for memory given to
 *                          MPI_Win_create; off: the target's process copies
 *   MPIX_RMA_COLLECTIVES   default auto; auto | always | host: whether short barriers, broadcasts
 *                          and allreduces within a node run on schedules of the library, on MPICH
 *                          before 4.3; always: already from a communicator's second one on
 *   MPIX_RMA_COLLECTIVES_TABLE default built in; FILE: up to how many bytes these are short, as
 *                          make tune of the library's sources measures it; rank 0 reads it for all
 *   MPIX_RMA_IB_CACHE      default 1/16 of memory, at most half of ulimit -l: MiB of application
 *                          buffers that stay registered with the RDMA device after use; 0: none
 *   MPIX_RMA_IB_DEVICE     default best active; NAME, NAME:PORT or NAME:PORT:GID: RDMA device,
 *                          port, and index of the port's address; may differ between nodes. The
 *                          default prefers InfiniBand over Ethernet and routed addresses over
 *                          others, and takes the first of those
 *   MPIX_RMA_IB_MAX_QP     default 512; 1 to 8388608: queue pairs of a process at a time; more
 *                          peers than that take turns
 *   MPIX_RMA_IB_PKEY       default first full; InfiniBand partition key, such as 0x8001
 *   MPIX_RMA_LOG           default warn; off | error | warn | info | debug, to standard error; info
 *                          names transport and progress hook of each window
 *   MPIX_RMA_MAX_REQUESTS  default 200000; 1 to 250000: pending requests (section 9)
 *   MPIX_RMA_PROGRESS      default calls; calls | thread: thread starts a thread that makes
 *                          progress while the process computes without calling MPI. The host then
 *                          runs at MPI_THREAD_MULTIPLE, whatever level the program requests
 *   MPIX_RMA_TRANSPORT     default auto; how peers are reached:
 *                            auto      shared memory on the same node; others by RDMA if both have
 *                                      a device that libibverbs supports, else by messages
 *                            shm       shared memory; windows of several nodes are left to the host
 *                            host_mpi  all by messages of the host
 *                            verbs     all by RDMA
 *
 * The library reads them at MPI_Init. If processes disagree, the values of rank 0 of MPI_COMM_WORLD
 * apply to all, with a warning. A program that uses MPI sessions instead of MPI_Init reads them at
 * its first session: set them equally in all processes. The same holds for jobs that connect
 * (MPI_Comm_spawn, MPI_Comm_connect): MPIX_RMA=off in only one of them is an error.
 *
 *
 * 8. ERRORS
 *
 * A call returns MPI_SUCCESS, or an error code after it has called the window's error handler with
 * it. Arguments and state are checked first: an error leaves the window unchanged. Calls on an
 * invalid window handle call the handler of MPI_COMM_WORLD. MPI_Error_class returns:
 *
 *   MPI_ERR_WIN        not a window, or freed
 *   MPI_ERR_ARG        request is NULL
 *   MPI_ERR_RANK       rank outside the window's group
 *   MPI_ERR_GROUP      invalid group, or one with a member outside the window's group
 *   MPI_ERR_LOCKTYPE   neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE
 *   MPI_ERR_ASSERT     an assertion that the call does not define
 *   MPI_ERR_DISP       negative displacement (communication calls)
 *   MPI_ERR_RMA_RANGE  beyond the target's window, or memory that the target has not attached
 *                      (communication calls). A transfer of zero bytes may point anywhere
 *   MPI_ERR_TRUNCATE   the data sent do not fit the receiving buffer; a larger buffer is no error
 *   MPI_ERR_OP         op is not predefined, is not defined for the datatype, or the host cannot
 *                      apply it to this datatype (such as sums of MPI_REAL16)
 *   MPI_ERR_RMA_ATTACH MPI_Win_attach: the memory is attached already, or no room to attach more;
 *                      MPI_Win_detach: it is not attached
 *   MPI_ERR_RMA_FLAVOR MPI_Win_attach and MPI_Win_detach on a window that is not dynamic,
 *                      MPI_Win_shared_query on one that is
 *   MPI_ERR_COMM       an intercommunicator (window creation)
 *   MPI_ERR_RMA_SYNC   the call does not fit the open epochs: complete without start, wait without
 *                      post, unlock without lock, a second lock of one target, start within an
 *                      access epoch, post within an exposure epoch, flush outside a lock or
 *                      lock_all epoch, communication outside an epoch that covers the target,
 *                      MPI_Win_free with an open epoch (calls that wait for a request of the window
 *                      do not prevent it)
 *   MPI_ERR_INTERN     the library refused a peer's message. Pending calls and requests of that
 *                      window end with this error in every process in contact with the peer; the
 *                      log names the peer
 *   MPI_ERR_OTHER      RDMA cannot reach a peer any more. Pending calls and requests of windows
 *                      that include it end with this error; MPI_Error_string names the peer, the
 *                      operation and the device's error. As after MPI_ERR_INTERN, test calls return
 *                      it instead of flag false, and MPI_Win_free frees the window whatever is open
 *                      on it
 *   MPI_ERR_NO_MEM     too many pending requests (section 9), or the system has no memory for a
 *                      window in some process (then all get this error)
 *   MPI_ERR_INFO_VALUE invalid value of an info key of section 6 (window creation,
 *                      MPI_Win_set_info)
 *   MPI_ERR_UNSUPPORTED_OPERATION
 *                      the host serves this window, not this library (sections 6 and 7)
 *
 * MPI_Error_string names the argument or the state.
 *
 *
 * 9. LIMITS
 *
 * Only memory limits ranks, windows, epochs, and bytes per operation. MPICH 4.0 aborts a process
 * with about 262,144 live requests. So a call that would exceed MPIX_RMA_MAX_REQUESTS pending
 * requests of this library returns MPI_ERR_NO_MEM and changes nothing; repeat it when some have
 * completed. Epochs with blocking calls, and requests that are complete at once, do not count.
 *
 * Datatypes: all predefined ones, and derived ones of every constructor, on both sides of put, get,
 * accumulate and get_accumulate. A derived datatype is flattened once, at its first use, and may be
 * freed as soon as the call has returned, also in a deferred epoch. Accumulates of one process to
 * one location of a target take effect in the order of the calls (rar, raw, war, waw), whatever
 * their datatypes and counts.
 *
 * Threads: any thread may make any call, as far as the level given by MPI_Init_thread permits.
 */
#ifndef MPIX_RMA_H
#define MPIX_RMA_H

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header; MPIX_Get_version returns that of the library. Semantic versioning. */
#define MPIX_RMA_VERSION_MAJOR 0
#define MPIX_RMA_VERSION_MINOR 1
#define MPIX_RMA_VERSION_PATCH 0

/*
 * All calls below:
 *   win       a window that this library serves
 *   request   out: set if and only if the call returns MPI_SUCCESS
 * Every call may return MPI_ERR_WIN, MPI_ERR_UNSUPPORTED_OPERATION, and MPI_ERR_ARG (request is
 * NULL); closing calls and flushes also MPI_ERR_NO_MEM. The calls list only further errors.
 */

/* ---- Active target: fence ------------------------------------------------------------------- */

/*
 * MPIX_Win_ifence - close the open fence epoch, if any, and open the next
 * [paper V, VI.A.5; MPI 12.5.1]
 *
 *   assert    0 or a bitwise or of MPI_MODE_NOSTORE, _NOPUT, _NOPRECEDE, _NOSUCCEED.
 *             NOPRECEDE: this process has no operations to complete; it still takes part in the
 *             barrier. NOSUCCEED: no epoch is opened.
 *
 * Collective over the window's group; never blocks. The request completes when every process of the
 * window has made its matching fence call, all operations of this process in the epoch are complete
 * at their targets, and all operations towards this process are visible in its memory. Operations
 * of the next epoch may be issued at once.
 * Errors: MPI_ERR_ASSERT, MPI_ERR_RMA_SYNC (an access, exposure or lock epoch is open).
 */
int MPIX_Win_ifence(int assert, MPI_Win win, MPI_Request *request);

/* ---- Active target: start, complete, post, wait --------------------------------------------- */

/*
 * MPIX_Win_istart - open an access epoch [paper V; MPI 12.5.2]
 *
 *   group     the targets, a subset of the window's group; may be freed after the call
 *   assert    0 or MPI_MODE_NOCHECK. NOCHECK never lets an operation overtake the target's post.
 *
 * Never blocks; the request is complete at once. Operations may be issued at once; they are posted
 * when the target has posted its exposure.
 * Errors: MPI_ERR_GROUP, MPI_ERR_ASSERT, MPI_ERR_RMA_SYNC (an access, lock or lock_all epoch is
 * open).
 */
int MPIX_Win_istart(MPI_Group group, int assert, MPI_Win win, MPI_Request *request);

/*
 * MPIX_Win_icomplete - close the access epoch [paper V, VI.A.2; MPI 12.5.2]
 *
 * The request completes when all operations of the epoch are complete at origin and target. Each
 * target learns of the end as soon as the last transfer to it is finished, independent of the other
 * targets, and even if this process never waits. The next epoch may be opened at once (section 2).
 * Errors: MPI_ERR_RMA_SYNC (no access epoch is open).
 */
int MPIX_Win_icomplete(MPI_Win win, MPI_Request *request);

/*
 * MPIX_Win_ipost - open an exposure epoch [paper V; MPI 12.5.2]
 *
 *   group     the origins, a subset of the window's group; may be freed after the call
 *   assert    0 or a bitwise or of MPI_MODE_NOCHECK, _NOSTORE, _NOPUT
 *
 * Never blocks; the request is complete at once. A deferred epoch (section 2) exposes the window
 * only when it is activated.
 * Errors: MPI_ERR_GROUP, MPI_ERR_ASSERT, MPI_ERR_RMA_SYNC (an exposure epoch is open).
 */
int MPIX_Win_ipost(MPI_Group group, int assert, MPI_Win win, MPI_Request *request);

/*
 * MPIX_Win_iwait - close the exposure epoch [paper V; MPI 12.5.2]
 *
 * The request completes when every process of the group has closed its matching access epoch and
 * its operations are visible in this process. The next exposure may be opened at once; MPI_Win_test
 * tests the exposure that no iwait has closed yet.
 * Errors: MPI_ERR_RMA_SYNC (no exposure epoch is open).
 */
int MPIX_Win_iwait(MPI_Win win, MPI_Request *request);

/* ---- Passive target ------------------------------------------------------------------------- */

/*
 * MPIX_Win_ilock - open a lock epoch on one process [paper V; MPI 12.5.3]
 *
 *   lock_type MPI_LOCK_SHARED or MPI_LOCK_EXCLUSIVE
 *   rank      in the window's group; MPI_PROC_NULL locks nothing
 *   assert    0 or MPI_MODE_NOCHECK: no process holds or requests a conflicting lock while this one
 *             is held
 *
 * Never blocks; the request is complete at once, even if the lock is not held yet (section 5: loads
 * and stores). The lock is requested as soon as the epoch is activated, not when it is closed. Each
 * target grants locks first come, first served, and adjacent shared ones together. Locks of several
 * targets may be open together; they are requested in the order of the calls, and granted and
 * released independently.
 * Errors: MPI_ERR_LOCKTYPE, MPI_ERR_RANK, MPI_ERR_ASSERT, MPI_ERR_RMA_SYNC (rank is locked already,
 * or an access or lock_all epoch is open).
 */
int MPIX_Win_ilock(int lock_type, int rank, int assert, MPI_Win win, MPI_Request *request);

/*
 * MPIX_Win_iunlock - close the lock epoch on one process [paper V, IV.C.5; MPI 12.5.3]
 *
 *   rank      as given to the lock
 *
 * The request completes when all operations of the epoch are complete at origin and target and the
 * lock has been released. The next waiter gets the lock as soon as the last transfer is finished,
 * without help of the target, and even if this process never waits for the request (section 4 has
 * the case of a lock that is not granted yet).
 * Errors: MPI_ERR_RANK, MPI_ERR_RMA_SYNC (rank is not locked).
 */
int MPIX_Win_iunlock(int rank, MPI_Win win, MPI_Request *request);

/*
 * MPIX_Win_ilock_all - open a shared lock epoch on all processes of the window [paper V; MPI
 * 12.5.3]
 *
 *   assert    0 or MPI_MODE_NOCHECK
 *
 * Not collective. Never blocks; the request is complete at once (section 5: loads and stores).
 * Errors: MPI_ERR_ASSERT, MPI_ERR_RMA_SYNC (an access, lock or lock_all epoch is open).
 */
int MPIX_Win_ilock_all(int assert, MPI_Win win, MPI_Request *request);

/*
 * MPIX_Win_iunlock_all - close the lock_all epoch [paper V; MPI 12.5.3]
 *
 * The request completes when all operations of the epoch are complete at origin and targets and the
 * lock has been released.
 * Errors: MPI_ERR_RMA_SYNC (no lock_all epoch is open).
 */
int MPIX_Win_iunlock_all(MPI_Win win, MPI_Request *request);

/* ---- Flush --------------------------------------------------------------------------------------
 * Within a lock or lock_all epoch [paper V, VII.C; MPI 12.5.4]. A flush covers the operations whose
 * calls had returned before it was called, on any thread. Later operations may be issued while it
 * is pending and do not delay it.
 *
 *   rank      in the window's group; MPI_PROC_NULL flushes nothing
 *
 * Errors: MPI_ERR_RMA_SYNC (no lock or lock_all epoch covers the target), MPI_ERR_RANK.
 */

/* MPIX_Win_iflush - complete operations towards rank at origin and target, once the lock is held */
int MPIX_Win_iflush(int rank, MPI_Win win, MPI_Request *request);

/* MPIX_Win_iflush_all - the same towards all processes */
int MPIX_Win_iflush_all(MPI_Win win, MPI_Request *request);

/*
 * MPIX_Win_iflush_local - complete operations towards rank at the origin only
 *
 * Its buffers may be used again and results have arrived; puts and accumulates may not be visible
 * at the target yet.
 */
int MPIX_Win_iflush_local(int rank, MPI_Win win, MPI_Request *request);

/* MPIX_Win_iflush_local_all - the same towards all processes */
int MPIX_Win_iflush_local_all(MPI_Win win, MPI_Request *request);

/*
 * MPIX_Win_iflush_wins, MPIX_Win_flush_wins - flush many windows at once [MPI Forum, issue 47]
 *
 *   n     number of windows, 0 or more
 *   wins  the windows; one may occur several times
 *   rank  in the group of each window, MPIX_RANK_ALL for all processes, or MPI_PROC_NULL
 *
 * As MPIX_Win_iflush or MPI_Win_flush on each of the windows, but all proceed together: one
 * request, or one wait. The array may be reused when the call returns.
 * Errors, before anything is flushed: MPI_ERR_ARG (n is negative, or wins or request is NULL),
 * MPI_ERR_WIN (not a window; the log names its index), MPI_ERR_RANK (outside the group of one of
 * the windows), MPI_ERR_RMA_SYNC (no lock or lock_all epoch of one of the windows covers the
 * target). An error of one window is raised on its handler, the others on that of MPI_COMM_WORLD.
 */
#define MPIX_RANK_ALL (-32700)
int MPIX_Win_iflush_wins(int n, const MPI_Win wins[], int rank, MPI_Request *request);
int MPIX_Win_flush_wins(int n, const MPI_Win wins[], int rank);

/* ---- Atomic operations with a request ------------------------------------------------------- */

/*
 * MPIX_Rfetch_and_op, MPIX_Rcompare_and_swap - MPI_Fetch_and_op and MPI_Compare_and_swap with a
 * request [MPI 12.3.4, 12.3.5; MPI Forum, issue 128]
 *
 *   the others   as in the call without a request
 *
 * Like MPI_Raccumulate, for lock and lock_all epochs only. The request completes when the target's
 * element is in result_addr; the buffers belong to the library until then. If the lock is not
 * granted yet, the operation is recorded. With MPI_PROC_NULL the request is complete at once, and
 * result_addr is not written.
 * Errors: those of the call without a request; MPI_ERR_RMA_SYNC (no lock or lock_all epoch covers
 * the target), MPI_ERR_NO_MEM.
 */
int MPIX_Rfetch_and_op(const void *origin_addr, void *result_addr, MPI_Datatype datatype,
                       int target_rank, MPI_Aint target_disp, MPI_Op op, MPI_Win win,
                       MPI_Request *request);
int MPIX_Rcompare_and_swap(const void *origin_addr, const void *compare_addr, void *result_addr,
                           MPI_Datatype datatype, int target_rank, MPI_Aint target_disp,
                           MPI_Win win, MPI_Request *request);

/* ---- Order --------------------------------------------------------------------------------------
 * Within an access epoch of any kind [MPI Forum, issue 135]. Operations of this process that are
 * called later take effect in the target's memory after those that were called before, whatever
 * their kinds: a get takes effect when it reads. Any process that sees a later one sees the earlier
 * ones. Only operations of the same epoch to the same target are ordered; epochs order the others.
 *
 * Local, and waits for nothing: an operation that cannot follow at once is recorded. Nothing is
 * completed, so no buffer may be used again.
 *
 *   rank      in the window's group; MPI_PROC_NULL orders nothing
 *
 * Cost: nothing between memory of one node and by messages; a get that follows puts may wait until
 * these are in place. By messages, later operations wait for transfers of 16 KB and more. By RDMA,
 * a put that follows puts is preceded by a read of 8 bytes and starts when this has returned.
 * Errors: MPI_ERR_RMA_SYNC (no access epoch covers the target), MPI_ERR_RANK.
 */

/* MPIX_Win_order - later operations towards rank take effect after earlier ones */
int MPIX_Win_order(int rank, MPI_Win win);

/* MPIX_Win_order_all - the same towards each process, separately */
int MPIX_Win_order_all(MPI_Win win);

/* ---- Version -------------------------------------------------------------------------------- */

/*
 * MPIX_Get_version - version of the running library, in major, minor and patch
 *
 * May be called before MPI_Init and after MPI_Finalize. Error: MPI_ERR_ARG (a NULL pointer),
 * through the handler of MPI_COMM_WORLD.
 */
int MPIX_Get_version(int *major, int *minor, int *patch);

/* ---- Names for profiling tools: a tool that defines MPIX_* calls PMPIX_* [MPI 15.2] -------- */

int PMPIX_Win_ifence(int assert, MPI_Win win, MPI_Request *request);
int PMPIX_Win_istart(MPI_Group group, int assert, MPI_Win win, MPI_Request *request);
int PMPIX_Win_icomplete(MPI_Win win, MPI_Request *request);
int PMPIX_Win_ipost(MPI_Group group, int assert, MPI_Win win, MPI_Request *request);
int PMPIX_Win_iwait(MPI_Win win, MPI_Request *request);
int PMPIX_Win_ilock(int lock_type, int rank, int assert, MPI_Win win, MPI_Request *request);
int PMPIX_Win_iunlock(int rank, MPI_Win win, MPI_Request *request);
int PMPIX_Win_ilock_all(int assert, MPI_Win win, MPI_Request *request);
int PMPIX_Win_iunlock_all(MPI_Win win, MPI_Request *request);
int PMPIX_Win_iflush(int rank, MPI_Win win, MPI_Request *request);
int PMPIX_Win_iflush_all(MPI_Win win, MPI_Request *request);
int PMPIX_Win_iflush_local(int rank, MPI_Win win, MPI_Request *request);
int PMPIX_Win_iflush_local_all(MPI_Win win, MPI_Request *request);
int PMPIX_Rfetch_and_op(const void *origin_addr, void *result_addr, MPI_Datatype datatype,
                        int target_rank, MPI_Aint target_disp, MPI_Op op, MPI_Win win,
                        MPI_Request *request);
int PMPIX_Rcompare_and_swap(const void *origin_addr, const void *compare_addr, void *result_addr,
                            MPI_Datatype datatype, int target_rank, MPI_Aint target_disp,
                            MPI_Win win, MPI_Request *request);
int PMPIX_Win_iflush_wins(int n, const MPI_Win wins[], int rank, MPI_Request *request);
int PMPIX_Win_flush_wins(int n, const MPI_Win wins[], int rank);
int PMPIX_Win_order(int rank, MPI_Win win);
int PMPIX_Win_order_all(MPI_Win win);
int PMPIX_Get_version(int *major, int *minor, int *patch);

/* Notified access */
#include "mpix_notify.h"

/* Persistent epochs and operations */
#include "mpix_persistent.h"

/* Duplicates of windows */
#include "mpix_dup.h"

/* Persistent collectives */
#include "mpix_collective.h"
#include "mpix_neighbor.h"

/* Continuations */
#include "mpix_continue.h"

#ifdef __cplusplus
}
#endif

/* MPIX_Win_order in line */
#include "mpix_inline.h"

#endif /* MPIX_RMA_H */
