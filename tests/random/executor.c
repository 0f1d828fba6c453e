/*
 * Runs programs that tests/swarm/text.rs wrote, on real ranks, and compares what they do with what
 * their text predicts.
 *
 *   executor FILE POSITIONS REPLAY THREADS REPEAT SECONDS HELPED
 *
 * Every thread keeps the seed and the line that it is at in the file POSITIONS, so that the runner
 * can tell where a job hangs or crashes. REPLAY is the command that a difference is reported with.
 * With several THREADS, each runs a part of the programs, at the same time as the others. Each
 * program runs REPEAT times; no program begins after SECONDS. If HELPED is 1, a second thread
 * issues operations of the same program.
 */
#include "helper.h"
#include "records.h"
#include "results.h"
#include "wrong.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

/* ---- Opening calls: form 0 blocks, 1 tests the request, 2 frees it, 3 keeps it ---- */

static void opened(int form, MPI_Request *r, const char *call)
{
    if (form == 1)
        expect_complete(r, call);
    else if (form == 2)
        MPI(MPI_Request_free(r));
    else if (form == 3) {
        openings = resized(openings, (size_t)opening_count + 1, sizeof *openings);
        openings[opening_count++] = *r;
    }
}

static MPI_Group group_at(const Line *line, int first)
{
    int list[64], count = 0;
    for (int at = first; at < line->count; at++)
        list[count++] = integer(line, at);
    return group_in(comm, count, list);
}

static void post(const Line *line, MPI_Win win)
{
    MPI_Group group = group_at(line, 3);
    MPI_Request r;
    if (integer(line, 2))
        MPI(MPIX_Win_ipost(group, 0, win, &r));
    else
        MPI(MPI_Win_post(group, 0, win));
    MPI(MPI_Group_free(&group));
    opened(integer(line, 2), &r, "ipost");
}

static void start(const Line *line, MPI_Win win)
{
    MPI_Group group = group_at(line, 3);
    MPI_Request r;
    if (integer(line, 2))
        MPI(MPIX_Win_istart(group, 0, win, &r));
    else
        MPI(MPI_Win_start(group, 0, win));
    MPI(MPI_Group_free(&group));
    opened(integer(line, 2), &r, "istart");
}

static void lock(const Line *line, MPI_Win win)
{
    int form = integer(line, 2), target = integer(line, 3),
        type = integer(line, 4) ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED,
        assert = integer(line, 5) ? MPI_MODE_NOCHECK : 0;
    MPI_Request r;
    if (form)
        MPI(MPIX_Win_ilock(type, target, assert, win, &r));
    else
        MPI(MPI_Win_lock(type, target, assert, win));
    opened(form, &r, "ilock");
}

static void lock_all(const Line *line, MPI_Win win)
{
    int form = integer(line, 2), assert = integer(line, 3) ? MPI_MODE_NOCHECK : 0;
    MPI_Request r;
    if (form)
        MPI(MPIX_Win_ilock_all(assert, win, &r));
    else
        MPI(MPI_Win_lock_all(assert, win));
    opened(form, &r, "ilock_all");
    rooms[number(line, 1)].lock_alls++;
}

/* ---- Closing calls and flushes: in slot -1, the blocking form ---- */

static void complete(const Line *line, MPI_Win win)
{
    int slot = integer(line, 2);
    if (slot == BLOCKING)
        MPI(MPI_Win_complete(win));
    else
        MPI(MPIX_Win_icomplete(win, slot_at(slot)));
}

static void await_exposure(const Line *line, MPI_Win win)
{
    int slot = integer(line, 2);
    if (slot == BLOCKING)
        MPI(MPI_Win_wait(win));
    else
        MPI(MPIX_Win_iwait(win, slot_at(slot)));
}

