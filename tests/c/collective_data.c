/*
 * Collectives that gather, scatter, exchange and reduce [CL-1], [CL-2], [CL-3]: lengths around the
 * limits of the library, dense and strided datatypes, in place, blocks of different lengths,
 * operations of the application, pairs with padding, wrong arguments, and calls that do not match.
 *
 *   collective_data [errors | mismatch]
 */
#include "check.h"

enum { ROUNDS = 20, LONGEST = 140000 };

static MPI_Comm comm;
static int rank, size;
static MPI_Datatype strided; /* an int and a gap of the same size */

/* What `from` gives to `to`. */
static int word(int round, int from, int to, int at)
{
    return (int)((unsigned)round * 7919u + (unsigned)from * 104729u + (unsigned)to * 1299709u +
                 (unsigned)at * 31u);
}

/* Ints of all processes' blocks, dense or strided. */
typedef struct {
    int *data;
    int stride;
} Array;

static Array array(int blocks, int count, int is_strided)
{
    Array a = {NULL, is_strided ? 2 : 1};
    size_t ints = (size_t)blocks * (size_t)count * (size_t)a.stride + 1;
    a.data = malloc(ints * sizeof(int));
    REQUIRE(a.data != NULL);
    for (size_t i = 0; i < ints; i++)
        a.data[i] = -5;
    return a;
}

static int *at(Array a, int i) { return a.data + (long)i * a.stride; }

static MPI_Datatype type(Array a) { return a.stride == 2 ? strided : MPI_INT; }

static void fill(Array a, int begin, int count, int round, int from, int to)
{
    for (int i = 0; i < count; i++)
        *at(a, begin + i) = word(round, from, to, i);
}

static void check(const char *call, Array a, int begin, int count, int round, int from, int to)
{
    int wrong = 0;
    for (int i = 0; i < count; i++)
        wrong += *at(a, begin + i) != word(round, from, to, i) ||
                 (a.stride == 2 && at(a, begin + i)[1] != -5);
    EXPECT(wrong == 0, "%s, round %d, %d ints from %d: %d wrong", call, round, count, from, wrong);
}

/* Blocks of equal length. Bits of `round` choose in place and the datatypes. */
static void even(int round, int count)
{
    int root = round % size, in_place = round & 1;
    Array one = array(1, count, (round >> 1 ^ rank) & 1);
    Array all = array(size, count, (round >> 2 ^ rank) & 1);
    Array from = array(size, count, (round >> 2 ^ rank) & 1);
    /* Gather and allgather: everybody's block. */
    for (int call = 0; call < 2; call++) {
        int placed = in_place && (call == 1 || rank == root);
        fill(one, 0, count, round, rank, call);
        for (int i = 0; i < count * size; i++)
            *at(all, i) = -1;
        if (placed)
            fill(all, rank * count, count, round, rank, call);
        const void *send = placed ? MPI_IN_PLACE : one.data;
        if (call == 0)
            MPI(MPI_Gather(send, count, type(one), all.data, count, type(all), root, comm));
        else
            MPI(MPI_Allgather(send, count, type(one), all.data, count, type(all), comm));
        for (int r = 0; (call == 1 || rank == root) && r < size; r++)
            check(call ? "allgather" : "gather", all, r * count, count, round, r, call);
    }
    /* Scatter and alltoall: a block for everybody. */
    for (int r = 0; r < size; r++)
        fill(all, r * count, count, round, rank, r);
    MPI(MPI_Scatter(all.data, count, type(all),
                    in_place && rank == root ? MPI_IN_PLACE : (void *)one.data, count, type(one),
                    root, comm));
    if (!(in_place && rank == root))
        check("scatter", one, 0, count, round, root, rank);
    memcpy(from.data, all.data, (size_t)size * (size_t)count * (size_t)all.stride * sizeof(int));
    MPI(MPI_Alltoall(in_place ? MPI_IN_PLACE : from.data, count, type(from), all.data, count,
                     type(all), comm));
    for (int r = 0; r < size; r++)
        check("alltoall", all, r * count, count, round, r, rank);
    free(one.data), free(all.data), free(from.data);
}

