/* What the transactions work on, and what must be true of it in the end. */
#ifndef LEDGER_H
#define LEDGER_H

#include "../schedule/schedule.h"

#include <mpi.h>
#include <stdbool.h>

/* One half of an account, as the schedule lays it out. */
struct cell {
    int64_t balance, updates, stamp;
};

/* What a transaction sends. It stays as it is until the transaction is complete. */
struct order {
    int64_t update[2][2]; /* for each half: added to balance and updates */
    int64_t stamp;
};

/* Over all windows. */
struct audit {
    int64_t balance;   /* 0 */
    uint64_t updates;  /* two for each transaction */
    uint64_t torn;     /* accounts whose halves were changed by different transactions last */
    uint64_t checksum; /* of all accounts without their stamps; the same in all series */
    bool right;
};

/* Collective. `cells` is this rank's window. */
struct audit ledger_audit(const struct cell *cells, const schedule_transactions_options *, MPI_Comm);

#endif
