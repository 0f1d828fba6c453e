/*
 * Persistent collectives [CL-4], [CL-5]: every call, with many lengths, in place, with derived
 * datatypes and operations of the program, restarted with other contents, in arrays with other
 * requests, and with wrong arguments.
 *
 *   persistent_collectives [calls | lengths | orders | mixed | lifetimes | memory | errors |
 *                           threads | windows | attached | host]
 *
 * "host": MPIX_RMA_COLLECTIVES=host, so checks of what only this library says are left out.
 */
#include "persistent_calls.h"
#include <math.h>
#include <pthread.h>
#include <sys/mman.h>

enum { RESTARTS = 1000, FEW = 5, THREADS = 3 };

/* x -> a x + b, composed from left to right: not commutative. Items are pairs of ints. */
static void compose(void *left, void *right, int *n, MPI_Datatype *type)
{
    (void)type;
    unsigned *first = left, *second = right;
    for (int i = 0; i < *n; i++, first += 2, second += 2) {
        second[1] = second[0] * first[1] + second[1];
        second[0] = second[0] * first[0];
    }
}

static void user_operations(void)
{
    enum { N = 300 };
    MPI_Op op;
    MPI_Datatype pair;
    MPI_Request reduce, allreduce, scan;
    unsigned in[2 * N], out[2 * N], wanted[2 * N];
    MPI(MPI_Op_create(compose, 0, &op));
    MPI(MPI_Type_contiguous(2, MPI_INT, &pair));
    MPI(MPI_Type_commit(&pair));
    MPI(MPIX_Reduce_init(in, out, N, pair, op, 0, comm, MPI_INFO_NULL, &reduce));
    MPI(MPIX_Allreduce_init(in, out, N, pair, op, comm, MPI_INFO_NULL, &allreduce));
    MPI(MPIX_Scan_init(in, out, N, pair, op, comm, MPI_INFO_NULL, &scan));
    MPI(MPI_Op_free(&op));
    MPI(MPI_Type_free(&pair));
    for (int i = 0; i < FEW; i++) {
        MPI_Request *all[] = {&reduce, &allreduce, &scan};
        for (int k = 0; k < 3; k++) {
            int upto = k == 2 ? rank + 1 : size, n = N;
            for (int at = 0; at < 2 * N; at++) {
                in[at] = (unsigned)item(i, rank, 0, at);
                wanted[at] = (unsigned)item(i, 0, 0, at);
            }
            for (int r = 1; r < upto; r++) {
                unsigned next[2 * N];
                for (int at = 0; at < 2 * N; at++)
                    next[at] = (unsigned)item(i, r, 0, at);
                compose(wanted, next, &n, NULL);
                memcpy(wanted, next, sizeof wanted);
            }
            run(all[k]);
            EXPECT(k == 0 ? rank != 0 || !memcmp(out, wanted, sizeof out)
                          : !memcmp(out, wanted, sizeof out),
                   "operation of the program, call %d", k);
        }
    }
    MPI(MPI_Request_free(&reduce));
    MPI(MPI_Request_free(&allreduce));
    MPI(MPI_Request_free(&scan));
}

