/* A matrix whose rows are dealt out in turns, its elimination, and the check of the result. */
#ifndef MATRIX_H
#define MATRIX_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

struct matrix {
    uint64_t m, rank, ranks, seed;
    uint64_t rows; /* of this rank */
    double *cells; /* those rows, one after the other */
};

/* Room for this rank's rows. False: no memory. */
bool matrix_open(struct matrix *, uint64_t m, int rank, int ranks, uint64_t seed);
void matrix_close(struct matrix *);

/* Random cells in (-1, 1), plus m on the diagonal: every row is dominated by its diagonal, so that elimination
 * without pivoting is stable. Every cell depends on its place and the seed alone. */
void matrix_fill(struct matrix *);

/* A row of this rank. */
double *matrix_row(const struct matrix *, uint64_t row);

/* Eliminates with a final row: `count` rows of this rank, from `first` on. Column j of it is pivot_row[j]. */
void matrix_update(struct matrix *, const double *pivot_row, uint64_t pivot, uint64_t first, uint64_t count);

struct verdict {
    double residual;   /* ||A - LU|| / (||A|| m eps), maximum norm of rows */
    uint64_t checksum; /* of all bits of L and U; the same for any ranks and series */
    bool right;        /* all numbers are finite, and the residual is small */
};

/* Collective. Takes about as long as the decomposition. */
struct verdict matrix_check(const struct matrix *, MPI_Comm);

#endif
