/*
 * What the checks of persistent collectives share: their communicator, contents that tell start,
 * origin and target, and every call with them.
 */
#ifndef PERSISTENT_CALLS_H
#define PERSISTENT_CALLS_H

#include "check.h"

static MPI_Comm comm; /* that of the checks */
static int rank, size, is_host;
/* The processes are on several nodes. */
static int is_apart;

static void use(MPI_Comm next)
{
    MPI_Comm node;
    int mates;
    comm = next;
    MPI(MPI_Comm_rank(comm, &rank));
    MPI(MPI_Comm_size(comm, &size));
    MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    MPI(MPI_Comm_size(node, &mates));
    MPI(MPI_Comm_free(&node));
    is_apart = mates < size;
}

static void run(MPI_Request *request)
{
    MPI(MPI_Start(request));
    MPI(MPI_Wait(request, MPI_STATUS_IGNORE));
}

/* The item `at` that process `from` has for process `to` in the i-th start. */
static int item(int i, int from, int to, int at)
{
    return i * 1009 + from * 101 + to * 31 + at * 7 + 1;
}

/* Memory of a window for buffers, if a check uses some: all processes can read there in place. */
static char *pool;
static size_t pool_room, pool_used;

/* Room for the bytes of a buffer, and one more. The pool's is free again when all of it is. */
static void *buffer(size_t bytes)
{
    size_t room = (bytes + 64) / 64 * 64;
    void *found = pool ? pool + pool_used : malloc(room);
    pool_used += pool ? room : 0;
    REQUIRE(found && (!pool || pool_used <= pool_room));
    return found;
}

static void done_with(void *found)
{
    if (pool)
        pool_used = 0;
    else
        free(found);
}

static int *ints(int n)
{
    int *all = buffer((n + 1) * sizeof *all);
    for (int i = 0; i <= n; i++)
        all[i] = -1;
    return all;
}

/* Sum over processes 0..upto-1 of their items for `to`. */
static int sum(int i, int upto, int to, int at)
{
    int all = 0;
    for (int r = 0; r < upto; r++)
        all += item(i, r, to, at);
    return all;
}

#define SAME(got, wanted, what)                                                                    \
    do {                                                                                           \
        int got_ = (got), wanted_ = (wanted);                                                      \
        EXPECT(got_ == wanted_, "%s of %d, start %d, item %d: %d instead of %d", what, n, i, at,   \
               got_, wanted_);                                                                     \
    } while (0)

/* Broadcast and reductions of n ints, `times` starts each. */
static void reductions(int n, int times, int in_place)
{
    int root = size - 1, *in = ints(n * size), *out = ints(n * size);
    MPI_Request bcast, reduce, allreduce, scan, exscan, block, scatter;
    int *counts = ints(size), mine = rank % 2 ? n / 2 : n, before = 0, total = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = r % 2 ? n / 2 : n;
        before += r < rank ? counts[r] : 0;
        total += counts[r];
    }
    const void *from = in_place ? MPI_IN_PLACE : in;
    int *source = in_place ? out : in;
    MPI(MPIX_Bcast_init(out, n, MPI_INT, root, comm, MPI_INFO_NULL, &bcast));
    MPI(MPIX_Reduce_init(in_place && rank != root ? out : from, out, n, MPI_INT, MPI_SUM, root,
                         comm, MPI_INFO_NULL, &reduce));
    MPI(MPIX_Allreduce_init(from, out, n, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &allreduce));
    MPI(MPIX_Scan_init(from, out, n, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &scan));
    MPI(MPIX_Exscan_init(from, out, n, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &exscan));
    MPI(MPIX_Reduce_scatter_block_init(from, out, n, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL,
                                       &block));
    MPI(MPIX_Reduce_scatter_init(from, out, counts, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL,
                                 &scatter));
    for (int i = 0; i < times; i++) {
        for (int at = 0; at < n; at++)
            out[at] = rank == root ? item(i, root, 0, at) : -1;
        out[n] = -1;
        run(&bcast);
        for (int at = 0; at < n; at++)
            SAME(out[at], item(i, root, 0, at), "bcast");
        EXPECT(out[n] == -1, "bcast has written behind its buffer");

#define FILL                                                                                       \
    for (int at = 0; at < n; at++) {                                                               \
        out[at] = -1;                                                                              \
        source[at] = item(i, rank, 0, at);                                                         \
    }
        FILL run(&reduce);
        for (int at = 0; at < n && rank == root; at++)
            SAME(out[at], sum(i, size, 0, at), "reduce");
        FILL run(&allreduce);
        for (int at = 0; at < n; at++)
            SAME(out[at], sum(i, size, 0, at), "allreduce");
        for (int at = 0; at < n && !in_place; at++)
            SAME(in[at], item(i, rank, 0, at), "send buffer");
        FILL run(&scan);
        for (int at = 0; at < n; at++)
            SAME(out[at], sum(i, rank + 1, 0, at), "scan");
        FILL run(&exscan);
        for (int at = 0; at < n && rank > 0; at++)
            SAME(out[at], sum(i, rank, 0, at), "exscan");
        for (int at = 0; at < n * size; at++)
            source[at] = item(i, rank, 0, at);
        run(&block);
        for (int at = 0; at < n; at++)
            SAME(out[at], sum(i, size, 0, rank * n + at), "reduce_scatter_block");
        for (int at = 0; at < total; at++)
            source[at] = item(i, rank, 0, at);
        run(&scatter);
        for (int at = 0; at < mine; at++)
            SAME(out[at], sum(i, size, 0, before + at), "reduce_scatter");
    }
    MPI_Request *all[] = {&bcast, &reduce, &allreduce, &scan, &exscan, &block, &scatter};
    for (unsigned k = 0; k < sizeof all / sizeof *all; k++)
        MPI(MPI_Request_free(all[k]));
    done_with(in), done_with(out), done_with(counts);
}

