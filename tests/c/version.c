/* MPIX_Get_version and PMPIX_Get_version return the header's version. */
#include "check.h"

int main(int argc, char **argv)
{
    int major = -1, minor = -1, patch = -1, a = -1, b = -1, c = -1;
    EXPECT(MPIX_Get_version(&major, &minor, &patch) == MPI_SUCCESS, "before MPI_Init");
    test_begin(&argc, &argv);
    EXPECT(major == MPIX_RMA_VERSION_MAJOR && minor == MPIX_RMA_VERSION_MINOR &&
               patch == MPIX_RMA_VERSION_PATCH,
           "library %d.%d.%d, header %d.%d.%d", major, minor, patch, MPIX_RMA_VERSION_MAJOR,
           MPIX_RMA_VERSION_MINOR, MPIX_RMA_VERSION_PATCH);
    EXPECT(PMPIX_Get_version(&a, &b, &c) == MPI_SUCCESS && a == major && b == minor && c == patch,
           "PMPIX twin");
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    REFUSED(MPI_ERR_ARG, MPIX_Get_version(NULL, &b, &c));
    REFUSED(MPI_ERR_ARG, MPIX_Get_version(&a, NULL, &c));
    REFUSED(MPI_ERR_ARG, MPIX_Get_version(&a, &b, NULL));
    return test_end();
}
