/*
 * Runs one program with one kind of synchronization several times, and prints a JSON line per run.
 * bsp.py compares them.
 */
#include "bsp.h"

#include "../common/host.h"
#include "../common/options.h"
#include "../common/verified.h"

#include <getopt.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const mode_name[MODES] = {"barrier", "pattern", "notified", "two_sided"};
static const struct program *const programs[] = {&jacobi, &gauss_seidel, &nbody, &matmul};
enum { PROGRAMS = sizeof programs / sizeof programs[0] };

struct setup setup = {.mode = MODES};

void require(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "bsp: rank %d: %s\n", setup.rank, what);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

double *numbers(size_t count)
{
    double *memory = calloc(count + 1, sizeof *memory);
    require(memory, "out of memory");
    return memory;
}

double number_of(long index)
{
    return (double)((unsigned long)index * 2654435761u % 65536) / 65536;
}

long differences(const double *found, const double *expected, long count)
{
    long wrong = 0;
    for (long i = 0; i < count; i++)
        wrong += memcmp(found + i, expected + i, sizeof *found) != 0;
    return wrong;
}

static int usage(void)
{
    fputs("usage: bsp PROGRAM MODE [-n SIZE] [-i ITERATIONS] [-r RUNS]\nPrograms:", stderr);
    for (int i = 0; i < PROGRAMS; i++)
        fprintf(stderr, " %s", programs[i]->name);
    fputs("\nModes:", stderr);
    for (int i = 0; i < MODES; i++)
        fprintf(stderr, " %s", mode_name[i]);
    fputs("\n", stderr);
    return 2;
}

/* The program, or NULL; sets the mode and the defaults. */
static const struct program *program_of(const char *name, const char *mode)
{
    for (int i = 0; i < MODES; i++)
        if (strcmp(mode, mode_name[i]) == 0)
            setup.mode = i;
    for (int i = 0; i < PROGRAMS; i++)
        if (strcmp(name, programs[i]->name) == 0 && setup.mode != MODES) {
            setup.size = programs[i]->size;
            setup.iterations = programs[i]->iterations;
            return programs[i];
        }
    return NULL;
}

static bool read_options(int argc, char **argv, long *runs)
{
    for (int o; (o = getopt(argc, argv, "n:i:r:")) != -1;)
        switch (o) {
            case 'n': setup.size = (long)positive(optarg, "-n"); break;
            case 'i': setup.iterations = (long)positive(optarg, "-i"); break;
            case 'r': *runs = (long)positive(optarg, "-r"); break;
            default: return false;
        }
    return optind == argc;
}

/* One run: prints the time of the slowest rank. Returns whether the answer is right. */
static bool run(const struct program *program)
{
    long wrong;
    double took = run_verified(program->reset, program->run, program->wrong, &wrong);
    if (setup.rank == 0)
        printf("{\"program\":\"%s\",\"mode\":\"%s\",\"host\":\"%s\",\"ranks\":%d,\"size\":%ld,"
               "\"iterations\":%ld,\"us\":%.3f,\"wrong\":%ld,\"verified\":%s}\n",
               program->name, mode_name[setup.mode], host_name(), setup.ranks, setup.size,
               setup.iterations, took / (double)setup.iterations, wrong, wrong ? "false" : "true");
    fflush(stdout);
    return wrong == 0;
}

int main(int argc, char **argv)
{
    long runs = 5;
    const struct program *program = argc < 3 ? NULL : program_of(argv[1], argv[2]);
    if (!program || !read_options(argc - 2, argv + 2, &runs))
        return usage();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &setup.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &setup.ranks);
    program->open();
    bool right = true;
    for (long i = 0; i < runs; i++)
        right &= run(program);
    program->close();
    MPI_Finalize();
    return right ? 0 : 1;
}
