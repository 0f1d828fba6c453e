/*
 * Blocks of different lengths [CL-1], [CL-3]: a block is longer than its place while other data are
 * too long for a schedule. The process that has the place returns an error, and nobody hangs.
 *
 *   varying_errors
 */
#include "check.h"

enum { ROUNDS = 20, SHORT = 3, LONG = 5000, ROOM = 3 * LONG };

static MPI_Comm comm;
static int in[ROOM], out[ROOM];

/* Who can report a block that is too long: this library, it or the host, or the host alone, whose
 * nonblocking forms do not always. */
enum { OURS, EITHER, HOST };

/* Every process must end its call: with an error if `longer` reaches it, else without. */
static void ended(const char *what, int code, int longer, int reporter)
{
    int class = code == MPI_SUCCESS ? MPI_SUCCESS : class_of(code);
    /* On several nodes, only short data are compared with their places. */
    if (reporter == EITHER && !on_one_node())
        reporter = HOST;
    if (!longer)
        EXPECT(class == MPI_SUCCESS, "%s: class %d (%s)", what, class, error_text(code));
    else
        EXPECT(class == MPI_ERR_TRUNCATE || (reporter != OURS && class == MPI_ERR_OTHER) ||
                   (reporter == HOST && class == MPI_SUCCESS),
               "%s: class %d, not MPI_ERR_TRUNCATE (%s)", what, class, error_text(code));
    EXPECT(out[ROOM - 1] == -1, "%s: memory behind the places was overrun", what);
}

/* A communicator whose calls are on schedules. It is left after an error of the host, which may
 * have lost messages of it. */
static void renew(void)
{
    int places[8] = {0}, counts[8] = {0};
    if (comm != MPI_COMM_NULL)
        MPI(MPI_Comm_free(&comm));
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int i = 0; i < ROUNDS; i++)
        MPI(MPI_Alltoallv(in, counts, places, MPI_INT, out, counts, places, MPI_INT, comm));
    MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    memset(out, -1, sizeof out);
}

/* Process `from` has a long block for the next process, which expects it. `other` has a place for
 * one int of `sender`, and gets more. */
static void alltoallv(int from, int sender, int other)
{
    int sent[8] = {0}, received[8] = {0}, begins[8] = {0}, places[8], next = (from + 1) % ranks;
    for (int r = 0; r < ranks; r++)
        places[r] = r * SHORT;
    if (me == from)
        sent[next] = LONG;
    if (me == next) {
        received[from] = LONG;
        places[from] = ranks * SHORT;
    }
    if (me == sender)
        sent[other] = SHORT;
    if (me == other)
        received[sender] = 1;
    int code = MPI_Alltoallv(in, sent, begins, MPI_INT, out, received, places, MPI_INT, comm);
    ended("alltoallv", code, me == other, sender == from ? HOST : EITHER);
    renew();
}

/* The root's places for the processes, in ints, and what they send. */
static void gatherv(int root, const int *places, const int *lengths)
{
    int to[8], longer = 0, reporter = OURS;
    for (int r = 0, end = 0; r < ranks; r++) {
        to[r] = end;
        end += places[r];
        longer |= lengths[r] > places[r];
        reporter = places[r] == LONG ? EITHER : reporter;
    }
    int code = MPI_Gatherv(in, lengths[me], MPI_INT, out, places, to, MPI_INT, root, comm);
    ended("gatherv", code, me == root && longer, reporter);
    renew();
}

static void scatterv(int root, const int *lengths, const int *places)
{
    int from[8] = {0}, reporter = OURS;
    for (int r = 0; r < ranks; r++)
        reporter = lengths[r] == LONG ? HOST : reporter;
    int code = MPI_Scatterv(in, lengths, from, MPI_INT, out, places[me], MPI_INT, root, comm);
    ended("scatterv", code, lengths[me] > places[me], reporter);
    renew();
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    if (ranks < 2 || ranks > 4)
        return test_skip("for 2 to 4 processes");
    comm = MPI_COMM_NULL;
    on_one_node(); /* all together */
    renew();
    for (int from = 0; from < ranks; from++)
        for (int sender = 0; sender < ranks; sender++)
            for (int other = 0; other < ranks; other++)
                if (sender != other && !(sender == from && other == (from + 1) % ranks))
                    alltoallv(from, sender, other);
    for (int root = 0; root < ranks; root++) {
        int first = root == 0 ? 1 : 0, last = root == ranks - 1 ? ranks - 2 : ranks - 1;
        /* All places are short, and one block is long. */
        int places[8] = {1, 1, 1, 1}, lengths[8] = {1, 1, 1, 1};
        lengths[first] = LONG;
        gatherv(root, places, lengths);
        scatterv(root, lengths, places);
        /* A place is long, and another one too short. */
        if (first != last) {
            places[first] = LONG;
            lengths[last] = SHORT;
            gatherv(root, places, lengths);
            scatterv(root, lengths, places);
        }
        /* A place is long, but the block is not. */
        int short_ones[8] = {1, 1, 1, 1};
        places[first] = LONG;
        gatherv(root, places, short_ones);
    }
    MPI(MPI_Comm_free(&comm));
    return test_end();
}
