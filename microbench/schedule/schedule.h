/*
 * The communication of two applications, as a sequence of steps per rank, independent of MPI and
 * time. The reader executes the steps, on real ranks (microbench/executor) or in a simulator.
 *
 * A schedule is memory of schedule_..._size() bytes, aligned for uint64_t, which the caller owns.
 * Open it once, then request one step after the other. Schedules allocate nothing and share
 * nothing; a step costs O(1), and the memory does not depend on ranks, rows or transactions.
 *
 *     schedule_step step;
 *     schedule_lu_open(state, &options);
 *     while (schedule_lu_next(state, &step) != SCHEDULE_END)
 *         ...
 */
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    SCHEDULE_END,        /* done, and nothing is pending; every further call returns this again */
    SCHEDULE_POST,       /* open an exposure epoch to one origin */
    SCHEDULE_START,      /* open an access epoch to all other ranks */
    SCHEDULE_PUT,        /* put `bytes` bytes at `disp` of the target */
    SCHEDULE_ACCUMULATE, /* add `bytes` / 8 signed 64-bit integers at `disp` of the target */
    SCHEDULE_COMPLETE,   /* close the access epoch */
    SCHEDULE_WAIT,       /* close the exposure epoch */
    SCHEDULE_LOCK,       /* open an exclusive lock epoch */
    SCHEDULE_UNLOCK,     /* close the lock epoch */
    SCHEDULE_AWAIT,      /* wait for a closing request; not in the blocking series */
    SCHEDULE_COMPUTE,    /* compute, without calling the communication library */
    SCHEDULE_GET         /* get `bytes` bytes from `disp` of the target; only in audits */
} schedule_kind;

/* Blocking: COMPLETE, WAIT and UNLOCK return when the epoch is complete, and there is no AWAIT.
 * Nonblocking: opening and closing return at once; a later AWAIT names each closing request. */
typedef enum { SCHEDULE_BLOCKING, SCHEDULE_NONBLOCKING } schedule_series;

typedef struct {
    int32_t kind; /* a schedule_kind */
    /* POST: the origin. LOCK, UNLOCK, PUT, ACCUMULATE, GET: the target. START: SCHEDULE_OTHERS. PUT
     * also SCHEDULE_OTHERS: one put to each, in the order rank + 1, rank + 2, ... modulo ranks. */
    int32_t peer;
    uint64_t disp;  /* PUT, ACCUMULATE, GET: bytes from the start of the target's window */
    uint64_t bytes; /* PUT, ACCUMULATE, GET: length */
    /* COMPLETE, WAIT, UNLOCK: number of the closing request, below schedule_..._requests(), free
     * again after its AWAIT. AWAIT: the number to wait for. Transactions: also in the epoch's other
     * steps, whose buffers are free when the epoch is complete. */
    uint64_t request;
    /* LU: PUT: the row to send; COMPUTE: the row to apply. Transactions: number of this rank's
     * transaction, in every step. */
    uint64_t work;
    /* LU, COMPUTE: first row to update. Transactions, ACCUMULATE and GET: 0 or 1, the left or right
     * half of the account. */
    uint64_t first;
    uint64_t rows;  /* LU, COMPUTE: rows to update: first, first + ranks, first + 2 ranks, ... */
    int64_t amount; /* Transactions, ACCUMULATE: amount to add to the balance */
    double flops;   /* COMPUTE: floating point operations */
} schedule_step;

enum { SCHEDULE_OTHERS = -1 };

/*
 * ---- LU decomposition ---------------------------------------------------------------
 *
 * An m x m matrix with rows distributed cyclically: row k belongs to rank k mod ranks. When row k
 * is final, its owner puts the cells k to m-1 into the windows of all others, in one access epoch;
 * every other rank has one exposure epoch for it. All ranks then update their later rows with it.
 * No rank needs row m-1.
 *
 * A window is a ring of `depth` slots of m cells. Row k arrives in slot k mod depth, in its own
 * columns. A rank opens the exposure epoch of row k only when it no longer needs row k - depth, and
 * puts are posted only to open exposure epochs, so no row is overwritten too early.
 *
 * Every rank opens its epochs in row order, so the schedule completes whether calls block or not.
 *
 * ahead = 0: a rank updates all its rows with row k before it broadcasts row k+1. The owner of row
 * k computes in its access epoch (blocking), or after closing it (nonblocking).
 *
 * ahead = 1: the owner of row k+1 updates that row first, broadcasts it, and updates its other rows
 * with row k in that access epoch (blocking), or after closing it (nonblocking).
 */
typedef struct {
    int32_t rank, ranks;
    uint64_t m;      /* rows and columns, at least 1 */
    uint64_t depth;  /* slots of the ring, at least 1 */
    int32_t ahead;   /* 0 or 1 */
    int32_t series;  /* a schedule_series */
} schedule_lu_options;

/* Returns what is wrong with the options, or NULL. */
const char *schedule_lu_problem(const schedule_lu_options *options);
/* Bytes of a schedule. */
size_t schedule_lu_size(void);
/* Bytes of the window of each rank. */
uint64_t schedule_lu_window(const schedule_lu_options *options);
/* Upper bound of closing request numbers, and of requests pending at once. */
uint64_t schedule_lu_requests(const schedule_lu_options *options);
/* Returns 0, or -1 for invalid options. */
int schedule_lu_open(void *state, const schedule_lu_options *options);
/* Reads the next step; returns its kind. */
int schedule_lu_next(void *state, schedule_step *step);

/*
 * ---- Transactions -------------------------------------------------------------------
 *
 * Every rank makes `count` transactions. Each picks a random rank and one of its accounts, and
 * moves a random amount from one half of the account to the other, in one exclusive lock epoch: one
 * ACCUMULATE of {amount, 1} for each half. A half is a cell of two 64-bit integers, balance and
 * number of updates; the left halves precede the right ones. With `audits`, every fourth
 * transaction only reads both halves, by one GET each. They must match; accumulates are atomic by
 * themselves, but only locks make the halves match.
 *
 * In the end, over all windows, the balances add up to 0, and the updates to twice the number of
 * transactions that are not audits.
 *
 * Nonblocking: up to `window` epochs of a rank are pending at once.
 */
typedef struct {
    int32_t rank, ranks;
    uint64_t count;    /* transactions of each rank */
    uint64_t accounts; /* in each window, at least 1 */
    uint64_t seed;     /* equal on all ranks */
    uint64_t window;   /* pending epochs, nonblocking series only; 0: unbounded */
    double flops;      /* floating point operations after each transaction; 0: none */
    int32_t audits;    /* 0 or 1 */
    int32_t series;    /* a schedule_series */
} schedule_transactions_options;

const char *schedule_transactions_problem(const schedule_transactions_options *options);
size_t schedule_transactions_size(void);
uint64_t schedule_transactions_window(const schedule_transactions_options *options);
uint64_t schedule_transactions_requests(const schedule_transactions_options *options);
/* How many of a rank's transactions are not audits. */
uint64_t schedule_transactions_changes(const schedule_transactions_options *options);
int schedule_transactions_open(void *state, const schedule_transactions_options *options);
int schedule_transactions_next(void *state, schedule_step *step);

#ifdef __cplusplus
}
#endif
#endif