/* Every second int; one process receives into a dense buffer. */
static void derived(void)
{
    enum { N = 700 };
    MPI_Datatype every_second;
    MPI_Request bcast, gather, exchange;
    int *data = ints(2 * N * size), *all = ints(2 * N * size);
    MPI(MPI_Type_vector(N, 1, 2, MPI_INT, &every_second));
    MPI(MPI_Type_create_resized(every_second, 0, 2 * N * sizeof(int), &every_second));
    MPI(MPI_Type_commit(&every_second));
    int dense = rank == 1;
    MPI(MPIX_Bcast_init(data, dense ? N : 1, dense ? MPI_INT : every_second, 0, comm, MPI_INFO_NULL,
                        &bcast));
    MPI(MPIX_Allgather_init(data, 1, every_second, all, dense ? N : 1,
                            dense ? MPI_INT : every_second, comm, MPI_INFO_NULL, &gather));
    MPI(MPIX_Alltoall_init(data, 1, every_second, all, dense ? N : 1,
                           dense ? MPI_INT : every_second, comm, MPI_INFO_NULL, &exchange));
    MPI(MPI_Type_free(&every_second));
    int step = dense ? 1 : 2, n = N;
    for (int i = 0; i < FEW; i++) {
        for (int at = 0; at < N; at++)
            data[rank == 0 ? 2 * at : step * at] = rank == 0 ? item(i, 0, 0, at) : -1;
        run(&bcast);
        for (int at = 0; at < N; at++)
            SAME(data[step * at], item(i, 0, 0, at), "bcast of a vector");
        for (int at = 0; at < N * size; at++)
            data[2 * at] = item(i, rank, at / N, at % N);
        run(&gather);
        for (int at = 0; at < N * size; at++)
            SAME(all[step * at], item(i, at / N, 0, at % N), "allgather of vectors");
        run(&exchange);
        for (int at = 0; at < N * size; at++)
            SAME(all[step * at], item(i, at / N, rank, at % N), "alltoall of vectors");
    }
    MPI(MPI_Request_free(&bcast));
    MPI(MPI_Request_free(&gather));
    MPI(MPI_Request_free(&exchange));
    done_with(data), done_with(all);
}

/* A process leaves a barrier only after all have entered it. */
static void barriers(void)
{
    MPI_Win win;
    MPI_Request barrier;
    int64_t *own;
    MPI(MPI_Win_allocate(sizeof *own, sizeof *own, MPI_INFO_NULL, comm, &own, &win));
    *own = -1;
    MPI(MPI_Barrier(comm));
    MPI(MPIX_Barrier_init(comm, MPI_INFO_NULL, &barrier));
    MPI(MPI_Win_lock_all(0, win));
    for (int64_t i = 0; i < RESTARTS; i++) {
        MPI(MPI_Accumulate(&i, 1, MPI_INT64_T, rank, 0, 1, MPI_INT64_T, MPI_REPLACE, win));
        MPI(MPI_Win_flush(rank, win));
        run(&barrier);
        for (int r = 0; r < size; r++) {
            int64_t seen = -2;
            MPI(MPI_Fetch_and_op(NULL, &seen, MPI_INT64_T, r, 0, MPI_NO_OP, win));
            MPI(MPI_Win_flush(r, win));
            EXPECT(seen == i || seen == i + 1, "barrier %ld: process %d is at %ld", (long)i, r,
                   (long)seen);
        }
    }
    MPI(MPI_Win_unlock_all(win));
    MPI(MPI_Request_free(&barrier));
    MPI(MPI_Win_free(&win));
}

static void calls(void)
{
    static const int numbers[] = {0, 1, 5, 100, 3000, 40000};
    for (unsigned k = 0; k < sizeof numbers / sizeof *numbers; k++)
        for (int in_place = 0; in_place < 2; in_place++) {
            reductions(numbers[k], FEW, in_place);
            movements(numbers[k], FEW, in_place);
        }
    reductions(2, RESTARTS, 0);
    movements(2, RESTARTS, 0);
    reductions(3000, RESTARTS / 20, 1);
    movements(3000, RESTARTS / 20, 1);
    user_operations();
    derived();
    barriers();
}

