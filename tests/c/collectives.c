/*
 * MPI_Barrier, MPI_Bcast and MPI_Allreduce [CL-1], [CL-2], [CL-3]: on communicators of many kinds,
 * with all predefined operations, with datatypes that differ between processes, beside nonblocking
 * collectives, in several threads, and with wrong arguments.
 *
 *   collectives [threads | errors | mismatch]
 */
#include "check.h"
#include <complex.h>
#include <pthread.h>

enum { ROUNDS = 24, THREADS = 3, BYTES = 6000 };

/* Several rounds of everything that depends on the communicator's processes only. */
static void three(MPI_Comm comm, int rounds)
{
    int rank, size;
    MPI(MPI_Comm_rank(comm, &rank));
    MPI(MPI_Comm_size(comm, &size));
    for (int i = 0; i < rounds; i++) {
        int64_t word = rank == i % size ? 1000 + i : -1, sum = 0;
        MPI(MPI_Barrier(comm));
        MPI(MPI_Bcast(&word, 1, MPI_INT64_T, i % size, comm));
        EXPECT(word == 1000 + i, "broadcast %d: %ld", i, (long)word);
        word = rank + i;
        MPI(MPI_Allreduce(&word, &sum, 1, MPI_INT64_T, MPI_SUM, comm));
        EXPECT(sum == (int64_t)size * (size - 1) / 2 + (int64_t)size * i, "sum %d: %ld", i,
               (long)sum);
        EXPECT(word == rank + i, "the send buffer has changed");
        MPI(MPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_INT64_T, MPI_MAX, comm));
        EXPECT(word == size - 1 + i, "maximum %d in place: %ld", i, (long)word);
    }
}

/* A process leaves a barrier only after all have entered it. Each puts its number to all before. */
static void barriers(MPI_Comm comm)
{
    int rank, size;
    MPI_Win win;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int64_t *seen;
    MPI(MPI_Win_allocate((MPI_Aint)sizeof *seen * size, sizeof *seen, MPI_INFO_NULL, comm, &seen,
                         &win));
    MPI(MPI_Win_lock_all(0, win));
    for (int64_t i = 0; i < 100; i++) {
        for (int r = 0; r < size; r++)
            MPI(MPI_Put(&i, 1, MPI_INT64_T, r, rank, 1, MPI_INT64_T, win));
        MPI(MPI_Win_flush_all(win));
        MPI(MPI_Barrier(comm));
        MPI(MPI_Win_sync(win));
        for (int r = 0; r < size; r++) {
            int64_t number = __atomic_load_n(seen + r, __ATOMIC_ACQUIRE);
            EXPECT(number == i || number == i + 1, "barrier %ld: process %d is at %ld", (long)i, r,
                   (long)number);
        }
    }
    MPI(MPI_Win_unlock_all(win));
    MPI(MPI_Win_free(&win));
}

static unsigned char pattern(int i, int at) { return (unsigned char)(i * 37 + at * 11 + at / 256); }

/* Lengths around the limits of the library, in bytes. */
static void lengths(MPI_Comm comm)
{
    static const int bytes[] = {0, 1, 7, 8, 9, 47, 48, 49, 64, 100, 2047, 2048, 2049, BYTES};
    static unsigned char data[BYTES + 1], all[BYTES];
    int rank, size, kinds = sizeof bytes / sizeof *bytes;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < 3 * kinds * size; i++) {
        int n = bytes[i % kinds], root = i % size, wrong = 0;
        for (int at = 0; at <= BYTES; at++)
            data[at] = rank == root && at < n ? pattern(i, at) : 0xee;
        MPI(MPI_Bcast(data, n, MPI_BYTE, root, comm));
        for (int at = 0; at <= BYTES; at++)
            wrong += data[at] != (at < n ? pattern(i, at) : 0xee);
        EXPECT(wrong == 0, "broadcast of %d bytes: %d wrong", n, wrong);
        memset(all, 0xee, sizeof all);
        MPI(MPI_Allreduce(data, all, n, MPI_BYTE, MPI_BXOR, comm));
        for (int at = 0; at < BYTES; at++)
            wrong += all[at] != (at >= n ? 0xee : size % 2 ? data[at] : 0);
        EXPECT(wrong == 0, "exclusive or of %d bytes: %d wrong", n, wrong);
    }
}

