#define USES use mpi
#define INCLUDES 
#define CONSTANTS include 'mpix_rmaf.h'
#define WIN integer
#define REQUEST integer
#include "together.inc"