/* Bytes around limits of the library. Process 1 comes late now and then. */
static void lengths(void)
{
    static const int bytes[] = {1,     7,     8,     9,      28,     29,      47,     48,    49,
                                56,    57,    64,    100,    1023,   1024,    1025,   2047,  2048,
                                2049,  4095,  4096,  4097,   8192,   16384,   16385,  32767, 32768,
                                32769, 65535, 65536, 131072, 524288, 524289,  1048579};
    for (unsigned k = 0; k < sizeof bytes / sizeof *bytes; k++) {
        int n = bytes[k];
        unsigned char *in = buffer(n * size + 1), *out = buffer(n * size + 1);
        MPI_Request bcast, allreduce, gather, exchange, reduce;
        MPI(MPIX_Bcast_init(out, n, MPI_BYTE, 0, comm, MPI_INFO_NULL, &bcast));
        MPI(MPIX_Allreduce_init(in, out, n, MPI_BYTE, MPI_BXOR, comm, MPI_INFO_NULL, &allreduce));
        MPI(MPIX_Reduce_init(in, out, n, MPI_BYTE, MPI_BXOR, size - 1, comm, MPI_INFO_NULL,
                             &reduce));
        MPI(MPIX_Allgather_init(in, n, MPI_BYTE, out, n, MPI_BYTE, comm, MPI_INFO_NULL, &gather));
        MPI(MPIX_Alltoall_init(in, n, MPI_BYTE, out, n, MPI_BYTE, comm, MPI_INFO_NULL, &exchange));
        for (int i = 0; i < FEW; i++) {
            int wrong = 0;
            unsigned char all;
            out[n] = 0xee;
            for (int at = 0; at < n; at++)
                out[at] = rank == 0 ? (unsigned char)item(i, 0, 0, at) : 0;
            run(&bcast);
            for (int at = 0; at < n; at++)
                wrong += out[at] != (unsigned char)item(i, 0, 0, at);
            for (int at = 0; at < n * size; at++)
                in[at] = (unsigned char)item(i, rank, at / n, at % n);
            EXPECT(!wrong && out[n] == 0xee, "bcast of %d bytes: %d wrong", n, wrong);
            if (rank == 1 && i == 2)
                for (volatile int work = 0; work < 1000000; work++)
                    ; /* late */
            run(&allreduce);
            for (int at = 0; at < n; at++) {
                all = 0;
                for (int r = 0; r < size; r++)
                    all ^= (unsigned char)item(i, r, 0, at);
                wrong += out[at] != all;
            }
            EXPECT(!wrong && out[n] == 0xee, "allreduce of %d bytes: %d wrong", n, wrong);
            run(&reduce);
            for (int at = 0; at < n && rank == size - 1; at++) {
                all = 0;
                for (int r = 0; r < size; r++)
                    all ^= (unsigned char)item(i, r, 0, at);
                wrong += out[at] != all;
            }
            EXPECT(!wrong && out[n] == 0xee, "reduce of %d bytes: %d wrong", n, wrong);
            out[n * size] = 0xee;
            run(&gather);
            for (int at = 0; at < n * size; at++)
                wrong += out[at] != (unsigned char)item(i, at / n, 0, at % n);
            EXPECT(!wrong && out[n * size] == 0xee, "allgather of %d bytes: %d wrong", n, wrong);
            run(&exchange);
            for (int at = 0; at < n * size; at++)
                wrong += out[at] != (unsigned char)item(i, at / n, rank, at % n);
            EXPECT(!wrong && out[n * size] == 0xee, "alltoall of %d bytes: %d wrong", n, wrong);
        }
        MPI_Request *all[] = {&bcast, &allreduce, &gather, &exchange, &reduce};
        for (int at = 0; at < 5; at++)
            MPI(MPI_Request_free(all[at]));
        done_with(in), done_with(out);
    }
}

/* Contribution of a process to a sum whose bits depend on the order. */
static double term(int i, int from, int at)
{
    /* volatile: no fused multiplication and addition in the sum. */
    volatile double value = (item(i, from, 0, at) % 1000 - 500) / 3.0 * (from % 2 ? 1e-3 : 1e7);
    return value;
}

/*
 * Sums of doubles have the bits of a sum in the order of ranks, in all processes and all starts. On
 * several nodes an allreduce has the same bits in all processes, but adds up the nodes' sums.
 */
