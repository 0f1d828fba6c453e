/*
 * Long collectives within a node [CL-1], [CL-2], [CL-3]: broadcasts and reductions of lengths above
 * what passes in pieces, up to several chunks; derived datatypes; pairs with padding; the order of
 * operands; parts of different lengths; progress for windows meanwhile; calls that do not match.
 *
 *   long_collectives [mismatch]
 */
#include "check.h"

enum { KIB = 1024, ROUNDS = 20, LARGEST = 9 * KIB * KIB + 7 };

static unsigned char byte_of(int round, int at)
{
    return (unsigned char)(at * 7 + at / 251 + round);
}

static void warm_up(MPI_Comm comm)
{
    for (int i = 0; i < ROUNDS; i++)
        MPI(MPI_Barrier(comm));
}

static void broadcasts(MPI_Comm comm, int me, int size)
{
    static const int lengths[] = {8 * KIB,      8 * KIB + 1,     64 * KIB,           100003,
                                  4 * KIB * KIB, 4 * KIB * KIB + 1, LARGEST};
    unsigned char *data = malloc(LARGEST);
    REQUIRE(data != NULL);
    for (int round = 0; round < 14; round++) {
        int n = lengths[round % 7], root = round % size, wrong = 0;
        for (int i = 0; i < n; i++)
            data[i] = me == root ? byte_of(round, i) : 0;
        MPI(MPI_Bcast(data, n, MPI_BYTE, root, comm));
        for (int i = 0; i < n; i++)
            wrong += data[i] != byte_of(round, i);
        EXPECT(wrong == 0, "broadcast of %d bytes from %d: %d wrong", n, root, wrong);
        /* The buffer is free. */
        memset(data, 1, (size_t)n);
    }
    free(data);
    /* Every other int, in some processes only. */
    enum { INTS = 30000 };
    int *ints = malloc(2 * INTS * sizeof *ints);
    REQUIRE(ints != NULL);
    MPI_Datatype spread;
    MPI(MPI_Type_vector(INTS, 1, 2, MPI_INT, &spread));
    MPI(MPI_Type_commit(&spread));
    for (int round = 0; round < 8; round++) {
        int root = round % size, wrong = 0, is_spread = (me + round / size) % 2;
        for (int i = 0; i < 2 * INTS; i++)
            ints[i] = -3;
        for (int i = 0; me == root && i < INTS; i++)
            ints[is_spread ? 2 * i : i] = i + round;
        if (is_spread)
            MPI(MPI_Bcast(ints, 1, spread, root, comm));
        else
            MPI(MPI_Bcast(ints, INTS, MPI_INT, root, comm));
        for (int i = 0; i < INTS; i++)
            wrong += ints[is_spread ? 2 * i : i] != i + round;
        for (int i = 0; is_spread && i < INTS; i++)
            wrong += ints[2 * i + 1] != -3;
        EXPECT(wrong == 0, "broadcast of a vector from %d: %d wrong", root, wrong);
    }
    MPI(MPI_Type_free(&spread));
    free(ints);
}

