/*
 * Messages between all ranks, and MPI_Finalize: for host_hangs.py. Each rank says when it calls
 * MPI_Finalize.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    enum { BYTES = 100000, ROUNDS = 20 };
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char *sent = calloc(BYTES, 1), *received = calloc(BYTES, (size_t)ranks);
    MPI_Request *requests = malloc(2 * (size_t)ranks * sizeof *requests);
    for (int round = 0; round < ROUNDS; round++) {
        for (int peer = 0; peer < ranks; peer++) {
            MPI_Irecv(received + (size_t)peer * BYTES, BYTES, MPI_CHAR, peer, 0, MPI_COMM_WORLD,
                      &requests[2 * peer]);
            MPI_Isend(sent, round % 2 ? BYTES : 8, MPI_CHAR, peer, 0, MPI_COMM_WORLD,
                      &requests[2 * peer + 1]);
        }
        MPI_Waitall(2 * ranks, requests, MPI_STATUSES_IGNORE);
    }
    printf("rank %d finalizes\n", rank);
    fflush(stdout);
    MPI_Finalize();
    free(sent);
    free(received);
    free(requests);
    return 0;
}
