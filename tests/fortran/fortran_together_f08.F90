#define USES use mpi_f08; use mpix_rma_f08
#define INCLUDES 
#define CONSTANTS 
#define WIN type(MPI_Win)
#define REQUEST type(MPI_Request)
#include "together.inc"
