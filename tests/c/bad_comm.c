/*
 * Invalid arguments of window constructors: every constructor returns an error in every process,
 * and the program can go on.
 */
#include "check.h"

static void constructors(MPI_Comm comm)
{
    char memory[8];
    void *base;
    MPI_Win win;
    REFUSED(MPI_ERR_COMM, MPI_Win_allocate(8, 1, MPI_INFO_NULL, comm, &base, &win));
    REFUSED(MPI_ERR_COMM, MPI_Win_create(memory, 8, 1, MPI_INFO_NULL, comm, &win));
    REFUSED(MPI_ERR_COMM, MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &win));
    REFUSED(MPI_ERR_COMM, MPI_Win_allocate_shared(8, 1, MPI_INFO_NULL, comm, &base, &win));
#if MPI_VERSION >= 4
    REFUSED(MPI_ERR_COMM, MPI_Win_allocate_c(8, 1, MPI_INFO_NULL, comm, &base, &win));
    REFUSED(MPI_ERR_COMM, MPI_Win_create_c(memory, 8, 1, MPI_INFO_NULL, comm, &win));
    REFUSED(MPI_ERR_COMM, MPI_Win_allocate_shared_c(8, 1, MPI_INFO_NULL, comm, &base, &win));
#endif
}

/* Invalid sizes and displacement units are an error in all processes, even if only one passes
 * them. */
static void sizes(void)
{
    void *base;
    MPI_Win win;
    int last = me == ranks - 1;
    REFUSED(MPI_ERR_SIZE,
            MPI_Win_allocate_shared(-1, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    REFUSED(MPI_ERR_SIZE,
            MPI_Win_allocate_shared(last ? -1 : 8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    REFUSED(MPI_ERR_DISP,
            MPI_Win_allocate_shared(8, 0, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    REFUSED(MPI_ERR_DISP,
            MPI_Win_allocate_shared(8, last ? -4 : 4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    constructors(MPI_COMM_NULL);
    if (ranks > 1) {
        MPI_Comm half, both;
        MPI(MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &half));
        MPI(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - me % 2, 5, &both));
        MPI(MPI_Comm_set_errhandler(both, MPI_ERRORS_RETURN));
        constructors(both);
        MPI(MPI_Comm_free(&both));
        MPI(MPI_Comm_free(&half));
    }
    sizes();
    return test_end();
}