/* Sums of doubles whose order shows, and the greatest pairs. */
static void reductions(MPI_Comm comm, int me, int size)
{
    typedef struct {
        double value;
        int at;
    } Pair;
    static const int counts[] = {8193, 20000, 131071, 700001};
    double *mine = malloc(700001 * sizeof *mine), *sum = malloc(700001 * sizeof *sum);
    double *before = malloc(700001 * sizeof *before);
    REQUIRE(mine != NULL && sum != NULL && before != NULL);
    for (int round = 0; round < 8; round++) {
        int n = counts[round / 2], in_place = round % 2, wrong = 0;
        for (int i = 0; i < n; i++)
            mine[i] = 1.0 / (3 + me * 7 + i) * ((me + i) % 2 ? 1e8 : 1e-8);
        memcpy(sum, mine, (size_t)n * sizeof *sum);
        MPI(MPI_Allreduce(in_place ? MPI_IN_PLACE : mine, sum, n, MPI_DOUBLE, MPI_SUM, comm));
        for (int i = 0; i < n; i++) {
            double most = 0;
            for (int r = 0; r < size; r++)
                most += 1.0 / (3 + r * 7 + i) * ((r + i) % 2 ? 1e8 : 1e-8);
            wrong += !(sum[i] > most * (1 - 1e-12) && sum[i] < most * (1 + 1e-12));
        }
        EXPECT(wrong == 0, "allreduce of %d doubles: %d wrong", n, wrong);
        /* The same bits as before, and in all processes. */
        wrong = in_place && memcmp(before, sum, (size_t)n * sizeof *sum) != 0;
        memcpy(before, sum, (size_t)n * sizeof *sum);
        MPI(MPI_Bcast(before, n, MPI_DOUBLE, 0, comm));
        wrong += memcmp(before, sum, (size_t)n * sizeof *sum) != 0;
        EXPECT(wrong == 0, "allreduce of %d doubles: other bits", n);
    }
    free(mine), free(sum), free(before);
    for (int n = 6000; n <= 60001; n += 54001) {
        Pair *pairs = malloc((size_t)n * sizeof *pairs), *most = malloc((size_t)n * sizeof *most);
        int wrong = 0;
        REQUIRE(pairs != NULL && most != NULL);
        for (int i = 0; i < n; i++)
            pairs[i] = (Pair){(me + i) % size, me};
        MPI(MPI_Allreduce(pairs, most, n, MPI_DOUBLE_INT, MPI_MAXLOC, comm));
        for (int i = 0; i < n; i++)
            wrong += most[i].value != size - 1 || (most[i].at + i) % size != size - 1;
        EXPECT(wrong == 0, "allreduce of %d pairs: %d wrong", n, wrong);
        free(pairs), free(most);
    }
}

static double operand(int round, int rank, int at)
{
    return 1.0 / (3 + rank * 7 + (at + round) % 1009) * ((rank + at) % 2 ? 1e8 : 1e-8);
}

static int is_sum(double got, int round, int size, int at)
{
    double sum = 0;
    for (int r = 0; r < size; r++)
        sum += operand(round, r, at);
    return got > sum * (1 - 1e-12) && got < sum * (1 + 1e-12);
}

