/*
 * The limit of pending requests, MPIX_RMA_MAX_REQUESTS [RQ-3]. Beyond it, calls return
 * MPI_ERR_NO_MEM and change nothing; all requests complete once the target posts. Also prints the
 * time to record an epoch with ten pending and near the limit. Times are not checked.
 *
 *   cap KIND
 */
#include "check.h"
#include <malloc.h>
#include <sys/resource.h>
#include <time.h>

/* CPU time, so that other load on the machine does not count. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static long faults(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_minflt;
}

/* WANTED is above any value of MPIX_RMA_MAX_REQUESTS. */
enum { FEW = 10, CHUNK = 1000, CHUNKS = 251, WANTED = CHUNK * CHUNKS };

/* Seconds per epoch, for each chunk of CHUNK epochs. */
static double chunk[CHUNKS];

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nanoseconds. */
static double median(int chunks)
{
    qsort(chunk, chunks, sizeof *chunk, by_size);
    return chunks ? chunk[chunks / 2] * 1e9 : 0;
}

static double mean(int chunks)
{
    double sum = 0;
    for (int i = 0; i < chunks; i++)
        sum += chunk[i];
    return chunks ? sum / chunks * 1e9 : 0;
}

/* The cost of reading the clock, subtracted where only ten epochs are timed. */
static double clock_cost(void)
{
    double start = now();
    for (int i = 0; i < 1000; i++)
        now();
    return (now() - start) / 1001;
}

static Window w;
static int64_t value = 3;
static MPI_Group zero, one;

/* Opens and closes `count` epochs, or as many as the library accepts. */
static int pile_up(int count, MPI_Request *r)
{
    MPI_Request opening;
    for (int n = 0; n < count; n++) {
        int code = MPIX_Win_istart(one, 0, w.win, &opening);
        if (code != MPI_SUCCESS) {
            EXPECT(class_of(code) == MPI_ERR_NO_MEM, "istart %d: class %d", n, class_of(code));
            return n;
        }
        MPI(MPI_Request_free(&opening));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, w.win));
        code = MPIX_Win_icomplete(w.win, &r[n]);
        if (code != MPI_SUCCESS) {
            EXPECT(class_of(code) == MPI_ERR_NO_MEM, "icomplete %d: class %d", n, class_of(code));
            return n;
        }
    }
    return count;
}

/* Process 1 opens and closes as many exposures. */
static void expose(int count)
{
    for (int i = 0; i < count; i++) {
        MPI(MPI_Win_post(zero, 0, w.win));
        MPI(MPI_Win_wait(w.win));
    }
}

/* A chunk of epochs, ten at a time: the median cost of one. */
static double few_pending(MPI_Request *r)
{
    const int chunks = 21;
    double asking = clock_cost();
    for (int c = 0; c < chunks; c++)
        for (int turn = 0; turn < CHUNK / FEW; turn++)
            if (me == 0) {
                double start = now();
                REQUIRE(pile_up(FEW, r) == FEW);
                chunk[c] += (now() - start - asking) / CHUNK;
                send_token(1, 1);
                MPI(MPI_Waitall(FEW, r, MPI_STATUSES_IGNORE));
            } else {
                recv_token(0, 1);
                expose(FEW);
            }
    return median(chunks);
}

/* Up to the limit. */
static void many_pending(MPI_Request *r, const char *memory, double few)
{
    int n = 0;
    if (me == 0) {
        int c = 0, more = 0;
        long before = faults();
        double start = now();
        while (n < WANTED && (more = pile_up(CHUNK, r + n)) == CHUNK) {
            double end = now();
            chunk[c++] = (end - start) / CHUNK;
            start = end;
            n += CHUNK;
        }
        long taken = faults() - before;
        n += more;
        EXPECT(n < WANTED, "no limit: %d requests are pending", n);
        EXPECT(n >= 100000, "refused with only %d pending requests", n);
        double all = mean(c), half = median(c);
        printf("NOTE %d epochs pending, %s: %.0f ns each to record (median; mean %.0f, %.2f "
               "new pages each); with %d pending %.0f ns\n",
               n, memory, half, all, (double)taken / n, FEW, few);
        MPI(MPI_Send(&n, 1, MPI_INT, 1, 2, MPI_COMM_WORLD));
        MPI(MPI_Waitall(n, r, MPI_STATUSES_IGNORE));
        if (n < WANTED) {
            /* The refused call changed nothing: the epoch is still open, and closes now that there
             * is room. */
            MPI_Request again;
            send_token(1, 3);
            MPI(MPIX_Win_icomplete(w.win, &again));
            finish(&again);
        }
    } else {
        MPI(MPI_Recv(&n, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        expose(n);
        if (n < WANTED) {
            recv_token(0, 3);
            expose(1);
        }
        EXPECT(load64(w.base) == 3, "put: %ld", (long)load64(w.base));
    }
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(argc == 2 && ranks == 2);
    zero = group_one(0);
    one = group_one(1);
    w = window(strcmp(argv[1], "created") == 0, sizeof(int64_t), 1);
    MPI(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    MPI_Request *r = malloc(WANTED * sizeof *r);
    REQUIRE(r);
    for (int i = 0; i < WANTED; i++)
        r[i] = MPI_REQUEST_NULL;
    double few = few_pending(r);
    many_pending(r, "with new requests of the host", few);
    many_pending(r, "again", few);
    /* Getting freed memory back from the kernel is not an epoch's own cost: repeat with malloc
     * keeping it. */
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT32_MAX);
    many_pending(r, "malloc starts to keep memory", few);
    many_pending(r, "in memory that malloc kept", few);
    free(r);
    MPI(MPI_Group_free(&zero));
    MPI(MPI_Group_free(&one));
    window_free(&w);
    return test_end();
}
