/*
 * Persistent neighbour collectives [CL-6]: on Cartesian, graph and distributed graph communicators,
 * in memory of windows and elsewhere, with datatypes that differ between sender and receiver,
 * restarted many times, beside other requests, and with wrong arguments.
 *
 *   halo [cart | graph | mixed | errors | truncated]
 */
#include "check.h"
#ifndef PLAIN
#define INIT(call) MPIX_Neighbor_##call##_init
#elif defined(OPEN_MPI)
#include <mpi-ext.h>
#define INIT(call) MPIX_Neighbor_##call##_init
#else
#define INIT(call) MPI_Neighbor_##call##_init
#endif

enum { MOST = 12, WORDS = 3, BLOCK = 2 * WORDS, ROUNDS = 5, FAR = 5000 };

/* The neighbours of this process. Block i is block match[i] of the process that sends it. */
struct topology {
    const char *name;
    MPI_Comm comm;
    int in, out, sources[MOST], destinations[MOST], match[MOST];
};

enum memory { WINDOW, SHARED, PRIVATE, STACK, MIXED, MEMORIES };
static const char *const memory_names[] = {"window", "shared", "private", "stack", "mixed"};

/* Word k of what process `rank` sends as block `block` in a round. */
static int word(int rank, int block, int round, int k)
{
    return ((rank * 16 + block) * 16 + k) * 2000 + round;
}

static struct topology cartesian(int dims, const int *extents, const int *periodic)
{
    struct topology t = {.name = "Cartesian", .in = 2 * dims, .out = 2 * dims};
    MPI(MPI_Cart_create(MPI_COMM_WORLD, dims, extents, periodic, 0, &t.comm));
    if (t.comm == MPI_COMM_NULL)
        return t;
    for (int dim = 0; dim < dims; dim++)
        MPI(MPI_Cart_shift(t.comm, dim, 1, t.sources + 2 * dim, t.sources + 2 * dim + 1));
    memcpy(t.destinations, t.sources, sizeof t.sources);
    for (int i = 0; i < t.in; i++)
        t.match[i] = i ^ 1;
    return t;
}

/* The k-th block from a process is its k-th to this one. */
static void match_in_order(struct topology *t)
{
    int rank, size;
    MPI_Comm_rank(t->comm, &rank);
    MPI_Comm_size(t->comm, &size);
    int (*all)[MOST + 1] = malloc((size_t)size * sizeof *all), own[MOST + 1];
    own[0] = t->out;
    memcpy(own + 1, t->destinations, sizeof t->destinations);
    MPI(MPI_Allgather(own, MOST + 1, MPI_INT, all, MOST + 1, MPI_INT, t->comm));
    for (int i = 0; i < t->in; i++) {
        int before = 0, *theirs = all[t->sources[i]];
        for (int j = 0; j < i; j++)
            before += t->sources[j] == t->sources[i];
        for (t->match[i] = 0;; t->match[i]++)
            if (theirs[1 + t->match[i]] == rank && before-- == 0)
                break;
        REQUIRE(t->match[i] < theirs[0]);
    }
    free(all);
}

static struct topology distributed(int in, const int *sources, int out, const int *destinations)
{
    struct topology t = {.name = "distributed graph", .in = in, .out = out};
    memcpy(t.sources, sources, (size_t)in * sizeof *sources);
    memcpy(t.destinations, destinations, (size_t)out * sizeof *destinations);
    int weights[MOST] = {0};
    MPI(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, in, t.sources, weights, out, t.destinations,
                                       weights, MPI_INFO_NULL, 0, &t.comm));
    match_in_order(&t);
    return t;
}

/* A ring as a graph. */
static struct topology ring(void)
{
    struct topology t = {.name = "graph", .in = 2, .out = 2};
    int index[64], edges[128];
    for (int r = 0; r < ranks; r++) {
        index[r] = 2 * (r + 1);
        edges[2 * r] = (r + ranks - 1) % ranks;
        edges[2 * r + 1] = (r + 1) % ranks;
    }
    MPI(MPI_Graph_create(MPI_COMM_WORLD, ranks, index, edges, 0, &t.comm));
    memcpy(t.sources, edges + 2 * me, 2 * sizeof *edges);
    memcpy(t.destinations, t.sources, sizeof t.sources);
    match_in_order(&t);
    return t;
}