/* Length of what `from` gives to `to`: some processes have much, some nothing. */
static int length(int round, int from, int to, int count)
{
    return (from * 3 + to + round) % 4 == 0 ? 0 : count / (1 + (from + 2 * to + round) % 3);
}

/* Blocks of different lengths, in reverse order, with gaps. */
static void uneven(int round, int count)
{
    int root = round % size, in_place = round & 1, counts[8], places[8], sent[8], from[8];
    Array one = array(1, count, (round >> 1 ^ rank) & 1);
    /* Alike in all processes: MPICH 4.0's allgatherv fails otherwise. */
    Array all = array(size, count, round >> 2 & 1);
    Array out = array(size, count, (round >> 1 ^ rank) & 1);
    for (int call = 0; call < 2; call++) {
        int placed = in_place && (call == 1 || rank == root);
        for (int r = 0; r < size; r++) {
            counts[r] = length(round, r, 0, count);
            places[r] = (size - 1 - r) * count;
        }
        fill(one, 0, counts[rank], round, rank, call);
        if (placed)
            fill(all, places[rank], counts[rank], round, rank, call);
        const void *send = placed ? MPI_IN_PLACE : one.data;
        if (call == 0)
            MPI(MPI_Gatherv(send, counts[rank], type(one), all.data, rank == root ? counts : NULL,
                            rank == root ? places : NULL, type(all), root, comm));
        else
            MPI(MPI_Allgatherv(send, counts[rank], type(one), all.data, counts, places, type(all),
                               comm));
        for (int r = 0; (call == 1 || rank == root) && r < size; r++)
            check(call ? "allgatherv" : "gatherv", all, places[r], counts[r], round, r, call);
    }
    for (int r = 0; r < size; r++) {
        counts[r] = length(round, root, r, count);
        fill(all, places[r], rank == root ? counts[r] : 0, round, rank, r);
    }
    MPI(MPI_Scatterv(all.data, rank == root ? counts : NULL, rank == root ? places : NULL,
                     type(all), in_place && rank == root ? MPI_IN_PLACE : (void *)one.data,
                     counts[rank], type(one), root, comm));
    if (!(in_place && rank == root))
        check("scatterv", one, 0, counts[rank], round, root, rank);
    for (int r = 0; r < size; r++) {
        /* In place, both directions have the same length. */
        sent[r] = in_place ? length(round, rank + r, rank * r, count)
                           : length(round, rank, r, count);
        counts[r] = in_place ? sent[r] : length(round, r, rank, count);
        from[r] = r * count;
        fill(out, from[r], sent[r], round, rank, r);
        if (in_place)
            fill(all, places[r], sent[r], round, rank, r);
    }
    MPI(MPI_Alltoallv(in_place ? MPI_IN_PLACE : out.data, sent, from, type(out), all.data, counts,
                      places, type(all), comm));
    for (int r = 0; r < size; r++)
        check("alltoallv", all, places[r], counts[r], round, r, rank);
    MPI_Datatype types[8], sendtypes[8];
    for (int r = 0; r < size; r++) {
        types[r] = type(all), sendtypes[r] = type(out);
        places[r] *= all.stride * (int)sizeof(int), from[r] *= out.stride * (int)sizeof(int);
    }
    if (!in_place) {
        MPI(MPI_Alltoallw(out.data, sent, from, sendtypes, all.data, counts, places, types, comm));
        for (int r = 0; r < size; r++)
            check("alltoallw", all, places[r] / all.stride / (int)sizeof(int), counts[r], round, r,
                  rank);
    }
    free(one.data), free(all.data), free(out.data);
}