static void orders(void)
{
    static const int numbers[] = {1, 7, 511, 512, 513, 4095, 4096, 4097, 70000};
    for (unsigned k = 0; k < sizeof numbers / sizeof *numbers; k++)
        for (int in_place = 0; in_place < 2; in_place++) {
            int n = numbers[k], starts = n < 1000 ? 60 : FEW;
            double *in = buffer(n * sizeof *in), *out = buffer(n * sizeof *out);
            double *first = buffer(n * sizeof *first);
            const void *from = in_place ? MPI_IN_PLACE : in;
            MPI_Request all, scan;
            MPI(MPIX_Allreduce_init(from, out, n, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &all));
            MPI(MPIX_Scan_init(from, out, n, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &scan));
            for (int i = 0; i < starts; i++)
                for (int inclusive = 0; inclusive < 2; inclusive++) {
                    int wrong = 0, upto = inclusive ? rank + 1 : size;
                    for (int at = 0; at < n; at++)
                        (in_place ? out : in)[at] = term(i, rank, at);
                    run(inclusive ? &scan : &all);
                    memcpy(first, out, n * sizeof *out);
                    if (is_apart && !inclusive)
                        MPI(MPI_Bcast(first, n, MPI_DOUBLE, 0, comm));
                    for (int at = 0; at < n; at++) {
                        double wanted = term(i, 0, at), sizes = fabs(wanted);
                        for (int r = 1; r < upto; r++) {
                            wanted += term(i, r, at);
                            sizes += fabs(term(i, r, at));
                        }
                        if (is_apart && fabs(wanted - first[at]) <= 1e-14 * sizes)
                            wanted = first[at];
                        wrong += memcmp(&out[at], &wanted, sizeof wanted) != 0;
                    }
                    EXPECT(!wrong, "%d doubles, start %d: %d sums have other bits", n, i, wrong);
                }
            MPI(MPI_Request_free(&all));
            MPI(MPI_Request_free(&scan));
            done_with(in), done_with(out), done_with(first);
        }
}