/* The same data, in another datatype on each process. */
static void datatypes(MPI_Comm comm)
{
    enum { N = 24 };
    int rank, size, data[3 * N];
    MPI_Datatype types[4];
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MPI(MPI_Type_vector(N, 1, 3, MPI_INT, &types[0]));
    MPI(MPI_Type_contiguous(N, MPI_INT, &types[1]));
    MPI_Aint place;
    MPI(MPI_Get_address(data, &place));
    MPI(MPI_Type_create_hindexed(1, &(int){N}, &place, MPI_INT, &types[2]));
    MPI(MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &types[3]));
    for (int t = 0; t < 4; t++)
        MPI(MPI_Type_commit(&types[t]));
    const int stride[] = {3, 1, 1, 2, 1};
    for (int i = 0; i < 40; i++) {
        int root = i % size, kind = (rank + i / size) % 5, wrong = 0;
        for (int at = 0; at < 3 * N; at++)
            data[at] = -1;
        for (int at = 0; rank == root && at < N; at++)
            data[at * stride[kind]] = i * 100 + at;
        if (kind == 4)
            MPI(MPI_Bcast(data, N, MPI_INT, root, comm));
        else if (kind == 3)
            MPI(MPI_Bcast(data, N, types[3], root, comm));
        else
            MPI(MPI_Bcast(kind == 2 ? MPI_BOTTOM : data, 1, types[kind], root, comm));
        for (int at = 0; at < 3 * N; at++) {
            int holds = at % stride[kind] == 0 && at / stride[kind] < N;
            wrong += data[at] != (holds ? i * 100 + at / stride[kind] : -1);
        }
        EXPECT(wrong == 0, "broadcast %d, datatype %d: %d wrong", i, kind, wrong);
    }
    struct {
        double value;
        int at;
    } pair = {rank, rank}, most = {-1, -1};
    for (int i = 0; i < 20; i++) {
        MPI(MPI_Allreduce(&pair, &most, 1, MPI_DOUBLE_INT, MPI_MAXLOC, comm));
        EXPECT(most.value == size - 1 && most.at == size - 1, "MPI_MAXLOC: %d", most.at);
        most.value = rank == 0 ? 2.5 : 0, most.at = rank == 0 ? i : 0;
        MPI(MPI_Bcast(&most, 1, MPI_DOUBLE_INT, 0, comm));
        EXPECT(most.value == 2.5 && most.at == i, "a pair is broadcast as %g, %d", most.value,
               most.at);
    }
    for (int t = 0; t < 4; t++)
        MPI(MPI_Type_free(&types[t]));
}

/* Products of 2 by 2 matrices: associative, not commutative. */
static void multiply(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i += 4) {
        int64_t *a = (int64_t *)in + i, *b = (int64_t *)inout + i;
        int64_t c[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
                        a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
        memcpy(b, c, sizeof c);
    }
}

static void operations(MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    static const MPI_Op ops[] = {MPI_SUM,  MPI_PROD, MPI_MIN,  MPI_MAX,  MPI_LAND,
                                 MPI_LOR,  MPI_LXOR, MPI_BAND, MPI_BOR,  MPI_BXOR};
    int wanted[10] = {0, 1, 1, size, 1, 1, size % 2, ~0, 0, 0};
    for (int r = 1; r <= size; r++)
        wanted[0] += r, wanted[1] *= r, wanted[7] &= r, wanted[8] |= r, wanted[9] ^= r;
    for (int i = 0; i < 60; i++) {
        int mine[3] = {rank + 1, rank + 1, rank + 1}, all[3] = {-7, -7, -7};
        MPI(MPI_Allreduce(mine, all, 3, MPI_INT, ops[i % 10], comm));
        EXPECT(all[0] == wanted[i % 10] && all[2] == all[0], "operation %d: %d, not %d", i % 10,
               all[0], wanted[i % 10]);
    }
    for (int i = 0; i < 20; i++) {
        struct {
            int value, at;
        } pair = {rank == size - 1 ? 1 : 5, rank}, least;
        MPI(MPI_Allreduce(&pair, &least, 1, MPI_2INT, MPI_MINLOC, comm));
        EXPECT(least.value == 1 && least.at == size - 1, "MPI_MINLOC: %d", least.at);
        double complex z = rank + 1.0 * I, product;
        MPI(MPI_Allreduce(&z, &product, 1, MPI_C_DOUBLE_COMPLEX, MPI_PROD, comm));
        double complex right = 1;
        for (int r = 0; r < size; r++)
            right *= r + 1.0 * I;
        EXPECT(product == right, "complex product: %g", creal(product));
    }
    MPI_Op op;
    MPI(MPI_Op_create(multiply, 0, &op));
    for (int i = 0; i < 20; i++) {
        int64_t mine[4] = {rank, 1, 1, 0}, all[4], right[4] = {1, 0, 0, 1};
        for (int r = 0; r < size; r++) {
            int64_t next[4] = {r, 1, 1, 0};
            multiply(right, next, &(int){4}, NULL);
            memcpy(right, next, sizeof right);
        }
        MPI(MPI_Allreduce(mine, all, 4, MPI_INT64_T, op, comm));
        EXPECT(memcmp(all, right, sizeof all) == 0, "a product of matrices is out of order");
    }
    MPI(MPI_Op_free(&op));
}