/* Sums, prefix sums and distributed sums of `count` ints. */
static void sums(int round, int count)
{
    int root = round % size, in_place = round & 1, wrong = 0;
    Array in = array(size, count, 0), out = array(size, count, 0);
    for (int call = 0; call < 6; call++) {
        int total = call == 5 ? count * size : count;
        fill(in, 0, total, round, rank, 0);
        int placed = in_place && (call != 1 || rank == root);
        for (int i = 0; i < total; i++)
            *at(out, i) = -1;
        if (placed)
            fill(out, 0, total, round, rank, 0);
        const void *send = placed ? MPI_IN_PLACE : in.data;
        int lengths[8], first = 0;
        for (int r = 0; r < size; r++)
            lengths[r] = r == 0 ? count - (size - 1) * (count / size / 2) : count / size / 2;
        for (int r = 0; r < rank; r++)
            first += lengths[r];
        switch (call) {
        case 0: MPI(MPI_Allreduce(send, out.data, count, MPI_INT, MPI_SUM, comm)); break;
        case 1:
            MPI(MPI_Reduce(send, rank == root ? out.data : NULL, count, MPI_INT, MPI_SUM, root,
                           comm));
            break;
        case 2: MPI(MPI_Scan(send, out.data, count, MPI_INT, MPI_SUM, comm)); break;
        case 3: MPI(MPI_Exscan(send, out.data, count, MPI_INT, MPI_SUM, comm)); break;
        case 4: MPI(MPI_Reduce_scatter(send, out.data, lengths, MPI_INT, MPI_SUM, comm)); break;
        case 5: MPI(MPI_Reduce_scatter_block(send, out.data, count, MPI_INT, MPI_SUM, comm)); break;
        }
        int has = call == 1 ? rank == root : call == 3 ? rank > 0 : 1;
        int offset = call == 4 ? first : call == 5 ? rank * count : 0;
        int until = call == 2 ? rank + 1 : call == 3 ? rank : size;
        for (int i = 0; has && i < (call == 4 ? lengths[rank] : count); i++) {
            unsigned sum = 0;
            for (int r = 0; r < until; r++)
                sum += (unsigned)word(round, r, 0, offset + i);
            wrong += *at(out, i) != (int)sum;
        }
        EXPECT(wrong == 0, "reduction %d of %d ints, round %d: %d wrong", call, count, round,
               wrong);
        wrong = 0;
    }
    free(in.data), free(out.data);
}

static void lengths(void)
{
    static const int counts[] = {0,    1,    2,    3,    12,   13,   200,
                                 2048, 2049, 4096, 5000, 9001, 20000};
    int kinds = sizeof counts / sizeof *counts;
    for (int round = 0; round < 8 * kinds; round++) {
        even(round, counts[round % kinds]);
        uneven(round, counts[round % kinds]);
        sums(round, counts[round % kinds]);
    }
    even(1, LONGEST), even(2, LONGEST);
    uneven(3, LONGEST), uneven(4, LONGEST);
    sums(5, LONGEST), sums(6, LONGEST);
}