/* Arrays of persistent collectives, messages, persistent messages and requests of this library. */
static void mixed(void)
{
    enum { SUM, ALL, BARRIER, PART, RECEIVE, SEND, RECEIVE_INIT, SEND_INIT, NOTHING, NUMBER };
    enum { N = 5000 };
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    int *all = ints(size), *long_in = ints(N), *long_out = ints(N);
    int in, out, got, got_init, sent, sent_init;
    MPI_Request request[NUMBER], kept[NUMBER];
    MPI(MPIX_Allreduce_init(&in, &out, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &kept[SUM]));
    MPI(MPIX_Allgather_init(&in, 1, MPI_INT, all, 1, MPI_INT, comm, MPI_INFO_NULL, &kept[ALL]));
    MPI(MPIX_Barrier_init(comm, MPI_INFO_NULL, &kept[BARRIER]));
    MPI(MPIX_Allreduce_init(long_in, long_out, N, MPI_INT, MPI_MAX, comm, MPI_INFO_NULL,
                            &kept[PART]));
    MPI(MPI_Recv_init(&got_init, 1, MPI_INT, last, 7, comm, &kept[RECEIVE_INIT]));
    MPI(MPI_Send_init(&sent_init, 1, MPI_INT, next, 7, comm, &kept[SEND_INIT]));
    for (int i = 0; i < 60; i++) {
        MPI_Status statuses[NUMBER];
        int done = 0, flag, index, n = 1, at = 0, indices[NUMBER];
        memcpy(request, kept, sizeof request);
        request[NOTHING] = MPI_REQUEST_NULL;
        in = item(i, rank, 0, 0);
        out = got = got_init = -1;
        for (int k = 0; k < N; k++)
            long_in[k] = item(i, rank, 0, k);
        sent = item(i, rank, next, 1);
        sent_init = item(i, rank, next, 2);
        /* Processes start them in different orders. */
        for (int k = 0; k < 4; k++)
            MPI(MPI_Start(&request[(k + rank) % 4]));
        MPI(MPI_Irecv(&got, 1, MPI_INT, last, 3, comm, &request[RECEIVE]));
        MPI(MPI_Isend(&sent, 1, MPI_INT, next, 3, comm, &request[SEND]));
        MPI(MPI_Startall(2, &request[RECEIVE_INIT]));
        switch (i % 6) {
        case 0: MPI(MPI_Waitall(NUMBER, request, statuses)); break;
        case 1: MPI(MPI_Waitall(NUMBER, request, MPI_STATUSES_IGNORE)); break;
        case 2:
            do
                MPI(MPI_Testall(NUMBER, request, &flag, statuses));
            while (!flag);
            break;
        case 3:
            while (done < NUMBER - 1) {
                int number;
                MPI(MPI_Testsome(NUMBER, request, &number, indices, statuses));
                EXPECT(number != MPI_UNDEFINED, "none is active, but %d are done", done);
                done += number;
            }
            break;
        case 4:
            while (done < NUMBER - 1) {
                MPI(MPI_Waitany(NUMBER, request, &index, statuses));
                EXPECT(index >= 0 && index < NOTHING, "index %d", index);
                done++;
            }
            break;
        case 5:
            for (int k = 0; k < NOTHING; k++)
                do
                    MPI(MPI_Test(&request[(k + rank) % NOTHING], &flag, statuses));
                while (!flag);
            break;
        }
        SAME(out, sum(i, size, 0, 0), "sum");
        for (int r = 0; r < size; r++)
            SAME(all[r], item(i, r, 0, 0), "allgather");
        for (at = 0; at < N; at++)
            SAME(long_out[at], item(i, size - 1, 0, at), "maximum");
        SAME(got, item(i, last, rank, 1), "message");
        SAME(got_init, item(i, last, rank, 2), "persistent message");
        MPI(MPI_Waitall(4, request, MPI_STATUSES_IGNORE)); /* all inactive */
    }
    for (int k = 0; k < NOTHING; k++)
        if (k != RECEIVE && k != SEND)
            MPI(MPI_Request_free(&kept[k]));
    done_with(all), done_with(long_in), done_with(long_out);
}

/* Communicators that are freed before and while their collectives run; nested and split ones. */
static void lifetimes(void)
{
    MPI_Comm parent = comm, part;
    for (int round = 0; round < 6; round++) {
        int in, out, n = 1, i = round, at = 0, *all = ints(3000);
        MPI_Request reduce, bcast;
        if (round % 2)
            MPI(MPI_Comm_split(parent, rank % 2, -rank, &part));
        else
            MPI(MPI_Comm_dup(parent, &part));
        use(part);
        MPI(MPIX_Allreduce_init(&in, &out, 1, MPI_INT, MPI_SUM, part, MPI_INFO_NULL, &reduce));
        MPI(MPIX_Bcast_init(all, 3000, MPI_INT, size - 1, part, MPI_INFO_NULL, &bcast));
        if (round < 2)
            MPI(MPI_Comm_free(&part));
        for (i = 0; i < FEW; i++) {
            in = item(i, rank, 0, 0);
            for (int k = 0; k < 3000 && rank == size - 1; k++)
                all[k] = item(i, 3, 0, k);
            MPI(MPI_Start(&reduce));
            MPI(MPI_Start(&bcast));
            if (round >= 4 && i == FEW - 1)
                MPI(MPI_Comm_free(&part));
            MPI(MPI_Wait(&bcast, MPI_STATUS_IGNORE));
            MPI(MPI_Wait(&reduce, MPI_STATUS_IGNORE));
            SAME(out, sum(i, size, 0, 0), "sum");
            for (at = 0; at < 3000; at++)
                SAME(all[at], item(i, 3, 0, at), "bcast");
        }
        if (round == 2 || round == 3)
            MPI(MPI_Comm_free(&part));
        MPI(MPI_Request_free(&reduce));
        MPI(MPI_Request_free(&bcast));
        EXPECT(reduce == MPI_REQUEST_NULL, "a freed request is not MPI_REQUEST_NULL");
        use(parent);
        done_with(all);
    }
    if (size < 2)
        return;
    /* Both halves of an intercommunicator. */
    MPI_Comm half, inter;
    int low = rank < size / 2, in = rank, out = -1;
    MPI_Request reduce, barrier;
    MPI(MPI_Comm_split(parent, low, rank, &half));
    MPI(MPI_Intercomm_create(half, 0, parent, low ? size / 2 : 0, 5, &inter));
    MPI(MPIX_Allreduce_init(&in, &out, 1, MPI_INT, MPI_SUM, inter, MPI_INFO_NULL, &reduce));
    MPI(MPIX_Barrier_init(inter, MPI_INFO_NULL, &barrier));
    int wanted = 0;
    for (int r = low ? size / 2 : 0; r < (low ? size : size / 2); r++)
        wanted += r;
    for (int i = 0; i < FEW; i++) {
        out = -1;
        run(&barrier);
        run(&reduce);
        EXPECT(out == wanted, "sum of the other half: %d, not %d", out, wanted);
    }
    MPI(MPI_Request_free(&reduce));
    MPI(MPI_Request_free(&barrier));
    MPI(MPI_Comm_free(&inter));
    MPI(MPI_Comm_free(&half));
}

