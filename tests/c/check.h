/*
 * Shared by all test programs. A program runs its checks and ends with `return test_end();`. Rank 0
 * prints "OK" if no check failed in any process. EXPECT counts a failure and continues; REQUIRE
 * ends the job, because going on would hang.
 *
 * Programs that use only MPI calls are compiled with -DPLAIN, without mpix_rma.h. They run
 * preloaded, and on the plain host to test the test.
 */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifdef __cplusplus
#define OMPI_SKIP_MPICXX /* MPI's old C++ bindings need extra libraries */
#define MPICH_SKIP_MPICXX
#endif
#ifdef PLAIN
#include <mpi.h>
#else
#include <mpix_rma.h>
#endif
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* Not every program uses every helper. */
#define HELPER __attribute__((unused)) static

static int me, ranks, failures;

__attribute__((format(printf, 3, 4), unused)) static void complain(const char *file, int line,
                                                                   const char *form, ...)
{
    va_list args;
    char text[512];
    va_start(args, form);
    vsnprintf(text, sizeof text, form, args);
    va_end(args);
    if (__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED) < 20)
        fprintf(stderr, "%s:%d: rank %d: %s\n", file, line, me, text);
}

/* EXPECT(condition, "format", ...): counts a failure and continues. */
#define EXPECT(cond, ...)                                                                          \
    do {                                                                                           \
        if (!(cond))                                                                               \
            complain(__FILE__, __LINE__, __VA_ARGS__);                                             \
    } while (0)

/* REQUIRE(condition): ends the job. */
#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            complain(__FILE__, __LINE__, "%s", #cond);                                             \
            MPI_Abort(MPI_COMM_WORLD, 3);                                                          \
        }                                                                                          \
    } while (0)

/* MPI(call): the call must succeed. */
#define MPI(call) must((call), #call, __FILE__, __LINE__)

