/*
 * More windows than the host has context ids: the constructor that exceeds them returns an error,
 * and everything else keeps working. (Without this library, MPICH 4.0 then returns a broken window
 * from MPI_Win_create_dynamic, and MPI_Win_free crashes.)
 */
#include "check.h"

enum { MOST = 2500 };

int main(int argc, char **argv)
{
    static MPI_Win wins[MOST];
    int made, code = MPI_SUCCESS;
    test_begin(&argc, &argv);
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    for (int round = 0; round < 2; round++) {
        for (made = 0; made < MOST; made++) {
            code = MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &wins[made]);
            if (code != MPI_SUCCESS)
                break;
        }
        EXPECT(made > 1500, "round %d: %d windows, then: %s", round, made, error_text(code));
        EXPECT(made == MOST || class_of(code) == MPI_ERR_OTHER, "class %d: %s", class_of(code),
               error_text(code));
        int least = made;
        MPI(MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
        EXPECT(least == made, "round %d: %d windows here, %d elsewhere", round, made, least);
        for (int w = 0; w < made; w++)
            MPI(MPI_Win_free(&wins[w]));
    }
    return test_end();
}
