/*
 * A mesh of patches of two levels, periodic in both dimensions. A disk moves over it; patches near
 * the disk have twice the resolution. Patches are divided over ranks by their cost.
 */
#ifndef TASKS_AMR_H
#define TASKS_AMR_H

#include "exchange.h"

#include <stdbool.h>

enum side { UP, DOWN, LEFT, RIGHT, SIDES };

struct patch {
    int level, owner;
    double *cells[2];         /* with a frame of one cell; those of iteration i and of i + 1 */
    double *face[SIDES][2];   /* what comes from the neighbours, for iteration i and for i + 1 */
    double *packed[SIDES][2]; /* what goes to another rank, or NULL */
    struct link in[SIDES], out[SIDES]; /* of faces from and to other ranks */
};

struct mesh {
    long rows, columns; /* of patches */
    bool alone;         /* this rank has all patches */
    struct patch *patches;
};

struct mesh mesh_new(bool alone);
void mesh_free(struct mesh *);
/* All patches get their cells of the beginning, in the coarse level. */
void mesh_reset(struct mesh *);

/* Moves the disk to where it is in this epoch: changes levels, moves patches between ranks, and
 * removes all faces. */
void mesh_adapt(struct mesh *, long epoch);
/* Cells of iteration `iterations` become those of iteration 0. */
void mesh_rewind(struct mesh *, long iterations);

static inline enum side opposite(enum side side)
{
    return side ^ 1;
}

bool mesh_has(const struct mesh *, long patch);
/* Patch behind a side of this one, and how many values it gets from there. */
long mesh_neighbour(const struct mesh *, long patch, enum side);
long mesh_face(const struct mesh *, long patch, enum side);
/* Cells of a patch, with its frame. */
long mesh_cells(const struct patch *);

/* One step of a patch: its faces of this iteration are there. */
void mesh_unpack(struct mesh *, long patch, long iteration);
void mesh_update(struct mesh *, long patch, long iteration);
/* Packs what the neighbours need in this iteration, to where they or the messages read it. */
void mesh_pack(struct mesh *, long patch, long iteration);

#endif
