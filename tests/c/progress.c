/*
 * Progress inside the host's own calls [PR-1]. Process 0 has a pending epoch and waits in a host
 * call; the others reach their part of that call only after the epoch has advanced. Only process 0
 * has something pending: if the library replaces a collective by its nonblocking form, it must do
 * so in all processes [PR-5].
 */
#include "check.h"

static Window w;
static MPI_Comm comm;
static int all_in[4096], all_out[4096];

static void tell_on(int rank, int tag) { MPI(MPI_Send(NULL, 0, MPI_BYTE, rank, tag, comm)); }
static void hear_on(int rank, int tag)
{
    MPI(MPI_Recv(NULL, 0, MPI_BYTE, rank, tag, comm, MPI_STATUS_IGNORE));
}

/* All processes call this: process 0 first, the others after the epoch. */
static void call_recv(void) { me == 0 ? hear_on(1, 1) : me == 1 ? tell_on(0, 1) : (void)0; }
static void call_irecv_wait(void)
{
    MPI_Request r;
    if (me == 0) {
        MPI(MPI_Irecv(NULL, 0, MPI_BYTE, 1, 1, comm, &r));
        MPI(MPI_Wait(&r, MPI_STATUS_IGNORE));
    } else if (me == 1)
        tell_on(0, 1);
}
static void call_irecv_test(void)
{
    MPI_Request r;
    int flag = 0;
    if (me == 0) {
        MPI(MPI_Irecv(NULL, 0, MPI_BYTE, 1, 1, comm, &r));
        while (!flag)
            MPI(MPI_Test(&r, &flag, MPI_STATUS_IGNORE));
    } else if (me == 1)
        tell_on(0, 1);
}
static void call_probe(void)
{
    MPI_Status s;
    if (me == 0) {
        MPI(MPI_Probe(1, 1, comm, &s));
        hear_on(1, 1);
    } else if (me == 1)
        tell_on(0, 1);
}
static void call_iprobe(void)
{
    int flag = 0;
    if (me == 0) {
        while (!flag)
            MPI(MPI_Iprobe(1, 1, comm, &flag, MPI_STATUS_IGNORE));
        hear_on(1, 1);
    } else if (me == 1)
        tell_on(0, 1);
}
static void call_mprobe(void)
{
    MPI_Message m;
    if (me == 0) {
        MPI(MPI_Mprobe(1, 1, comm, &m, MPI_STATUS_IGNORE));
        MPI(MPI_Mrecv(NULL, 0, MPI_BYTE, &m, MPI_STATUS_IGNORE));
    } else if (me == 1)
        tell_on(0, 1);
}
static void call_improbe(void)
{
    MPI_Message m;
    int flag = 0;
    if (me == 0) {
        while (!flag)
            MPI(MPI_Improbe(1, 1, comm, &flag, &m, MPI_STATUS_IGNORE));
        MPI(MPI_Mrecv(NULL, 0, MPI_BYTE, &m, MPI_STATUS_IGNORE));
    } else if (me == 1)
        tell_on(0, 1);
}
static void call_ssend(void)
{
    if (me == 0)
        MPI(MPI_Ssend(NULL, 0, MPI_BYTE, 1, 1, comm));
    else if (me == 1)
        hear_on(0, 1);
}
static void call_send_large(void)
{
    static char big[4 << 20];
    if (me == 0)
        MPI(MPI_Send(big, sizeof big, MPI_BYTE, 1, 1, comm));
    else if (me == 1)
        MPI(MPI_Recv(big, sizeof big, MPI_BYTE, 0, 1, comm, MPI_STATUS_IGNORE));
}
static void call_sendrecv(void)
{
    int peer = me ^ 1;
    if (me < 2)
        MPI(MPI_Sendrecv(&me, 1, MPI_INT, peer, 1, all_in, 1, MPI_INT, peer, 1, comm,
                         MPI_STATUS_IGNORE));
}
static void call_sendrecv_replace(void)
{
    int peer = me ^ 1;
    if (me < 2)
        MPI(MPI_Sendrecv_replace(all_in, 1, MPI_INT, peer, 1, peer, 1, comm, MPI_STATUS_IGNORE));
}
static void call_barrier(void) { MPI(MPI_Barrier(comm)); }
static void call_bcast(void) { MPI(MPI_Bcast(all_in, 1, MPI_INT, 1, comm)); }
static void call_reduce(void) { MPI(MPI_Reduce(&me, all_in, 1, MPI_INT, MPI_SUM, 0, comm)); }
static void call_allreduce(void) { MPI(MPI_Allreduce(&me, all_in, 1, MPI_INT, MPI_SUM, comm)); }
static void call_gather(void) { MPI(MPI_Gather(&me, 1, MPI_INT, all_in, 1, MPI_INT, 0, comm)); }
static void call_scatter(void)
{
    MPI(MPI_Scatter(all_out, 1, MPI_INT, all_in, 1, MPI_INT, 1, comm));
}
static void call_allgather(void) { MPI(MPI_Allgather(&me, 1, MPI_INT, all_in, 1, MPI_INT, comm)); }
static void call_alltoall(void)
{
    MPI(MPI_Alltoall(all_out, 1, MPI_INT, all_in, 1, MPI_INT, comm));
}
static void call_scan(void)
{
    /* Process 0 is the root and would not wait; with reversed ranks it does. */
    MPI_Comm back;
    MPI(MPI_Comm_split(comm, 0, -me, &back));
    MPI(MPI_Scan(&me, all_in, 1, MPI_INT, MPI_SUM, back));
    MPI(MPI_Exscan(&me, all_in, 1, MPI_INT, MPI_SUM, back));
    MPI(MPI_Comm_free(&back));
}
static void call_reduce_scatter(void)
{
    MPI(MPI_Reduce_scatter_block(all_out, all_in, 1, MPI_INT, MPI_SUM, comm));
}
static void call_ibarrier(void)
{
    MPI_Request r;
    MPI(MPI_Ibarrier(comm, &r));
    MPI(MPI_Wait(&r, MPI_STATUS_IGNORE));
}
static void call_comm_dup(void)
{
    MPI_Comm dup;
    MPI(MPI_Comm_dup(comm, &dup));
    MPI(MPI_Comm_free(&dup));
}
static void call_persistent(void)
{
    MPI_Request r;
    if (me == 0) {
        MPI(MPI_Recv_init(NULL, 0, MPI_BYTE, 1, 1, comm, &r));
        MPI(MPI_Start(&r));
        MPI(MPI_Waitall(1, &r, MPI_STATUSES_IGNORE));
        MPI(MPI_Request_free(&r));
    } else if (me == 1)
        tell_on(0, 1);
}
static void call_window(void)
{
    Window other = window(ALLOCATED, 64, 1);
    window_free(&other);
}
static void call_window_created(void)
{
    Window other = window(CREATED, 64, 1);
    window_free(&other);
}

