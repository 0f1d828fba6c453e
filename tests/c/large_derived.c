/*
 * One put of a derived datatype with more than 2 GiB of data, over more than 3 GiB of the window.
 * The origin's buffer is mostly untouched zero pages and takes little memory; the window takes 3
 * GB.
 *
 *   large_derived KIND
 */
#include "check.h"
#include <sys/mman.h>

int main(int argc, char **argv)
{
    /* 2.25 GiB in blocks of 2 MiB, 3 MiB apart. */
    const MPI_Aint block = 2 << 20, stride = 3 << 20, blocks = 1152, span = stride * blocks;
    MPI_Datatype type;
    test_begin(&argc, &argv);
    REQUIRE(argc == 2 && ranks == 2);
    if (!test_memory(5ll << 30))
        return test_skip("less than 5 GB of memory available");
    int created = strcmp(argv[1], "created") == 0;
    MPI_Aint size = me == 1 ? span : 0;
    char *base = NULL, *origin = NULL;
    MPI_Win win;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (created) {
        REQUIRE(size == 0 ||
                (base = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0)) != MAP_FAILED);
        MPI(MPI_Win_create(base, size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    } else
        MPI(MPI_Win_allocate(size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    MPI(MPI_Type_create_hvector(blocks, block, stride, MPI_BYTE, &type));
    MPI(MPI_Type_commit(&type));
    MPI_Count bytes;
    MPI(MPI_Type_size_x(type, &bytes));
    EXPECT(bytes > INT32_MAX, "%lld bytes", (long long)bytes);
    MPI(MPI_Win_lock_all(0, win));
    if (me == 0) {
        REQUIRE((origin = mmap(NULL, span, PROT_READ | PROT_WRITE, flags, -1, 0)) != MAP_FAILED);
        for (MPI_Aint i = 0; i < blocks; i += 50) {
            store64(origin + i * stride, i + 1);
            store64(origin + i * stride + block - 8, i + 2);
            store64(origin + i * stride + block, -1); /* between two blocks */
        }
        MPI(MPI_Put(origin, 1, type, 1, 0, 1, type, win));
        MPI(MPI_Win_flush(1, win));
        int64_t last = 0;
        MPI(MPI_Get(&last, 1, MPI_INT64_T, 1, 1150 * stride + block - 8, 1, MPI_INT64_T, win));
        MPI(MPI_Win_flush(1, win));
        EXPECT(last == 1152, "the last word is %ld", (long)last);
        send_token(1, 1);
        munmap(origin, span);
    } else {
        recv_token(0, 1);
        for (MPI_Aint i = 0; i < blocks; i += 50) {
            int64_t first = load64(base + i * stride), end = load64(base + i * stride + block - 8);
            int64_t between = load64(base + i * stride + block);
            EXPECT(first == i + 1 && end == i + 2 && between == 0, "block %ld: %ld, %ld, %ld",
                   (long)i, (long)first, (long)end, (long)between);
        }
    }
    MPI(MPI_Win_unlock_all(win));
    MPI(MPI_Type_free(&type));
    MPI(MPI_Win_free(&win));
    if (created && base)
        munmap(base, size);
    return test_end();
}
