/*
 * mpix_rma.h - nonblocking epochs for MPI one-sided communication
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * This file is the C documentation of the library. It describes thirteen calls on plain MPI_Win handles, one
 * version query, the info keys, the environment, and what a program may count on. The calls that MPI defines
 * itself (MPI_Win_fence, MPI_Put, ...) keep the meaning that MPI-4.1 gives them and are not repeated here.
 *
 * Sources
 *   [paper]  J. A. Zounmevo, X. Zhao, P. Balaji, W. Gropp, A. Afsahi: "Nonblocking Epochs in MPI One-Sided
 *            Communication", SC14. Section V is the interface, VI the semantics, VII the design.
 *   [MPI]    MPI-4.1, chapter 12 "One-Sided Communications"; section 12.5 holds the synchronisation calls.
 * Where the two disagree, or the paper is silent, [MPI] decides.
 *
 *
 * 1. EPOCHS AND REQUESTS
 *
 * An epoch is a period in which one process accesses windows of others, or exposes its own:
 *
 *   fence      both, between two fences                        MPI_Win_fence
 *   access     to a group of processes                         MPI_Win_start ... MPI_Win_complete
 *   exposure   to a group of processes                         MPI_Win_post ... MPI_Win_wait
 *   lock       access to one process, which does not take part MPI_Win_lock ... MPI_Win_unlock
 *   lock_all   access to all processes, none takes part        MPI_Win_lock_all ... MPI_Win_unlock_all
 *
 * For each of these calls, and for each flush, there is a form with an `i` that takes one more argument, an
 * MPI_Request, and never blocks. Blocking and nonblocking calls may be mixed freely within one epoch.
 *
 * The requests are requests of the MPI library below. MPI_Wait, MPI_Test, the all, any and some forms,
 * MPI_Request_get_status and MPI_Request_free take them, alone or in one array with requests of sends, receives
 * and collectives. There are three kinds:
 *
 *   opening requests (ipost, istart, ilock, ilock_all) are complete when the call returns, even where the epoch
 *       itself has not begun yet. They exist for uniformity; wait for them or free them.
 *   closing requests (icomplete, iwait, iunlock, iunlock_all, ifence) complete when the blocking call would
 *       have returned.
 *   flush requests (iflush...) complete when the operations that were issued before the call are complete.
 *
 * A status filled for such a request is empty: source MPI_ANY_SOURCE or MPI_PROC_NULL, count 0, not cancelled.
 * MPI_Cancel has no effect. MPI_Request_free on a pending request lets the epoch or flush finish all the same;
 * MPI_Finalize and MPI_Win_free finish what is left. A request outlives the window that it was made on.
 *
 * Between the call that closes an epoch and the moment in which its request is seen complete, every buffer that
 * the epoch touches belongs to the library, as for MPI_Isend and MPI_Irecv: do not write to origin buffers, do
 * not read result buffers, do not free either. Buffers are recorded by address and never copied.
 *
 *
 * 2. ORDER
 *
 * Epochs of one process on one window take effect in the order of their opening calls. By default an epoch that
 * is opened after another one was closed begins only when that one is complete; until then it is recorded and
 * costs no time of the caller. Two epochs that are open together by MPI's rules (post and start; locks of
 * different targets) never wait for each other. So
 *
 *     MPI_Win_post; MPI_Win_start; MPI_Put; MPI_Win_complete; MPI_Win_wait
 *
 * on every process at once ends, in any mix of blocking and nonblocking calls, also behind a pending fence.
 *
 * Access and exposure epochs of two processes match in the order in which each side opened them.
 *
 * A fence that ends an epoch is a barrier for the completion of its request, never for the caller. Operations
 * of the epoch after a fence leave only when all processes have reached the fence. That epoch becomes real at
 * its first operation; post, start, lock, lock_all and MPI_Win_free may follow a fence directly.
 *
 *
 * 3. PROGRAMS THAT END ONLY BY A HOST'S LAZINESS
 *
 * A program that ends in blocking form when MPI_Win_start, MPI_Win_complete and MPI_Win_lock block as long as
 * MPI permits ends here too, in every mix of blocking and nonblocking calls. These kinds of programs do not meet
 * that condition, although they may end on an MPI library that buffers, or that puts off its work:
 *
 *   - All of two or more processes do `start; put; complete; post; wait` towards each other. Each complete
 *     may wait for a post that comes after it. Post first, or set mpix_win_exposure_after_access_reorder and
 *     use icomplete.
 *   - Two processes take two exclusive locks in opposite order and hold both. A library that requests a lock
 *     only in MPI_Win_unlock never notices; this one requests a lock when it is opened. Take them in one order.
 *
 *   - New with nonblocking locks: locks of different targets are granted independently. Whoever holds one that it
 *     took with MPIX_Win_ilock, and waits for something else while an earlier lock of its own is not granted yet,
 *     may wait for a process that waits for the one it holds. Let locks be granted in the order in which they were
 *     opened (MPIX_Win_iflush and MPI_Wait) before you wait for anything else.
 *
 *   - New with nonblocking calls: what was closed is not over, and order made by other means (MPI_Barrier, a message,
 *     another window) covers only what was complete before. A blocking lock stands behind earlier epochs of its
 *     window that are still pending; who holds a lock of another window meanwhile may keep others from completing
 *     them. And a process that has told others it is done with a lock, but has not waited for its MPIX_Win_iunlock,
 *     may still need it. Wait for such requests first.
 *
 * None is detected as an error. With MPIX_RMA_LOG=info a wait of two seconds is reported, with what it waits for.
 *
 *
 * 4. PROGRESS
 *
 * Every call of this library, and every MPI call that waits or tests (MPI_Wait..., MPI_Test..., MPI_Recv,
 * MPI_Probe, MPI_Barrier and the other collectives, ...), drives all pending epochs of the process, and the
 * communication of the MPI library as well. A process that is inside such a call never delays anybody.
 *
 * On shared memory, without any call of the target:
 *   - put, get and accumulate on windows from MPI_Win_allocate and MPI_Win_allocate_shared;
 *   - the same on windows from MPI_Win_create and MPI_Win_create_dynamic where cross-memory attach is permitted:
 *     while the target is away, the origin does its work, in its own calls;
 *   - acquiring and releasing locks, after first contact. Whoever releases a lock hands it over.
 *
 * What does need a call, and whose:
 *   - An epoch that is still recorded begins in a later call of its own process. In particular, a process that
 *     computes after MPIX_Win_iunlock while its lock has not been granted yet delays those who queue behind it
 *     until its next MPI call: the lock reaches it, but its transfers and the release are its own work.
 *   - A fence of P processes takes about log2(P) steps, and each process takes part in each.
 *   - Windows from MPI_Win_create and MPI_Win_create_dynamic with MPIX_RMA_CMA=off, or where the system forbids
 *     cross-memory attach: the target carries the operations out, in any MPI call of its own; the origin learns of
 *     their end, and tells others, in its next call.
 *   - What a peer on another node has attached to a dynamic window is known to that peer alone. An operation on other
 *     memory is left out there; MPI_ERR_RMA_RANGE comes from the call that completes the operation (flush, unlock,
 *     complete, fence) or from the wait for its request, and the log names target, address and length.
 *   - Peers on other nodes are reached by RDMA where both have a device for it (all peers with verbs, section 7). After
 *     first contact, which takes a call of the peer, its calls are needed for accumulates (fetch_and_op and
 *     compare_and_swap among them; not for those of eight bytes with acc_single_intrinsic, section 6), for derived
 *     datatypes that are more than 16 runs of bytes there and on average shorter than 1 KB, for dynamic windows, and to
 *     see a notification; for locks too where a process of the window has no device with atomics.
 *   - Else they are reached by messages through the MPI library (all peers with host_mpi, section 7): the
 *     target carries out what they say in any MPI call of its own, locks included. A put of less than 1 KB may
 *     stay with its origin until the next call on any window, or the next MPI call that waits.
 *
 * Which of these a window is, MPI_Win_get_info tells under the key mpix_rma_progress, the weakest for any target:
 *
 *   load_store           transfers, accumulates, locks and flushes end without any call of the target
 *   cross_memory_attach  the same; while the target is away, the origin needs a few microseconds more for each
 *                        call that completes operations, and long accumulates are done by the origin's processor
 *   rdma                 put and get of few or long runs of bytes, locks and flushes end without any call of the
 *                        target; what waits for one is said above
 *   progress_thread      the target's progress thread does its part (MPIX_RMA_PROGRESS=thread)
 *   target_calls         transfers and accumulates wait for a call of the target; so do locks where a target is
 *                        reached by messages through the MPI library
 *
 * Not driven on a host without a progress hook (MPICH before 4.3) are MPI_Comm_create_from_group and its kin, which
 * have no nonblocking form and no communicator: complete what others may wait for before you call them.
 *
 *
 * 5. LOAD AND STORE
 *
 * MPI_Win_lock and MPI_Win_lock_all return only when the lock is held where the target is the caller itself or
 * memory that it reaches by load and store, since they may protect exactly such accesses. Elsewhere MPI_Win_lock
 * returns at once, and the next blocking lock of the process first waits until this one is held (section 3). After MPIX_Win_ilock
 * or MPIX_Win_ilock_all, loads and stores are allowed once an MPIX_Win_iflush (or MPI_Win_flush) of that target
 * has completed. A flush never completes before the lock is granted.
 *
 * MPI_Win_shared_query tells where that memory is, for windows from MPI_Win_allocate_shared, MPI_Win_allocate and
 * MPI_Win_create (MPI-4.1 12.2.3): memory that cannot be reached has size 0 and address NULL. MPI_PROC_NULL stands for the
 * lowest rank with memory that can be reached.
 *
 * In windows from MPI_Win_create_dynamic, displacements are addresses of the target. An operation may reach over several
 * attached regions that are neighbours. It is checked where it is called: memory must be attached by then, as MPI says.
 *
 *
 * 6. INFO KEYS
 *
 * Given to the call that makes a window, with the same value in all processes. mpix_rma_transport takes
 * "auto", "shm", "host_mpi" or "verbs" and stands for MPIX_RMA_TRANSPORT (section 7) on this window. The others of ours take "true" or "1",
 * "false" or "0". Any other value is MPI_ERR_INFO_VALUE. A key that this section does not name is the host's.
 *
 *   mpix_rma            default: as MPIX_RMA says    the window is served by this library (true) or the host (false)
 *   mpix_rma_fast_path  default: true                false: puts and gets that are copies go through the engine as all
 *                                                    others do, which is slower and changes nothing else
 *
 *   mpix_win_access_after_access_reorder      default: false    A_A_A_R in the paper
 *   mpix_win_access_after_exposure_reorder    default: false    A_A_E_R
 *   mpix_win_exposure_after_exposure_reorder  default: false    E_A_E_R
 *   mpix_win_exposure_after_access_reorder    default: false    E_A_A_R
 *
 * The four lift the default of section 2 for the named pair of kinds: with the first one, an access or lock
 * epoch may begin while earlier access or lock epochs are not complete. The caller promises that epochs in
 * progress together touch disjoint memory. The flags never apply where one of the two epochs is a fence or
 * lock_all epoch, nor between an exposure and a lock of the process itself, and two lock epochs on one target
 * are never in progress together. The paper's own spelling (MPI_WIN_ACCESS_AFTER_ACCESS_REORDER, ...) is
 * accepted too, and so are the short keys mpix_a_a_a_r, mpix_a_a_e_r, mpix_e_a_e_r, mpix_e_a_a_r. (Open MPI's own
 * limit for keys is 35 characters. MPI_Info_set and its kin of this library store the long keys there under the short
 * ones, which is what MPI_Info_get_nthkey then shows.)
 *
 * The standard's keys. MPI_Win_set_info may change all but the last two; values that they do not take are passed over.
 * MPI_Win_get_info gives what is in force, beside the keys of the host and mpix_rma_progress (section 4).
 *
 *   no_locks                      a lock is served all the same; the log warns once per window
 *   accumulate_ordering           taken note of: all four orders are always kept
 *   accumulate_ops                taken note of: any mix of operations is atomic
 *   same_size, same_disp_unit     taken note of
 *   mpi_accumulate_granularity    taken note of
 *   alloc_shared_noncontig        true: each process's part begins a page; false: the parts follow one another directly
 *   mpi_minimum_memory_alignment  of memory that the window allocates; a power of two. Pages in any case, but for the
 *                                 parts of contiguous shared windows, which lie where the one before ends
 *   acc_single_intrinsic          (Open MPI's key.) true at all processes: every accumulate of the window is of one
 *                                 element of a predefined datatype. Over RDMA those of eight bytes, at addresses that
 *                                 eight divides, then need no processor of the target
 *
 *
 * 7. ENVIRONMENT
 *
 *   MPIX_RMA               default all     all | marked | off: which windows are served: all that can be, those
 *                                          with info key mpix_rma=true, or none
 *   MPIX_RMA_CMA           default on      on | off: cross-memory attach for memory given to MPI_Win_create; off:
 *                                          the target's process copies
 *   MPIX_RMA_IB_CACHE      default 1/16 of memory  MiB of the program's buffers that stay registered with the RDMA device
 *                                                  after use (no more than half of ulimit -l by default); 0: none
 *   MPIX_RMA_IB_DEVICE     default best active     NAME, NAME:PORT or NAME:PORT:GID of the RDMA device to be used, its
 *                                          port, and the index of the port's address; each node may have its own.
 *                                          Default: InfiniBand before Ethernet, addresses that are routed before
 *                                          others, and the first of those
 *   MPIX_RMA_IB_MAX_QP     default 512     1 to 8388608: queue pairs of RDMA that a process has at a time; peers beyond
 *                                          it take turns
 *   MPIX_RMA_IB_PKEY       default first full      partition key of InfiniBand, as 0x8001
 *   MPIX_RMA_LOG           default warn    off | error | warn | info | debug: written to standard error; info
 *                                          names transport and progress hook of each window
 *   MPIX_RMA_MAX_REQUESTS  default 200000  1 to 250000: requests of this library that may be alive (section 9)
 *   MPIX_RMA_PROGRESS      default calls   calls | thread: thread adds a thread of the library that makes progress
 *                                          while the process computes without calling MPI. The host then runs at
 *                                          MPI_THREAD_MULTIPLE, whatever level the program asks for.
 *   MPIX_RMA_TRANSPORT     default auto    auto | shm | host_mpi | verbs: how peers are reached. auto: those on the
 *                                          same node by shared memory, others by RDMA where both have a device of
 *                                          libibverbs, and by messages through the MPI library where not; shm:
 *                                          windows of several nodes are left to the MPI library; host_mpi: all by
 *                                          messages; verbs: all by RDMA.
 *
 * They are read at MPI_Init. Where processes see different values, those of rank 0 of MPI_COMM_WORLD hold for all,
 * with a warning. A program that uses MPI sessions and not MPI_Init reads them at its first session: give all processes
 * the same. So must jobs that connect (MPI_Comm_spawn, MPI_Comm_connect): MPIX_RMA=off in one of them alone is an error.
 *
 *
 * 8. ERRORS
 *
 * A call returns MPI_SUCCESS or an error code, after the window's error handler was called with it. Arguments
 * and state are checked before anything moves: after an error the window is as it was before the call. Calls on
 * a handle that is no window call the handler of MPI_COMM_WORLD. MPI_Error_class gives:
 *
 *   MPI_ERR_WIN        not a window, or freed
 *   MPI_ERR_ARG        request is NULL
 *   MPI_ERR_RANK       rank outside the window's group
 *   MPI_ERR_GROUP      group is not a group, or has a member outside the window's group
 *   MPI_ERR_LOCKTYPE   neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE
 *   MPI_ERR_ASSERT     an assertion that the call does not know
 *   MPI_ERR_DISP       negative displacement           (communication calls)
 *   MPI_ERR_RMA_RANGE  beyond the target's window, or memory that the target has not attached
 *                      (communication calls). Only data that are moved count: a transfer of no bytes may
 *                      point anywhere
 *   MPI_ERR_TRUNCATE   the data that are sent do not fit where they go; room to spare is no error
 *   MPI_ERR_OP         op is not a predefined one, is not defined for the datatype, or the host MPI library
 *                      cannot carry it out on this datatype (sums of MPI_REAL16, say)
 *   MPI_ERR_RMA_ATTACH memory that is attached already, or at MPI_Win_detach was not; or no room to attach more
 *   MPI_ERR_RMA_FLAVOR MPI_Win_attach and MPI_Win_detach on a window that is not dynamic, MPI_Win_shared_query on one that is
 *   MPI_ERR_COMM       an intercommunicator            (window creation)
 *   MPI_ERR_RMA_SYNC   the call does not fit the epochs that are open: complete without start, wait without
 *                      post, unlock without lock, a second lock of one target, start within an access epoch,
 *                      post within an exposure epoch, flush outside a lock or lock_all epoch, communication
 *                      outside an epoch that covers the target, MPI_Win_free with an open epoch (calls that
 *                      wait for a request of the window are no obstacle)
 *   MPI_ERR_INTERN     a message of a peer was refused: what waits in that window, in any process that it has met, is
 *                      ended with this, in calls or in requests; the log names the peer
 *   MPI_ERR_OTHER      a peer cannot be reached any more by RDMA: what waits in windows that have it is ended with this,
 *                      in calls or in requests; MPI_Error_string names the peer, the operation and what RDMA says.
 *                      As after MPI_ERR_INTERN, tests that find nothing give it too, and MPI_Win_free takes the window
 *                      whatever is open on it
 *   MPI_ERR_NO_MEM     too many requests are alive, see section 9; or the system has no memory for a window that
 *                      allocates it, in some process (an error in all)
 *   MPI_ERR_INFO_VALUE a value of section 6 that is none (window creation, MPI_Win_set_info)
 *   MPI_ERR_UNSUPPORTED_OPERATION
 *                      the window is not served by this library (section 6 and 7)
 *
 * MPI_Error_string names the argument or the state.
 *
 *
 * 9. LIMITS
 *
 * There is no limit on ranks, windows, epochs, or bytes per operation but memory. Requests: MPICH 4.0 aborts a
 * process in which about 262,144 requests are alive. So a call that would bring the number of pending requests
 * of this library above the setting MPIX_RMA_MAX_REQUESTS gives MPI_ERR_NO_MEM and changes nothing; it can be
 * repeated as soon as some have completed. Epochs with blocking calls, and requests complete at birth, do not
 * count.
 *
 * Datatypes: all predefined ones, and derived ones of every constructor on both sides of put, get, accumulate and
 * get_accumulate. A derived datatype is taken apart once, when it is first used here, and may be freed as soon as the
 * call has returned, also in a deferred epoch. Accumulates of one process on one location of a target take effect in
 * the order of the calls (rar, raw, war, waw), whatever their datatypes and counts.
 *
 * Threads: every call may be made by any thread, as the level given by MPI_Init_thread permits.
 */
