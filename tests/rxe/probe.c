/*
 * Checks that a guest's verbs do what the library needs. Between two reliable queue pairs, in this
 * process or in two that meet over TCP: writes (long, chained with one completion, inline), writes
 * with immediate data into a shared receive queue, reads, both atomics, a late receiver, and an
 * invalid key. Every byte is checked.
 *
 *   probe                both ends in this process
 *   probe listen         one end; waits for the other
 *   probe connect HOST   the other end, which runs the checks
 */
#include "end.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 7998 };

static uint64_t atomic(struct end *e, enum ibv_wr_opcode code, uint64_t add_or_compare,
                       uint64_t swap)
{
    post_and_wait(e, atomic_request(e, code, add_or_compare, swap));
    return *(uint64_t *)(e->memory + SIZE);
}

static unsigned char byte_of(size_t k) { return (unsigned char)(k * 31 + (k >> 8)); }

/* The end that runs the checks. */
static void active(struct end *e)
{
    open_end(e);
    unsigned char *source = e->memory + SIZE;
    for (size_t k = 0; k < SIZE; k++)
        source[k] = byte_of(k);
    post_and_wait(e, request(e, IBV_WR_RDMA_WRITE, 0, SIZE, IBV_SEND_SIGNALED));
    meet(e), meet(e); /* the other end checks its memory */
    puts("write");

    for (int k = 0; k < 32; k++)
        post(e, request(e, IBV_WR_RDMA_WRITE, (size_t)k * 8, 8, k == 31 ? IBV_SEND_SIGNALED : 0));
    MUST(next(e->sent).status == IBV_WC_SUCCESS);
    struct ibv_wc more;
    MUST(ibv_poll_cq(e->sent, 1, &more) == 0);
    puts("chain with one completion");

    struct ibv_send_wr r = request(e, IBV_WR_RDMA_WRITE_WITH_IMM, 64, 4096, IBV_SEND_SIGNALED);
    r.imm_data = htonl(0xdeadbeef);
    post_and_wait(e, r);
    r = request(e, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, IBV_SEND_SIGNALED);
    r.imm_data = htonl(0x1234);
    post_and_wait(e, r);
    r = request(e, IBV_WR_SEND_WITH_IMM, 0, 48, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    r.imm_data = htonl(5);
    post(e, r);
    memset(source, 0, 48); /* inline: the data was copied */
    MUST(next(e->sent).status == IBV_WC_SUCCESS);
    meet(e);
    puts("immediate data, shared receive queue, inline");

    memset(source, 0, SIZE);
    post_and_wait(e, request(e, IBV_WR_RDMA_READ, 0, 65536, IBV_SEND_SIGNALED));
    for (size_t k = 0; k < 65536; k++)
        MUST(source[k] == byte_of(k));
    meet(e), meet(e); /* the other end resets its counter */
    puts("read");

    for (uint64_t k = 0; k < 200; k++)
        MUST(atomic(e, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 0) == 3 * k);
    MUST(atomic(e, IBV_WR_ATOMIC_CMP_AND_SWP, 600, 42) == 600);
    MUST(atomic(e, IBV_WR_ATOMIC_CMP_AND_SWP, 600, 43) == 42);
    meet(e);
    puts("atomics");

    post_and_wait(e, request(e, IBV_WR_SEND, 0, 32, IBV_SEND_SIGNALED));
    meet(e);
    puts("late receiver");

    r = request(e, IBV_WR_RDMA_WRITE, 0, 8, IBV_SEND_SIGNALED);
    r.wr.rdma.rkey ^= 0x5500;
    post(e, r);
    MUST(next(e->sent).status == IBV_WC_REM_ACCESS_ERR);
    meet(e);
    puts("wrong key");
}

static void expect_receives(struct end *e, int count)
{
    struct ibv_sge place = {(uintptr_t)e->memory + SIZE, 4096, e->region->lkey};
    struct ibv_recv_wr receive = {.sg_list = &place, .num_sge = 1}, *bad;
    while (count-- > 0)
        MUST(!ibv_post_srq_recv(e->receives, &receive, &bad));
}

/* How often this device refused a message for lack of a receive (RNR). */
static long refusals(struct end *e)
{
    char path[256];
    long count = -1;
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/hw_counters/send_rnr_err",
             ibv_get_device_name(e->domain->context->device));
    FILE *file = fopen(path, "r");
    MUST(file && fscanf(file, "%ld", &count) == 1);
    fclose(file);
    return count;
}

/* The passive end. */
static void passive(struct end *e)
{
    open_end(e);
    long before = refusals(e);
    expect_receives(e, 3);
    meet(e);
    for (size_t k = 0; k < SIZE; k++)
        MUST(e->memory[k] == byte_of(k));
    meet(e);
    struct ibv_wc done = next(e->received);
    MUST(done.status == IBV_WC_SUCCESS && done.opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
         ntohl(done.imm_data) == 0xdeadbeef && done.byte_len == 4096);
    done = next(e->received);
    MUST(done.status == IBV_WC_SUCCESS && done.opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
         ntohl(done.imm_data) == 0x1234 && done.byte_len == 0);
    done = next(e->received);
    MUST(done.status == IBV_WC_SUCCESS && done.opcode == IBV_WC_RECV && ntohl(done.imm_data) == 5 &&
         done.byte_len == 48);
    for (size_t k = 0; k < 48; k++)
        MUST(e->memory[SIZE + k] == byte_of(k));
    meet(e);
    meet(e);
    memset(e->memory, 0, 4096);
    meet(e);
    meet(e);
    MUST(*(uint64_t *)e->memory == 42);
    /* Late: the sender was refused before. */
    for (double end = now() + 30; refusals(e) == before; sched_yield())
        MUST(now() < end);
    expect_receives(e, 1);
    done = next(e->received);
    MUST(done.status == IBV_WC_SUCCESS && done.byte_len == 32);
    meet(e);
    meet(e);
    MUST(*(uint64_t *)e->memory == 42);
}

static void *passive_thread(void *e)
{
    passive(e);
    return NULL;
}

static int listen_here(void)
{
    int s = socket(AF_INET, SOCK_STREAM, 0), yes = 1, wire;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    MUST(!bind(s, (void *)&here, sizeof here) && !listen(s, 1));
    MUST((wire = accept(s, NULL, NULL)) >= 0);
    return wire;
}

static int connect_to(const char *host)
{
    struct addrinfo hint = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    MUST(!getaddrinfo(host, NULL, &hint, &found));
    ((struct sockaddr_in *)found->ai_addr)->sin_port = htons(PORT);
    for (double end = now() + 30;; sched_yield()) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (!connect(s, found->ai_addr, found->ai_addrlen))
            return s;
        close(s);
        MUST(now() < end);
    }
}

int main(int argc, char **argv)
{
    static struct end one, two;
    if (argc == 3) {
        one.wire = connect_to(argv[2]);
        active(&one);
    } else if (argc == 2) {
        one.wire = listen_here();
        passive(&one);
    } else {
        int pair[2];
        pthread_t thread;
        MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        one.wire = pair[0], two.wire = pair[1];
        MUST(!pthread_create(&thread, NULL, passive_thread, &two));
        active(&one);
        pthread_join(thread, NULL);
    }
    puts("OK");
    return 0;
}
