/*
 * The communication of miniAMR, adaptive mesh refinement [2021, VI.B]: patches of a mesh (amr.h)
 * exchange faces of two sizes, and every few iterations patches change their resolution and their
 * owner. After that, neighbours agree where in the receiver's memory each face goes, and on the
 * counter that tells of it.
 *
 * Each face has two places, for even and odd iterations. They need no acknowledgements: a rank that
 * has got the face of iteration i from a neighbour knows that the neighbour has used that of i - 1.
 */
#include "amr.h"

#include "exchange.h"
#include "graph.h"
#include "tasks.h"

#include <mpi.h>

#include <stdlib.h>
#include <string.h>

enum { EPOCH = 20 }; /* iterations between two adaptations */

static struct mesh mesh, expected;
static double *received; /* faces from other ranks */
static long length;      /* iterations of this epoch */
static MPI_Request *requests;

static long patches(void)
{
    return mesh.rows * mesh.columns;
}

static bool is_foreign(long patch, enum side side)
{
    return !mesh_has(&mesh, mesh_neighbour(&mesh, patch, side));
}

/* ---- After an adaptation ---- */

static double *new_face(size_t count)
{
    double *face = malloc(count * sizeof *face);
    require(face, "memory for a face");
    return face;
}

/* Gives each face of other ranks two places and a counter. */
static void add_links(struct mesh *of)
{
    size_t place = 0;
    int counters = 0;
    for (long at = 0; at < of->rows * of->columns; at++)
        for (enum side side = UP; side < SIDES && mesh_has(of, at); side++) {
            struct patch *patch = &of->patches[at];
            size_t count = (size_t)mesh_face(of, at, side);
            long neighbour = mesh_neighbour(of, at, side);
            bool foreign = !mesh_has(of, neighbour);
            for (size_t i = 0; i < 2; i++) {
                patch->face[side][i] = foreign ? received + place + i * count : new_face(count);
                patch->packed[side][i] = foreign ? new_face(count) : NULL;
            }
            if (!foreign)
                continue;
            patch->in[side] = (struct link){.peer = of->patches[neighbour].owner,
                                            .number = counters++, .place = place, .count = count};
            place += 2 * count;
        }
}

/* A face's tag is made of the patch that it goes to, and of the side there. */
static int tag_of(long patch, enum side side)
{
    return (int)(SIDES * patch + side);
}

/* Tells neighbours where to put faces. */
static void agree(void)
{
    MPI_Request *r = requests;
    for (long at = 0; at < patches(); at++)
        for (enum side side = UP; side < SIDES && mesh_has(&mesh, at); side++) {
            struct patch *patch = &mesh.patches[at];
            int size = sizeof(struct link), peer = patch->in[side].peer;
            int theirs = tag_of(mesh_neighbour(&mesh, at, side), opposite(side));
            if (!is_foreign(at, side))
                continue;
            MPI_Isend(&patch->in[side], size, MPI_BYTE, peer, tag_of(at, side), MPI_COMM_WORLD,
                      r++);
            MPI_Irecv(&patch->out[side], size, MPI_BYTE, peer, theirs, MPI_COMM_WORLD, r++);
        }
    while (r > requests)
        MPI_Wait(--r, MPI_STATUS_IGNORE);
    for (long at = 0; at < patches(); at++)
        for (enum side side = UP; side < SIDES && mesh_has(&mesh, at); side++) {
            struct patch *patch = &mesh.patches[at];
            patch->out[side].peer = patch->in[side].peer;
            if (!exchange_is_notified()) { /* a message has one tag on both sides */
                patch->in[side].number = tag_of(at, side);
                patch->out[side].number = tag_of(mesh_neighbour(&mesh, at, side), opposite(side));
            }
        }
}

/* ---- Tasks ---- */

static void compute(long iteration, long at, long unused)
{
    (void)unused;
    mesh_unpack(&mesh, at, iteration);
    mesh_update(&mesh, at, iteration);
    mesh_pack(&mesh, at, iteration + 1);
}

static void receive(long iteration, long at, long side)
{
    struct patch *patch = &mesh.patches[at];
    exchange_receive(&patch->in[side], patch->face[side][iteration % 2], iteration + 1);
}

static void send(long iteration, long at, long side)
{
    struct patch *patch = &mesh.patches[at];
    struct link link = patch->out[side];
    link.place += (size_t)(iteration % 2) * link.count;
    exchange_send(&link, patch->packed[side][iteration % 2]);
}

/* The faces of one patch. `tasks`: those that compute. */
static void add_faces(struct graph *graph, long at, struct node **tasks)
{
    for (enum side side = UP; side < SIDES; side++) {
        if (!is_foreign(at, side)) { /* it computes from what the neighbour has packed */
            graph_order_next(tasks[at], tasks[mesh_neighbour(&mesh, at, side)]);
            continue;
        }
        struct node *receiver = graph_add(graph, receive, at, side);
        struct node *sender = graph_add(graph, send, at, side);
        graph_order(receiver, tasks[at]);
        graph_order_next(tasks[at], receiver);
        graph_order(sender, tasks[at]);
        graph_order_next(tasks[at], sender);
    }
}