/* What collectives have mapped goes with their communicators, at the latest. */
static void memory(void)
{
    enum { WARM = 10, ROUNDS = 60, EACH = 3 };
    MPI_Comm parent = comm, part;
    MPI_Request request[EACH];
    int n = 3000, *data = ints(n), before = 0;
    for (int i = 0; i < ROUNDS; i++) {
        MPI(MPI_Comm_dup(parent, &part));
        use(part);
        for (int k = 0; k < EACH; k++)
            MPI(MPIX_Bcast_init(data, n, MPI_INT, k % size, part, MPI_INFO_NULL, &request[k]));
        for (int k = 0; k < EACH; k++) {
            for (int at = 0; at < n && rank == k % size; at++)
                data[at] = item(i, k, 0, at);
            run(&request[k]);
            for (int at = 0; at < n; at++)
                SAME(data[at], item(i, k, 0, at), "bcast");
            MPI(MPI_Request_free(&request[k]));
        }
        if (i % 2)
            MPI(MPI_Comm_disconnect(&part));
        else
            MPI(MPI_Comm_free(&part));
        int now = lines_in("/proc/self/maps");
        if (i == WARM)
            before = now;
        REQUIRE(now > 0);
        EXPECT(i < WARM || now < before + 10, "mappings: %d after %d rounds, %d after %d",
               before, WARM, now, i);
    }
    use(parent);
    done_with(data);
}