/* [CL-2] Sums of floating-point numbers have the same bits everywhere, and every time. */
static void bits(MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    double first[8], sums[8], others[8];
    for (int i = 0; i < 30; i++) {
        double mine[8];
        for (int at = 0; at < 8; at++)
            mine[at] = 1.0 / (3 + rank * 7 + at) * (rank % 2 ? 1e8 : 1e-8);
        MPI(MPI_Allreduce(mine, sums, 8, MPI_DOUBLE, MPI_SUM, comm));
        memcpy(others, sums, sizeof others);
        MPI(MPI_Bcast(others, 8, MPI_DOUBLE, size - 1, comm));
        EXPECT(memcmp(others, sums, sizeof sums) == 0, "sum %d differs between processes", i);
        /* A communicator's first calls may take another way. */
        if (i == 20)
            memcpy(first, sums, sizeof first);
        EXPECT(i <= 20 || memcmp(first, sums, sizeof sums) == 0, "sum %d differs from before", i);
    }
}

/* Blocking collectives between the start and the end of nonblocking ones. */
static void beside_nonblocking(MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < 40; i++) {
        MPI_Request r[2];
        int mine = rank + i, sum = -1;
        MPI(MPI_Ibarrier(comm, &r[0]));
        three(comm, 1);
        MPI(MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm, &r[1]));
        MPI(MPI_Barrier(comm));
        MPI(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
        EXPECT(sum == size * (size - 1) / 2 + size * i, "nonblocking sum %d: %d", i, sum);
    }
}

/* A rendezvous message whose sender waits in a collective. */
static void with_messages(MPI_Comm comm)
{
    static char out[1 << 20], in[1 << 20];
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; size > 1 && i < 20; i++) {
        MPI_Request r = MPI_REQUEST_NULL;
        memset(out, i, sizeof out);
        if (rank == 0)
            MPI(MPI_Isend(out, sizeof out, MPI_CHAR, size - 1, 5, comm, &r));
        if (rank == size - 1) {
            MPI(MPI_Recv(in, sizeof in, MPI_CHAR, 0, 5, comm, MPI_STATUS_IGNORE));
            EXPECT(in[0] == i && in[sizeof in - 1] == i, "message %d is wrong", i);
        }
        MPI(MPI_Barrier(comm));
        MPI(MPI_Wait(&r, MPI_STATUS_IGNORE));
    }
}

/* Communicators come and go, and the host reuses their handles. */
static void many_communicators(void)
{
    for (int i = 0; i < 60; i++) {
        MPI_Comm comm;
        MPI(MPI_Comm_split(MPI_COMM_WORLD, i % 3 ? me % (i % 3) : 0, i % 2 ? -me : me, &comm));
        three(comm, i % 7);
        MPI(MPI_Comm_free(&comm));
    }
}

static void intercommunicator(void)
{
    MPI_Comm half, both;
    if (ranks < 2)
        return;
    int low = me < ranks / 2;
    MPI(MPI_Comm_split(MPI_COMM_WORLD, low, me, &half));
    MPI(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? ranks / 2 : 0, 3, &both));
    for (int i = 0; i < ROUNDS; i++) {
        int sum = -1, word = low && me == 0 ? i : -1;
        MPI(MPI_Barrier(both));
        MPI(MPI_Allreduce(&(int){1}, &sum, 1, MPI_INT, MPI_SUM, both));
        EXPECT(sum == (low ? ranks - ranks / 2 : ranks / 2), "sum of the others: %d", sum);
        MPI(MPI_Bcast(&word, 1, MPI_INT, low ? (me == 0 ? MPI_ROOT : MPI_PROC_NULL) : 0, both));
        EXPECT(low || word == i, "broadcast from the others: %d", word);
    }
    MPI(MPI_Comm_free(&both));
    MPI(MPI_Comm_free(&half));
}

static void everything(MPI_Comm comm)
{
    three(comm, ROUNDS);
    barriers(comm);
    lengths(comm);
    datatypes(comm);
    operations(comm);
    bits(comm);
    beside_nonblocking(comm);
    with_messages(comm);
}

