#include "end.h"

#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
             IBV_ACCESS_REMOTE_ATOMIC
};

double now(void)
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

void meet(struct end *e)
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

void open_end(struct end *e)
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

struct ibv_wc next(struct ibv_cq *queue)
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

struct ibv_sge piece;

struct ibv_send_wr request(struct end *e, enum ibv_wr_opcode code, size_t at, uint32_t length,
                           unsigned flags)
{
    piece = (struct ibv_sge){(uintptr_t)e->memory + SIZE + at, length, e->region->lkey};
    struct ibv_send_wr r = {
        .sg_list = &piece, .num_sge = length > 0, .opcode = code, .send_flags = flags};
    r.wr.rdma.remote_addr = e->other.address + at;
    r.wr.rdma.rkey = e->other.key;
    return r;
}

void post(struct end *e, struct ibv_send_wr r)
{
    struct ibv_send_wr *bad;
    MUST(!ibv_post_send(e->queue, &r, &bad));
}

void post_and_wait(struct end *e, struct ibv_send_wr r)
{
    post(e, r);
    struct ibv_wc done = next(e->sent);
    if (done.status != IBV_WC_SUCCESS)
        fprintf(stderr, "completion: %s\n", ibv_wc_status_str(done.status));
    MUST(done.status == IBV_WC_SUCCESS);
}

struct ibv_send_wr atomic_request(struct end *e, enum ibv_wr_opcode code, uint64_t add_or_compare,
                                  uint64_t swap)
{
    struct ibv_send_wr r = request(e, code, 0, 8, IBV_SEND_SIGNALED);
    r.wr.atomic.remote_addr = e->other.address;
    r.wr.atomic.rkey = e->other.key;
    r.wr.atomic.compare_add = add_or_compare;
    r.wr.atomic.swap = swap;
    return r;
}
