#include "matrix.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double TOLERABLE = 10.0;

static uint64_t rows_of(uint64_t m, uint64_t rank, uint64_t ranks)
{
    return rank < m ? (m - 1 - rank) / ranks + 1 : 0;
}

static double *room(uint64_t rows, uint64_t m)
{
    if (rows > SIZE_MAX / sizeof(double) / m)
        return NULL;
    return malloc(rows > 0 ? (size_t)(rows * m) * sizeof(double) : 1);
}

bool matrix_open(struct matrix *a, uint64_t m, int rank, int ranks, uint64_t seed)
{
    uint64_t own = rows_of(m, (uint64_t)rank, (uint64_t)ranks);
    *a = (struct matrix){m, (uint64_t)rank, (uint64_t)ranks, seed, own, NULL};
    a->cells = room(a->rows, m);
    return a->cells != NULL;
}

void matrix_close(struct matrix *a)
{
    free(a->cells);
}

/* splitmix64 */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void original_row(const struct matrix *a, uint64_t row, double *cells)
{
    uint64_t seed = mix(a->seed ^ mix(row));
    for (uint64_t j = 0; j < a->m; j++)
        cells[j] = (double)(mix(seed + j) >> 11) * 0x1p-52 - 1.0;
    cells[row] += (double)a->m;
}

double *matrix_row(const struct matrix *a, uint64_t row)
{
    return a->cells + row / a->ranks * a->m;
}

void matrix_fill(struct matrix *a)
{
    for (uint64_t k = 0; k < a->rows; k++)
        original_row(a, a->rank + k * a->ranks, a->cells + k * a->m);
}

/* row -= factor * other, from column `from` on */
static void subtract(double *restrict row, const double *restrict other, double factor,
                     uint64_t from, uint64_t m)
{
    for (uint64_t j = from; j < m; j++)
        row[j] -= factor * other[j];
}

void matrix_update(struct matrix *a, const double *pivot_row, uint64_t pivot, uint64_t first,
                   uint64_t count)
{
    for (uint64_t k = 0; k < count; k++) {
        double *row = matrix_row(a, first + k * a->ranks);
        row[pivot] /= pivot_row[pivot];
        subtract(row, pivot_row, row[pivot], pivot + 1, a->m);
    }
}

static void no_memory(void)
{
    fprintf(stderr, "lu: no memory for the check\n");
    MPI_Abort(MPI_COMM_WORLD, 3);
}

/* Infinity norm of the rows; counts rows that are not finite. */
static double norm(const double *cells, uint64_t rows, uint64_t m, double *wild)
{
    double largest = 0.0;
    for (uint64_t k = 0; k < rows; k++) {
        double sum = 0.0;
        for (uint64_t j = 0; j < m; j++)
            sum += fabs(cells[k * m + j]);
        if (!isfinite(sum))
            ++*wild;
        else if (sum > largest)
            largest = sum;
    }
    return largest;
}

/* left -= L U, with the rows of U of one rank after the other, by the host's own broadcast. */
static void subtract_product(const struct matrix *a, double *left, MPI_Comm comm)
{
    MPI_Datatype row_type;
    MPI_Type_contiguous((int)a->m, MPI_DOUBLE, &row_type);
    MPI_Type_commit(&row_type);
    double *upper = room(rows_of(a->m, 0, a->ranks), a->m);
    if (upper == NULL)
        no_memory();
    for (uint64_t root = 0; root < a->ranks; root++) {
        uint64_t rows = rows_of(a->m, root, a->ranks);
        if (root == a->rank)
            memcpy(upper, a->cells, rows * a->m * sizeof *upper);
        MPI_Bcast(upper, (int)rows, row_type, (int)root, comm);
        for (uint64_t i = 0; i < a->rows; i++) {
            uint64_t row = a->rank + i * a->ranks;
            for (uint64_t k = root; k <= row; k += a->ranks)
                subtract(left + i * a->m, upper + k / a->ranks * a->m,
                         k == row ? 1.0 : a->cells[i * a->m + k], k, a->m);
        }
    }
    free(upper);
    MPI_Type_free(&row_type);
}

static uint64_t checksum_of(const struct matrix *a)
{
    uint64_t sum = 0;
    for (uint64_t k = 0; k < a->rows; k++)
        for (uint64_t j = 0; j < a->m; j++) {
            uint64_t bits, place = (a->rank + k * a->ranks) * a->m + j;
            memcpy(&bits, &a->cells[k * a->m + j], sizeof bits);
            sum += mix(bits ^ mix(place));
        }
    return sum;
}

struct verdict matrix_check(const struct matrix *a, MPI_Comm comm)
{
    double *left = room(a->rows, a->m), wild = 0.0, all_wild, mine[2], all[2];
    if (left == NULL)
        no_memory();
    for (uint64_t k = 0; k < a->rows; k++)
        original_row(a, a->rank + k * a->ranks, left + k * a->m);
    mine[0] = norm(left, a->rows, a->m, &wild);
    subtract_product(a, left, comm);
    mine[1] = norm(left, a->rows, a->m, &wild);
    free(left);

    struct verdict verdict;
    uint64_t checksum = checksum_of(a);
    MPI_Allreduce(mine, all, 2, MPI_DOUBLE, MPI_MAX, comm);
    MPI_Allreduce(&wild, &all_wild, 1, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Allreduce(&checksum, &verdict.checksum, 1, MPI_UINT64_T, MPI_SUM, comm);
    verdict.residual = all_wild > 0.0 ? NAN : all[1] / (all[0] * (double)a->m * DBL_EPSILON);
    verdict.right = verdict.residual <= TOLERABLE;
    return verdict;
}
