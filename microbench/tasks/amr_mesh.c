#include "amr.h"

#include "tasks.h"

#include <mpi.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static long count_of(const struct mesh *mesh)
{
    return mesh->rows * mesh->columns;
}

/* Cells along an edge, and from one row to the next. */
static long edge(const struct patch *patch) { return setup.block << patch->level; }
static long width(const struct patch *patch) { return edge(patch) + 2; }

long mesh_cells(const struct patch *patch)
{
    return width(patch) * width(patch);
}

bool mesh_has(const struct mesh *mesh, long patch)
{
    return mesh->patches[patch].owner == setup.rank;
}

long mesh_neighbour(const struct mesh *mesh, long patch, enum side side)
{
    long row = patch / mesh->columns, column = patch % mesh->columns;
    switch (side) {
        case UP: row = (row + mesh->rows - 1) % mesh->rows; break;
        case DOWN: row = (row + 1) % mesh->rows; break;
        case LEFT: column = (column + mesh->columns - 1) % mesh->columns; break;
        default: column = (column + 1) % mesh->columns; break;
    }
    return row * mesh->columns + column;
}

/* The coarser of both decides: a fine neighbour sends means, and a fine receiver repeats values. */
long mesh_face(const struct mesh *mesh, long patch, enum side side)
{
    long mine = edge(&mesh->patches[patch]);
    long other = edge(&mesh->patches[mesh_neighbour(mesh, patch, side)]);
    return mine < other ? mine : other;
}

/* ---- Steps ---- */

/* Where the cells along a side begin, in the frame or inside of it, and how far they are apart. */
static double *along(const struct patch *patch, double *cells, enum side side, bool frame,
                     long *stride)
{
    long n = edge(patch), w = width(patch), near = frame ? 0 : 1, far = frame ? n + 1 : n;
    *stride = side == UP || side == DOWN ? 1 : w;
    switch (side) {
        case UP: return cells + near * w + 1;
        case DOWN: return cells + far * w + 1;
        case LEFT: return cells + w + near;
        default: return cells + w + far;
    }
}

void mesh_unpack(struct mesh *mesh, long at, long iteration)
{
    struct patch *patch = &mesh->patches[at];
    for (enum side side = UP; side < SIDES; side++) {
        long stride, n = edge(patch), fine = mesh_face(mesh, at, side) < n;
        double *to = along(patch, patch->cells[iteration % 2], side, true, &stride);
        const double *face = patch->face[side][iteration % 2];
        for (long i = 0; i < n; i++)
            to[i * stride] = face[i >> fine];
    }
}

void mesh_update(struct mesh *mesh, long at, long iteration)
{
    struct patch *patch = &mesh->patches[at];
    long n = edge(patch), w = width(patch);
    const double *old = patch->cells[iteration % 2] + w + 1;
    double *new = patch->cells[(iteration + 1) % 2] + w + 1;
    for (long i = 0; i < n; i++, old += w, new += w)
        for (long j = 0; j < n; j++)
            new[j] = 0.2 * (old[j] + old[j - w] + old[j - 1] + old[j + 1] + old[j + w]);
}

void mesh_pack(struct mesh *mesh, long at, long iteration)
{
    struct patch *patch = &mesh->patches[at];
    for (enum side side = UP; side < SIDES; side++) {
        struct patch *neighbour = &mesh->patches[mesh_neighbour(mesh, at, side)];
        long stride, count = mesh_face(mesh, at, side), fine = count < edge(patch);
        const double *from = along(patch, patch->cells[iteration % 2], side, false, &stride);
        double *to = patch->packed[side][iteration % 2];
        if (!to)
            to = neighbour->face[opposite(side)][iteration % 2];
        for (long i = 0; i < count; i++)
            to[i] = fine ? 0.5 * (from[2 * i * stride] + from[(2 * i + 1) * stride])
                         : from[i * stride];
    }
}

/* ---- Adapting ---- */

/* Twice the resolution near the disk, which moves in each epoch. */
static int level_in(const struct mesh *mesh, long patch, long epoch)
{
    double y = ((double)(patch / mesh->columns) + 0.5) / (double)mesh->rows;
    double x = ((double)(patch % mesh->columns) + 0.5) / (double)mesh->columns;
    double dy = fabs(y - fmod(0.3 + 0.21 * (double)epoch, 1.0));
    double dx = fabs(x - fmod(0.1 + 0.13 * (double)epoch, 1.0));
    dy = dy > 0.5 ? 1 - dy : dy;
    dx = dx > 0.5 ? 1 - dx : dx;
    return dx * dx + dy * dy < 0.0625;
}

/* The ranks' parts of the patches in their order, with equal costs. */
static int *owners_of(const struct mesh *mesh, const int *levels)
{
    int *owners = malloc((size_t)count_of(mesh) * sizeof *owners);
    long total = 0, before = 0;
    require(owners, "memory for owners");
    for (long at = 0; at < count_of(mesh); at++)
        total += levels[at] ? 4 : 1;
    for (long at = 0; at < count_of(mesh); at++) {
        owners[at] = mesh->alone ? setup.rank : (int)(before * setup.ranks / total);
        before += levels[at] ? 4 : 1;
    }
    return owners;
}

