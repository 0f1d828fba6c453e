#include "ledger.h"

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

struct audit ledger_audit(const struct cell *cells, uint64_t torn,
                          const schedule_transactions_options *o, MPI_Comm comm)
{
    enum { BALANCE, UPDATES, TORN, CHECKSUM, SUMS };
    uint64_t mine[SUMS] = {0}, all[SUMS];
    for (uint64_t k = 0; k < 2 * o->accounts; k++) {
        uint64_t place = (uint64_t)o->rank * 2 * o->accounts + k;
        mine[BALANCE] += (uint64_t)cells[k].balance;
        mine[UPDATES] += (uint64_t)cells[k].updates;
        mine[CHECKSUM] +=
            mix((uint64_t)cells[k].balance ^ mix((uint64_t)cells[k].updates ^ mix(place)));
    }
    mine[TORN] = torn;
    for (uint64_t k = 0; k < o->accounts; k++)
        mine[TORN] += !balanced(&cells[k], &cells[o->accounts + k]);
    MPI_Allreduce(mine, all, SUMS, MPI_UINT64_T, MPI_SUM, comm);
    return (struct audit){.balance = (int64_t)all[BALANCE],
                          .updates = all[UPDATES],
                          .torn = all[TORN],
                          .checksum = all[CHECKSUM],
                          .right = all[BALANCE] == 0 &&
                                   all[UPDATES] ==
                                       2 * schedule_transactions_changes(o) * (uint64_t)o->ranks &&
                                   all[TORN] == 0};
}