#ifndef MPIX_RMA_H
#define MPIX_RMA_H

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header; MPIX_Get_version gives that of the library. Semantic versioning. */
#define MPIX_RMA_VERSION_MAJOR 0
#define MPIX_RMA_VERSION_MINOR 1
#define MPIX_RMA_VERSION_PATCH 0

/*
 * In all calls below:
 *   win       a window that this library serves
 *   request   out: set if and only if the call returns MPI_SUCCESS
 * and each can give MPI_ERR_WIN, MPI_ERR_UNSUPPORTED_OPERATION, and MPI_ERR_ARG for request == NULL; closing calls
 * and flushes can give MPI_ERR_NO_MEM. Only further errors are named.
 */

/* ---- Active target: fence ------------------------------------------------------------------------------- */

/*
 * MPIX_Win_ifence - close the fence epoch that is open, if one is, and open the next [paper V, VI.A.5; MPI 12.5.1]
 *
 *   assert    0 or a bitwise or of MPI_MODE_NOSTORE, _NOPUT, _NOPRECEDE, _NOSUCCEED. NOPRECEDE: no operations of
 *             this process to complete; the call still takes part in the barrier. NOSUCCEED: no epoch is opened.
 *
 * Collective over the window's group; does not wait for anybody. The request completes when every process of
 * the window has made its matching fence call, all operations that this process issued in the epoch are
 * complete at their targets, and all that others issued towards this process have arrived and are visible.
 * Operations of the next epoch may be issued at once.
 * Errors: MPI_ERR_ASSERT, MPI_ERR_RMA_SYNC (an access, exposure or lock epoch is open).
 */
