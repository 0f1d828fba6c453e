/* A matrix with its rows distributed cyclically, its elimination, and the check of the result. */
#ifndef MATRIX_H
#define MATRIX_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

struct matrix {
    uint64_t m, rank, ranks, seed;
    uint64_t rows; /* of this rank */
    double *cells; /* those rows, contiguous */
};

/* Allocates this rank's rows. Returns false if there is no memory. */
bool matrix_open(struct matrix *, uint64_t m, int rank, int ranks, uint64_t seed);
void matrix_close(struct matrix *);

/* Random cells in (-1, 1), plus m on the diagonal: the matrix is diagonally dominant, so
 * elimination without pivoting is stable. A cell depends only on its position and the seed. */
void matrix_fill(struct matrix *);

/* One row of this rank. */
double *matrix_row(const struct matrix *, uint64_t row);

/* Eliminates with a final row in `count` rows of this rank, from `first` on. Column j of it is
 * pivot_row[j]. */
void matrix_update(struct matrix *, const double *pivot_row, uint64_t pivot, uint64_t first,
                   uint64_t count);

struct verdict {
    double residual;   /* ||A - LU|| / (||A|| m eps), in the infinity norm */
    uint64_t checksum; /* over all bits of L and U; equal for all numbers of ranks and all series */
    bool right;        /* all numbers are finite, and the residual is small */
};

/* Collective. Takes about as long as the decomposition. */
struct verdict matrix_check(const struct matrix *, MPI_Comm);

#endif