static const struct {
    const char *name;
    void (*call)(void);
} calls[] = {{"MPI_Recv", call_recv},
             {"MPI_Irecv + MPI_Wait", call_irecv_wait},
             {"MPI_Irecv + MPI_Test", call_irecv_test},
             {"MPI_Probe", call_probe},
             {"MPI_Iprobe", call_iprobe},
             {"MPI_Mprobe", call_mprobe},
             {"MPI_Improbe", call_improbe},
             {"MPI_Ssend", call_ssend},
             {"MPI_Send, 4 MB", call_send_large},
             {"MPI_Sendrecv", call_sendrecv},
             {"MPI_Sendrecv_replace", call_sendrecv_replace},
             {"MPI_Barrier", call_barrier},
             {"MPI_Bcast", call_bcast},
             {"MPI_Reduce", call_reduce},
             {"MPI_Allreduce", call_allreduce},
             {"MPI_Gather", call_gather},
             {"MPI_Scatter", call_scatter},
             {"MPI_Allgather", call_allgather},
             {"MPI_Alltoall", call_alltoall},
             {"MPI_Scan, MPI_Exscan", call_scan},
             {"MPI_Reduce_scatter_block", call_reduce_scatter},
             {"MPI_Ibarrier + MPI_Wait", call_ibarrier},
             {"MPI_Comm_dup", call_comm_dup},
             {"MPI_Recv_init + MPI_Start + MPI_Waitall", call_persistent},
             {"MPI_Win_allocate", call_window},
             {"MPI_Win_create", call_window_created}};

