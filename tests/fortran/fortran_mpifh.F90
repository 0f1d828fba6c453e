#define USES 
#define INCLUDES include 'mpif.h'
#define WIN integer
#define REQUEST integer
#define GROUP integer
#include "blocking.inc"