static void remove_faces(struct patch *patch)
{
    for (enum side side = UP; side < SIDES; side++) {
        for (int i = 0; i < 2; i++) {
            if (!patch->in[side].count) /* others end in memory of exchange_open */
                free(patch->face[side][i]);
            free(patch->packed[side][i]);
            patch->face[side][i] = patch->packed[side][i] = NULL;
        }
        patch->in[side] = patch->out[side] = (struct link){0};
    }
}

static void remove_cells(struct patch *patch)
{
    for (int i = 0; i < 2; i++) {
        free(patch->cells[i]);
        patch->cells[i] = NULL;
    }
}

static void add_cells(struct patch *patch)
{
    for (int i = 0; i < 2; i++) {
        patch->cells[i] = calloc((size_t)mesh_cells(patch), sizeof **patch->cells);
        require(patch->cells[i], "memory for a patch");
    }
}

/* Moves patches to their new owners, by messages in every version. */
static void move_patches(struct mesh *mesh, const int *owners)
{
    long moved = 0;
    MPI_Request *requests = malloc((size_t)count_of(mesh) * sizeof *requests);
    require(requests, "memory for requests");
    for (long at = 0; at < count_of(mesh); at++) {
        struct patch *patch = &mesh->patches[at];
        int from = patch->owner, to = owners[at], count = (int)mesh_cells(patch);
        if (from == setup.rank && to != from)
            MPI_Isend(patch->cells[0], count, MPI_DOUBLE, to, (int)at, MPI_COMM_WORLD,
                      &requests[moved++]);
        if (to == setup.rank && to != from) {
            add_cells(patch);
            MPI_Irecv(patch->cells[0], count, MPI_DOUBLE, from, (int)at, MPI_COMM_WORLD,
                      &requests[moved++]);
        }
    }
    for (long i = 0; i < moved; i++)
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    free(requests);
    for (long at = 0; at < count_of(mesh); at++) {
        mesh->patches[at].owner = owners[at];
        if (!mesh_has(mesh, at))
            remove_cells(&mesh->patches[at]);
    }
}

/* Repeats each cell four times, or takes the mean of four. */
static void change_level(struct patch *patch, int level)
{
    struct patch old = *patch;
    patch->level = level;
    add_cells(patch);
    long n = edge(patch), w = width(patch), old_w = width(&old);
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            const double *fine = old.cells[0] + (1 + 2 * i) * old_w + 1 + 2 * j;
            patch->cells[0][(1 + i) * w + 1 + j] =
                level ? old.cells[0][(1 + i / 2) * old_w + 1 + j / 2]
                      : 0.25 * (fine[0] + fine[1] + fine[old_w] + fine[old_w + 1]);
        }
    remove_cells(&old);
}

void mesh_adapt(struct mesh *mesh, long epoch)
{
    int *levels = malloc((size_t)count_of(mesh) * sizeof *levels);
    require(levels, "memory for levels");
    for (long at = 0; at < count_of(mesh); at++) {
        levels[at] = level_in(mesh, at, epoch);
        remove_faces(&mesh->patches[at]);
    }
    int *owners = owners_of(mesh, levels);
    move_patches(mesh, owners);
    for (long at = 0; at < count_of(mesh); at++) {
        struct patch *patch = &mesh->patches[at];
        if (patch->level != levels[at] && mesh_has(mesh, at))
            change_level(patch, levels[at]);
        patch->level = levels[at];
    }
    free(levels);
    free(owners);
}

void mesh_rewind(struct mesh *mesh, long iterations)
{
    for (long at = 0; at < count_of(mesh) && iterations % 2; at++) {
        struct patch *patch = &mesh->patches[at];
        double *odd = patch->cells[1];
        patch->cells[1] = patch->cells[0];
        patch->cells[0] = odd;
    }
}

/* ---- The mesh ---- */

struct mesh mesh_new(bool alone)
{
    struct mesh mesh = {.rows = setup.rows / setup.block, .columns = setup.columns / setup.block,
                        .alone = alone};
    mesh.patches = calloc((size_t)count_of(&mesh), sizeof *mesh.patches);
    require(mesh.patches, "memory for patches");
    return mesh;
}

static void clear(struct mesh *mesh)
{
    for (long at = 0; at < count_of(mesh); at++) {
        remove_faces(&mesh->patches[at]);
        remove_cells(&mesh->patches[at]);
    }
}

void mesh_reset(struct mesh *mesh)
{
    clear(mesh);
    for (long at = 0; at < count_of(mesh); at++) {
        struct patch *patch = &mesh->patches[at];
        patch->level = 0;
        patch->owner = mesh->alone ? setup.rank : (int)(at * setup.ranks / count_of(mesh));
        if (!mesh_has(mesh, at))
            continue;
        add_cells(patch);
        for (long i = 0; i < mesh_cells(patch); i++)
            patch->cells[0][i] = number_of(at * mesh_cells(patch) + i);
    }
}

void mesh_free(struct mesh *mesh)
{
    clear(mesh);
    free(mesh->patches);
}
