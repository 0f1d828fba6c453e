// The header compiles as C++, and its functions have C linkage.
#include "check.h"

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    int major, minor, patch;
    MPIX_Get_version(&major, &minor, &patch);
    EXPECT(major == MPIX_RMA_VERSION_MAJOR && minor == MPIX_RMA_VERSION_MINOR &&
               patch == MPIX_RMA_VERSION_PATCH,
           "version");
    int (*twin)(int, MPI_Win, MPI_Request *) = PMPIX_Win_iflush;
    EXPECT(twin != nullptr, "twin");
    return test_end();
}