static void on_all_kinds(void)
{
    MPI_Comm comm;
    everything(MPI_COMM_WORLD);
    three(MPI_COMM_SELF, ROUNDS);
    lengths(MPI_COMM_SELF);
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    everything(comm);
    MPI(MPI_Comm_free(&comm));
    MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -me, &comm));
    everything(comm);
    MPI(MPI_Comm_free(&comm));
    MPI(MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &comm));
    everything(comm);
    MPI(MPI_Comm_free(&comm));
    many_communicators();
    intercommunicator();
}

/* Each thread has a communicator of its own. */
static MPI_Comm of_thread[THREADS];

static void *thread(void *which)
{
    MPI_Comm comm = of_thread[(intptr_t)which];
    three(comm, 200);
    return NULL;
}

static void threads(void)
{
    pthread_t id[THREADS];
    for (int t = 0; t < THREADS; t++)
        MPI(MPI_Comm_dup(MPI_COMM_WORLD, &of_thread[t]));
    for (intptr_t t = 0; t < THREADS; t++)
        REQUIRE(pthread_create(&id[t], NULL, thread, (void *)t) == 0);
    for (int t = 0; t < THREADS; t++)
        REQUIRE(pthread_join(id[t], NULL) == 0);
    for (int t = 0; t < THREADS; t++)
        MPI(MPI_Comm_free(&of_thread[t]));
}

static int raised;

static void count_error(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
    raised++;
}

/* Every process makes the same wrong calls; the communicator works afterwards. */
static void errors(void)
{
    MPI_Comm comm;
    MPI_Errhandler handler;
    int word = 0, sum;
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI(MPI_Comm_create_errhandler(count_error, &handler));
    MPI(MPI_Comm_set_errhandler(comm, handler));
    for (int i = 0; i < ROUNDS; i++) {
        raised = 0;
        REFUSED(MPI_ERR_ROOT, MPI_Bcast(&word, 1, MPI_INT, ranks, comm));
        REFUSED(MPI_ERR_ROOT, MPI_Bcast(&word, 1, MPI_INT, -1, comm));
        REFUSED(MPI_ERR_COUNT, MPI_Bcast(&word, -1, MPI_INT, 0, comm));
        REFUSED(MPI_ERR_TYPE, MPI_Bcast(&word, 1, MPI_DATATYPE_NULL, 0, comm));
        REFUSED(MPI_ERR_OP, MPI_Allreduce(&word, &sum, 1, MPI_INT, MPI_OP_NULL, comm));
        REFUSED(MPI_ERR_OP, MPI_Allreduce(&word, &sum, 1, MPI_FLOAT, MPI_BAND, comm));
        EXPECT(raised == 6, "round %d: the error handler was called %d times, not 6", i, raised);
        three(comm, 1);
    }
    MPI(MPI_Errhandler_free(&handler));
    MPI(MPI_Comm_free(&comm));
}

/* [CL-3] Calls that do not match between processes. */
static void mismatch(void)
{
    MPI_Comm comm;
    char data[16] = {0};
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    three(comm, ROUNDS);
    for (int i = 0; i < 3; i++) {
        int code = MPI_Bcast(data, me == 0 ? 8 : 4, MPI_BYTE, 0, comm);
        EXPECT(class_of(code) == (me == 0 ? MPI_SUCCESS : MPI_ERR_TRUNCATE), "too long: class %d",
               class_of(code));
        code = MPI_Bcast(data, me == 0 ? 4 : 8, MPI_BYTE, 0, comm);
        EXPECT(class_of(code) == (me == 0 ? MPI_SUCCESS : MPI_ERR_OTHER), "too short: class %d",
               class_of(code));
        int in[2] = {1, 1}, out[2];
        REFUSED(MPI_ERR_TRUNCATE,
                MPI_Allreduce(in, out, me == 0 ? 1 : 2, MPI_INT, MPI_SUM, comm));
        REFUSED(MPI_ERR_OP,
                MPI_Allreduce(in, out, 1, MPI_INT, me == 0 ? MPI_SUM : MPI_MAX, comm));
        three(comm, 1);
    }
    MPI(MPI_Comm_free(&comm));
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    test_begin_threads(&argc, &argv,
                       strcmp(part, "threads") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    if (strcmp(part, "threads") == 0)
        threads();
    else if (strcmp(part, "errors") == 0)
        errors();
    else if (strcmp(part, "mismatch") == 0)
        mismatch();
    else
        on_all_kinds();
    return test_end();
}