struct buffers {
    int *send, *receive;
    MPI_Win win;
    void *allocated;
};

/* Whether buffers can have this memory. */
static int exists(enum memory memory) { return memory != SHARED || on_one_node(); }

static size_t room(void) { return (MOST + 1) * (BLOCK + FAR) * sizeof(int); }

static struct buffers open_buffers(enum memory memory, int *stack)
{
    struct buffers b = {.win = MPI_WIN_NULL};
    switch (memory) {
    case WINDOW:
    case MIXED:
        MPI(MPI_Win_allocate((MPI_Aint)(2 * room()), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &b.send,
                             &b.win));
        break;
    case SHARED:
        MPI(MPI_Win_allocate_shared((MPI_Aint)(2 * room()), 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                                    &b.send, &b.win));
        break;
    case PRIVATE: b.send = b.allocated = malloc(2 * room()); break;
    default: b.send = stack; break;
    }
    b.receive = b.send + room() / sizeof(int);
    /* Odd processes send from elsewhere. */
    if (memory == MIXED && me % 2)
        b.send = b.allocated = malloc(room());
    return b;
}

static void close_buffers(struct buffers *b)
{
    if (b->win != MPI_WIN_NULL)
        MPI(MPI_Win_free(&b->win));
    free(b->allocated);
}

enum call { ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, ALLTOALLW, CALLS };
static const char *const call_names[] = {"allgather", "allgatherv", "alltoall", "alltoallv",
                                         "alltoallw"};

/* Sent: every second int. Received: all behind one another, or from the end to the beginning. */
static MPI_Datatype spread, packed, backwards;

static void make_types(void)
{
    int places[WORDS], lengths[WORDS];
    MPI_Datatype vector;
    MPI(MPI_Type_vector(WORDS, 1, 2, MPI_INT, &vector));
    MPI(MPI_Type_create_resized(vector, 0, BLOCK * sizeof(int), &spread));
    MPI(MPI_Type_contiguous(WORDS, MPI_INT, &packed));
    for (int i = 0; i < WORDS; i++)
        places[i] = WORDS - 1 - i, lengths[i] = 1;
    MPI(MPI_Type_indexed(WORDS, lengths, places, MPI_INT, &backwards));
    MPI(MPI_Type_free(&vector));
    MPI(MPI_Type_commit(&spread));
    MPI(MPI_Type_commit(&packed));
    MPI(MPI_Type_commit(&backwards));
}

/* Arrays stay unchanged as long as the request. */
struct arguments {
    int counts[MOST], places[MOST], far[MOST];
    MPI_Aint bytes[MOST], far_bytes[MOST];
    MPI_Datatype spread[MOST], received[MOST];
};

#ifndef PLAIN
static MPI_Request make_large(enum call call, struct topology *t, struct buffers *b,
                              struct arguments *a)
{
    MPI_Request request;
    MPI_Count ones[MOST];
    MPI_Aint places[MOST], far[MOST];
    for (int i = 0; i < MOST; i++)
        ones[i] = 1, places[i] = a->places[i], far[i] = a->far[i];
    switch (call) {
    case ALLGATHER:
        MPI(MPIX_Neighbor_allgather_init_c(b->send, 1, spread, b->receive, 1, packed, t->comm,
                                           MPI_INFO_NULL, &request));
        break;
    case ALLGATHERV:
        MPI(MPIX_Neighbor_allgatherv_init_c(b->send, 1, spread, b->receive, ones, far, packed,
                                            t->comm, MPI_INFO_NULL, &request));
        break;
    case ALLTOALL:
        MPI(MPIX_Neighbor_alltoall_init_c(b->send, 1, spread, b->receive, WORDS, MPI_INT, t->comm,
                                          MPI_INFO_NULL, &request));
        break;
    case ALLTOALLV:
        MPI(MPIX_Neighbor_alltoallv_init_c(b->send, ones, places, spread, b->receive, ones, far,
                                           packed, t->comm, MPI_INFO_NULL, &request));
        break;
    default:
        MPI(MPIX_Neighbor_alltoallw_init_c(b->send, ones, a->bytes, a->spread, b->receive, ones,
                                           a->far_bytes, a->received, t->comm, MPI_INFO_NULL,
                                           &request));
        break;
    }
    return request;
}
#endif