int MPIX_Win_ifence(int assert, MPI_Win win, MPI_Request *request);

/* ---- Active target: start, complete, post, wait ------------------------------------------------------------ */

/*
 * MPIX_Win_istart - open an access epoch [paper V; MPI 12.5.2]
 *
 *   group     processes that will be accessed, ranks of the window's group; may be freed after the call
 *   assert    0 or MPI_MODE_NOCHECK. NOCHECK never lets an operation overtake the target's post.
 *
 * Never blocks; the request is born complete. Operations may be issued at once, they leave when the target has
 * posted. Errors: MPI_ERR_GROUP, MPI_ERR_ASSERT, MPI_ERR_RMA_SYNC (an access, lock or lock_all epoch is open).
 */
int MPIX_Win_istart(MPI_Group group, int assert, MPI_Win win, MPI_Request *request);

/*
 * MPIX_Win_icomplete - close the access epoch [paper V, VI.A.2; MPI 12.5.2]
 *
 * The request completes when all operations of the epoch are complete at origin and target. Each target learns
 * of the end as soon as the last transfer to it is finished, independent of the other targets, and of whether
 * this process ever waits. Another epoch may be opened at once (section 2).
 * Errors: MPI_ERR_RMA_SYNC (no access epoch is open).
 */
int MPIX_Win_icomplete(MPI_Win win, MPI_Request *request);

