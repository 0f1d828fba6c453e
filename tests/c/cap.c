/*
 * As many pending requests as the library takes [RQ-3]: beyond the cap MPI_ERR_NO_MEM, nothing changes, and all
 * complete once the target comes. Prints the cost per epoch with ten pending and with the cap.
 *
 *   cap KIND
 */
#include "check.h"
#include <time.h>

/* Time of this process's own work, so that a busy machine does not count. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static Window w;
static int64_t value = 3;
static MPI_Group zero, one;

/* Opens and closes epochs until `count` are pending or the library refuses. Seconds per epoch in *cost. */
static int pile_up(int count, MPI_Request *r, double *cost)
{
    MPI_Request born;
    int n = 0;
    double start = now();
    for (; n < count; n++) {
        int code = MPIX_Win_istart(one, 0, w.win, &born);
        if (code != MPI_SUCCESS) {
            EXPECT(class_of(code) == MPI_ERR_NO_MEM, "istart %d: class %d", n, class_of(code));
            break;
        }
        MPI(MPI_Request_free(&born));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, w.win));
        code = MPIX_Win_icomplete(w.win, &r[n]);
        if (code != MPI_SUCCESS) {
            EXPECT(class_of(code) == MPI_ERR_NO_MEM, "icomplete %d: class %d", n, class_of(code));
            break;
        }
    }
    *cost = (now() - start) / (n ? n : 1);
    return n;
}

/* Process 1 opens and closes as many exposures. */
static void expose(int count)
{
    for (int i = 0; i < count; i++) {
        MPI(MPI_Win_post(zero, 0, w.win));
        MPI(MPI_Win_wait(w.win));
    }
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(argc == 2 && ranks == 2);
    zero = group_one(0);
    one = group_one(1);
    w = window(strcmp(argv[1], "created") == 0, sizeof(int64_t), 1);
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    const int few = 10, turns = 2000, wanted = 251000 /* above any value of MPIX_RMA_MAX_REQUESTS */;
    double cost, cost_few = 0, cost_many = 0;
    MPI_Request *r = malloc(wanted * sizeof *r);
    REQUIRE(r);
    for (int turn = 0; turn < turns; turn++)
        if (me == 0) {
            REQUIRE(pile_up(few, r, &cost) == few);
            cost_few += cost / turns;
            tell(1, 1);
            MPI(MPI_Waitall(few, r, MPI_STATUSES_IGNORE));
        } else {
            hear(0, 1);
            expose(few);
        }
    /* Twice: the first time the requests' memory is new, which is the host's and the kernel's cost, not an epoch's. */
    for (int pass = 0; pass < 2; pass++) {
        int n = 0;
        if (me == 0) {
            n = pile_up(wanted, r, &cost_many);
            EXPECT(n < wanted, "no cap: %d requests are pending", n);
            EXPECT(n >= 100000, "refused at %d pending requests already", n);
            MPI(MPI_Send(&n, 1, MPI_INT, 1, 2, MPI_COMM_WORLD));
            MPI(MPI_Waitall(n, r, MPI_STATUSES_IGNORE));
            if (n < wanted) {
                /* The refused call changed nothing: the epoch is open still, and closes now that there is room. */
                MPI_Request again;
                tell(1, 3);
                MPI(MPIX_Win_icomplete(w.win, &again));
                finish(&again);
            }
            printf("NOTE %d epochs pending, pass %d: %.0f ns each to record; with %d pending %.0f ns\n", n, pass + 1,
                   cost_many * 1e9, few, cost_few * 1e9);
        } else {
            MPI(MPI_Recv(&n, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            expose(n);
            if (n < wanted) {
                hear(0, 3);
                expose(1);
            }
            EXPECT(load64(w.base) == 3, "put: %ld", (long)load64(w.base));
        }
    }
    free(r);
    MPI(MPI_Group_free(&zero));
    MPI(MPI_Group_free(&one));
    window_free(&w);
    return test_end();
}
