/* The data of the transactions, and its invariants. */
#ifndef LEDGER_H
#define LEDGER_H

#include "../schedule/schedule.h"

#include <mpi.h>
#include <stdbool.h>

/* One half of an account, as the schedule lays it out. */
struct cell {
    int64_t balance, updates;
};

/* Buffers of one transaction. They belong to the library until it is complete. */
struct order {
    struct cell half[2]; /* added to the halves of the account, or read from them */
    bool audit;
};

/* Whether the halves of an account match, as transactions under exclusive locks leave them. */
static inline bool balanced(const struct cell *left, const struct cell *right)
{
    return left->balance == -right->balance && left->updates == right->updates;
}

/* Totals over all windows. */
struct audit {
    int64_t balance;   /* must be 0 */
    uint64_t updates;  /* two for each transaction */
    uint64_t torn;     /* accounts whose halves do not match, at the end or in an audit */
    uint64_t checksum; /* over all accounts; equal in all series */
    bool right;
};

/* Collective. `cells` is this rank's window; `torn` counts mismatches in its audits. */
struct audit ledger_audit(const struct cell *cells, uint64_t torn,
                          const schedule_transactions_options *, MPI_Comm);

#endif