/*
 * MPIX_Win_ipost - open an exposure epoch [paper V; MPI 12.5.2]
 *
 *   group     processes that may access; ranks of the window's group; may be freed after the call
 *   assert    0 or a bitwise or of MPI_MODE_NOCHECK, _NOSTORE, _NOPUT
 *
 * Never blocks; the request is born complete. An epoch that is recorded (section 2) exposes the window only when
 * it begins. Errors: MPI_ERR_GROUP, MPI_ERR_ASSERT, MPI_ERR_RMA_SYNC (an exposure epoch is open).
 */
int MPIX_Win_ipost(MPI_Group group, int assert, MPI_Win win, MPI_Request *request);

/*
 * MPIX_Win_iwait - close the exposure epoch [paper V; MPI 12.5.2]
 *
 * The request completes when every process of the group has closed its matching access epoch and all its
 * operations are visible in this process. Unlike MPI_Win_test, which speaks of the exposure that no iwait has
 * closed yet, it lets the next exposure be opened at once. Errors: MPI_ERR_RMA_SYNC (no exposure epoch is open).
 */
int MPIX_Win_iwait(MPI_Win win, MPI_Request *request);

/* ---- Passive target ------------------------------------------------------------------------------------------ */

/*
 * MPIX_Win_ilock - open a lock epoch on one process [paper V; MPI 12.5.3]
 *
 *   lock_type MPI_LOCK_SHARED or MPI_LOCK_EXCLUSIVE
 *   rank      in the window's group; MPI_PROC_NULL locks nothing
 *   assert    0 or MPI_MODE_NOCHECK: no conflicting lock is held, or will be requested, while this one is held
 *
 * Never blocks; the request is born complete, also where the lock is not held yet: see section 5 for loads and
 * stores. The lock is requested as soon as the epoch begins, not when it is closed. Waiters of one target are
 * served first come, first served, neighbouring shared ones together. Locks of several targets may be open
 * together; they are requested in the order of the calls, granted and released independently.
 * Errors: MPI_ERR_LOCKTYPE, MPI_ERR_RANK, MPI_ERR_ASSERT, MPI_ERR_RMA_SYNC (rank is locked already, or an access
 * or lock_all epoch is open).
 */