/* Reductions to one process, and with a result that is distributed. */
static void distributed(MPI_Comm comm, int me, int size)
{
    enum { MOST = 900001, GUARD = 7 };
    double *mine = malloc(MOST * sizeof *mine), *got = malloc((MOST + GUARD) * sizeof *got);
    REQUIRE(mine != NULL && got != NULL);
    for (int round = 0; round < 12; round++) {
        int n = (round % 3 + 1) * (MOST / 3), root = round % size, in_place = round / 3 % 2;
        int is_mine = me == root, wrong = 0;
        for (int i = 0; i < n + GUARD; i++) {
            got[i] = in_place && i < n ? operand(round, me, i) : -5;
            if (i < n)
                mine[i] = operand(round, me, i);
        }
        MPI(MPI_Reduce(is_mine && in_place ? MPI_IN_PLACE : mine, is_mine ? got : NULL, n,
                       MPI_DOUBLE, MPI_SUM, root, comm));
        for (int i = 0; is_mine && i < n; i++)
            wrong += !is_sum(got[i], round, size, i);
        for (int i = n; i < n + GUARD; i++)
            wrong += got[i] != -5;
        for (int i = 0; i < n; i++)
            wrong += mine[i] != operand(round, me, i);
        EXPECT(wrong == 0, "reduce of %d doubles to %d: %d wrong", n, root, wrong);
    }
    for (int round = 0; round < 12; round++) {
        int counts[8], first = 0, n = 0, in_place = round % 2, wrong = 0;
        int is_even = round % 3 == 0, block = MOST / 8;
        for (int r = 0; r < size; r++) {
            /* One process may get nothing. */
            counts[r] = is_even ? block : (r + round) % size * (block / size) + r;
            first += r < me ? counts[r] : 0;
            n += counts[r];
        }
        for (int i = 0; i < n + GUARD; i++) {
            got[i] = in_place && i < n ? operand(round, me, i) : -5;
            if (i < n)
                mine[i] = operand(round, me, i);
        }
        void *send = in_place ? MPI_IN_PLACE : mine;
        if (is_even)
            MPI(MPI_Reduce_scatter_block(send, got, block, MPI_DOUBLE, MPI_SUM, comm));
        else
            MPI(MPI_Reduce_scatter(send, got, counts, MPI_DOUBLE, MPI_SUM, comm));
        for (int i = 0; i < counts[me]; i++)
            wrong += !is_sum(got[i], round, size, first + i);
        for (int i = in_place ? n : counts[me]; i < n + GUARD; i++)
            wrong += got[i] != -5;
        for (int i = 0; i < n; i++)
            wrong += mine[i] != operand(round, me, i);
        EXPECT(wrong == 0, "reduce_scatter, round %d, %d doubles: %d wrong", round, n, wrong);
    }
    free(mine), free(got);
    /* Pairs with padding behind each. */
    typedef struct {
        double value;
        int at;
    } Pair;
    enum { PAIRS = 30001 };
    Pair *pairs = malloc(PAIRS * 8 * sizeof *pairs), *most = malloc(PAIRS * 8 * sizeof *most);
    REQUIRE(pairs != NULL && most != NULL);
    int wrong = 0;
    for (int i = 0; i < PAIRS * size; i++)
        pairs[i] = (Pair){(me + i) % size, me};
    MPI(MPI_Reduce_scatter_block(pairs, most, PAIRS, MPI_DOUBLE_INT, MPI_MAXLOC, comm));
    for (int i = 0; i < PAIRS; i++)
        wrong += most[i].value != size - 1 || (most[i].at + i + me * PAIRS) % size != size - 1;
    EXPECT(wrong == 0, "reduce_scatter of pairs: %d wrong", wrong);
    MPI(MPI_Reduce(pairs, most, PAIRS * size, MPI_DOUBLE_INT, MPI_MAXLOC, size - 1, comm));
    for (int i = 0; me == size - 1 && i < PAIRS * size; i++)
        wrong += most[i].value != size - 1 || (most[i].at + i) % size != size - 1;
    EXPECT(wrong == 0, "reduce of pairs: %d wrong", wrong);
    free(pairs), free(most);
}

/* A process that waits in a long collective serves windows: the last one to come uses them first.
 * The window is created, and the target may have to take its part. */
static void progress(MPI_Comm comm, int me, int size)
{
    enum { BYTES = 256 * KIB };
    static int64_t memory[4], one = 1;
    unsigned char *data = calloc(1, BYTES);
    REQUIRE(data != NULL);
    MPI_Win win;
    MPI(MPI_Win_create(memory, sizeof memory, 8, MPI_INFO_NULL, comm, &win));
    for (int round = 0; round < 20; round++) {
        int late = round % size;
        if (me == late)
            for (int target = 0; target < size; target++) {
                MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win));
                MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, win));
                MPI(MPI_Win_unlock(target, win));
            }
        MPI(MPI_Bcast(data, BYTES, MPI_BYTE, (late + round / size) % size, comm));
        MPI(MPI_Allreduce(MPI_IN_PLACE, data, BYTES, MPI_BYTE, MPI_BOR, comm));
    }
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
    EXPECT(memory[0] == 20, "%lld of 20 updates", (long long)memory[0]);
    MPI(MPI_Win_unlock(me, win));
    MPI(MPI_Win_free(&win));
    free(data);
}