static void fence(const Line *line, MPI_Win win)
{
    int assert = (integer(line, 2) ? MPI_MODE_NOPRECEDE : 0) |
                 (integer(line, 3) ? MPI_MODE_NOSUCCEED : 0),
        slot = integer(line, 4);
    if (slot == BLOCKING)
        MPI(MPI_Win_fence(assert, win));
    else
        MPI(MPIX_Win_ifence(assert, win, slot_at(slot)));
}

static void unlock(const Line *line, MPI_Win win)
{
    int target = integer(line, 2), slot = integer(line, 3);
    if (slot == BLOCKING)
        MPI(MPI_Win_unlock(target, win));
    else
        MPI(MPIX_Win_iunlock(target, win, slot_at(slot)));
}

static void unlock_all(const Line *line, MPI_Win win)
{
    int slot = integer(line, 2);
    if (slot == BLOCKING)
        MPI(MPI_Win_unlock_all(win));
    else
        MPI(MPIX_Win_iunlock_all(win, slot_at(slot)));
    rooms[number(line, 1)].lock_alls--;
}

static void flush(const Line *line, MPI_Win win)
{
    int target = integer(line, 2), local = integer(line, 3), slot = integer(line, 4);
    MPI_Request *r = slot == BLOCKING ? NULL : slot_at(slot);
    if (target == ANY && local)
        MPI(r ? MPIX_Win_iflush_local_all(win, r) : MPI_Win_flush_local_all(win));
    else if (target == ANY)
        MPI(r ? MPIX_Win_iflush_all(win, r) : MPI_Win_flush_all(win));
    else if (local)
        MPI(r ? MPIX_Win_iflush_local(target, win, r) : MPI_Win_flush_local(target, win));
    else
        MPI(r ? MPIX_Win_iflush(target, win, r) : MPI_Win_flush(target, win));
}

/* flush_wins TARGET SLOT WINDOW ... */
static void flush_wins(const Line *line)
{
    MPI_Win wins[64];
    int target = integer(line, 1), slot = integer(line, 2), count = line->count - 3;
    if (target == ANY)
        target = MPIX_RANK_ALL;
    for (int i = 0; i < count; i++)
        wins[i] = rooms[number(line, 3 + i)].win;
    if (slot == BLOCKING)
        MPI(MPIX_Win_flush_wins(count, wins, target));
    else
        MPI(MPIX_Win_iflush_wins(count, wins, target, slot_at(slot)));
}

static void order(const Line *line, MPI_Win win)
{
    int target = integer(line, 2);
    MPI(target == ANY ? MPIX_Win_order_all(win) : MPIX_Win_order(target, win));
}

static void win_test(const Line *line, MPI_Win win)
{
    int flag = 0;
    (void)line;
    while (!flag)
        MPI(MPI_Win_test(win, &flag));
}

/* handle WINDOW NUMBER: the next calls on the window are made on this handle of it. */
static void handle(const Line *line, MPI_Win win)
{
    Room *room = &rooms[number(line, 1)];
    int wanted = integer(line, 2);
    for (; room->handle_count <= wanted; room->handle_count++) {
        room->handles =
            resized(room->handles, (size_t)room->handle_count + 1, sizeof *room->handles);
        if (room->handle_count == 0)
            room->handles[0] = win;
        else
            MPI(MPIX_Win_dup(win, MPI_INFO_NULL, &room->handles[room->handle_count]));
    }
    room->win = room->handles[wanted];
}

/* ---- Requests ---- */

static void check_some(const Some *some)
{
    if (some->idx < some->first || some->idx >= some->first + some->num || some->value < 1)
        differs("waitsome of counters %d to %d: counter %d, value %lld", some->first,
                some->first + some->num - 1, some->idx, (long long)some->value);
}

static void completed(int slot)
{
    if (somes[slot])
        check_some(somes[slot]);
    free(somes[slot]);
    somes[slot] = NULL;
    end_start(slot);
    if (slots[slot] != MPI_REQUEST_NULL)
        differs("the request in slot %d is complete, but its handle is not null", slot);
}

