#define USES use mpi
#define INCLUDES 
#define WIN integer
#define REQUEST integer
#define GROUP integer
#include "blocking.inc"
