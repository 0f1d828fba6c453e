/*
 * Errors of blocking calls and completion calls while a window exists: which error handler is
 * called, how often, on which communicator and with which class. The library replaces some of these
 * calls by another form; the result must be that of the host's own call, which is looked up in the
 * host's library and called too.
 */
#include "check.h"
#include <dlfcn.h>

enum { SMALL = 4, BIG = 64, MANY = 40 };

/* Result of a call; compared bytewise. */
typedef struct {
    int class, heard, heard_class,
        handler; /* 1: of MPI_COMM_WORLD, 2: of the call's communicator, 3: of MPI_COMM_SELF */
    int right_comm, index, status[3], cleared;
} Outcome;

static MPI_Comm comm;
static Outcome now;

static void note(int handler, MPI_Comm *on, int *code)
{
    now.heard++;
    now.heard_class = class_of(*code);
    now.handler = handler;
    now.right_comm = *on == (handler == 1 ? MPI_COMM_WORLD : handler == 2 ? comm : MPI_COMM_SELF);
}

static void on_world(MPI_Comm *on, int *code, ...) { note(1, on, code); }
static void on_comm(MPI_Comm *on, int *code, ...) { note(2, on, code); }
static void on_self(MPI_Comm *on, int *code, ...) { note(3, on, code); }

#define CALLS(X)                                                                                   \
    X(Recv)                                                                                        \
    X(Mrecv) X(Sendrecv) X(Sendrecv_replace) X(Probe) X(Send) X(Bcast) X(Gather) X(Reduce)         \
        X(Comm_split) X(Wait) X(Test) X(Waitall) X(Testall) X(Waitany) X(Testany) X(Waitsome)      \
            X(Testsome) X(Request_get_status)
#define MEMBER(call) __typeof__(&MPI_##call) call;
typedef struct {
    CALLS(MEMBER)
} Calls;

static Calls interposed, hosts;