/* The calls that move data. Process r has r % 3 fewer items in those with lists. */
static void movements(int n, int times, int in_place)
{
    int root = 0, *in = ints(n * size), *out = ints(n * size);
    int *counts = ints(size), *places = ints(size), *bytes = ints(size);
    MPI_Datatype *types = malloc(size * sizeof *types);
    REQUIRE(types);
    for (int r = 0; r < size; r++) {
        counts[r] = n > r % 3 ? n - r % 3 : 0;
        places[r] = (size - 1 - r) * n;
        bytes[r] = places[r] * (int)sizeof(int);
        types[r] = MPI_INT;
    }
    int mine = counts[rank];
    /* To each other, processes send what the one with fewer has. */
    int *pairs = ints(size);
    for (int r = 0; r < size; r++)
        pairs[r] = counts[r] < mine ? counts[r] : mine;
    enum { GATHER, GATHERV, SCATTER, SCATTERV, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV,
           ALLTOALLW, CALLS };
    MPI_Request request[CALLS];
    const void *own = in_place ? MPI_IN_PLACE : in;
    int is_root = rank == root;
    MPI(MPIX_Gather_init(is_root ? own : in, n, MPI_INT, out, n, MPI_INT, root, comm, MPI_INFO_NULL,
                         &request[GATHER]));
    MPI(MPIX_Gatherv_init(is_root ? own : in, mine, MPI_INT, out, is_root ? counts : NULL,
                          is_root ? places : NULL, MPI_INT, root, comm, MPI_INFO_NULL,
                          &request[GATHERV]));
    void *to = in_place && is_root ? MPI_IN_PLACE : out;
    MPI(MPIX_Scatter_init(in, n, MPI_INT, to, n, MPI_INT, root, comm, MPI_INFO_NULL,
                          &request[SCATTER]));
    MPI(MPIX_Scatterv_init(in, is_root ? counts : NULL, is_root ? places : NULL, MPI_INT, to, mine,
                           MPI_INT, root, comm, MPI_INFO_NULL, &request[SCATTERV]));
    MPI(MPIX_Allgather_init(own, n, MPI_INT, out, n, MPI_INT, comm, MPI_INFO_NULL,
                            &request[ALLGATHER]));
    MPI(MPIX_Allgatherv_init(own, mine, MPI_INT, out, counts, places, MPI_INT, comm, MPI_INFO_NULL,
                             &request[ALLGATHERV]));
    MPI(MPIX_Alltoall_init(own, n, MPI_INT, out, n, MPI_INT, comm, MPI_INFO_NULL,
                           &request[ALLTOALL]));
    MPI(MPIX_Alltoallv_init(own, pairs, places, MPI_INT, out, pairs, places, MPI_INT, comm,
                            MPI_INFO_NULL, &request[ALLTOALLV]));
    MPI(MPIX_Alltoallw_init(own, pairs, bytes, types, out, pairs, bytes, types, comm, MPI_INFO_NULL,
                            &request[ALLTOALLW]));
    for (int i = 0; i < times; i++)
        for (int call = 0; call < CALLS; call++) {
            static const char *const names[] = {"gather", "gatherv", "scatter", "scatterv",
                                                "allgather", "allgatherv", "alltoall", "alltoallv",
                                                "alltoallw"};
            int listed = call == GATHERV || call == SCATTERV || call == ALLGATHERV ||
                         call >= ALLTOALLV;
            int all_to_all = call >= ALLTOALL, scatter = call == SCATTER || call == SCATTERV;
            for (int at = 0; at < n * size; at++)
                in[at] = out[at] = -1;
            /* What this process sends. */
            for (int r = 0; r < size; r++)
                for (int at = 0; at < n; at++) {
                    int *base = (listed ? places[r] : r * n) + (in_place && all_to_all ? out : in);
                    if (all_to_all || (scatter && is_root))
                        base[at] = item(i, rank, r, at);
                }
            int *kept = out + (listed ? places[rank] : rank * n);
            int keeps = in_place && !all_to_all && !scatter && (call > SCATTERV || is_root);
            for (int at = 0; at < n && !all_to_all && !scatter; at++)
                (keeps ? kept : in)[at] = item(i, rank, 0, at);
            run(&request[call]);
            /* What it has received. */
            if (scatter) {
                int *base = in_place && is_root ? in + (listed ? places[rank] : rank * n) : out;
                for (int at = 0; at < (listed ? mine : n); at++)
                    SAME(base[at], item(i, root, rank, at), names[call]);
                continue;
            }
            for (int r = 0; r < size && (is_root || call > SCATTERV); r++) {
                int *base = out + (listed ? places[r] : r * n);
                int number = !listed ? n : all_to_all ? pairs[r] : counts[r];
                for (int at = 0; at < number; at++)
                    SAME(base[at], item(i, r, all_to_all ? rank : 0, at), names[call]);
                for (int at = number; at < n && listed && !in_place; at++)
                    SAME(base[at], -1, "gap");
            }
        }
    for (int call = 0; call < CALLS; call++)
        MPI(MPI_Request_free(&request[call]));
    free(types);
    done_with(in), done_with(out), done_with(counts), done_with(places), done_with(bytes);
    done_with(pairs);
}

#endif