/* Products of 2 by 2 matrices: associative, not commutative. */
static void multiply(void *in, void *inout, int *count, MPI_Datatype *kind)
{
    (void)kind;
    for (int i = 0; i + 3 < *count; i += 4) {
        int64_t *a = (int64_t *)in + i, *b = (int64_t *)inout + i;
        int64_t c[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
                        a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
        memcpy(b, c, sizeof c);
    }
}

static void product(int begin, int end, int64_t *right)
{
    const int64_t one[4] = {1, 0, 0, 1};
    memcpy(right, one, sizeof one);
    for (int r = begin; r < end; r++) {
        int64_t next[4] = {r, 1, 1, 0};
        multiply(right, next, &(int){4}, NULL);
        memcpy(right, next, sizeof next);
    }
}

/* Operands stay in the order of the ranks. */
static void in_order(void)
{
    enum { N = 4 * 600 }; /* more than one content */
    static int64_t mine[N], all[N];
    int64_t right[4];
    MPI_Op op;
    MPI(MPI_Op_create(multiply, 0, &op));
    MPI_Datatype matrix;
    MPI(MPI_Type_contiguous(4, MPI_INT64_T, &matrix));
    MPI(MPI_Type_commit(&matrix));
    for (int round = 0; round < 3 * ROUNDS; round++) {
        int n = round % 3 == 0 ? 4 : round % 3 == 1 ? 256 : N, root = round % size;
        for (int i = 0; i < n; i += 4)
            mine[i] = rank, mine[i + 1] = mine[i + 2] = 1, mine[i + 3] = 0;
        product(0, size, right);
        MPI(MPI_Allreduce(mine, all, n, MPI_INT64_T, op, comm));
        EXPECT(memcmp(all + n - 4, right, sizeof right) == 0, "allreduce is out of order");
        memset(all, 0, sizeof all);
        MPI(MPI_Reduce(mine, all, n, MPI_INT64_T, op, root, comm));
        EXPECT(rank != root || memcmp(all, right, sizeof right) == 0, "reduce is out of order");
        product(0, rank + 1, right);
        memset(all, 0, sizeof all);
        MPI(MPI_Scan(mine, all, n, MPI_INT64_T, op, comm));
        EXPECT(memcmp(all, right, sizeof right) == 0, "scan is out of order");
        product(0, rank, right);
        MPI(MPI_Exscan(mine, all, n, MPI_INT64_T, op, comm));
        EXPECT(rank == 0 || memcmp(all, right, sizeof right) == 0, "exscan is out of order");
    }
    MPI(MPI_Type_free(&matrix));
    MPI(MPI_Op_free(&op));
}

/* Pairs with padding, and the same bits every time. */
static void pairs(void)
{
    typedef struct {
        double value;
        int at;
    } Pair;
    enum { N = 700 };
    static Pair mine[N], most[N];
    for (int round = 0; round < ROUNDS; round++) {
        int n = round % 2 ? N : 1, root = round % size, wrong = 0;
        for (int i = 0; i < n; i++)
            mine[i] = (Pair){(rank + i + round) % size, rank}, most[i] = (Pair){-1, -1};
        MPI(MPI_Allreduce(mine, most, n, MPI_DOUBLE_INT, MPI_MAXLOC, comm));
        for (int i = 0; i < n; i++)
            wrong += most[i].value != size - 1 || (most[i].at + i + round) % size != size - 1;
        MPI(MPI_Reduce(rank == root ? MPI_IN_PLACE : mine, mine, n, MPI_DOUBLE_INT, MPI_MAXLOC,
                       root, comm));
        for (int i = 0; rank == root && i < n; i++)
            wrong += mine[i].value != size - 1 || mine[i].at != most[i].at;
        MPI(MPI_Bcast(mine, n, MPI_DOUBLE_INT, root, comm));
        for (int i = 0; i < n; i++)
            wrong += mine[i].at != most[i].at;
        EXPECT(wrong == 0, "%d pairs, round %d: %d wrong", n, round, wrong);
    }
    double first[64], sum[64];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 64; i++)
            first[i] = 1.0 / (3 + rank * 7 + i) * (rank % 2 ? 1e8 : 1e-8);
        MPI(MPI_Allreduce(first, sum, 64, MPI_DOUBLE, MPI_SUM, comm));
        double other[64];
        memcpy(other, sum, sizeof other);
        MPI(MPI_Reduce(first, other, 64, MPI_DOUBLE, MPI_SUM, size - 1, comm));
#ifndef OPEN_MPI /* which serves both itself, and folds in different orders */
        EXPECT(round < ROUNDS - 1 || memcmp(other, sum, sizeof sum) == 0,
               "a reduce has other bits than an allreduce");
#endif
    }
}

static void everything(MPI_Comm which)
{
    comm = which;
    MPI(MPI_Comm_rank(comm, &rank));
    MPI(MPI_Comm_size(comm, &size));
    lengths();
    in_order();
    pairs();
}

static int raised;

static void count_error(MPI_Comm *which, int *code, ...)
{
    (void)which, (void)code;
    raised++;
}