static void run_tasks(void)
{
    struct graph *graph = graph_new();
    struct node **tasks = calloc((size_t)patches(), sizeof *tasks);
    require(tasks, "memory for tasks");
    for (long at = 0; at < patches(); at++)
        if (mesh_has(&mesh, at)) {
            tasks[at] = graph_add(graph, compute, at, 0);
            graph_order_next(tasks[at], tasks[at]);
        }
    for (long at = 0; at < patches(); at++)
        if (tasks[at])
            add_faces(graph, at, tasks);
    graph_run(graph, length);
    graph_free(graph);
    free(tasks);
}

static void run_without_tasks(void)
{
    for (long iteration = 0; iteration < length; iteration++) {
        MPI_Request *r = requests;
        for (long at = 0; at < patches(); at++)
            for (enum side side = UP; side < SIDES && mesh_has(&mesh, at); side++) {
                struct patch *patch = &mesh.patches[at];
                const struct link *in = &patch->in[side], *out = &patch->out[side];
                if (!in->count)
                    continue;
                MPI_Irecv(patch->face[side][iteration % 2], (int)in->count, MPI_DOUBLE, in->peer,
                          in->number, MPI_COMM_WORLD, r++);
                MPI_Isend(patch->packed[side][iteration % 2], (int)out->count, MPI_DOUBLE,
                          out->peer, out->number, MPI_COMM_WORLD, r++);
            }
        while (r > requests)
            MPI_Wait(--r, MPI_STATUS_IGNORE);
        for (long at = 0; at < patches(); at++)
            if (mesh_has(&mesh, at))
                compute(iteration, at, 0);
    }
}

/* ---- The program ---- */

static long length_of(long epoch)
{
    long left = setup.iterations - epoch * EPOCH;
    return left < EPOCH ? left : EPOCH;
}

static void compute_expected(void)
{
    expected = mesh_new(true);
    mesh_reset(&expected);
    for (long epoch = 0; (length = length_of(epoch)) > 0; epoch++) {
        mesh_adapt(&expected, epoch);
        add_links(&expected);
        for (long at = 0; at < patches(); at++)
            mesh_pack(&expected, at, 0);
        for (long i = 0; i < length; i++) {
            for (long at = 0; at < patches(); at++) {
                mesh_unpack(&expected, at, i);
                mesh_update(&expected, at, i);
            }
            for (long at = 0; at < patches(); at++)
                mesh_pack(&expected, at, i + 1);
        }
        mesh_rewind(&expected, length);
    }
}

static void open_program(void)
{
    require(setup.rows % (2 * setup.block) == 0 && setup.columns % (2 * setup.block) == 0,
            "amr: rows and columns must be multiples of two blocks");
    mesh = mesh_new(false);
    /* A rank may get almost all patches, and all faces may be large. */
    received = exchange_open((size_t)(SIDES * patches() * 2 * 2 * setup.block),
                             SIDES * (int)patches());
    requests = malloc((size_t)(2 * SIDES * patches()) * sizeof *requests);
    require(requests, "memory for requests");
    compute_expected();
}

static void reset(void)
{
    exchange_reset();
    mesh_reset(&mesh);
}

static void run(void)
{
    for (long epoch = 0; (length = length_of(epoch)) > 0; epoch++) {
        delay(epoch);
        mesh_adapt(&mesh, epoch);
        add_links(&mesh);
        agree();
        exchange_reset();
        for (long at = 0; at < patches(); at++)
            if (mesh_has(&mesh, at))
                mesh_pack(&mesh, at, 0);
        if (setup.version == PURE)
            run_without_tasks();
        else
            run_tasks();
        mesh_rewind(&mesh, length);
    }
}

static long wrong(void)
{
    long found = 0;
    for (long at = 0; at < patches(); at++) {
        const struct patch *patch = &mesh.patches[at], *right = &expected.patches[at];
        long n = setup.block << patch->level;
        for (long i = 0; i < n * n && mesh_has(&mesh, at); i++) {
            long cell = (1 + i / n) * (n + 2) + 1 + i % n;
            found += patch->level != right->level || patch->cells[0][cell] != right->cells[0][cell];
        }
    }
    return found;
}

static void close_program(void)
{
    mesh_free(&mesh);
    mesh_free(&expected);
    free(requests);
    exchange_close();
}

const struct program amr = {
    "amr",
    1u << PURE | 1u << BLOCKING | 1u << TWO_SIDED | 1u << NOTIFIED | 1u << TWO_SIDED_CONT
        | 1u << NOTIFIED_CONT,
    open_program, reset, run, wrong, close_program,
};
