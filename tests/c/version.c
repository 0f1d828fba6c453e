/* MPIX_Get_version and its twin; the header's numbers are the library's. */
#include "check.h"

int main(int argc, char **argv)
{
    int major = -1, minor = -1, patch = -1, a = -1, b = -1, c = -1;
    EXPECT(MPIX_Get_version(&major, &minor, &patch) == MPI_SUCCESS, "before MPI_Init");
    test_begin(&argc, &argv);
    EXPECT(major == MPIX_RMA_VERSION_MAJOR && minor == MPIX_RMA_VERSION_MINOR && patch == MPIX_RMA_VERSION_PATCH,
           "library %d.%d.%d, header %d.%d.%d", major, minor, patch, MPIX_RMA_VERSION_MAJOR, MPIX_RMA_VERSION_MINOR,
           MPIX_RMA_VERSION_PATCH);
    EXPECT(PMPIX_Get_version(&a, &b, &c) == MPI_SUCCESS && a == major && b == minor && c == patch, "PMPIX twin");
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    EXPECT(class_of(MPIX_Get_version(NULL, &b, &c)) == MPI_ERR_ARG, "NULL major");
    EXPECT(class_of(MPIX_Get_version(&a, NULL, &c)) == MPI_ERR_ARG, "NULL minor");
    EXPECT(class_of(MPIX_Get_version(&a, &b, NULL)) == MPI_ERR_ARG, "NULL patch");
    return test_end();
}
