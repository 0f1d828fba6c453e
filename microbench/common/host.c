#include "host.h"

#include <mpi.h>
#include <string.h>

const char *host_name(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    if (strstr(version, "Open MPI"))
        return "openmpi";
    if (strstr(version, "MPICH"))
        return "mpich";
    return "other";
}
