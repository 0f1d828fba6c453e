/*
 * Preloaded before the library: every window that is made has pattern fences [FE-4].
 */
#include <mpi.h>

/* The program's info and the key. */
static MPI_Info with_key(MPI_Info info)
{
    MPI_Info own;
    if (info == MPI_INFO_NULL)
        PMPI_Info_create(&own);
    else
        PMPI_Info_dup(info, &own);
    PMPI_Info_set(own, "mpix_rma_fence", "pattern");
    return own;
}

#define MAKES_A_WINDOW(name, parameters, arguments)   \
    int MPI_Win_##name parameters                     \
    {                                                 \
        MPI_Info own = with_key(info);                \
        int code = PMPI_Win_##name arguments;         \
        PMPI_Info_free(&own);                         \
        return code;                                  \
    }

MAKES_A_WINDOW(create, (void *base, MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm,
                        MPI_Win *win), (base, size, unit, own, comm, win))
MAKES_A_WINDOW(allocate, (MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base,
                          MPI_Win *win), (size, unit, own, comm, base, win))
MAKES_A_WINDOW(allocate_shared, (MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base,
                                 MPI_Win *win), (size, unit, own, comm, base, win))
MAKES_A_WINDOW(create_dynamic, (MPI_Info info, MPI_Comm comm, MPI_Win *win), (own, comm, win))
