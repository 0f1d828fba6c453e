/*
 * Latencies of the requests that the library's calls make, posted by hand: what latency.c would
 * take if the library took no time. Prints one line of JSON: median microseconds.
 *
 *   put           an inline write and a signalled read behind it, two posts
 *   put_at_once   the same, in one post
 *   get           a read
 *   lock          an atomic
 *
 *   bare [CALLS]
 */
#include "end.h"

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

enum { SOME = 20, CHUNK = 8 };

static struct end mine, other;

static void *open_other(void *unused)
{
    (void)unused;
    open_end(&other);
    return NULL;
}

/* Without a pause, as the library polls. */
static void spin(void)
{
    struct ibv_wc done;
    int n;
    while ((n = ibv_poll_cq(mine.sent, 1, &done)) == 0)
        ;
    MUST(n == 1 && done.status == IBV_WC_SUCCESS);
}

static void put(int at_once)
{
    struct ibv_send_wr write = request(&mine, IBV_WR_RDMA_WRITE, 64, CHUNK, IBV_SEND_INLINE);
    struct ibv_sge written = piece;
    struct ibv_send_wr read = request(&mine, IBV_WR_RDMA_READ, 128, CHUNK, IBV_SEND_SIGNALED);
    write.sg_list = &written;
    if (at_once)
        write.next = &read;
    post(&mine, write);
    if (!at_once)
        post(&mine, read);
    spin();
}

static void put_in_two(void) { put(0); }
static void put_at_once(void) { put(1); }

static void get(void)
{
    post(&mine, request(&mine, IBV_WR_RDMA_READ, 128, CHUNK, IBV_SEND_SIGNALED));
    spin();
}

static void lock(void)
{
    post(&mine, atomic_request(&mine, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0));
    spin();
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double measure(void (*what)(void), int calls, double *times)
{
    for (int call = -SOME; call < calls; call++) {
        double begin = now();
        what();
        if (call >= 0)
            times[call] = (now() - begin) * 1e6;
    }
    qsort(times, (size_t)calls, sizeof *times, compare);
    return times[calls / 2];
}

int main(int argc, char **argv)
{
    int pair[2], calls = argc > 1 ? atoi(argv[1]) : 500;
    pthread_t thread;
    MUST(calls > 0 && !socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    mine.wire = pair[0], other.wire = pair[1];
    MUST(!pthread_create(&thread, NULL, open_other, NULL));
    open_end(&mine);
    pthread_join(thread, NULL);
    double *times = malloc((size_t)calls * sizeof *times);
    MUST(times);
    memset(mine.memory + SIZE + 64, 7, CHUNK);
    double puts = measure(put_in_two, calls, times), chained = measure(put_at_once, calls, times);
    double gets = measure(get, calls, times), locks = measure(lock, calls, times);
    MUST(!memcmp(other.memory + 64, mine.memory + SIZE + 64, CHUNK));
    MUST(*(int64_t *)(void *)other.memory == calls + SOME);
    printf("{\"put\": %.2f, \"put_at_once\": %.2f, \"get\": %.2f, \"lock\": %.2f}\n", puts,
           chained, gets, locks);
    return 0;
}
