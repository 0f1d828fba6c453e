/*
 * Windows that no system has memory for: MPI_ERR_NO_MEM in every process, once through the
 * communicator's error handler, and nothing is leaked. By the size of one process, and by the sum
 * over all.
 */
#include "check.h"

static int errors, wrong_comm;

static void on_error(MPI_Comm *comm, int *code, ...)
{
    (void)code;
    errors++;
    wrong_comm += *comm != MPI_COMM_WORLD;
}

static void refused(const char *what, int shared, MPI_Aint size)
{
    void *base = &errors;
    MPI_Win win = MPI_WIN_NULL;
    errors = wrong_comm = 0;
    int code = (shared ? MPI_Win_allocate_shared : MPI_Win_allocate)(size, 1, MPI_INFO_NULL,
                                                                     MPI_COMM_WORLD, &base, &win);
    EXPECT(class_of(code) == MPI_ERR_NO_MEM, "%s, shared %d: class %d (%s)", what, shared,
           class_of(code), error_text(code));
    EXPECT(errors == 1 && wrong_comm == 0, "%s, shared %d: %d errors, %d on another communicator",
           what, shared, errors, wrong_comm);
    EXPECT(win == MPI_WIN_NULL && base == &errors, "%s, shared %d: the handle was written", what,
           shared);
}

int main(int argc, char **argv)
{
    MPI_Errhandler handler;
    test_begin(&argc, &argv);
    MPI(MPI_Comm_create_errhandler(on_error, &handler));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler));
    MPI(MPI_Errhandler_free(&handler));
    for (int turn = 0; turn < 3; turn++)
        for (int shared = 0; shared < 2; shared++) {
            refused("all of the address space", shared, (MPI_Aint)0x7ffffffffffffff0);
            refused("all in one process", shared,
                    me == ranks - 1 ? (MPI_Aint)0x7ffffffffffffff0 : 64);
            if (ranks > 1)
                refused("a sum beyond 64 bits", shared, INT64_MAX / ranks + 4096);
            refused("more than can be mapped", shared, (MPI_Aint)1 << 56);
            /* Smaller windows still work. */
            Window w = window(ALLOCATED, 64, 1);
            window_free(&w);
        }
    return test_end();
}
