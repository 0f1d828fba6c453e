/*
 * Windows over processes of two jobs: MPI_COMM_WORLD and as many spawned processes, merged. With
 * `unlike`, the second job has other settings; both jobs must agree on one result.
 */
#include "check.h"

static void exchange(MPI_Comm comm)
{
    int r, n;
    MPI(MPI_Comm_rank(comm, &r));
    MPI(MPI_Comm_size(comm, &n));
    for (int kind = 0; kind < KINDS; kind++) {
        Window w = window_on(kind, n * sizeof(int), sizeof(int), MPI_INFO_NULL, comm);
        int value = 50 + r, *mine = w.base;
        MPI(MPI_Win_fence(0, w.win));
        for (int t = 0; t < n; t++)
            MPI(MPI_Put(&value, 1, MPI_INT, t, r, 1, MPI_INT, w.win));
        MPI_Request q;
        MPI(MPIX_Win_ifence(MPI_MODE_NOSUCCEED, w.win, &q));
        finish(&q);
        for (int t = 0; t < n; t++)
            EXPECT(mine[t] == 50 + t, "%s: from %d: %d", kind_name[kind], t, mine[t]);
        MPI(MPI_Barrier(comm));
        MPI(MPI_Win_lock_all(0, w.win));
        MPI(MPI_Accumulate(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, w.win));
        MPI(MPI_Win_unlock_all(w.win));
        MPI(MPI_Barrier(comm));
        if (r == 0)
            EXPECT(mine[0] == 50 + 50 * n + n * (n - 1) / 2, "%s: sum %d", kind_name[kind],
                   mine[0]);
        MPI(MPI_Barrier(comm));
        window_free(&w);
    }
    int *base, *theirs, unit;
    MPI_Win win;
    MPI_Aint size;
    MPI(MPI_Win_allocate_shared(sizeof *base, 1, MPI_INFO_NULL, comm, &base, &win));
    *base = 900 + r;
    MPI(MPI_Win_fence(0, win));
    MPI(MPI_Win_shared_query(win, (r + 1) % n, &size, &unit, &theirs));
    EXPECT(*theirs == 900 + (r + 1) % n, "shared: %d", *theirs);
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    MPI(MPI_Win_free(&win));
}

int main(int argc, char **argv)
{
    MPI_Comm parent, both, merged;
    test_begin(&argc, &argv);
    MPI(MPI_Comm_get_parent(&parent));
    if (parent == MPI_COMM_NULL) {
        MPI_Info info = MPI_INFO_NULL;
        if (argc > 1 && strcmp(argv[1], "unlike") == 0) {
            MPI(MPI_Info_create(&info));
            MPI(MPI_Info_set(info, "env",
                             "MPIX_RMA_TRANSPORT=host_mpi\nMPIX_RMA_CMA=off\nUNLIKE=1"));
        }
        MPI(MPI_Comm_spawn(argv[0], argv + 1, ranks, info, 0, MPI_COMM_WORLD, &both,
                           MPI_ERRCODES_IGNORE));
        if (info != MPI_INFO_NULL)
            MPI(MPI_Info_free(&info));
    } else {
        both = parent;
        EXPECT(argc == 1 || getenv("UNLIKE"),
               "the environment of the spawned processes is as wanted");
    }
    MPI(MPI_Intercomm_merge(both, parent != MPI_COMM_NULL, &merged));
    exchange(merged);
    exchange(MPI_COMM_WORLD);
    exchange(merged);
    MPI(MPI_Comm_free(&merged));
    /* The parents report the children's failures too. */
    int theirs = 0, mine = failures;
    MPI(MPI_Allreduce(&mine, &theirs, 1, MPI_INT, MPI_SUM, both));
    if (parent == MPI_COMM_NULL && me == 0)
        failures += theirs;
    MPI(MPI_Comm_disconnect(&both));
    if (parent != MPI_COMM_NULL) {
        MPI(MPI_Finalize());
        return 0;
    }
    return test_end();
}
