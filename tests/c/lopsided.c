/*
 * Some processes of a window have many other windows, some have none. Window creation must not
 * depend on their number [PR-5], or its collective calls would not match.
 */
#include "check.h"

enum { MANY = 700 };

int main(int argc, char **argv)
{
    static MPI_Win wins[MANY];
    MPI_Comm pair;
    test_begin(&argc, &argv);
    REQUIRE(ranks >= 3);
    MPI(MPI_Comm_split(MPI_COMM_WORLD, me < 2 ? 0 : MPI_UNDEFINED, me, &pair));
    for (int w = 0; me < 2 && w < MANY; w++)
        MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, pair, &wins[w]));
    for (int kind = 0; kind < KINDS; kind++) {
        int64_t value = 10 + me, *mine;
        Window all = window(kind, sizeof value, 8);
        mine = all.base;
        MPI(MPI_Win_fence(0, all.win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, (me + 1) % ranks, 0, 1, MPI_INT64_T, all.win));
        MPI(MPI_Win_fence(0, all.win));
        EXPECT(*mine == 10 + (me + ranks - 1) % ranks, "%s: %lld", kind_name[kind],
               (long long)*mine);
        window_free(&all);
    }
    for (int w = 0; me < 2 && w < MANY; w++)
        MPI(MPI_Win_free(&wins[w]));
    if (pair != MPI_COMM_NULL)
        MPI(MPI_Comm_free(&pair));
    return test_end();
}