/* Buffers in windows, which are read in place; some processes have others, or the window ends. */
static void windows(void)
{
    enum { N = 5000 };
    MPI_Win win, other;
    MPI_Request late, gone;
    int *out = ints(N * size), *in, *unused;
    pool_room = (size_t)(size + 1) * 3 << 20;
    MPI(MPI_Win_allocate((MPI_Aint)pool_room, 1, MPI_INFO_NULL, comm, &pool, &win));
    calls();
    lengths();
    orders();
    mixed();
    for (int round = 0; round < 3; round++) {
        /* All but the last process have buffers in the window, or all, or every second one. */
        char *kept = pool;
        if (round == 0 ? rank == size - 1 : round == 2 && rank % 2)
            pool = NULL;
        reductions(3000, FEW, 0);
        movements(3000, FEW, round == 1);
        pool = kept;
    }
    pool = NULL;
    MPI(MPI_Win_free(&win));
    MPI(MPI_Win_allocate(N * sizeof *in, 1, MPI_INFO_NULL, comm, &in, &win));
    MPI(MPI_Win_allocate(N, 1, MPI_INFO_NULL, comm, &unused, &other));
    MPI(MPIX_Allgather_init(in, N, MPI_INT, out, N, MPI_INT, comm, MPI_INFO_NULL, &late));
    MPI(MPIX_Allreduce_init(in, out, N, MPI_INT, MPI_MAX, comm, MPI_INFO_NULL, &gone));
    MPI(MPI_Win_free(&other)); /* of no concern to them */
    for (int i = 0, n = N; i < FEW; i++) {
        for (int at = 0; at < N; at++)
            in[at] = item(i, rank, 0, at);
        run(&late);
        for (int at = 0; at < N * size; at++)
            SAME(out[at], item(i, at / N, 0, at % N), "allgather");
        run(&gone);
        for (int at = 0; at < N; at++)
            SAME(out[at], item(i, size - 1, 0, at), "allreduce");
    }
    MPI(MPI_Win_free(&win));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    /* Only buffers that are read in place must stay. */
    for (int at = 0; at < 2 && size > 1 && !is_apart; at++) {
        MPI_Request *dead = at ? &late : &gone;
        MPI(MPI_Start(dead));
        REFUSED(MPI_ERR_BUFFER, MPI_Wait(dead, MPI_STATUS_IGNORE));
    }
    MPI(MPI_Request_free(&late));
    MPI(MPI_Request_free(&gone));
    done_with(out);
}

/* Long contents outside of windows, which are read by cross-memory attach. */
static void attached(void)
{
    enum { N = 40000, BYTES = 1 << 20 };
    MPI_Request bcast;
    for (int in_place = 0; in_place < 2; in_place++) {
        reductions(N, FEW, in_place);
        movements(N, FEW, in_place);
    }
    orders();
    char *data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(data != MAP_FAILED);
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPIX_Bcast_init(data, BYTES, MPI_CHAR, 0, comm, MPI_INFO_NULL, &bcast));
    memset(data, rank == 0 ? 'x' : 'y', BYTES);
    run(&bcast);
    EXPECT(data[0] == 'x' && data[BYTES - 1] == 'x', "%c and %c", data[0], data[BYTES - 1]);
    /* A buffer that is gone is an error of those that read it, and they confirm that. */
    MPI(MPI_Barrier(comm));
    if (rank == 0)
        REQUIRE(munmap(data, BYTES) == 0);
    MPI(MPI_Start(&bcast));
    if (rank == 0)
        MPI(MPI_Wait(&bcast, MPI_STATUS_IGNORE));
    else
        REFUSED(MPI_ERR_BUFFER, MPI_Wait(&bcast, MPI_STATUS_IGNORE));
    MPI(MPI_Request_free(&bcast));
}

