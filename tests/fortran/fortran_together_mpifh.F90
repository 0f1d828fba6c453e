#define USES 
#define INCLUDES include 'mpif.h'
#define CONSTANTS include 'mpix_rmaf.h'
#define WIN integer
#define REQUEST integer
#include "together.inc"
