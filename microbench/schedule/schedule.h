/* The communication of two applications, as steps of one rank. Nothing here knows MPI or time: who reads the steps
 * makes them happen, on real ranks (microbench/executor) or in a simulator.
 *
 * A schedule is memory of schedule_..._size() bytes, aligned for uint64_t, that belongs to the caller. It is opened
 * once and then asked for one step after the other. Nothing is allocated, nothing is shared between schedules, every
 * step costs O(1), and the memory does not depend on ranks, rows or transactions.
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
    SCHEDULE_END,        /* nothing is left to do, and nothing is pending; every further call gives this again */
    SCHEDULE_POST,       /* open an exposure epoch to one origin */
    SCHEDULE_START,      /* open an access epoch to all other ranks */
    SCHEDULE_PUT,        /* put `bytes` bytes at `disp` of the target */
    SCHEDULE_ACCUMULATE, /* add `bytes` / 8 signed 64-bit integers at `disp` of the target */
    SCHEDULE_COMPLETE,   /* close the access epoch */
    SCHEDULE_WAIT,       /* close the exposure epoch */
    SCHEDULE_LOCK,       /* open an exclusive lock epoch */
    SCHEDULE_UNLOCK,     /* close it */
    SCHEDULE_AWAIT,      /* wait for a closing request; not in the blocking series */
    SCHEDULE_COMPUTE,    /* compute, without any call of the communication library */
    SCHEDULE_GET         /* get `bytes` bytes from `disp` of the target; in audits only */
} schedule_kind;

/* Blocking: COMPLETE, WAIT and UNLOCK return when the epoch is complete, and there is no AWAIT.
 * Nonblocking: every opening and closing returns at once; each closing has a request that a later AWAIT names. */
typedef enum { SCHEDULE_BLOCKING, SCHEDULE_NONBLOCKING } schedule_series;

typedef struct {
    int32_t kind;     /* a schedule_kind */
    int32_t peer;     /* POST: the origin. LOCK, UNLOCK, PUT, ACCUMULATE, GET: the target. START: SCHEDULE_OTHERS. PUT may
                       * say SCHEDULE_OTHERS too: one put to each, in the order rank + 1, rank + 2, ... modulo ranks */
    uint64_t disp;    /* PUT, ACCUMULATE, GET: bytes from the beginning of the target's window */
    uint64_t bytes;   /* PUT, ACCUMULATE, GET: length */
    uint64_t request; /* COMPLETE, WAIT, UNLOCK: number of the closing request, below schedule_..._requests() and
                       * free again after its AWAIT. AWAIT: the number to wait for. Transactions: the same number in
                       * the other steps of the epoch, whose buffers are free when the epoch is complete */
    uint64_t work;    /* LU: PUT: the row that is sent; COMPUTE: the row that the others are updated with.
                       * Transactions: number of the transaction of this rank, in every step */
    uint64_t first;   /* LU, COMPUTE: the first row that is updated. Transactions, ACCUMULATE and GET: 0 or 1,
                       * the left or the right half of the account */
    uint64_t rows;    /* LU, COMPUTE: how many rows are updated: first, first + ranks, first + 2 ranks, ... */
    int64_t amount;   /* Transactions, ACCUMULATE: added to the balance */
    double flops;     /* COMPUTE: floating point operations */
} schedule_step;

enum { SCHEDULE_OTHERS = -1 };

/* ---- LU decomposition -------------------------------------------------------------------------------------------
 *
 * An m x m matrix, rows dealt out in turns: row k belongs to rank k mod ranks. When row k is final its owner puts the
 * cells k to m-1 into the windows of all others, in one access epoch; every other rank has one exposure epoch for it.
 * All then update their later rows with it. Row m-1 is needed by nobody.
 *
 * A window is a ring of `depth` slots of m cells. Row k arrives in slot k mod depth, at its own columns. A rank opens
 * the exposure epoch of row k only when it has no more use for row k - depth, and a put leaves only for an open
 * exposure epoch, so nothing is overwritten too early.
 *
 * Every rank opens its epochs in the order of the rows, so the schedule ends with any mix of waiting and laziness.
 *
 * ahead = 0: a rank updates all its rows with row k before it broadcasts row k+1. The owner of row k computes in its
 *            access epoch (blocking), or after its closing (nonblocking).
 * ahead = 1: the owner of row k+1 updates that row first, broadcasts it, and updates its other rows with row k in
 *            that access epoch (blocking), or after its closing (nonblocking). */
typedef struct {
    int32_t rank, ranks;
    uint64_t m;      /* rows and columns, 1 or more */
    uint64_t depth;  /* slots of the ring, 1 or more */
    int32_t ahead;   /* 0 or 1 */
    int32_t series;  /* a schedule_series */
} schedule_lu_options;

/* What is wrong with the options, in words; NULL: nothing. */
const char *schedule_lu_problem(const schedule_lu_options *options);
/* Bytes of a schedule. */
size_t schedule_lu_size(void);
/* Bytes of the window of each rank. */
uint64_t schedule_lu_window(const schedule_lu_options *options);
/* Closing requests are numbered below this; so many may be pending at once. */
uint64_t schedule_lu_requests(const schedule_lu_options *options);
/* 0, or -1 if the options have a problem. */
int schedule_lu_open(void *state, const schedule_lu_options *options);
/* The next step; returns its kind. */
int schedule_lu_next(void *state, schedule_step *step);

/* ---- Transactions -----------------------------------------------------------------------------------------------
 *
 * Every rank makes `count` transactions. Each picks a rank, any of them, and one of its accounts at random, and moves
 * a random amount from one half of the account to the other, in one exclusive lock epoch: one ACCUMULATE of
 * {amount, 1} for each half. A half is a cell of two 64-bit integers, balance and number of updates; the left halves
 * lie before the right ones. With `audits` every fourth transaction changes nothing and instead reads both halves, by one
 * GET each. They must match, which accumulates, atomic by themselves, do not bring about without locks.
 *
 * So in the end, over all windows: the balances add up to 0, the updates to twice the transactions that are no audits.
 *
 * Nonblocking: up to `window` epochs of a rank are pending at once. */
typedef struct {
    int32_t rank, ranks;
    uint64_t count;    /* transactions of each rank */
    uint64_t accounts; /* in each window, 1 or more */
    uint64_t seed;     /* the same on all ranks */
    uint64_t window;   /* pending epochs, nonblocking series only; 0: as many as there are */
    double flops;      /* computed after each transaction is closed; 0: nothing */
    int32_t audits;    /* 0 or 1 */
    int32_t series;    /* a schedule_series */
} schedule_transactions_options;

const char *schedule_transactions_problem(const schedule_transactions_options *options);
size_t schedule_transactions_size(void);
uint64_t schedule_transactions_window(const schedule_transactions_options *options);
uint64_t schedule_transactions_requests(const schedule_transactions_options *options);
/* How many of a rank's transactions are no audits. */
uint64_t schedule_transactions_changes(const schedule_transactions_options *options);
int schedule_transactions_open(void *state, const schedule_transactions_options *options);
int schedule_transactions_next(void *state, schedule_step *step);

#ifdef __cplusplus
}
#endif
#endif
