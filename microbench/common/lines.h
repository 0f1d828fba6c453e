/* Memory that two ranks of one node reach by load and store, and how far their processors are from each other. */
#ifndef MICROBENCH_LINES_H
#define MICROBENCH_LINES_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

struct lines {
    MPI_Comm comm;
    MPI_Win shared;
    char *mine, *theirs;
    int rank;
    bool apart; /* on two nodes: there is no such memory */
};

/* Collective over two ranks, as is all here. At least 4096 bytes each. */
struct lines open_lines(MPI_Comm, size_t bytes);
void close_lines(struct lines *);

/* A cache line from one rank to the other, in microseconds; the best that was seen. A virtual machine's processors move: it
 * is measured beside each figure. 0 for ranks of two nodes, which have no line in common. */
double half_round_trip(struct lines *);

#endif
