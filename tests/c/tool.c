/*
 * A profiling tool that defines MPI calls and reaches the library by PMPI_* [MPI 15.2]. MPI_* (the
 * tool's) and PMPI_* calls alternate on the same epochs: one engine serves the window under both
 * names.
 */
#ifndef PLAIN
#define PLAIN
#endif
#include "check.h"
#include <dlfcn.h>

static int seen_put, seen_fence, seen_create, seen_wait, inside;

/* A call that comes back to the tool would recurse forever. */
#define TOOL(counter, call)                                            \
    int code;                                                          \
    if (inside++) {                                                    \
        fprintf(stderr, "%s called the tool again\n", __func__);       \
        abort();                                                       \
    }                                                                  \
    counter++;                                                         \
    code = call;                                                       \
    inside--;                                                          \
    return code

int MPI_Put(const void *origin, int count, MPI_Datatype type, int rank, MPI_Aint disp,
            int target_count, MPI_Datatype target_type, MPI_Win win)
{
    TOOL(seen_put, PMPI_Put(origin, count, type, rank, disp, target_count, target_type, win));
}
int MPI_Win_fence(int assert, MPI_Win win)
{
    TOOL(seen_fence, PMPI_Win_fence(assert, win));
}
int MPI_Win_allocate(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base,
                     MPI_Win *win)
{
    TOOL(seen_create, PMPI_Win_allocate(size, unit, info, comm, base, win));
}
int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    TOOL(seen_wait, PMPI_Wait(request, status));
}

int main(int argc, char **argv)
{
    int right, left, *mine, value;
    void *base;
    MPI_Win win;
    MPI_Request r;
    int (*ifence)(int, MPI_Win, MPI_Request *);
    test_begin(&argc, &argv);
    right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    MPI(MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    mine = base;
    for (int round = 0; round < 8; round++) {
        value = 100 * round + me;
        MPI(round & 1 ? MPI_Win_fence(0, win) : PMPI_Win_fence(0, win));
        MPI(round & 2 ? MPI_Put(&value, 1, MPI_INT, right, 0, 1, MPI_INT, win)
                      : PMPI_Put(&value, 1, MPI_INT, right, 0, 1, MPI_INT, win));
        MPI(round & 4 ? MPI_Win_fence(0, win) : PMPI_Win_fence(0, win));
        EXPECT(mine[0] == 100 * round + left, "round %d: %d", round, mine[0]);
    }
    EXPECT(seen_put == 4 && seen_fence == 8 && seen_create == 1,
           "the tool saw %d puts, %d fences, %d windows", seen_put, seen_fence, seen_create);
    /* MPIX_ calls succeed only on windows that the library serves. */
    ifence = (int (*)(int, MPI_Win, MPI_Request *))dlsym(RTLD_DEFAULT, "MPIX_Win_ifence");
    EXPECT(ifence || !getenv("EXPECT_LIBRARY"), "the library is not loaded");
    if (ifence) {
        MPI(ifence(MPI_MODE_NOSUCCEED, win, &r));
        MPI(MPI_Wait(&r, MPI_STATUS_IGNORE));
        EXPECT(seen_wait == 1, "the tool saw %d waits", seen_wait);
    }
    MPI(MPI_Win_free(&win));
    return test_end();
}
