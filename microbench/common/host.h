/* Which MPI library this is, for the "host" key of the results. */
#ifndef MICROBENCH_HOST_H
#define MICROBENCH_HOST_H

/* "mpich", "openmpi" or "other". */
const char *host_name(void);

#endif
