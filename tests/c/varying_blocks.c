/*
 * MPI_Gatherv, MPI_Scatterv, MPI_Alltoallv and MPI_Alltoallw with random lengths [CL-1]: none,
 * short ones, lengths around the limits of the library, long ones; dense and derived datatypes, in
 * place, every root. On communicators whose neighbouring ranks share a node, or do not, and with a
 * node that has one process.
 *
 *   varying_blocks [ROUNDS]
 */
#include "check.h"

enum { RANKS = 16, LONGEST = 200000, GUARD = 16, UNTOUCHED = 0xee };

static MPI_Comm comm;
static int rank, size;
static MPI_Datatype types[3];
static const int stride[] = {1, 2, 3}; /* bytes from one byte to the next */

static unsigned number(int round, int a, int b)
{
    uint64_t seed = (uint64_t)round * 1000003u + (uint64_t)(a * 64 + b);
    return (unsigned)(next_random(&seed) >> 33);
}

static unsigned char value(int round, int from, int to, int at)
{
    return (unsigned char)(round * 29 + from * 83 + to * 47 + at * 11 + at / 253);
}

/* The length of the block that `from` gives to `to` in a round. */
static int length(int round, int from, int to)
{
    /* What a process publishes, and a message between nodes, has up to 8 KiB. A block takes some
     * bytes more than its data. */
    static const int limits[] = {8192, 8186, 8180, 8184, 8176, 8168, 4096, 4090, 2730, 2724};
    unsigned random = number(round, from, to);
    int limit = limits[number(round, 60, 0) % 10] + (int)(number(round, 61, 0) % 3) - 1;
    switch (round % 7) {
    case 0: return random % 3 ? 0 : (int)(random % 8);
    case 1: return (int)(random % 100);
    case 2: return random % 4 ? (int)(random % 40) : (int)(random % 3000);
    case 3: /* one block of the round */
        return from == (int)(number(round, 62, 0) % size) && (to + from) % size == round / 7 % size
                   ? limit
                   : 0;
    case 4: return limit / (size > 1 ? size - 1 : 1) + (int)(random % 2);
    case 5: return from == round % size ? limit : (int)(random % 20);
    default: return random % 5 ? (int)(random % 64) : (int)(random % LONGEST);
    }
}

/* Blocks of the ranks, each with a gap behind it. */
typedef struct {
    unsigned char *data;
    int kind, counts[RANKS], places[RANKS], bytes;
} Blocks;

static Blocks blocks(const int *counts, int round, int salt)
{
    Blocks b = {NULL, (int)(number(round, rank, salt) % 3), {0}, {0}, 0};
    int at = 0;
    for (int i = 0; i < size; i++) {
        int r = number(round, 63, salt) % 2 ? size - 1 - i : i;
        b.counts[r] = counts[r];
        b.places[r] = at;
        at += counts[r] + (int)(number(round, r, salt) % 3);
    }
    b.bytes = at * stride[b.kind] + GUARD;
    REQUIRE((b.data = malloc((size_t)b.bytes)) != NULL);
    memset(b.data, UNTOUCHED, (size_t)b.bytes);
    return b;
}

static void fill(Blocks *b, int r, int round, int from, int to)
{
    for (int i = 0; i < b->counts[r]; i++)
        b->data[(b->places[r] + i) * stride[b->kind]] = value(round, from, to, i);
}

/* Whether each block has what its sender gave, and all between them is as it was. */
static void check(const char *call, Blocks *b, int round, int to)
{
    int wrong = 0, others = 0;
    for (int r = 0; r < size; r++)
        for (int i = 0; i < b->counts[r]; i++) {
            unsigned char *at = b->data + (b->places[r] + i) * stride[b->kind];
            wrong += *at != value(round, r, to, i);
            *at = UNTOUCHED;
        }
    for (int i = 0; i < b->bytes; i++)
        others += b->data[i] != UNTOUCHED;
    EXPECT(wrong == 0 && others == 0, "%s, round %d, %d processes: %d bytes wrong, %d overrun",
           call, round, size, wrong, others);
    free(b->data);
}

static void gatherv(int round, int root)
{
    int lengths[RANKS], none[RANKS] = {0};
    for (int r = 0; r < size; r++)
        lengths[r] = length(round, r, root);
    int in_place = rank == root && number(round, 50, 0) % 2;
    int one[RANKS] = {0};
    one[rank] = lengths[rank];
    Blocks from = blocks(one, round, 20), all = blocks(rank == root ? lengths : none, round, 21);
    fill(&from, rank, round, rank, root);
    if (in_place)
        fill(&all, rank, round, rank, root);
    MPI(MPI_Gatherv(in_place ? MPI_IN_PLACE
                             : (void *)(from.data + from.places[rank] * stride[from.kind]),
                    lengths[rank], types[from.kind], all.data, rank == root ? all.counts : NULL,
                    rank == root ? all.places : NULL, types[all.kind], root, comm));
    check("gatherv", &all, round, root);
    free(from.data);
}