/* Every second one is made with large counts. */
static MPI_Request make(enum call call, struct topology *t, struct buffers *b, struct arguments *a)
{
    MPI_Request request;
    for (int i = 0; i < MOST; i++) {
        a->counts[i] = 1, a->places[i] = i, a->far[i] = MOST - 1 - i;
        a->bytes[i] = (MPI_Aint)sizeof(int) * BLOCK * i;
        a->far_bytes[i] = (MPI_Aint)sizeof(int) * (FAR * (MOST - 1 - i));
        a->spread[i] = spread, a->received[i] = i % 2 ? packed : backwards;
    }
#ifndef PLAIN
    static int made;
    if (made++ % 2)
        return make_large(call, t, b, a);
#endif
    switch (call) {
    case ALLGATHER:
        MPI(INIT(allgather)(b->send, 1, spread, b->receive, 1, packed, t->comm, MPI_INFO_NULL,
                            &request));
        break;
    case ALLGATHERV:
        MPI(INIT(allgatherv)(b->send, 1, spread, b->receive, a->counts, a->far, packed, t->comm,
                             MPI_INFO_NULL, &request));
        break;
    case ALLTOALL:
        MPI(INIT(alltoall)(b->send, 1, spread, b->receive, WORDS, MPI_INT, t->comm, MPI_INFO_NULL,
                           &request));
        break;
    case ALLTOALLV:
        MPI(INIT(alltoallv)(b->send, a->counts, a->places, spread, b->receive, a->counts, a->far,
                            packed, t->comm, MPI_INFO_NULL, &request));
        break;
    default:
        MPI(INIT(alltoallw)(b->send, a->counts, a->bytes, a->spread, b->receive, a->counts,
                            a->far_bytes, a->received, t->comm, MPI_INFO_NULL, &request));
        break;
    }
    return request;
}

static void fill(struct topology *t, struct buffers *b, int round)
{
    int rank;
    MPI_Comm_rank(t->comm, &rank);
    memset(b->receive, -1, room());
    for (int block = 0; block < MOST; block++)
        for (int k = 0; k < WORDS; k++)
            b->send[BLOCK * block + 2 * k] = word(rank, block, round, k);
}

static void compare(enum call call, struct topology *t, struct buffers *b, int round,
                    const char *memory)
{
    for (int i = 0; i < t->in; i++) {
        int block = call == ALLGATHER || call == ALLGATHERV ? 0 : t->match[i];
        int at = call == ALLGATHER || call == ALLTOALL ? WORDS * i
                 : call == ALLTOALLW                   ? FAR * (MOST - 1 - i)
                                                       : WORDS * (MOST - 1 - i);
        for (int k = 0; k < WORDS; k++) {
            int place = call == ALLTOALLW && i % 2 == 0 ? WORDS - 1 - k : k;
            int expected = t->sources[i] == MPI_PROC_NULL
                               ? -1
                               : word(t->sources[i], block, round, k);
            EXPECT(b->receive[at + place] == expected, "%s, %s, %s, round %d: word %d of block %d "
                   "is %d, not %d", t->name, call_names[call], memory, round, k, i,
                   b->receive[at + place], expected);
        }
    }
}

