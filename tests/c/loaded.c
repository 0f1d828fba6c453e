/*
 * A program that is not linked with MPI loads the library by dlopen with RTLD_LOCAL, as
 * interpreters load extensions. The library cannot look up host functions with RTLD_NEXT then.
 * TEST_LIBRARY names the library.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void *library;

static void *find(const char *name)
{
    void *address = dlsym(library, name);
    if (!address) {
        fprintf(stderr, "%s: %s\n", name, dlerror());
        exit(1);
    }
    return address;
}

/* The function of this name, in the library or its dependencies. */
#define CALL(name) ((__typeof__(&name))find(#name))

int main(int argc, char **argv)
{
    int me, ranks, flag, value, *mine;
    void *base;
    MPI_Win win;
    MPI_Comm world;
    MPI_Datatype integer;
    MPI_Info no_info;
    if (dlsym(RTLD_DEFAULT, "MPI_Init")) {
        fprintf(stderr, "MPI is already in the program: the test is void\n");
        return 1;
    }
    library = dlopen(getenv("TEST_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
#ifdef OMPI_MAJOR_VERSION
    world = (MPI_Comm)find("ompi_mpi_comm_world");
    integer = (MPI_Datatype)find("ompi_mpi_int");
    no_info = (MPI_Info)find("ompi_mpi_info_null");
#else
    world = MPI_COMM_WORLD, integer = MPI_INT, no_info = MPI_INFO_NULL;
#endif
    CALL(MPI_Init)(&argc, &argv);
    CALL(MPI_Comm_rank)(world, &me);
    CALL(MPI_Comm_size)(world, &ranks);
    CALL(MPI_Win_allocate)(sizeof(int), sizeof(int), no_info, world, &base, &win);
    mine = base;
    value = me + 1;
    CALL(MPI_Win_fence)(0, win);
    CALL(MPI_Put)(&value, 1, integer, (me + 1) % ranks, 0, 1, integer, win);
    CALL(PMPI_Win_fence)(0, win);
    flag = *mine == (me + ranks - 1) % ranks + 1;
    if (!flag)
        fprintf(stderr, "rank %d has %d\n", me, *mine);
    CALL(MPI_Win_free)(&win);
    CALL(MPI_Barrier)(world);
    if (me == 0 && flag)
        printf("OK\n");
    CALL(MPI_Finalize)();
    return !flag;
}