static void await(const Line *line)
{
    int slot = integer(line, 1);
    MPI(MPI_Wait(slot_at(slot), MPI_STATUS_IGNORE));
    completed(slot);
}

static void test(const Line *line)
{
    int slot = integer(line, 1), flag = 0;
    while (!flag)
        if (integer(line, 2))
            MPI(MPI_Request_get_status(*slot_at(slot), &flag, MPI_STATUS_IGNORE));
        else
            MPI(MPI_Test(slot_at(slot), &flag, MPI_STATUS_IGNORE));
    MPI(MPI_Wait(slot_at(slot), MPI_STATUS_IGNORE));
    completed(slot);
}

/* Waits for a list of requests by one of six calls. */
static void finish_list(int how, int count, MPI_Request *list)
{
    int flag = 0, index, done, *indices = resized(NULL, (size_t)count, sizeof(int));
    MPI_Status *statuses = resized(NULL, (size_t)count, sizeof(MPI_Status));
    switch (how) {
    case 0: MPI(MPI_Waitall(count, list, statuses)); break;
    case 1:
        while (!flag)
            MPI(MPI_Testall(count, list, &flag, statuses));
        break;
    case 2:
        do
            MPI(MPI_Waitany(count, list, &index, statuses));
        while (index != MPI_UNDEFINED);
        break;
    case 3:
        do
            MPI(MPI_Waitsome(count, list, &done, indices, statuses));
        while (done != MPI_UNDEFINED);
        break;
    case 4:
        do
            MPI(MPI_Testany(count, list, &index, &flag, statuses));
        while (!flag || index != MPI_UNDEFINED);
        break;
    default:
        do
            MPI(MPI_Testsome(count, list, &done, indices, statuses));
        while (done != MPI_UNDEFINED);
    }
    free(indices);
    free(statuses);
}

/* await_all HOW MIXED: with opening requests, and if MIXED with requests of the host. */
static void await_all(const Line *line)
{
    enum { OF_HOST = 2 };
    int count = slot_count + opening_count, word = 0;
    MPI_Request *list = resized(NULL, (size_t)count + OF_HOST, sizeof *list);
    memcpy(list, openings, (size_t)opening_count * sizeof *list);
    memcpy(list + opening_count, slots, (size_t)slot_count * sizeof *list);
    if (integer(line, 2)) {
        MPI(MPI_Irecv(&word, 1, MPI_INT, 0, thread, MPI_COMM_SELF, &list[count++]));
        MPI(MPI_Isend(&me, 1, MPI_INT, 0, thread, MPI_COMM_SELF, &list[count++]));
    }
    finish_list(integer(line, 1), count, list);
    for (int i = 0; i < count; i++)
        if (list[i] != MPI_REQUEST_NULL && !is_start(i - opening_count))
            differs("request %d of %d is complete, but its handle is not null", i, count);
    if (integer(line, 2) && word != me)
        differs("a message to the process itself has %d, not %d", word, me);
    memcpy(slots, list + opening_count, (size_t)slot_count * sizeof *list);
    opening_count = 0;
    free(list);
    for (int slot = 0; slot < slot_count; slot++)
        completed(slot);
}

/* ---- Counters ---- */

static void await_counters(const Line *line, MPI_Win win)
{
    int first = integer(line, 2), num = integer(line, 3), slot = integer(line, 5);
    MPI_Count expected = (MPI_Count)number(line, 4);
    if (num == 1 && slot == BLOCKING)
        MPI(MPIX_Win_notify_threshold(win, first, expected));
    else if (num == 1)
        MPI(MPIX_Win_notify_ithreshold(win, first, expected, slot_at(slot)));
    else if (slot == BLOCKING) {
        Some some = {first, num, -1, 0};
        MPI(MPIX_Win_notify_waitsome(win, first, num, &some.idx, &some.value));
        check_some(&some);
    } else {
        MPI_Request *r = slot_at(slot);
        Some *some = somes[slot] = resized(NULL, 1, sizeof *some);
        *some = (Some){first, num, -1, 0};
        MPI(MPIX_Win_notify_iwaitsome(win, first, num, &some->idx, &some->value, r));
    }
}