/* Calls that do not match: the processes concerned learn of it, and nobody hangs. */
static void mismatch(MPI_Comm comm, int me, int size)
{
    enum { N = 200 * KIB };
    char *in = calloc(16, N), *out = calloc(16, N);
    REQUIRE(in != NULL && out != NULL && size == 2);
    MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    for (int round = 0; round < 3; round++) {
        int n = me == 0 ? N : 2 * N, code;
        memset(out, 3, 8 * (size_t)N);
        code = MPI_Bcast(out, me == 0 ? N : 2 * N, MPI_BYTE, 1, comm);
        EXPECT(class_of(code) == (me == 0 ? MPI_ERR_TRUNCATE : MPI_SUCCESS), "bcast: class %d",
               class_of(code));
        EXPECT(out[N] == 3, "a message that is too short was overrun");
        code = MPI_Gather(in, n, MPI_BYTE, out, n, MPI_BYTE, 0, comm);
        EXPECT(class_of(code) == (me == 0 ? MPI_ERR_TRUNCATE : MPI_SUCCESS), "gather: class %d",
               class_of(code));
        EXPECT(out[2 * N] == 3, "a block that is too short was overrun");
        code = MPI_Scatter(in, n, MPI_BYTE, out, n, MPI_BYTE, 1, comm);
        EXPECT(class_of(code) == (me == 0 ? MPI_ERR_TRUNCATE : MPI_SUCCESS), "scatter: class %d",
               class_of(code));
        code = MPI_Allgather(in, n, MPI_BYTE, out, n, MPI_BYTE, comm);
        EXPECT(class_of(code) == (me == 0 ? MPI_ERR_TRUNCATE : MPI_SUCCESS), "allgather: class %d",
               class_of(code));
        code = MPI_Alltoall(in, n, MPI_BYTE, out, n, MPI_BYTE, comm);
        EXPECT(class_of(code) == (me == 0 ? MPI_ERR_TRUNCATE : MPI_ERR_OTHER),
               "alltoall: class %d", class_of(code));
        /* A block that is shorter than its place is not reported, as by the host. */
        int counts[2] = {n, n}, places[2] = {0, n};
        int wanted = me == 0 ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
        memset(out, 3, 8 * (size_t)N);
        code = MPI_Gatherv(in, n, MPI_BYTE, out, counts, places, MPI_BYTE, 0, comm);
        EXPECT(class_of(code) == wanted && out[2 * N] == 3, "gatherv: class %d", class_of(code));
        code = MPI_Scatterv(in, counts, places, MPI_BYTE, out, n, MPI_BYTE, 1, comm);
        EXPECT(class_of(code) == wanted && out[2 * N] == 3, "scatterv: class %d", class_of(code));
        code = MPI_Alltoallv(in, counts, places, MPI_BYTE, out, counts, places, MPI_BYTE, comm);
        EXPECT(class_of(code) == wanted, "alltoallv: class %d", class_of(code));
        EXPECT(me != 0 || out[2 * N] == 3, "a block that is too short was overrun");
        code = MPI_Allreduce(in, out, n, MPI_BYTE, MPI_BOR, comm);
        EXPECT(class_of(code) == MPI_ERR_TRUNCATE, "allreduce: class %d", class_of(code));
        code = MPI_Reduce(in, out, 8 * n, MPI_BYTE, MPI_BOR, 0, comm);
        EXPECT(class_of(code) == MPI_ERR_TRUNCATE, "reduce: class %d", class_of(code));
        code = MPI_Reduce_scatter_block(in, out, n, MPI_BYTE, MPI_BOR, comm);
        EXPECT(class_of(code) == MPI_ERR_TRUNCATE, "reduce_scatter: class %d", class_of(code));
        code = MPI_Allreduce(in, out, N, MPI_BYTE, me == 0 ? MPI_BOR : MPI_BXOR, comm);
        EXPECT(class_of(code) == MPI_ERR_OP, "operations: class %d", class_of(code));
        MPI(MPI_Bcast(out, N, MPI_BYTE, 0, comm));
        MPI(MPI_Barrier(comm));
    }
    free(in), free(out);
}

int main(int argc, char **argv)
{
    int is_mismatch = argc > 1 && strcmp(argv[1], "mismatch") == 0, rank, size;
    test_begin(&argc, &argv);
    MPI_Comm comm;
    MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -me, &comm));
    MPI(MPI_Comm_rank(comm, &rank));
    MPI(MPI_Comm_size(comm, &size));
    warm_up(comm);
    if (is_mismatch) {
        mismatch(comm, rank, size);
    } else {
        broadcasts(comm, rank, size);
        reductions(comm, rank, size);
        distributed(comm, rank, size);
        progress(comm, rank, size);
    }
    MPI(MPI_Comm_free(&comm));
    return test_end();
}
