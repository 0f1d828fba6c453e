#define USES use mpi_f08
#define INCLUDES 
#define WIN type(MPI_Win)
#define REQUEST type(MPI_Request)
#define GROUP type(MPI_Group)
#include "blocking.inc"