int MPIX_Win_ilock(int lock_type, int rank, int assert, MPI_Win win, MPI_Request *request);

/*
 * MPIX_Win_iunlock - close the lock epoch on one process [paper V, IV.C.5; MPI 12.5.3]
 *
 *   rank      as given to the lock
 *
 * The request completes when all operations of the epoch are complete at origin and target and the lock has been
 * released. The lock goes to the next waiter as soon as the last transfer is finished, without help of the
 * target, whether or not this process ever waits for the request (but see section 4 for a lock not granted yet).
 * Errors: MPI_ERR_RANK, MPI_ERR_RMA_SYNC (rank is not locked).
 */
int MPIX_Win_iunlock(int rank, MPI_Win win, MPI_Request *request);

/*
 * MPIX_Win_ilock_all - open a shared lock epoch on all processes of the window [paper V; MPI 12.5.3]
 *
 *   assert    0 or MPI_MODE_NOCHECK
 *
 * Not collective. Never blocks; the request is born complete (loads and stores: section 5).
 * Errors: MPI_ERR_ASSERT, MPI_ERR_RMA_SYNC (an access, lock or lock_all epoch is open).
 */
int MPIX_Win_ilock_all(int assert, MPI_Win win, MPI_Request *request);

/*
 * MPIX_Win_iunlock_all - close the lock_all epoch [paper V; MPI 12.5.3]
 *
 * The request completes when all operations of the epoch are complete at origin and targets and the lock has
 * been released. Errors: MPI_ERR_RMA_SYNC (no lock_all epoch is open).
 */
