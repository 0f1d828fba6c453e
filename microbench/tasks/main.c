/*
 * Runs one version of one program several times, and prints a JSON line per run. tasks.py compares
 * versions.
 */
#define _GNU_SOURCE
#include "tasks.h"

#include "../common/host.h"
#include "../common/options.h"
#include "../common/verified.h"
#include "exchange.h"
#include "graph.h"

#include <getopt.h>
#include <mpix_task.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef MPI_TASK_MULTIPLE
#define MPI_TASK_MULTIPLE (MPI_THREAD_MULTIPLE + 1)
#endif

static const char *const version_name[VERSIONS] = {
    "pure", "nbuffer", "forkjoin", "sentinel", "blocking", "two_sided", "notified",
    "two_sided_cont", "notified_cont",
};
static const struct program *const programs[] = {&gauss_seidel, &streaming, &ifsker, &amr};
enum { PROGRAMS = sizeof programs / sizeof programs[0] };

struct setup setup = {.workers = 1, .block = 32, .rows = 256, .columns = 1024, .iterations = 50,
                      .seed = 1};

void require(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "tasks: rank %d: %s\n", setup.rank, what);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* SplitMix64 [Steele, Lea and Flood 2014]. */
static unsigned long mixed(unsigned long x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

double number_of(long index)
{
    return (double)(mixed((unsigned long)index) >> 11) * 0x1p-53;
}

void delay(long iteration)
{
    unsigned long draw = mixed((unsigned long)iteration ^ (unsigned long)setup.seed << 32);
    if (setup.delay_us > 0 && draw % (unsigned long)setup.ranks == (unsigned long)setup.rank)
        work_for_us(setup.delay_us);
}

static int usage(void)
{
    fputs("usage: tasks PROGRAM VERSION [-b BLOCK] [-m ROWS] [-n COLUMNS] [-i ITERATIONS]\n"
          "             [-w WORKERS] [-r RUNS] [-d DELAY_US] [-s SEED]\n"
          "With one worker, each rank is pinned to a processor.\nPrograms:", stderr);
    for (int i = 0; i < PROGRAMS; i++)
        fprintf(stderr, " %s", programs[i]->name);
    fputs("\nVersions:", stderr);
    for (int i = 0; i < VERSIONS; i++)
        fprintf(stderr, " %s", version_name[i]);
    fputs("\n", stderr);
    return 2;
}

/* The program, or NULL; sets the version. */
static const struct program *program_of(const char *name, const char *version)
{
    setup.version = VERSIONS;
    for (int i = 0; i < VERSIONS; i++)
        if (strcmp(version, version_name[i]) == 0)
            setup.version = i;
    for (int i = 0; i < PROGRAMS; i++)
        if (strcmp(name, programs[i]->name) == 0 && (programs[i]->versions & 1u << setup.version))
            return programs[i];
    return NULL;
}

static bool read_options(int argc, char **argv, long *runs)
{
    for (int o; (o = getopt(argc, argv, "b:m:n:i:w:r:d:s:")) != -1;) {
        if (o == '?')
            return false;
        char name[] = {'-', (char)o, '\0'};
        double value = positive(optarg, name);
        switch (o) {
            case 'b': setup.block = (long)value; break;
            case 'm': setup.rows = (long)value; break;
            case 'n': setup.columns = (long)value; break;
            case 'i': setup.iterations = (long)value; break;
            case 'w': setup.workers = (int)value; break;
            case 'r': *runs = (long)value; break;
            case 'd': setup.delay_us = value; break;
            case 's': setup.seed = (unsigned)value; break;
        }
    }
    return optind == argc;
}

/* Runs this rank, and threads that it starts later, on one processor of its own if there are
 * enough. */
static void pin(void)
{
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof allowed, &allowed);
    int count = CPU_COUNT(&allowed);
    if (count < setup.ranks) /* the launcher has chosen already */
        return;
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && seen++ == setup.rank % count)
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* One run: prints the time of the slowest rank. Returns whether the answer is right. */
static bool run(const struct program *program)
{
    long wrong;
    double took = run_verified(program->reset, program->run, program->wrong, &wrong);
    if (setup.rank == 0)
        printf("{\"program\":\"%s\",\"version\":\"%s\",\"host\":\"%s\",\"ranks\":%d,\"workers\":%d,"
               "\"block\":%ld,\"us\":%.3f,\"wrong\":%ld,\"verified\":%s}\n",
               program->name, version_name[setup.version], host_name(), setup.ranks, setup.workers,
               setup.block, took, wrong, wrong ? "false" : "true");
    fflush(stdout);
    return wrong == 0;
}

int main(int argc, char **argv)
{
    long runs = 5;
    int level;
    const struct program *program = argc < 3 ? NULL : program_of(argv[1], argv[2]);
    if (!program || !read_options(argc - 2, argv + 2, &runs))
        return usage();
    int wanted = setup.version == BLOCKING ? MPI_TASK_MULTIPLE
               : setup.version == PURE || setup.version == NBUFFER ? MPI_THREAD_SINGLE
                                                                   : MPI_THREAD_MULTIPLE;
    MPI_Init_thread(&argc, &argv, wanted, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &setup.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &setup.ranks);
    if (level < wanted) {
        if (setup.rank == 0)
            printf("{\"program\":\"%s\",\"version\":\"%s\",\"unsupported\":true}\n", program->name,
                   version_name[setup.version]);
        MPI_Finalize();
        return 0;
    }
    sharpen_timers();
    if (setup.workers == 1)
        pin();
    program->open();
    if (setup.version >= FORKJOIN)
        graph_start_workers(setup.workers, exchange_idle());
    bool right = true;
    for (long i = 0; i < runs; i++)
        right &= run(program);
    if (setup.version >= FORKJOIN)
        graph_stop_workers();
    program->close();
    MPI_Finalize();
    return right ? 0 : 1;
}
