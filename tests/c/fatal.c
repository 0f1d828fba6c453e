/*
 * An invalid call under the default error handler ends the job with a message and does not hang.
 */
#include "check.h"

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    Window w = window(argc > 1 && strcmp(argv[1], "created") == 0, 8, 1);
    MPI_Request r;
#if MPI_VERSION >= 4
    if (argc > 2 && strcmp(argv[2], "abort") == 0)
        MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_ABORT));
#endif
    if (me == 0)
        MPIX_Win_icomplete(w.win, &r);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("still here\n");
    MPI_Finalize();
    return 0;
}