/* Resets a counter and waits for it to rise, until this many notifications were taken. */
static void take(const Line *line, MPI_Win win)
{
    Room *room = &rooms[integer(line, 1)];
    int counter = integer(line, 2);
    uint64_t until = number(line, 3);
    for (;;) {
        MPI_Count value;
        MPI(MPIX_Win_reset_notify_value(win, counter, &value));
        room->taken[counter] += (uint64_t)value;
        if (room->taken[counter] >= until)
            return;
        MPI(MPIX_Win_notify_threshold(win, counter, 1));
    }
}

/* ---- Tagged notifications ---- */

static int accepts(int wanted, int found) { return wanted == ANY || wanted == found; }

static void expect(const Line *line, MPI_Win win)
{
    Expectation *e = expectation_at(integer(line, 2));
    int source = integer(line, 4), tag = integer(line, 5);
    *e = (Expectation){.live = 1,
                       .window = integer(line, 1),
                       .source = source,
                       .tag = tag,
                       .expected = (int64_t)number(line, 3)};
    MPI(MPIX_Notify_init(win, source == ANY ? MPI_ANY_SOURCE : source,
                         tag == ANY ? MPI_ANY_TAG : tag, e->expected, &e->request));
}

static void start_expecting(const Line *line, MPI_Win win)
{
    Expectation *e = expectation_at(integer(line, 2));
    (void)win;
    MPI(MPI_Start(&e->request));
    e->active = 1;
    owed[e->window] += (uint64_t)e->expected;
}

/* An expectation was met by this notification. */
static void met(Expectation *e, const MPI_Status *status)
{
    last_source = status->MPI_SOURCE;
    last_tag = status->MPI_TAG;
    e->active = 0;
    see(e->window, last_source, last_tag);
    if (!accepts(e->source, last_source) || !accepts(e->tag, last_tag))
        differs("window %d: the expectation of source %d, tag %d is met by source %d, tag %d",
                e->window, e->source, e->tag, last_source, last_tag);
}

static void await_expectation(const Line *line, MPI_Win win)
{
    Expectation *e = expectation_at(integer(line, 2));
    int source = integer(line, 4), tag = integer(line, 5), flag = 0;
    MPI_Status status;
    (void)win;
    if (integer(line, 3))
        while (!flag)
            MPI(MPI_Test(&e->request, &flag, &status));
    else
        MPI(MPI_Wait(&e->request, &status));
    met(e, &status);
    if (!accepts(source, last_source) || !accepts(tag, last_tag))
        differs("window %d: an expectation is met by source %d, tag %d and not by source %d, tag "
                "%d",
                e->window, last_source, last_tag, source, tag);
}

static void abandon(const Line *line)
{
    Expectation *e = expectation_at(integer(line, 1));
    MPI(MPI_Request_free(&e->request));
    e->live = 0;
}

static void probe(const Line *line, MPI_Win win)
{
    int source = integer(line, 2), tag = integer(line, 3), flag;
    MPI_Status status;
    MPI(MPIX_Notify_iprobe(win, source == ANY ? MPI_ANY_SOURCE : source,
                           tag == ANY ? MPI_ANY_TAG : tag, &flag, &status));
    if (flag && (!accepts(source, status.MPI_SOURCE) || !accepts(tag, status.MPI_TAG)))
        differs("a probe for source %d, tag %d finds source %d, tag %d", source, tag,
                status.MPI_SOURCE, status.MPI_TAG);
}

/* Compares memory that the last notification announced, if it announced any. */
static void check_announced(const Line *line)
{
    int window = integer(line, 1);
    for (int i = 0; i < program.all.count; i++) {
        const Line *other = &program.all.lines[i];
        if (is(other, "announced") && integer(other, 1) == window &&
            integer(other, 2) == own_rank && integer(other, 3) == last_source &&
            integer(other, 4) == last_tag)
            check_memory(window, number(other, 5), (size_t)number(other, 6), number(other, 7),
                         "after a tagged notification");
    }
}