int MPIX_Win_iunlock_all(MPI_Win win, MPI_Request *request);

/* ---- Flush -------------------------------------------------------------------------------------------------------
 * Within a lock or lock_all epoch [paper V, VII.C; MPI 12.5.4]. A flush covers the operations whose calls had
 * returned before it was called, on any thread. Later operations may be issued while it is pending and do not
 * hold it up. Errors of all four: MPI_ERR_RMA_SYNC (no lock or lock_all epoch covers the target).
 */

/*
 * MPIX_Win_iflush - complete the operations towards one process, at origin and target
 *
 *   rank      in the window's group; MPI_PROC_NULL flushes nothing
 *
 * The request completes when they are complete on both sides, and not before the lock is granted.
 * Further error: MPI_ERR_RANK.
 */
int MPIX_Win_iflush(int rank, MPI_Win win, MPI_Request *request);

/* MPIX_Win_iflush_all - the same towards all processes */
int MPIX_Win_iflush_all(MPI_Win win, MPI_Request *request);

/*
 * MPIX_Win_iflush_local - complete the operations towards one process, at the origin only: its buffers may be
 * used again, results have arrived, but puts and accumulates may not be visible at the target yet
 *
 *   rank      in the window's group; MPI_PROC_NULL flushes nothing. Further error: MPI_ERR_RANK.
 */
int MPIX_Win_iflush_local(int rank, MPI_Win win, MPI_Request *request);

/* MPIX_Win_iflush_local_all - the same towards all processes */
int MPIX_Win_iflush_local_all(MPI_Win win, MPI_Request *request);

/* ---- Version ------------------------------------------------------------------------------------------------------ */

/*
 * MPIX_Get_version - version of the library that runs
 *
 *   major, minor, patch   out. May be called before MPI_Init and after MPI_Finalize. Error: MPI_ERR_ARG (a NULL
 *                         pointer), through the handler of MPI_COMM_WORLD.
 */
int MPIX_Get_version(int *major, int *minor, int *patch);

/* ---- Names for tools: a tool that defines MPIX_Win_ifence itself calls PMPIX_Win_ifence [MPI 15.2] ------------------ */

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
int PMPIX_Get_version(int *major, int *minor, int *patch);

/* Notified access */
#include "mpix_notify.h"

#ifdef __cplusplus
}
#endif

#endif /* MPIX_RMA_H */
