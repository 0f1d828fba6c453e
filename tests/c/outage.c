/*
 * The network fails for less than the device's retry time: nothing is lost or done twice, and no
 * call fails. For guests with soft-RoCE (tests/rxe); the host's messages use another network.
 *
 *   outage FAULT TIMES    FAULT: network (frames are dropped, ports stay up) |
 *                         port (of the peer's machine) | own (port of this machine)
 */
#include "check.h"
#include "faults.h"

enum { CELLS = 64, PUTS = 24 };

/* Starts an outage of that many seconds. Returns when it has begun; it ends by itself. */
static void outage(const char *how, double lasts)
{
    char line[64];
    int own = !strcmp(how, "own");
    snprintf(line, sizeof line, "%s %d %.2f", strcmp(how, "network") ? "unplug" : "down", !own,
             lasts);
    fault(line);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(ranks == 2 && argc == 3);
    int64_t *base, cells[CELLS], got, one = 1;
    MPI_Win win;
    MPI(MPI_Win_allocate((CELLS + 3) * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    memset(base, 0, (CELLS + 3) * 8);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    /* First contact. */
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1 - me, 0, win));
    MPI(MPI_Get(&got, 1, MPI_INT64_T, 1 - me, 0, 1, MPI_INT64_T, win));
    MPI(MPI_Win_unlock(1 - me, win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double longest = 0;
    for (int round = 1; round <= atoi(argv[2]); round++) {
        if (me == 0) {
            double begin = seconds();
            outage(argv[1], 0.7);
            /* During the outage: puts in order, adds that count executions, gets of the data put, a
             * lock word. */
            MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win));
            for (int put = 1; put <= PUTS; put++) {
                for (int cell = 0; cell < CELLS; cell++)
                    cells[cell] = round * 1000 + put;
                MPI(MPI_Put(cells, CELLS, MPI_INT64_T, 1, 0, CELLS, MPI_INT64_T, win));
                MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, 1, CELLS, 1, MPI_INT64_T, MPI_SUM, win));
                MPI(MPI_Fetch_and_op(&one, &got, MPI_INT64_T, 1, CELLS + 1, MPI_SUM, win));
                MPI(MPI_Win_flush(1, win));
                EXPECT(got == (round - 1) * PUTS + put - 1, "round %d put %d: %ld before the add",
                       round, put, (long)got);
                MPI(MPI_Get(cells, CELLS, MPI_INT64_T, 1, 0, CELLS, MPI_INT64_T, win));
                MPI(MPI_Win_flush(1, win));
                EXPECT(cells[0] == round * 1000 + put && cells[CELLS - 1] == cells[0],
                       "round %d put %d: memory has %ld", round, put, (long)cells[0]);
            }
            MPI(MPI_Win_unlock(1, win));
            double took = seconds() - begin;
            longest = took > longest ? took : longest;
        }
        MPI(MPI_Win_fence(0, win));
        if (me == 0)
            MPI(MPI_Put(&one, 1, MPI_INT64_T, 1, CELLS + 2, 1, MPI_INT64_T, win));
        MPI(MPI_Win_fence(0, win));
        if (me == 1) {
            EXPECT(base[CELLS] == round * PUTS && base[CELLS + 1] == round * PUTS,
                   "round %d: %ld and %ld adds", round, (long)base[CELLS], (long)base[CELLS + 1]);
            EXPECT(base[0] == round * 1000 + PUTS && base[CELLS + 2] == 1,
                   "round %d: %ld was put last", round, (long)base[0]);
        }
        MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    }
    if (me == 0)
        printf("NOTE the longest round took %.1f s\n", longest);
    EXPECT(me || longest > 0.6, "the outage had no effect: %.2f s", longest);
    MPI(MPI_Win_free(&win));
    return test_end();
}