/* Started expectations that no call waited for: at the end enough notifications have come. */
static void end_expectations(void)
{
    for (int i = 0; i < expectation_count; i++) {
        MPI_Status status;
        if (!expectations[i].live || !expectations[i].active)
            continue;
        MPI(MPI_Wait(&expectations[i].request, &status));
        met(&expectations[i], &status);
    }
}

/* ---- The other calls ---- */

static void check(const Line *line)
{
    check_memory(integer(line, 1), number(line, 2), (size_t)number(line, 3), number(line, 4),
                 "after a blocking call");
}

static void store(const Line *line)
{
    fill(rooms[integer(line, 1)].base + number(line, 2), number(line, 4), (size_t)number(line, 3));
}

static void scribble_all(const Line *line)
{
    for (int at = 1; at < line->count; at++)
        scribble(&program.ops[number(line, at)]);
}

/* Computes for so many nanoseconds. */
static void compute(const Line *line)
{
    double end = seconds() + (double)number(line, 1) * 1e-9;
    while (seconds() < end)
        ;
}

/* Calls on the window that the line names first. */
static const struct {
    const char *name;
    void (*call)(const Line *, MPI_Win);
} on_windows[] = {
    {"post", post},
    {"start", start},
    {"complete", complete},
    {"wait", await_exposure},
    {"win_test", win_test},
    {"fence", fence},
    {"lock", lock},
    {"lock_all", lock_all},
    {"unlock", unlock},
    {"unlock_all", unlock_all},
    {"flush", flush},
    {"order", order},
    {"handle", handle},
    {"await_counters", await_counters},
    {"take", take},
    {"expect", expect},
    {"start_expecting", start_expecting},
    {"await_expectation", await_expectation},
    {"probe", probe},
    {"wrong", wrong},
    {"record", record},
    {"record_end", record_end},
};

static const struct {
    const char *name;
    void (*call)(const Line *);
} others[] = {
    {"await", await},       {"test", test},           {"await_all", await_all},
    {"abandon", abandon},   {"check", check},         {"check_announced", check_announced},
    {"store", store},       {"compute", compute},     {"scribble", scribble_all},
    {"restart", restart},   {"collect", collect},     {"restart_refused", restart_refused},
    {"flush_wins", flush_wins},
};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static void make(const Line *line)
{
    if (is(line, "op")) {
        record_op((int)number(line, 1));
        issue(&program.ops[number(line, 1)], NULL);
    } else if (is(line, "request"))
        issue(&program.ops[number(line, 1)], slot_at(integer(line, 2)));
    else if (is(line, "free"))
        MPI(MPI_Request_free(slot_at(integer(line, 1))));
    else if (is(line, "barrier"))
        MPI(MPI_Barrier(comm));
    else {
        for (size_t i = 0; i < COUNT(on_windows); i++)
            if (is(line, on_windows[i].name)) {
                on_windows[i].call(line, rooms[number(line, 1)].win);
                return;
            }
        for (size_t i = 0; i < COUNT(others); i++)
            if (is(line, others[i].name)) {
                others[i].call(line);
                return;
            }
        differs("unknown call %s", line->words[0]);
    }
}

static void at_line(long line)
{
    *here() = (struct position){(long)program.seed, line};
}

/* Makes these lines as a persistent epoch that is started once. */
static void make_recorded(int first, int lines)
{
    MPI_Win win = rooms[number(&program.calls.lines[first], 1)].win;
    MPI_Request epoch;
    MPI(MPIX_Win_epoch_init(win, &epoch));
    recording = 1;
    for (int i = first; i < first + lines; i++) {
        at_line(program.calls.lines[i].number);
        make(&program.calls.lines[i]);
    }
    recording = 0;
    MPI(MPIX_Win_epoch_end(win));
    MPI(MPI_Start(&epoch));
    MPI(MPI_Wait(&epoch, MPI_STATUS_IGNORE));
    MPI(MPI_Request_free(&epoch));
}

