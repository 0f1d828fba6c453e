/*
 * Windows on communicators from MPI sessions: in a program without MPI_Init, and in one that calls
 * it while a session is open. Hosts before MPI 4 have no sessions.
 *
 *   sessions MODE    MODE: alone | before (MPI_Init after the session) |
 *                    within (MPI_Init and MPI_Finalize during the session) |
 *                    without (no windows: MPICH 4.0 cannot create one in a single process)
 */
#include "check.h"

#if MPI_VERSION >= 4
static MPI_Comm comm;

static void open_session(MPI_Session *session, const char *tag, int reversed)
{
    MPI_Group group, turned;
    int n;
    MPI(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, session));
    MPI(MPI_Group_from_session_pset(*session, "mpi://WORLD", &group));
    MPI(MPI_Group_size(group, &n));
    int range[1][3] = {{n - 1, 0, -1}};
    if (reversed) {
        MPI(MPI_Group_range_incl(group, 1, range, &turned));
        MPI(MPI_Group_free(&group));
        group = turned;
    }
    MPI(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm));
    MPI(MPI_Group_free(&group));
    MPI(MPI_Comm_rank(comm, &me));
    MPI(MPI_Comm_size(comm, &ranks));
}

enum { SHARED = KINDS, DYNAMIC, ALL_KINDS };

static void ring(int kind)
{
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    static int64_t memory[2];
    int64_t *mine = memory, value = me + 1, one = 1, old;
    MPI_Aint there = 0;
    MPI_Win win;
    MPI_Request r;
    if (kind == ALLOCATED)
        MPI(MPI_Win_allocate(16, 8, MPI_INFO_NULL, comm, &mine, &win));
    else if (kind == CREATED)
        MPI(MPI_Win_create(mine, 16, 8, MPI_INFO_NULL, comm, &win));
    else if (kind == SHARED)
        MPI(MPI_Win_allocate_shared(16, 8, MPI_INFO_NULL, comm, &mine, &win));
    else {
        MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &win));
        MPI(MPI_Win_attach(win, mine, 16));
        MPI_Aint own;
        MPI(MPI_Get_address(mine, &own));
        MPI(MPI_Sendrecv(&own, 1, MPI_AINT, left, 0, &there, 1, MPI_AINT, right, 0, comm,
                         MPI_STATUS_IGNORE));
    }
    mine[0] = mine[1] = 0;
    /* A call that works only on this library's windows: complete at once, pending, mixed with
     * messages. */
    MPI(MPIX_Win_ifence(0, win, &r));
    finish(&r);
    MPI(MPI_Put(&value, 1, MPI_INT64_T, right, there, 1, MPI_INT64_T, win));
    MPI(MPIX_Win_ifence(0, win, &r));
    finish(&r);
    EXPECT(mine[0] == left + 1, "kind %d: put %lld", kind, (long long)mine[0]);
    MPI(MPI_Barrier(comm));
    MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, right, 0, win, &r));
    expect_complete(&r, "ilock");
    for (int i = 0; i < 100; i++)
        MPI(MPI_Fetch_and_op(&one, &old, MPI_INT64_T, right, there + (kind == DYNAMIC ? 8 : 1),
                             MPI_SUM, win));
    MPI(MPIX_Win_iunlock(right, win, &r));
    finish(&r);
    MPI(MPI_Barrier(comm));
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
    EXPECT(mine[1] == 100, "kind %d: counted %lld", kind, (long long)mine[1]);
    MPI(MPI_Win_unlock(me, win));
    MPI(MPI_Win_free(&win));
}

static void windows(void)
{
    for (int turn = 0; turn < 3; turn++)
        for (int kind = 0; kind < ALL_KINDS; kind++)
            ring(kind);
}

int main(int argc, char **argv)
{
    MPI_Session session, other;
    int all, world;
    REQUIRE(argc == 2);
    open_session(&session, "first", 0);
    if (strcmp(argv[1], "without") == 0) {
        MPI(MPI_Barrier(comm));
        MPI(MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, comm));
        MPI(MPI_Comm_free(&comm));
        MPI(MPI_Session_finalize(&session));
        if (me == 0)
            printf("OK\n");
        return 0;
    }
    windows();
    MPI_Comm first = comm;
    open_session(&other, "second", 1);
    windows();
    if (strcmp(argv[1], "alone") != 0) {
        MPI(MPI_Init(&argc, &argv));
        MPI(MPI_Comm_size(MPI_COMM_WORLD, &world));
        EXPECT(world == ranks, "world of %d, session of %d", world, ranks);
        windows();
        MPI_Comm mine = comm;
        comm = MPI_COMM_WORLD;
        MPI(MPI_Comm_rank(comm, &me));
        windows();
        comm = mine;
        MPI(MPI_Comm_rank(comm, &me));
        if (strcmp(argv[1], "within") == 0) {
            MPI(MPI_Finalize());
            windows();
        }
    }
    MPI(MPI_Comm_free(&comm));
    MPI(MPI_Session_finalize(&other));
    comm = first;
    MPI(MPI_Comm_rank(comm, &me));
    windows();
    MPI(MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, comm));
    MPI(MPI_Comm_free(&comm));
    MPI(MPI_Session_finalize(&session));
    if (strcmp(argv[1], "before") == 0)
        MPI(MPI_Finalize());
    if (me == 0)
        printf(all ? "FAILED %d checks\n" : "OK\n", all);
    return all != 0;
}
#else
int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    return test_skip("the host has no MPI sessions");
}
#endif