static void errors(void)
{
    int in = 1, out = 0, token = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    REFUSED(MPI_ERR_COMM, MPIX_Barrier_init(MPI_COMM_NULL, MPI_INFO_NULL, &request));
    REFUSED(MPI_ERR_COMM, MPIX_Allreduce_init(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL,
                                              MPI_INFO_NULL, &request));
    REFUSED(MPI_ERR_OP, MPIX_Allreduce_init(&in, &out, 1, MPI_INT, MPI_OP_NULL, comm, MPI_INFO_NULL,
                                            &request));
    REFUSED(MPI_ERR_OP, MPIX_Allreduce_init(&in, &out, 1, MPI_DOUBLE, MPI_BAND, comm, MPI_INFO_NULL,
                                            &request));
    REFUSED(MPI_ERR_COUNT, MPIX_Allreduce_init(&in, &out, -1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL,
                                               &request));
    REFUSED(MPI_ERR_TYPE, MPIX_Bcast_init(&in, 1, MPI_DATATYPE_NULL, 0, comm, MPI_INFO_NULL,
                                          &request));
    REFUSED(MPI_ERR_ROOT, MPIX_Bcast_init(&in, 1, MPI_INT, size, comm, MPI_INFO_NULL, &request));
    REFUSED(MPI_ERR_ROOT, MPIX_Reduce_init(&in, &out, 1, MPI_INT, MPI_SUM, -7, comm, MPI_INFO_NULL,
                                           &request));
    REFUSED(MPI_ERR_COUNT, MPIX_Alltoall_init(&in, -1, MPI_INT, &out, 1, MPI_INT, comm,
                                              MPI_INFO_NULL, &request));
    EXPECT(request == MPI_REQUEST_NULL, "a refused call has made a request");
    REFUSED(MPI_ERR_REQUEST, MPI_Start(&request));

    MPI(MPIX_Barrier_init(comm, MPI_INFO_NULL, &request));
    for (int i = 0; i < FEW; i++) {
        /* The others start when rank 0 has tried to free what is active. */
        if (rank != 0)
            MPI(MPI_Recv(&token, 1, MPI_INT, 0, i, comm, MPI_STATUS_IGNORE));
        MPI(MPI_Start(&request));
        if (!is_host && rank == 0) {
            MPI_Request copy = request;
            REFUSED(MPI_ERR_REQUEST, MPI_Start(&request));
            REFUSED(MPI_ERR_REQUEST, MPI_Request_free(&request));
            EXPECT(request == copy, "a request that was not freed has changed");
            MPI(MPI_Cancel(&request));
        }
        for (int r = 1; r < size && rank == 0; r++)
            MPI(MPI_Send(&token, 1, MPI_INT, r, i, comm));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    MPI(MPI_Request_free(&request));
}

static void *one_thread(void *number)
{
    MPI_Comm own = *(MPI_Comm *)number;
    int in, out, me_there, all;
    MPI_Request sum, barrier;
    MPI(MPI_Comm_rank(own, &me_there));
    MPI(MPI_Comm_size(own, &all));
    MPI(MPIX_Allreduce_init(&in, &out, 1, MPI_INT, MPI_SUM, own, MPI_INFO_NULL, &sum));
    MPI(MPIX_Barrier_init(own, MPI_INFO_NULL, &barrier));
    for (int i = 0; i < 300; i++) {
        MPI_Request both[] = {sum, barrier};
        in = i + me_there;
        MPI(MPI_Startall(2, both));
        MPI(MPI_Waitall(2, both, MPI_STATUSES_IGNORE));
        EXPECT(out == all * i + all * (all - 1) / 2, "sum of a thread: %d", out);
    }
    MPI(MPI_Request_free(&sum));
    MPI(MPI_Request_free(&barrier));
    return NULL;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    MPI_Comm own[THREADS];
    for (int i = 0; i < THREADS; i++)
        MPI(MPI_Comm_dup(comm, &own[i]));
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&thread[i], NULL, one_thread, &own[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < THREADS; i++)
        MPI(MPI_Comm_free(&own[i]));
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "all";
    int all = !strcmp(which, "all") || !strcmp(which, "host");
    is_host = !strcmp(which, "host");
    if (!strcmp(which, "threads"))
        test_begin_threads(&argc, &argv, MPI_THREAD_MULTIPLE);
    else
        test_begin(&argc, &argv);
    use(MPI_COMM_WORLD);
    if (all || !strcmp(which, "calls"))
        calls();
    if (all || !strcmp(which, "lengths"))
        lengths();
    if (!is_host && (all || !strcmp(which, "orders")))
        orders();
    if (all || !strcmp(which, "mixed"))
        mixed();
    if (all || !strcmp(which, "lifetimes"))
        lifetimes();
    if (all || !strcmp(which, "memory"))
        memory();
    if (!strcmp(which, "windows"))
        windows();
    if (!strcmp(which, "attached"))
        attached();
    if (all || !strcmp(which, "errors"))
        errors();
    if (!strcmp(which, "threads"))
        threads();
    return test_end();
}
