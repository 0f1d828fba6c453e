/* What the transactions work on, and what must be true of it in the end. */
#ifndef LEDGER_H
#define LEDGER_H

#include "../schedule/schedule.h"

#include <mpi.h>
#include <stdbool.h>

/* One half of an account, as the schedule lays it out. */
struct cell {
    int64_t balance, updates;
};

/* What a transaction sends or gets. It is the library's until the transaction is complete. */
struct order {
    struct cell half[2]; /* added to the halves of the account, or read from them */
    bool audit;
};

/* Both halves of an account are as transactions leave them that exclude each other. */
static inline bool balanced(const struct cell *left, const struct cell *right)
{
    return left->balance == -right->balance && left->updates == right->updates;
}

/* Over all windows. */
struct audit {
    int64_t balance;   /* 0 */
    uint64_t updates;  /* two for each transaction */
    uint64_t torn;     /* accounts whose halves do not match, in the end or in an audit */
    uint64_t checksum; /* of all accounts; the same in all series */
    bool right;
};

/* Collective. `cells` is this rank's window; `torn` is what its own audits found. */
struct audit ledger_audit(const struct cell *cells, uint64_t torn, const schedule_transactions_options *, MPI_Comm);

#endif
