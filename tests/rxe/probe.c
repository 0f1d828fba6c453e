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
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MUST(what)                                                                                 \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "FAILED line %d: %s\n", __LINE__, #what);                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
enum {
    SIZE = 1 << 20,
    PORT = 7998,
    ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
             IBV_ACCESS_REMOTE_ATOMIC
};

/* Connection data that the ends exchange. */
struct name { uint32_t queue, key; uint64_t address; union ibv_gid gid; };

struct end {
    struct ibv_pd *domain;
    struct ibv_cq *sent, *received;
    struct ibv_srq *receives;
    struct ibv_qp *queue;
    struct ibv_mr *region;
    unsigned char *memory; /* first half: the other end works on it; second half: our sends */
    struct name mine, other;
    int wire;                      /* TCP stream to the other end */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void exchange(struct end *e, const void *mine, void *other, size_t size)
{
    MUST(write(e->wire, mine, size) == (ssize_t)size);
    for (size_t have = 0; have < size;) {
        ssize_t n = read(e->wire, (char *)other + have, size - have);
        MUST(n > 0);
        have += (size_t)n;
    }
}

static void meet(struct end *e)
{
    char mine = 1, other;
    exchange(e, &mine, &other, 1);
}

/* Index of the port's IPv4 address for RoCE v2. */
static int ipv4_gid(struct ibv_context *context, union ibv_gid *gid)
{
    for (int index = 0; ibv_query_gid(context, 1, index, gid) == 0; index++)
        if (!memcmp(gid->raw, "\0\0\0\0\0\0\0\0\0\0\377\377", 12))
            return index;
    return -1;
}

static void open_end(struct end *e)
{
    int count;
    struct ibv_device **devices = ibv_get_device_list(&count);
    MUST(devices && count > 0);
    struct ibv_context *context = ibv_open_device(devices[0]);
    MUST(context);
    MUST(e->domain = ibv_alloc_pd(context));
    MUST(e->sent = ibv_create_cq(context, 256, NULL, NULL, 0));
    MUST(e->received = ibv_create_cq(context, 256, NULL, NULL, 0));
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 64, .max_sge = 1}};
    MUST(e->receives = ibv_create_srq(e->domain, &shared));
    MUST(e->memory = aligned_alloc(4096, 2 * SIZE));
    memset(e->memory, 0, 2 * SIZE);
    MUST(e->region = ibv_reg_mr(e->domain, e->memory, 2 * SIZE, ACCESS));
    struct ibv_qp_init_attr init = {
        .send_cq = e->sent,
        .recv_cq = e->received,
        .srq = e->receives,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 128, .max_send_sge = 2, .max_inline_data = 64}};
    MUST(e->queue = ibv_create_qp(e->domain, &init));
    int index = ipv4_gid(context, &e->mine.gid);
    MUST(index >= 0);
    e->mine.queue = e->queue->qp_num;
    e->mine.key = e->region->rkey;
    e->mine.address = (uintptr_t)e->memory;
    exchange(e, &e->mine, &e->other, sizeof e->mine);

    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS};
    MUST(!ibv_modify_qp(e->queue, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_4096,
        .dest_qp_num = e->other.queue,
        .max_dest_rd_atomic = 16,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1,
                    .port_num = 1,
                    .grh = {.dgid = e->other.gid, .sgid_index = (uint8_t)index, .hop_limit = 8}}};
    MUST(!ibv_modify_qp(e->queue, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                .timeout = 17,
                                .retry_cnt = 7,
                                .rnr_retry = 7,
                                .max_rd_atomic = 16};
    MUST(!ibv_modify_qp(e->queue, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
    meet(e);
}

static struct ibv_wc next(struct ibv_cq *queue)
{
    struct ibv_wc done;
    double end = now() + 30;
    int n;
    /* Guests may have only one processor. */
    while ((n = ibv_poll_cq(queue, 1, &done)) == 0) {
        MUST(now() < end);
        sched_yield();
    }
    MUST(n == 1);
    return done;
}

static struct ibv_sge piece;
static struct ibv_send_wr request(struct end *e, enum ibv_wr_opcode code, size_t at,
                                  uint32_t length, unsigned flags)
{
    piece = (struct ibv_sge){(uintptr_t)e->memory + SIZE + at, length, e->region->lkey};
    struct ibv_send_wr r = {
        .sg_list = &piece, .num_sge = length > 0, .opcode = code, .send_flags = flags};
    r.wr.rdma.remote_addr = e->other.address + at;
    r.wr.rdma.rkey = e->other.key;
    return r;
}

static void post(struct end *e, struct ibv_send_wr r)
{
    struct ibv_send_wr *bad;
    MUST(!ibv_post_send(e->queue, &r, &bad));
}

static void post_and_wait(struct end *e, struct ibv_send_wr r)
{
    post(e, r);
    struct ibv_wc done = next(e->sent);
    if (done.status != IBV_WC_SUCCESS)
        fprintf(stderr, "completion: %s\n", ibv_wc_status_str(done.status));
    MUST(done.status == IBV_WC_SUCCESS);
}

static uint64_t atomic(struct end *e, enum ibv_wr_opcode code, uint64_t add_or_compare,
                       uint64_t swap)
{
    struct ibv_send_wr r = request(e, code, 0, 8, IBV_SEND_SIGNALED);
    r.wr.atomic.remote_addr = e->other.address;
    r.wr.atomic.rkey = e->other.key;
    r.wr.atomic.compare_add = add_or_compare;
    r.wr.atomic.swap = swap;
    post_and_wait(e, r);
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