HELPER void must(int code, const char *call, const char *file, int line)
{
    if (code != MPI_SUCCESS) {
        char text[MPI_MAX_ERROR_STRING];
        int length;
        MPI_Error_string(code, text, &length);
        complain(file, line, "%s: %s", call, text);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

/* The text of MPI_Error_string, valid until the next call. */
HELPER const char *error_text(int code)
{
    static char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    text[0] = 0;
    MPI_Error_string(code, text, &length);
    return text;
}

HELPER int class_of(int code)
{
    int value;
    MPI_Error_class(code, &value);
    return value;
}

/* REFUSED(class, call): the call must return an error of this class. */
#define REFUSED(class, call)                                                                       \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        EXPECT(code_ != MPI_SUCCESS && class_of(code_) == (class), "%s: class %d, not " #class,    \
               #call, code_ == MPI_SUCCESS ? 0 : class_of(code_));                                 \
    } while (0)

HELPER void test_begin_threads(int *argc, char ***argv, int wanted)
{
    int provided;
    MPI_Init_thread(argc, argv, wanted, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (provided < wanted && me == 0)
        printf("SKIP the host provides thread level %d only\n", provided);
    if (provided < wanted) {
        MPI_Finalize();
        exit(0);
    }
}

HELPER void test_begin(int *argc, char ***argv)
{
    test_begin_threads(argc, argv, MPI_THREAD_SINGLE);
}

HELPER int test_end(void)
{
    int all = 0;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (me == 0)
        printf(all ? "FAILED %d checks\n" : "OK\n", all);
    /* The output counts even if the host hangs in its own MPI_Finalize. */
    fflush(stdout);
    MPI_Finalize();
    return all != 0;
}

/* Ends the test in every process with the reason why it cannot run. All processes must decide
 * alike. */
HELPER int test_skip(const char *why)
{
    if (me == 0)
        printf("SKIP %s\n", why);
    MPI_Finalize();
    return 0;
}

/* Collective: whether every process sees that many bytes of available memory, shared memory
 * included. Otherwise the kernel may kill a large test without any message. */
HELPER int test_memory(long long bytes)
{
    char line[256];
    long long kilobytes = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "MemAvailable: %lld", &kilobytes);
    if (f)
        fclose(f);
    struct statvfs s;
    int enough = kilobytes * 1024 >= bytes && statvfs("/dev/shm", &s) == 0 &&
                 (long long)(s.f_bavail * s.f_frsize) >= bytes;
    MPI_Allreduce(MPI_IN_PLACE, &enough, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return enough;
}

/* Lines of a file. -1: it cannot be read. */
HELPER int lines_in(const char *file)
{
    int n = 0, c;
    FILE *f = fopen(file, "r");
    if (f == NULL)
        return -1;
    while ((c = getc(f)) != EOF)
        n += c == '\n';
    fclose(f);
    return n;
}

/* True if all processes can share memory. */
HELPER int on_one_node(void)
{
    static int known, n;
    MPI_Comm node;
    if (!known++) {
        MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
        MPI(MPI_Comm_size(node, &n));
        MPI(MPI_Comm_free(&node));
        MPI(MPI_Allreduce(MPI_IN_PLACE, &n, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
    }
    return n == ranks;
}

/* Two ways to give a window its memory. */
enum { ALLOCATED, CREATED, KINDS };
static const char *const kind_name[KINDS] __attribute__((unused)) = {"allocated", "created"};

typedef struct {
    MPI_Win win;
    void *base;  /* this process's part */
    int created; /* base is to be freed */
    int kind;
} Window;

HELPER Window window_on(int kind, MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm)
{
    Window w = {MPI_WIN_NULL, NULL, kind == CREATED, kind};
    if (kind == CREATED) {
        REQUIRE((w.base = calloc(1, bytes ? (size_t)bytes : 1)) != NULL);
        MPI(MPI_Win_create(w.base, bytes, unit, info, comm, &w.win));
    } else {
        MPI(MPI_Win_allocate(bytes, unit, info, comm, &w.base, &w.win));
        if (bytes)
            memset(w.base, 0, bytes);
        MPI(MPI_Barrier(comm));
    }
    return w;
}

HELPER Window window(int kind, MPI_Aint bytes, int unit)
{
    return window_on(kind, bytes, unit, MPI_INFO_NULL, MPI_COMM_WORLD);
}

HELPER void window_free(Window *w)
{
    MPI(MPI_Win_free(&w->win));
    EXPECT(w->win == MPI_WIN_NULL, "MPI_Win_free does not null the handle");
    if (w->created)
        free(w->base);
    w->base = NULL;
}

/* Whether operations need no call of their target (mpix_rma_progress = load_store). */
HELPER int is_load_store(MPI_Win win)
{
    MPI_Info info;
    char progress[64] = "";
    int flag;
    MPI(MPI_Win_get_info(win, &info));
    MPI(MPI_Info_get(info, "mpix_rma_progress", 63, progress, &flag));
    MPI(MPI_Info_free(&info));
    return flag && !strcmp(progress, "load_store");
}

/* Sets the first word of the window's memory at a rank. */
HELPER void set_word(Window *w, int rank, int64_t value)
{
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, w->win));
    MPI(MPI_Accumulate(&value, 1, MPI_INT64_T, rank, 0, 1, MPI_INT64_T, MPI_REPLACE, w->win));
    MPI(MPI_Win_unlock(rank, w->win));
}

/* The group of the listed ranks of a communicator. */
HELPER MPI_Group group_in(MPI_Comm comm, int n, const int *list)
{
    MPI_Group all, group;
    MPI(MPI_Comm_group(comm, &all));
    MPI(MPI_Group_incl(all, n, list, &group));
    MPI(MPI_Group_free(&all));
    return group;
}

/* The same of MPI_COMM_WORLD. */
HELPER MPI_Group group_of(int n, const int *list) { return group_in(MPI_COMM_WORLD, n, list); }

HELPER MPI_Group group_one(int rank) { return group_of(1, &rank); }

/* Empty messages that order two processes without touching a window. */
HELPER void send_token(int rank, int tag)
{
    MPI(MPI_Send(NULL, 0, MPI_BYTE, rank, tag, MPI_COMM_WORLD));
}
HELPER void recv_token(int rank, int tag)
{
    MPI(MPI_Recv(NULL, 0, MPI_BYTE, rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

/* Words of window memory that peers write while this process reads: every access goes to memory. */
HELPER int64_t load64(const void *at)
{
    return __atomic_load_n((const int64_t *)at, __ATOMIC_ACQUIRE);
}
HELPER void store64(void *at, int64_t v) { __atomic_store_n((int64_t *)at, v, __ATOMIC_RELEASE); }

HELPER double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Computes without calling MPI until *word is `value`. */
HELPER void compute_until(const void *word, int64_t value)
{
    double x = 1;
    while (load64(word) != value)
        for (int i = 0; i < 1000; i++)
            x = x * 1.0000001 + 1e-9;
    __asm__ volatile("" : : "g"(&x) : "memory");
}

/* Reproducible pseudorandom numbers: equal seeds give equal sequences. */
HELPER uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#ifndef PLAIN
/*
 * Each call of an epoch in blocking or nonblocking form [EP-2]: a set bit of `mix` means
 * nonblocking. Checks that opening requests are complete at once. Returns a closing request, or
 * MPI_REQUEST_NULL for the blocking form.
 */
enum { NB_OPEN_ACCESS = 1, NB_CLOSE_ACCESS = 2, NB_OPEN_EXPOSURE = 4, NB_CLOSE_EXPOSURE = 8 };
enum { NB_ALL = 15 };

HELPER void expect_complete(MPI_Request *r, const char *call)
{
    int flag = 0;
    MPI(MPI_Test(r, &flag, MPI_STATUS_IGNORE));
    EXPECT(flag, "%s: an opening request is not complete on return", call);
    if (!flag)
        MPI(MPI_Wait(r, MPI_STATUS_IGNORE));
}

HELPER void do_start(int mix, MPI_Group g, int assert, MPI_Win w)
{
    MPI_Request r;
    if (mix & NB_OPEN_ACCESS) {
        MPI(MPIX_Win_istart(g, assert, w, &r));
        expect_complete(&r, "istart");
    } else
        MPI(MPI_Win_start(g, assert, w));
}
HELPER void do_post(int mix, MPI_Group g, int assert, MPI_Win w)
{
    MPI_Request r;
    if (mix & NB_OPEN_EXPOSURE) {
        MPI(MPIX_Win_ipost(g, assert, w, &r));
        expect_complete(&r, "ipost");
    } else
        MPI(MPI_Win_post(g, assert, w));
}
HELPER void do_complete(int mix, MPI_Win w, MPI_Request *r)
{
    *r = MPI_REQUEST_NULL;
    if (mix & NB_CLOSE_ACCESS)
        MPI(MPIX_Win_icomplete(w, r));
    else
        MPI(MPI_Win_complete(w));
}
HELPER void do_wait(int mix, MPI_Win w, MPI_Request *r)
{
    *r = MPI_REQUEST_NULL;
    if (mix & NB_CLOSE_EXPOSURE)
        MPI(MPIX_Win_iwait(w, r));
    else
        MPI(MPI_Win_wait(w));
}
HELPER void do_lock(int mix, int type, int rank, MPI_Win w)
{
    MPI_Request r;
    if (mix & NB_OPEN_ACCESS) {
        MPI(MPIX_Win_ilock(type, rank, 0, w, &r));
        expect_complete(&r, "ilock");
    } else
        MPI(MPI_Win_lock(type, rank, 0, w));
}
HELPER void do_unlock(int mix, int rank, MPI_Win w, MPI_Request *r)
{
    *r = MPI_REQUEST_NULL;
    if (mix & NB_CLOSE_ACCESS)
        MPI(MPIX_Win_iunlock(rank, w, r));
    else
        MPI(MPI_Win_unlock(rank, w));
}
HELPER void do_lock_all(int mix, MPI_Win w)
{
    MPI_Request r;
    if (mix & NB_OPEN_ACCESS) {
        MPI(MPIX_Win_ilock_all(0, w, &r));
        expect_complete(&r, "ilock_all");
    } else
        MPI(MPI_Win_lock_all(0, w));
}
HELPER void do_unlock_all(int mix, MPI_Win w, MPI_Request *r)
{
    *r = MPI_REQUEST_NULL;
    if (mix & NB_CLOSE_ACCESS)
        MPI(MPIX_Win_iunlock_all(w, r));
    else
        MPI(MPI_Win_unlock_all(w));
}
HELPER void do_fence(int mix, int assert, MPI_Win w, MPI_Request *r)
{
    *r = MPI_REQUEST_NULL;
    if (mix & NB_CLOSE_ACCESS)
        MPI(MPIX_Win_ifence(assert, w, r));
    else
        MPI(MPI_Win_fence(assert, w));
}
HELPER void finish(MPI_Request *r)
{
    MPI(MPI_Wait(r, MPI_STATUS_IGNORE));
    EXPECT(*r == MPI_REQUEST_NULL, "MPI_Wait does not null the handle");
}
#endif

#endif