/* Every process makes the same wrong calls; the communicator works afterwards. */
static void errors(void)
{
    MPI_Errhandler handler;
    int in[64] = {0}, out[64] = {0};
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI(MPI_Comm_create_errhandler(count_error, &handler));
    MPI(MPI_Comm_set_errhandler(comm, handler));
    MPI(MPI_Comm_rank(comm, &rank));
    MPI(MPI_Comm_size(comm, &size));
    for (int round = 0; round < ROUNDS; round++) {
        raised = 0;
        REFUSED(MPI_ERR_ROOT, MPI_Reduce(in, out, 1, MPI_INT, MPI_SUM, size, comm));
        REFUSED(MPI_ERR_OP, MPI_Reduce(in, out, 1, MPI_INT, MPI_OP_NULL, 0, comm));
        REFUSED(MPI_ERR_OP, MPI_Scan(in, out, 1, MPI_DOUBLE, MPI_BXOR, comm));
        REFUSED(MPI_ERR_COUNT, MPI_Allgather(in, -1, MPI_INT, out, -1, MPI_INT, comm));
        REFUSED(MPI_ERR_TYPE, MPI_Alltoall(in, 1, MPI_DATATYPE_NULL, out, 1, MPI_INT, comm));
        REFUSED(MPI_ERR_ROOT, MPI_Gather(in, 1, MPI_INT, out, 1, MPI_INT, -3, comm));
        REFUSED(MPI_ERR_ROOT, MPI_Scatter(in, 1, MPI_INT, out, 1, MPI_INT, size, comm));
        EXPECT(raised == 7, "round %d: the error handler was called %d times", round, raised);
        even(round, 5);
        sums(round, 5);
    }
    MPI(MPI_Errhandler_free(&handler));
    MPI(MPI_Comm_free(&comm));
}

/* [CL-3] Calls that do not match between processes. */
static void mismatch(void)
{
    int in[64] = {0}, out[128], counts[2] = {1, 1}, places[2] = {0, 8};
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_rank(comm, &rank));
    MPI(MPI_Comm_size(comm, &size));
    REQUIRE(size == 2);
    for (int round = 0; round < ROUNDS; round++)
        even(round, 5);
    for (int round = 0; round < 3; round++) {
        int mine = rank == 0 ? 1 : 2;
        int code = MPI_Gather(in, mine, MPI_INT, out, mine, MPI_INT, 0, comm);
        EXPECT(class_of(code) == (rank == 0 ? MPI_ERR_TRUNCATE : MPI_SUCCESS), "gather: class %d",
               class_of(code));
        code = MPI_Reduce(in, out, mine, MPI_INT, MPI_SUM, 0, comm);
        EXPECT(class_of(code) == (rank == 0 ? MPI_ERR_TRUNCATE : MPI_SUCCESS), "reduce: class %d",
               class_of(code));
        code = MPI_Reduce(in, out, 1, MPI_INT, rank == 0 ? MPI_SUM : MPI_MAX, 1, comm);
        EXPECT(class_of(code) == (rank == 1 ? MPI_ERR_OP : MPI_SUCCESS), "operation: class %d",
               class_of(code));
        code = MPI_Alltoall(in, mine, MPI_INT64_T, out, mine, MPI_INT64_T, comm);
        EXPECT(class_of(code) == (rank == 0 ? MPI_ERR_TRUNCATE : MPI_ERR_OTHER),
               "alltoall: class %d", class_of(code));
        memset(out, -1, sizeof out);
        code = MPI_Gatherv(in, rank == 0 ? 1 : 3, MPI_INT, out, counts, places, MPI_INT, 0, comm);
        EXPECT(class_of(code) == (rank == 0 ? MPI_ERR_TRUNCATE : MPI_SUCCESS), "gatherv: class %d",
               class_of(code));
        EXPECT(out[9] == -1, "a block that is too short was overrun");
        code = MPI_Scatterv(in, (int[]){1, 3}, places, MPI_INT, out, 1, MPI_INT, 0, comm);
        EXPECT(class_of(code) == (rank == 1 ? MPI_ERR_TRUNCATE : MPI_SUCCESS), "scatterv: class %d",
               class_of(code));
        even(round, 5);
        sums(round, 5);
    }
    MPI(MPI_Comm_free(&comm));
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    test_begin(&argc, &argv);
    MPI(MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &strided));
    MPI(MPI_Type_commit(&strided));
    if (strcmp(part, "errors") == 0)
        errors();
    else if (strcmp(part, "mismatch") == 0)
        mismatch();
    else {
        MPI_Comm other;
        everything(MPI_COMM_WORLD);
        MPI(MPI_Comm_split(MPI_COMM_WORLD, me % 2, -me, &other));
        everything(other);
        MPI(MPI_Comm_free(&other));
        /* Neighbouring ranks are on different nodes, if there are several. */
        MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, me % 2 * ranks - me, &other));
        everything(other);
        MPI(MPI_Comm_free(&other));
    }
    MPI(MPI_Type_free(&strided));
    return test_end();
}
