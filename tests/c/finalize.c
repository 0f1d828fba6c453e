/*
 * MPI_Finalize completes what is pending [RQ-2]: freed requests, and a window that was not freed.
 */
#include "check.h"

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(ranks >= 2);
    static int64_t value = 9;
    MPI_Group zero = group_one(0), one = group_one(1);
    MPI_Request r;
    for (int kind = 0; kind < KINDS; kind++) {
        Window w = window(kind, sizeof(int64_t), 1);
        if (me == 0) {
            MPI(MPI_Win_start(one, 0, w.win));
            MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, w.win));
            MPI(MPIX_Win_icomplete(w.win, &r));
            MPI(MPI_Request_free(&r));
            send_token(1, 1);
            /* From here on, MPI_Finalize is the only call. */
        } else if (me == 1) {
            recv_token(0, 1);
            MPI(MPI_Win_post(zero, 0, w.win));
            if (kind == KINDS - 1) {
                MPI(MPI_Win_wait(w.win));
                EXPECT(load64(w.base) == 9, "put: %ld", (long)load64(w.base));
                printf(failures ? "FAILED\n" : "OK\n");
            } else {
                MPI(MPIX_Win_iwait(w.win, &r));
                MPI(MPI_Request_free(&r));
            }
        }
    }
    MPI(MPI_Group_free(&zero));
    MPI(MPI_Group_free(&one));
    MPI_Finalize();
    return failures != 0;
}