/* form 0: process 0 closes an access epoch before process 1 posts. form 1: process 0 gets a lock
 * while it is in the host call; process 1 locks repeatedly until it sees that lock's put. */
static void away(int i, int form)
{
    static int64_t value;
    MPI_Group zero = group_one(0), one = group_one(1);
    MPI_Request r = MPI_REQUEST_NULL, opening;
    if (me == 0 && form == 0) {
        value++;
        MPI(MPI_Win_start(one, 0, w.win));
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, w.win));
        MPI(MPIX_Win_icomplete(w.win, &r));
        send_token(1, 9);
    } else if (me == 0) {
        value++;
        recv_token(1, 8);
        MPI(MPIX_Win_ilock(MPI_LOCK_EXCLUSIVE, 1, 0, w.win, &opening));
        expect_complete(&opening, "ilock");
        MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, w.win));
        MPI(MPIX_Win_iunlock(1, w.win, &r));
        send_token(1, 9);
    } else if (me == 1 && form == 0) {
        value++;
        recv_token(0, 9);
        MPI(MPI_Win_post(zero, 0, w.win));
        MPI(MPI_Win_wait(w.win)); /* needs process 0, now in the host call */
        EXPECT(load64(w.base) == value, "%s: %ld", calls[i].name, (long)load64(w.base));
    } else if (me == 1) {
        value++;
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, w.win));
        send_token(0, 8);
        recv_token(
            0,
            9); /* process 0 has requested the lock; over messages the request may be in flight */
        for (int64_t seen = 0; seen != value;) {
            MPI(MPI_Win_unlock(1, w.win));
            MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0,
                             w.win)); /* queues behind process 0, once its request has arrived */
            seen = load64(w.base);
            REQUIRE(seen == value || seen == value - 1);
        }
        MPI(MPI_Win_unlock(1, w.win));
    }
    calls[i].call();
    MPI(MPI_Wait(&r, MPI_STATUS_IGNORE));
    MPI(MPI_Group_free(&zero));
    MPI(MPI_Group_free(&one));
}

/* Process 0 waits in a call on the window; process 1 posts only after it has received a message
 * that process 0 must still send. */
static void send_while_waiting(void)
{
    static char big[4 << 20];
    MPI_Group zero = group_one(0), one = group_one(1);
    if (me == 0) {
        MPI_Request r;
        MPI(MPI_Isend(big, sizeof big, MPI_BYTE, 1, 1, comm, &r));
        MPI(MPI_Win_start(one, 0, w.win));
        MPI(MPI_Put(&me, 1, MPI_INT, 1, 0, 1, MPI_INT, w.win));
        MPI(MPI_Win_complete(w.win));
        MPI(MPI_Wait(&r, MPI_STATUS_IGNORE));
    } else if (me == 1) {
        MPI(MPI_Recv(big, sizeof big, MPI_BYTE, 0, 1, comm, MPI_STATUS_IGNORE));
        MPI(MPI_Win_post(zero, 0, w.win));
        MPI(MPI_Win_wait(w.win));
    }
    MPI(MPI_Group_free(&zero));
    MPI(MPI_Group_free(&one));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(ranks >= 2);
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int kind = 0; kind < KINDS; kind++) {
        w = window(kind, sizeof(int64_t), 1);
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
            for (int form = 0; form < 2; form++)
                away(i, form);
        send_while_waiting();
        window_free(&w);
    }
    MPI(MPI_Comm_free(&comm));
    return test_end();
}