static void scatterv(int round, int root)
{
    int lengths[RANKS], none[RANKS] = {0};
    for (int r = 0; r < size; r++)
        lengths[r] = length(round, root, r);
    int in_place = rank == root && number(round, 51, 0) % 2;
    int one[RANKS] = {0};
    one[root] = in_place ? 0 : lengths[rank];
    Blocks all = blocks(rank == root ? lengths : none, round, 22), to = blocks(one, round, 23);
    for (int r = 0; r < size; r++)
        fill(&all, r, round, root, r);
    void *place = in_place ? MPI_IN_PLACE : to.data + to.places[root] * stride[to.kind];
    MPI(MPI_Scatterv(all.data, rank == root ? all.counts : NULL, rank == root ? all.places : NULL,
                     types[all.kind], place, lengths[rank], types[to.kind], root, comm));
    check("scatterv", &to, round, rank);
    free(all.data);
}

static void alltoallv(int round, int with_types)
{
    int sent[RANKS], got[RANKS], in_place = number(round, 52, with_types) % 3 == 0;
    for (int r = 0; r < size; r++) {
        int low = r < rank ? r : rank, high = r < rank ? rank : r;
        /* In place, a process gets as much from another one as it gives. */
        sent[r] = in_place ? length(round, low, high) : length(round, rank, r);
        got[r] = in_place ? sent[r] : length(round, r, rank);
    }
    Blocks from = blocks(sent, round, 24), to = blocks(got, round, 25);
    MPI_Datatype from_types[RANKS], to_types[RANKS];
    int from_places[RANKS], to_places[RANKS];
    for (int r = 0; r < size; r++) {
        fill(in_place ? &to : &from, r, round, rank, r);
        from_types[r] = types[from.kind], to_types[r] = types[to.kind];
        from_places[r] = from.places[r] * stride[from.kind];
        to_places[r] = to.places[r] * stride[to.kind];
    }
    const void *send = in_place ? MPI_IN_PLACE : from.data;
    if (with_types)
        MPI(MPI_Alltoallw(send, from.counts, from_places, from_types, to.data, to.counts, to_places,
                          to_types, comm));
    else
        MPI(MPI_Alltoallv(send, from.counts, from.places, types[from.kind], to.data, to.counts,
                          to.places, types[to.kind], comm));
    check(with_types ? "alltoallw" : "alltoallv", &to, round, rank);
    free(from.data);
}

static void everything(MPI_Comm which, int rounds)
{
    comm = which;
    MPI(MPI_Comm_rank(comm, &rank));
    MPI(MPI_Comm_size(comm, &size));
    for (int round = 0; round < rounds; round++) {
        for (int root = 0; root < size; root++) {
            gatherv(round, root);
            scatterv(round, root);
        }
        alltoallv(round, 0);
        alltoallv(round, 1);
    }
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 70;
    test_begin(&argc, &argv);
    if (ranks > RANKS)
        return test_skip("for up to 16 processes");
    types[0] = MPI_BYTE;
    MPI(MPI_Type_create_resized(MPI_BYTE, 0, 2, &types[1]));
    MPI(MPI_Type_create_resized(MPI_BYTE, 0, 3, &types[2]));
    MPI(MPI_Type_commit(&types[1]));
    MPI(MPI_Type_commit(&types[2]));
    MPI_Comm other;
    everything(MPI_COMM_WORLD, rounds);
    /* Neighbouring ranks are on different nodes, if there are several. */
    MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, me % 2 * ranks - me, &other));
    everything(other, rounds);
    MPI(MPI_Comm_free(&other));
    /* One process fewer: the first node, or the last one, has one less than another. */
    for (int without = 0; without < ranks && ranks > 2; without += ranks - 1) {
        MPI(MPI_Comm_split(MPI_COMM_WORLD, me == without ? MPI_UNDEFINED : 0, -me, &other));
        if (other != MPI_COMM_NULL) {
            everything(other, rounds);
            MPI(MPI_Comm_free(&other));
        }
    }
    MPI(MPI_Type_free(&types[1]));
    MPI(MPI_Type_free(&types[2]));
    return test_end();
}
