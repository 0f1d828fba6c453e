/*
 * MPI_Win_test [RQ-4]: false keeps the exposure open, true closes it. It ignores an exposure that
 * iwait has closed, and returns false for a deferred one. One call suffices once MPI_Win_complete
 * and a barrier have returned: what the origin has sent may have arrived unnoticed, and the program
 * need not call again.
 */
#include "check.h"

static void one(int kind)
{
    Window w = window(kind, 2 * sizeof(int64_t), sizeof(int64_t));
    MPI_Group zero = group_one(0), other = group_one(1);
    MPI_Request r[2];
    int flag;
    int64_t value = 5;
    for (int round = 1; round <= 50; round++) {
        if (me == 1) {
            MPI(MPI_Win_post(zero, 0, w.win));
            MPI(MPI_Win_test(w.win, &flag));
            EXPECT(!flag, "%s: test before start", kind_name[kind]);
            MPI(MPI_Win_test(w.win, &flag));
            EXPECT(!flag, "%s: MPI_Win_test closed an incomplete exposure", kind_name[kind]);
            send_token(0, 1);
            do
                MPI(MPI_Win_test(w.win, &flag));
            while (!flag);
            EXPECT(load64(w.base) == round, "%s: round %d: %ld", kind_name[kind], round,
                   (long)load64(w.base));
            /* Deferred: behind an exposure that iwait closed and nobody has accessed yet. */
            MPI(MPI_Win_post(zero, 0, w.win));
            MPI(MPIX_Win_iwait(w.win, &r[0]));
            MPI(MPI_Win_post(zero, 0, w.win));
            MPI(MPI_Win_test(w.win, &flag));
            EXPECT(!flag, "%s: test of a deferred exposure", kind_name[kind]);
            send_token(0, 2);
            do
                MPI(MPI_Win_test(w.win, &flag));
            while (!flag);
            MPI(MPI_Test(&r[0], &flag, MPI_STATUS_IGNORE));
            EXPECT(flag, "%s: the second exposure is complete, the first is not", kind_name[kind]);
            if (!flag)
                finish(&r[0]);
        } else if (me == 0) {
            value = round;
            recv_token(1, 1);
            for (int k = 0; k < 3; k++) {
                if (k == 1)
                    recv_token(1, 2);
                MPI(MPI_Win_start(other, 0, w.win));
                MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, w.win));
                MPI(MPI_Win_complete(w.win));
            }
        }
    }
    MPI(MPI_Group_free(&zero));
    MPI(MPI_Group_free(&other));
    window_free(&w);
}

static void after_a_barrier(int kind)
{
    Window w = window(kind, sizeof(int64_t), sizeof(int64_t));
    MPI_Group all, others, zero = group_one(0);
    int flag, first = 0;
    MPI(MPI_Win_get_group(w.win, &all));
    MPI(MPI_Group_excl(all, 1, &first, &others));
    for (int round = 1; round <= 300; round++) {
        if (me == 0)
            MPI(MPI_Win_start(others, 0, w.win));
        else
            MPI(MPI_Win_post(zero, 0, w.win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        if (me == 0)
            MPI(MPI_Win_complete(w.win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        if (me != 0) {
            MPI(MPI_Win_test(w.win, &flag));
            EXPECT(flag, "%s: round %d: the origin has completed", kind_name[kind], round);
            if (!flag)
                MPI(MPI_Win_wait(w.win));
        }
    }
    MPI(MPI_Group_free(&all));
    MPI(MPI_Group_free(&others));
    MPI(MPI_Group_free(&zero));
    window_free(&w);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(ranks >= 2);
    for (int kind = 0; kind < KINDS; kind++)
        one(kind);
    for (int kind = 0; kind < KINDS; kind++)
        after_a_barrier(kind);
    return test_end();
}