static void look_up(void)
{
    Dl_info about;
    void *anchor = dlsym(RTLD_DEFAULT, "PMPI_Get_library_version"), *library;
    REQUIRE(anchor && dladdr(anchor, &about) &&
            (library = dlopen(about.dli_fname, RTLD_LAZY | RTLD_NOLOAD)));
#define FILL(call)                                                                                 \
    interposed.call = MPI_##call;                                                                  \
    hosts.call = (__typeof__(hosts.call))dlsym(library, "PMPI_" #call);                            \
    REQUIRE(hosts.call);
    CALLS(FILL)
}

static int big[BIG], small[MANY][SMALL];
static MPI_Request sent;

/* A message to this process that exceeds the receive buffer. */
static void send_big(void) { MPI(MPI_Isend(big, BIG, MPI_INT, me, 1, comm, &sent)); }
static void end_send(void) { MPI(MPI_Wait(&sent, MPI_STATUS_IGNORE)); }

typedef void Scenario(const Calls *c);

static void recv_truncated(const Calls *c)
{
    send_big();
    now.class = c->Recv(small, SMALL, MPI_INT, me, 1, comm, MPI_STATUS_IGNORE);
    end_send();
}
static void mrecv_truncated(const Calls *c)
{
    MPI_Message message;
    send_big();
    MPI(MPI_Mprobe(me, 1, comm, &message, MPI_STATUS_IGNORE));
    now.class = c->Mrecv(small, SMALL, MPI_INT, &message, MPI_STATUS_IGNORE);
    end_send();
}
static void sendrecv_truncated(const Calls *c)
{
    now.class = c->Sendrecv(big, BIG, MPI_INT, me, 1, small, SMALL, MPI_INT, me, 1, comm,
                            MPI_STATUS_IGNORE);
}
static void replace_truncated(const Calls *c)
{
    send_big();
    now.class = c->Sendrecv_replace(small, SMALL, MPI_INT, me, 1, me, 1, comm, MPI_STATUS_IGNORE);
    end_send();
    MPI(MPI_Recv(small, SMALL, MPI_INT, me, 1, comm, MPI_STATUS_IGNORE));
}
static void recv_rank(const Calls *c)
{
    now.class = c->Recv(small, 1, MPI_INT, ranks, 1, comm, MPI_STATUS_IGNORE);
}
static void recv_count(const Calls *c)
{
    now.class = c->Recv(small, -1, MPI_INT, me, 1, comm, MPI_STATUS_IGNORE);
}
static void sendrecv_rank(const Calls *c)
{
    now.class =
        c->Sendrecv(big, 1, MPI_INT, ranks, 1, small, 1, MPI_INT, me, 1, comm, MPI_STATUS_IGNORE);
}
static void replace_rank(const Calls *c)
{
    now.class = c->Sendrecv_replace(big, 1, MPI_INT, ranks, 1, me, 1, comm, MPI_STATUS_IGNORE);
}
static void probe_rank(const Calls *c) { now.class = c->Probe(ranks, 1, comm, MPI_STATUS_IGNORE); }
static void send_rank(const Calls *c) { now.class = c->Send(big, 1, MPI_INT, ranks, 1, comm); }
static void bcast_root(const Calls *c) { now.class = c->Bcast(big, 1, MPI_INT, ranks, comm); }
static void gather_root(const Calls *c)
{
    now.class = c->Gather(big, 1, MPI_INT, big, 1, MPI_INT, ranks, comm);
}
static void reduce_op(const Calls *c)
{
    now.class = c->Reduce(big, small, 1, MPI_INT, MPI_OP_NULL, 0, comm);
}
static void bcast_null(const Calls *c) { now.class = c->Bcast(big, 1, MPI_INT, 0, MPI_COMM_NULL); }
static void split_color(const Calls *c)
{
    MPI_Comm made = MPI_COMM_NULL;
    now.class = c->Comm_split(comm, -7, 0, &made);
}
static void bcast_truncated(const Calls *c)
{
    now.class = c->Bcast(big, me == 0 ? BIG : SMALL, MPI_INT, 0, comm);
}

/* Completion calls on lists of receives, one of them truncated. */
static MPI_Request list[MANY];
static MPI_Status statuses[MANY];

static void begin(int count)
{
    for (int i = 0; i < count; i++) {
        MPI(MPI_Irecv(small[i], SMALL, MPI_INT, me, i == count / 2 ? 1 : 2 + i, comm, &list[i]));
        if (i != count / 2)
            MPI(MPI_Send(big, 1, MPI_INT, me, 2 + i, comm));
        statuses[i].MPI_ERROR = -1;
    }
    send_big();
}
/* A call that returns MPI_ERR_IN_STATUS may complete the other requests or leave them pending. */
static void end(int count)
{
    now.cleared = list[count / 2] == MPI_REQUEST_NULL;
    for (int i = 0; i < 3 && i < count; i++) {
        int class = statuses[i].MPI_ERROR == -1 ? -1 : class_of(statuses[i].MPI_ERROR);
        now.status[i] = class == MPI_ERR_PENDING ? MPI_SUCCESS : class;
    }
    end_send();
    for (int i = 0; i < count; i++)
        if (list[i] != MPI_REQUEST_NULL)
            MPI(MPI_Wait(&list[i], MPI_STATUS_IGNORE));
}
static void wait_one(const Calls *c)
{
    begin(1);
    now.class = c->Wait(list, statuses);
    end(1);
}
static void test_one(const Calls *c)
{
    begin(1);
    for (int flag = 0; !flag && now.class == MPI_SUCCESS;)
        now.class = c->Test(list, &flag, statuses);
    end(1);
}
static void wait_all(const Calls *c)
{
    begin(3);
    now.class = c->Waitall(3, list, statuses);
    end(3);
}
static void wait_many(const Calls *c)
{
    begin(MANY);
    now.class = c->Waitall(MANY, list, statuses);
    now.index = class_of(statuses[MANY / 2].MPI_ERROR);
    end(MANY);
}
static void wait_many_ignored(const Calls *c)
{
    begin(MANY);
    now.class = c->Waitall(MANY, list, MPI_STATUSES_IGNORE);
    end(MANY);
}
static void test_all(const Calls *c)
{
    begin(3);
    for (int flag = 0; !flag && now.class == MPI_SUCCESS;)
        now.class = c->Testall(3, list, &flag, statuses);
    end(3);
}
static void wait_any(const Calls *c)
{
    begin(1);
    now.class = c->Waitany(1, list, &now.index, statuses);
    end(1);
}
static void test_any(const Calls *c)
{
    begin(1);
    for (int flag = 0; !flag && now.class == MPI_SUCCESS;)
        now.class = c->Testany(1, list, &now.index, &flag, statuses);
    end(1);
}
static void wait_some(const Calls *c)
{
    int which[1];
    begin(1);
    now.class = c->Waitsome(1, list, &now.index, which, statuses);
    end(1);
}
static void test_some(const Calls *c)
{
    int which[1];
    begin(1);
    while (now.index == 0 && now.class == MPI_SUCCESS)
        now.class = c->Testsome(1, list, &now.index, which, statuses);
    end(1);
}

static const struct {
    const char *name;
    Scenario *run;
    int alone; /* the communicator is unusable afterwards */
} scenarios[] = {{"MPI_Recv, truncated", recv_truncated, 0},
                 {"MPI_Mrecv, truncated", mrecv_truncated, 0},
                 {"MPI_Sendrecv, truncated", sendrecv_truncated, 0},
                 {"MPI_Sendrecv_replace, truncated", replace_truncated, 0},
                 {"MPI_Recv, rank", recv_rank, 0},
                 {"MPI_Recv, count", recv_count, 0},
                 {"MPI_Sendrecv, rank", sendrecv_rank, 1},
                 {"MPI_Sendrecv_replace, rank", replace_rank, 1},
                 {"MPI_Probe, rank", probe_rank, 0},
                 {"MPI_Send, rank", send_rank, 0},
                 {"MPI_Bcast, root", bcast_root, 0},
                 {"MPI_Bcast, MPI_COMM_NULL", bcast_null, 0},
                 {"MPI_Gather, root", gather_root, 0},
                 {"MPI_Reduce, op", reduce_op, 0},
                 {"MPI_Comm_split, color", split_color, 1},
                 {"MPI_Wait, truncated", wait_one, 0},
                 {"MPI_Test, truncated", test_one, 0},
                 {"MPI_Waitall, truncated", wait_all, 0},
                 {"MPI_Waitall of many, truncated", wait_many, 0},
                 {"MPI_Waitall of many, truncated, no statuses", wait_many_ignored, 0},
                 {"MPI_Testall, truncated", test_all, 0},
                 {"MPI_Waitany, truncated", wait_any, 0},
                 {"MPI_Testany, truncated", test_any, 0},
                 {"MPI_Waitsome, truncated", wait_some, 0},
                 {"MPI_Testsome, truncated", test_some, 0},
                 {"MPI_Bcast, truncated", bcast_truncated, 1}};

static Outcome run(Scenario *scenario, const Calls *calls)
{
    memset(&now, 0, sizeof now);
    scenario(calls);
    now.class = class_of(now.class);
    return now;
}

static const char *words(const Outcome *o)
{
    static char text[2][256];
    static int turn;
    snprintf(text[turn ^= 1], sizeof text[0],
             "class %d, called %d times (handler %d, comm %s, class %d), index %d, statuses %d %d "
             "%d, cleared %d",
             o->class, o->heard, o->handler, o->right_comm ? "right" : "wrong", o->heard_class,
             o->index, o->status[0], o->status[1], o->status[2], o->cleared);
    return text[turn];
}

int main(int argc, char **argv)
{
    MPI_Errhandler world, own, self, before;
    test_begin(&argc, &argv);
    look_up();
    MPI(MPI_Comm_create_errhandler(on_world, &world));
    MPI(MPI_Comm_create_errhandler(on_comm, &own));
    MPI(MPI_Comm_create_errhandler(on_self, &self));
    MPI(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before));
    Window w = window(ALLOCATED, 64, 1);
    for (int returning = 0; returning < 2; returning++) {
        MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, returning ? MPI_ERRORS_RETURN : world));
        MPI(MPI_Comm_set_errhandler(comm, returning ? MPI_ERRORS_RETURN : own));
        MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, returning ? MPI_ERRORS_RETURN : self));
        for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
            Outcome expected = run(scenarios[i].run, &hosts);
            if (scenarios[i].alone) {
                MPI_Comm next;
                MPI(MPI_Comm_dup(MPI_COMM_WORLD, &next));
                MPI(MPI_Comm_set_errhandler(next, returning ? MPI_ERRORS_RETURN : own));
                comm = next;
            }
            Outcome found = run(scenarios[i].run, &interposed);
            if (scenarios[i].alone) {
                MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
                MPI(MPI_Comm_set_errhandler(comm, returning ? MPI_ERRORS_RETURN : own));
            }
            EXPECT(memcmp(&expected, &found, sizeof found) == 0, "%s%s\n  here %s\n  host %s",
                   scenarios[i].name, returning ? ", errors return" : "", words(&found),
                   words(&expected));
        }
        MPI_Errhandler still;
        MPI(MPI_Comm_get_errhandler(comm, &still));
        EXPECT(still == (returning ? MPI_ERRORS_RETURN : own),
               "the error handler was not restored");
        MPI(MPI_Errhandler_free(&still));
    }
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, before));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, before));
    window_free(&w);
    return test_end();
}
