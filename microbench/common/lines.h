/*
 * Memory that two ranks of one node share by load and store; how far apart their processors are,
 * and how fast.
 */
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
    bool apart; /* the ranks are on two nodes and share no memory */
};

/* All functions are collective over two ranks. At least 4096 bytes each. */
struct lines open_lines(MPI_Comm, size_t bytes);
void close_lines(struct lines *);

/* Half a round trip of a cache line between the ranks, in microseconds: the minimum. Virtual
 * processors move, so this is measured beside each figure. 0 if the ranks are on two nodes. */
double half_round_trip(struct lines *);

/* Under which conditions a figure is measured, in microseconds. A virtual processor shares its
 * core with others, which nobody here sees. While one of them works, a copy takes up to twice as
 * long. */
struct conditions {
    double line; /* half_round_trip */
    double copy; /* 4 KiB within the nearest cache, by this rank: the median of two milliseconds */
    double peer_copy;
};
struct conditions conditions_of(struct lines *);

#endif