/* All calls of a topology. */
static void exchanges(struct topology t)
{
    if (t.comm == MPI_COMM_NULL)
        return;
    int *stack = __builtin_alloca(2 * room());
    for (enum memory memory = 0; memory < MEMORIES; memory++) {
        int size;
        MPI_Comm_size(t.comm, &size);
        if (size != ranks && memory != PRIVATE && memory != STACK)
            continue; /* windows are made by all */
        if (!exists(memory))
            continue;
        struct buffers b = open_buffers(memory, stack);
        for (enum call call = 0; call < CALLS; call++) {
            struct arguments arguments;
            MPI_Request request = make(call, &t, &b, &arguments);
            for (int round = 0; round < ROUNDS; round++) {
                fill(&t, &b, round);
                MPI(MPI_Start(&request));
                if (round % 2) {
                    for (int flag = 0; !flag;)
                        MPI(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
                } else {
                    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
                }
                EXPECT(request != MPI_REQUEST_NULL, "the request is gone");
                compare(call, &t, &b, round, memory_names[memory]);
            }
            MPI(MPI_Request_free(&request));
        }
        close_buffers(&b);
    }
    MPI(MPI_Comm_free(&t.comm));
}

static void grids(void)
{
    for (int bits = 0; bits < 8; bits++) {
        int periodic[] = {bits & 1, bits >> 1 & 1, bits >> 2 & 1}, extents[3] = {0};
        exchanges(cartesian(1, &ranks, periodic));
        MPI(MPI_Dims_create(ranks, 2, extents));
        exchanges(cartesian(2, extents, periodic));
        int flat[] = {1, ranks, 1};
        exchanges(cartesian(3, flat, periodic));
    }
}

static void graphs(void)
{
    exchanges(ring());
    int up = (me + 1) % ranks, down = (me + ranks - 1) % ranks;
    exchanges(distributed(5, (int[]){down, me, down, me, down}, 5, (int[]){up, me, up, me, up}));
    /* All send to process 0 twice, which sends to the last one only. */
    int sources[MOST], in = 0, last = ranks - 1;
    for (int r = 0; me == 0 && r < ranks; r++)
        sources[in++] = r, sources[in++] = r;
    if (me == last)
        sources[in++] = 0;
    exchanges(distributed(in, sources, me == 0 ? 3 : 2, (int[]){0, 0, last}));
    /* Nobody has neighbours. */
    exchanges(distributed(0, sources, 0, sources));
}

/* Beside other requests, in calls that complete several, and restarted many times. */
static void mixed(void)
{
    int up = (me + 1) % ranks, down = (me + ranks - 1) % ranks;
    struct topology t = distributed(2, (int[]){down, up}, 2, (int[]){up, down});
    int *stack = __builtin_alloca(2 * room());
    for (enum memory memory = 0; memory < MEMORIES; memory++) {
        if (!exists(memory))
            continue;
        struct buffers b = open_buffers(memory, stack), others = open_buffers(PRIVATE, NULL);
        struct arguments arguments[2];
        int in = -1, out = 0, index, number, indices[4], flag;
        MPI_Request requests[4] = {make(ALLTOALLW, &t, &b, arguments), MPI_REQUEST_NULL,
                                   make(ALLTOALL, &t, &others, arguments + 1), MPI_REQUEST_NULL};
        MPI(MPI_Send_init(&out, 1, MPI_INT, up, 5, MPI_COMM_WORLD, requests + 1));
        MPI(MPI_Recv_init(&in, 1, MPI_INT, down, 5, MPI_COMM_WORLD, requests + 3));
        for (int round = 0; round < 40; round++) {
            fill(&t, &b, round), fill(&t, &others, round + 1000);
            out = me + round;
            MPI(MPI_Startall(4, requests));
            switch (round % 4) {
            case 0: MPI(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE)); break;
            case 1:
                for (int i = 0; i < 4; i++)
                    MPI(MPI_Waitany(4, requests, &index, MPI_STATUS_IGNORE));
                break;
            case 2:
                for (int done = 0; done < 4; done += number)
                    MPI(MPI_Waitsome(4, requests, &number, indices, MPI_STATUSES_IGNORE));
                break;
            default:
                for (flag = 0; !flag;)
                    MPI(MPI_Testall(4, requests, &flag, MPI_STATUSES_IGNORE));
            }
            compare(ALLTOALLW, &t, &b, round, memory_names[memory]);
            compare(ALLTOALL, &t, &others, round + 1000, "private");
            EXPECT(in == down + round, "message %d: %d", round, in);
        }
        /* Nothing but restarts. */
        for (int round = 0; round < 1000; round++) {
            fill(&t, &b, round);
            MPI(MPI_Start(requests));
            MPI(MPI_Wait(requests, MPI_STATUS_IGNORE));
            compare(ALLTOALLW, &t, &b, round, memory_names[memory]);
        }
        for (int i = 0; i < 4; i++)
            MPI(MPI_Request_free(requests + i));
        close_buffers(&b), close_buffers(&others);
    }
    /* A process whose exchange is active reads while it waits for something else. */
    struct buffers b = open_buffers(WINDOW, NULL);
    struct arguments arguments;
    MPI_Request request = make(ALLTOALL, &t, &b, &arguments);
    fill(&t, &b, 7);
    MPI(MPI_Start(&request));
    if (me == 0) {
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        for (int r = 1; r < ranks; r++)
            MPI(MPI_Send(&me, 1, MPI_INT, r, 6, MPI_COMM_WORLD));
    } else {
        MPI(MPI_Recv(&(int){0}, 1, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    compare(ALLTOALL, &t, &b, 7, "window");
    /* The communicator and the datatypes may go first. */
    fill(&t, &b, 8);
    MPI(MPI_Start(&request));
    MPI(MPI_Comm_free(&t.comm));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    t.comm = MPI_COMM_WORLD;
    compare(ALLTOALL, &t, &b, 8, "window");
    MPI(MPI_Request_free(&request));
    close_buffers(&b);
}

#ifndef PLAIN
#define FAILS(class, call) fails((call), class, #call, __LINE__)
static void fails(int code, int wanted, const char *call, int line)
{
    int class;
    MPI_Error_class(code, &class);
    EXPECT(class == wanted, "line %d: class %d, not %d: %s", line, class, wanted, call);
}

static void errors(void)
{
    int up = (me + 1) % ranks, down = (me + ranks - 1) % ranks, size = ranks, periodic = 1;
    struct topology t = distributed(1, (int[]){down}, 1, (int[]){up});
    struct topology grid = cartesian(1, &size, &periodic);
    struct buffers b = open_buffers(WINDOW, NULL);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm plain, comms[] = {t.comm, grid.comm, MPI_COMM_WORLD};
    for (int i = 0; i < 3; i++)
        MPI(MPI_Comm_set_errhandler(comms[i], MPI_ERRORS_RETURN));
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &plain));
    int *const s = b.send, *const r = b.receive;
    MPI_Request *const q = &request;
    const MPI_Info none = MPI_INFO_NULL;
    FAILS(MPI_ERR_TOPOLOGY,
          MPIX_Neighbor_alltoall_init(s, 1, MPI_INT, r, 1, MPI_INT, plain, none, q));
    FAILS(MPI_ERR_TOPOLOGY,
          MPIX_Neighbor_alltoall_init_c(s, 1, MPI_INT, r, 1, MPI_INT, plain, none, q));
    for (int i = 0; i < 2; i++) {
        MPI_Comm c = comms[i];
        MPI_Datatype uncommitted;
        MPI(MPI_Type_contiguous(2, MPI_INT, &uncommitted));
        FAILS(MPI_ERR_COUNT,
              MPIX_Neighbor_alltoall_init(s, -1, MPI_INT, r, 1, MPI_INT, c, none, q));
        FAILS(MPI_ERR_COUNT,
              MPIX_Neighbor_allgather_init(s, 1, MPI_INT, r, -1, MPI_INT, c, none, q));
        FAILS(MPI_ERR_TYPE,
              MPIX_Neighbor_alltoall_init(s, 1, MPI_DATATYPE_NULL, r, 1, MPI_INT, c, none, q));
        FAILS(MPI_ERR_TYPE,
              MPIX_Neighbor_alltoall_init(s, 1, uncommitted, r, 2, MPI_INT, c, none, q));
        FAILS(MPI_ERR_BUFFER,
              MPIX_Neighbor_alltoall_init(NULL, 1, MPI_INT, r, 1, MPI_INT, c, none, q));
        FAILS(MPI_ERR_BUFFER,
              MPIX_Neighbor_allgather_init(s, 1, MPI_INT, NULL, 1, MPI_INT, c, none, q));
        FAILS(MPI_ERR_TRUNCATE,
              MPIX_Neighbor_alltoall_init(s, 2, MPI_INT, r, 1, MPI_INT, c, none, q));
        FAILS(MPI_ERR_TRUNCATE,
              MPIX_Neighbor_alltoall_init_c(s, 2, MPI_INT, r, 1, MPI_INT, c, none, q));
        FAILS(MPI_ERR_COUNT,
              MPIX_Neighbor_alltoall_init_c(s, -1, MPI_INT, r, 1, MPI_INT, c, none, q));
        /* One process is wrong, and all learn of it. */
        int wrong = me == ranks - 1 ? 3 : 2;
        FAILS(MPI_ERR_TRUNCATE,
              MPIX_Neighbor_allgather_init(s, wrong, MPI_INT, r, 2, MPI_INT, c, none, q));
        EXPECT(request == MPI_REQUEST_NULL, "a call that failed has made a request");
        MPI(MPI_Type_free(&uncommitted));
        /* The communicator works afterwards. */
        s[0] = s[1] = me;
        MPI(MPIX_Neighbor_alltoall_init(s, 1, MPI_INT, r, 1, MPI_INT, c, none, q));
        MPI(MPI_Start(q));
        FAILS(MPI_ERR_REQUEST, MPI_Start(q));
        MPI(MPI_Wait(q, MPI_STATUS_IGNORE));
        EXPECT(r[0] == down, "received %d from %d", r[0], down);
        MPI(MPI_Wait(q, MPI_STATUS_IGNORE)); /* inactive */
        if (i == 0)
            MPI(MPI_Request_free(q));
    }
    /* The window that has the buffers is gone. */
    close_buffers(&b);
    if (ranks > 1) {
        MPI(MPI_Start(q));
        FAILS(MPI_ERR_BUFFER, MPI_Wait(q, MPI_STATUS_IGNORE));
        FAILS(MPI_ERR_REQUEST, MPI_Start(q));
    }
    MPI(MPI_Request_free(q));
    MPI(MPI_Comm_free(&plain));
    MPI(MPI_Comm_free(&t.comm));
    MPI(MPI_Comm_free(&grid.comm));
}

/* Between two nodes, a block that is too long fails where it arrives. */
static void truncated(void)
{
    struct topology t = distributed(1, (int[]){1 - me}, 1, (int[]){1 - me});
    int sent[3] = {me, me, me}, received[2] = {-1, -1};
    MPI_Request request;
    MPI(MPI_Comm_set_errhandler(t.comm, MPI_ERRORS_RETURN));
    MPI(MPIX_Neighbor_allgather_init(sent, me ? 3 : 2, MPI_INT, received, 2, MPI_INT, t.comm,
                                     MPI_INFO_NULL, &request));
    MPI(MPI_Start(&request));
    if (me == 0) {
        FAILS(MPI_ERR_TRUNCATE, MPI_Wait(&request, MPI_STATUS_IGNORE));
        FAILS(MPI_ERR_REQUEST, MPI_Start(&request));
    } else {
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        EXPECT(received[0] == 0 && received[1] == 0, "received %d, %d", received[0], received[1]);
    }
    MPI(MPI_Request_free(&request));
    MPI(MPI_Comm_free(&t.comm));
}
#endif

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    const char *part = argc > 1 ? argv[1] : "";
    make_types();
    if (!*part || !strcmp(part, "cart"))
        grids();
    if (!*part || !strcmp(part, "graph"))
        graphs();
    if (!*part || !strcmp(part, "mixed"))
        mixed();
#ifndef PLAIN
    if (!*part || !strcmp(part, "errors"))
        errors();
    if (!strcmp(part, "truncated"))
        truncated();
#endif
    MPI(MPI_Type_free(&spread));
    MPI(MPI_Type_free(&packed));
    MPI(MPI_Type_free(&backwards));
    return test_end();
}
