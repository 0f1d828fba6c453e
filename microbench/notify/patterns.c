/*
 * Communication patterns of programs: a ring that forwards chunks, and a tree that sums. Every word
 * of the results is verified.
 */
#include "links.h"
#include "notify.h"

#include "../common/timing.h"

static const struct link_way *way;

static int64_t *out(int place, size_t bytes)
{
    return (int64_t *)(void *)(local + (size_t)place * apart(bytes));
}

/* Largest power of two slots that fits for each of some links. */
static int depth_of(size_t bytes, int links)
{
    int depth = PLACES / 2;
    while (depth > 1 && (size_t)(links * depth) * apart(bytes) > LARGEST)
        depth /= 2;
    return depth;
}

/*
 * The ring: rank 0 creates chunks; each other rank adds 1 to a chunk's words and forwards it; rank
 * 0 verifies what returns. Each rank has slots for `depth` chunks, so that all ranks work at once.
 * A slot becomes free when its chunk was forwarded.
 */
static double stencil(size_t bytes, long rounds)
{
    const int depth = depth_of(bytes, 1), next = (rank + 1) % ranks,
              before = (rank + ranks - 1) % ranks;
    const size_t words = bytes / sizeof(int64_t);
    const long behind = depth; /* chunks in flight */
    int64_t wrong = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_us();
    for (long k = 0; k < rounds + (rank == 0 ? behind : 0); k++) {
        int place = (int)(k % depth);
        if (rank != 0) {
            const int64_t *in = way->take(before, place, bytes);
            if (k >= depth)
                way->await_clear(next, place);
            int64_t *to = out(place, bytes);
            for (size_t i = 0; i < words; i++)
                to[i] = in[i] + 1;
            way->clear(before, place);
            way->pass(next, place, to, bytes);
            continue;
        }
        if (k >= behind) {
            int came = (int)((k - behind) % depth);
            const int64_t *in = way->take(before, came, bytes);
            for (size_t i = 0; i < words; i++)
                wrong |= in[i] ^ (k - behind + (int64_t)i + ranks - 1);
            way->clear(before, came);
        }
        if (k < rounds) {
            if (k >= depth)
                way->await_clear(next, place);
            int64_t *to = out(place, bytes);
            for (size_t i = 0; i < words; i++)
                to[i] = k + (int64_t)i;
            way->pass(next, place, to, bytes);
        }
    }
    for (long k = rounds > depth ? rounds - depth : 0; k < rounds; k++)
        way->await_clear(next, (int)(k % depth));
    double took = now_us() - begin;
    right &= wrong == 0;
    return took / (double)rounds;
}

/*
 * The tree: each rank adds its children's sums to its own words and forwards the result; rank 0
 * verifies the total. Each child has `depth` slots, so it may start the next sums. Rounds follow
 * each other as fast as possible.
 */
static double reduction(size_t bytes, long rounds)
{
    const size_t words = bytes / sizeof(int64_t);
    const int parent = (rank - 1) / 2, side = (rank - 1) % 2;
    const int depth = depth_of(bytes, 2);
    int64_t wrong = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_us();
    for (long k = 0; k < rounds; k++) {
        int64_t *sum = out((int)(k % depth), bytes);
        if (rank != 0 && k >= depth)
            way->await_clear(parent, side * depth + (int)(k % depth));
        for (size_t i = 0; i < words; i++)
            sum[i] = k + (int64_t)i + rank;
        for (int child = 0; child < 2 && 2 * rank + 1 + child < ranks; child++) {
            int from = 2 * rank + 1 + child, place = child * depth + (int)(k % depth);
            const int64_t *in = way->take(from, place, bytes);
            for (size_t i = 0; i < words; i++)
                sum[i] += in[i];
            way->clear(from, place);
        }
        if (rank != 0) {
            way->pass(parent, side * depth + (int)(k % depth), sum, bytes);
            continue;
        }
        for (size_t i = 0; i < words; i++)
            wrong |= sum[i] ^ ((k + (int64_t)i) * ranks + (int64_t)ranks * (ranks - 1) / 2);
    }
    for (long k = rounds > depth ? rounds - depth : 0; rank != 0 && k < rounds; k++)
        way->await_clear(parent, side * depth + (int)(k % depth));
    double took = now_us() - begin;
    right &= wrong == 0;
    return took / (double)rounds;
}

void measure_patterns(size_t bytes, const struct timing *timing)
{
    for (int w = 0; w < link_way_count; w++) {
        way = &link_ways[w];
        measure("stencil", way->name, bytes, false, timing, stencil);
        if (2 * bytes <= LARGEST)
            measure("reduction", way->name, bytes, false, timing, reduction);
    }
}