static void run(MPI_Comm thread_comm)
{
    at_line(program.all.lines[0].number);
    open_program(thread_comm);
    for (int i = 0; i < program.calls.count; i++) {
        at_line(program.calls.lines[i].number);
        int for_two = recording ? 0 : calls_for_two(i);
        int recorded = !recording && (program.seed + (uint64_t)i) % 2 ? recordable(i) : 0;
        if (recorded) {
            make_recorded(i, recorded);
            i += recorded - 1;
        } else if (for_two > 1) {
            issue_together(i, for_two);
            i += for_two - 1;
        } else
            make(&program.calls.lines[i]);
    }
    at_line(program.all.lines[program.all.count - 1].number);
    end_expectations();
    check_results();
    /* A request may outlive its window. */
    if (program.seed % 2)
        free_records();
    close_program();
    free_records();
}

struct thread {
    int number;
    MPI_Comm comm;
};

static const char *path;
static int repeat = 1;
static double end_at;
static long programs;

/* Whether there is time for another program: process 0 decides. */
static int goes_on(MPI_Comm thread_comm)
{
    int on = seconds() < end_at;
    MPI(MPI_Bcast(&on, 1, MPI_INT, 0, thread_comm));
    return on;
}

/* Runs every program of this thread. */
static void *run_all(void *own)
{
    long line = 0;
    const struct thread *t = own;
    thread = t->number;
    FILE *text = fopen(path, "r");
    REQUIRE(text != NULL);
    for (long at = 0; read_program(text, &line, &program); at++) {
        if (at % threads == thread && goes_on(t->comm)) {
            for (int i = 0; i < repeat; i++)
                run(t->comm);
            __atomic_fetch_add(&programs, 1, __ATOMIC_RELAXED);
        }
        free_program(&program);
    }
    fclose(text);
    return NULL;
}

int main(int argc, char **argv)
{
    enum { MOST_THREADS = 16 };
    struct thread own[MOST_THREADS];
    pthread_t ids[MOST_THREADS];
    threads = argc > 4 ? atoi(argv[4]) : 1;
    int helped = argc > 7 ? atoi(argv[7]) : 0, several = threads > 1 || helped;
    test_begin_threads(&argc, &argv, several ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    REQUIRE(argc == 8 && threads >= 1 && threads <= MOST_THREADS && (!helped || threads == 1));
    path = argv[1];
    replay = argv[3];
    repeat = atoi(argv[5]);
    end_at = seconds() + atof(argv[6]);
    MPI_Comm node;
    int on_node, file = open(argv[2], O_RDWR | O_CREAT, 0600);
    MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    MPI(MPI_Comm_size(node, &on_node));
    MPI(MPI_Comm_free(&node));
    one_node = on_node == ranks;
    size_t bytes = sizeof *positions * (size_t)(ranks * threads);
    REQUIRE(file >= 0 && ftruncate(file, (off_t)bytes) == 0);
    positions = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    REQUIRE(positions != MAP_FAILED);
    for (int i = 0; i < threads; i++) {
        own[i].number = i;
        MPI(MPI_Comm_dup(MPI_COMM_WORLD, &own[i].comm));
    }
    if (helped)
        start_helper();
    for (int i = 1; i < threads; i++)
        REQUIRE(pthread_create(&ids[i], NULL, run_all, &own[i]) == 0);
    run_all(&own[0]);
    if (helped)
        end_helper();
    for (int i = 1; i < threads; i++)
        REQUIRE(pthread_join(ids[i], NULL) == 0);
    for (int i = 0; i < threads; i++)
        MPI(MPI_Comm_free(&own[i].comm));
    if (me == 0)
        printf("%ld programs\n", programs);
    return test_end();
}
