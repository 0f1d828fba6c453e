/* Communicators on which no window can be made: each constructor says so, in each process, and goes on. */
#include "check.h"

static void each(MPI_Comm comm, const char *what)
{
    char memory[8];
    void *base;
    MPI_Win win;
    EXPECT(class_of(MPI_Win_allocate(8, 1, MPI_INFO_NULL, comm, &base, &win)) == MPI_ERR_COMM, "%s: allocate", what);
    EXPECT(class_of(MPI_Win_create(memory, 8, 1, MPI_INFO_NULL, comm, &win)) == MPI_ERR_COMM, "%s: create", what);
    EXPECT(class_of(MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &win)) == MPI_ERR_COMM, "%s: create_dynamic", what);
    EXPECT(class_of(MPI_Win_allocate_shared(8, 1, MPI_INFO_NULL, comm, &base, &win)) == MPI_ERR_COMM, "%s: allocate_shared", what);
#if MPI_VERSION >= 4
    EXPECT(class_of(MPI_Win_allocate_c(8, 1, MPI_INFO_NULL, comm, &base, &win)) == MPI_ERR_COMM, "%s: allocate_c", what);
    EXPECT(class_of(MPI_Win_create_c(memory, 8, 1, MPI_INFO_NULL, comm, &win)) == MPI_ERR_COMM, "%s: create_c", what);
    EXPECT(class_of(MPI_Win_allocate_shared_c(8, 1, MPI_INFO_NULL, comm, &base, &win)) == MPI_ERR_COMM, "%s: allocate_shared_c", what);
#endif
}

/* Sizes and units that no window can have: an error in all processes, also where one alone is wrong. */
static void sizes(void)
{
    void *base;
    MPI_Win win;
    int last = me == ranks - 1;
    EXPECT(class_of(MPI_Win_allocate_shared(-1, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win)) == MPI_ERR_SIZE, "size -1");
    EXPECT(class_of(MPI_Win_allocate_shared(last ? -1 : 8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win)) == MPI_ERR_SIZE, "size -1 in one");
    EXPECT(class_of(MPI_Win_allocate_shared(8, 0, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win)) == MPI_ERR_DISP, "unit 0");
    EXPECT(class_of(MPI_Win_allocate_shared(8, last ? -4 : 4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win)) == MPI_ERR_DISP, "unit -4 in one");
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    each(MPI_COMM_NULL, "MPI_COMM_NULL");
    if (ranks > 1) {
        MPI_Comm half, both;
        MPI(MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &half));
        MPI(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - me % 2, 5, &both));
        MPI(MPI_Comm_set_errhandler(both, MPI_ERRORS_RETURN));
        each(both, "intercommunicator");
        MPI(MPI_Comm_free(&both));
        MPI(MPI_Comm_free(&half));
    }
    sizes();
    return test_end();
}
