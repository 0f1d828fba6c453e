/*
 * Derived datatypes of every constructor, on both sides of every call that takes them, against
 * MPI_Pack and MPI_Unpack. One buffer is written through a window, a reference buffer by packing
 * and unpacking; both must agree in every byte, gaps included.
 *
 *   derived allocated|created [ROUNDS]
 */
#include "constructors.h"
#include <sys/mman.h>

enum { MEMORY = 96 * 1024, MIDDLE = MEMORY / 2, SCALE = 8 };

static int kind, peer;
static Window w;
static uint64_t seed = 12345;

static int up_to(int n) { return (int)(next_random(&seed) % (unsigned)n); }

static int greatest(int a, int b) { return b == 0 ? a : greatest(b, a % b); }

static unsigned char origin[MEMORY], result[MEMORY], expected[MEMORY], before[MEMORY],
    packed[2][MEMORY];

static void fill(unsigned char *memory, int salt)
{
    for (int i = 0; i < MEMORY; i++)
        memory[i] = (unsigned char)(i * 7 + salt * 13 + (i >> 8) * 3);
}

static void fill_ints(unsigned char *memory, int salt)
{
    for (int i = 0; i < MEMORY / 4; i++)
        ((int *)memory)[i] = i % 1000 + salt * 10000;
}

static int packed_size(const void *from, int count, MPI_Datatype t, unsigned char *to)
{
    int at = 0;
    MPI(MPI_Pack((void *)from, count, t, to, MEMORY, &at, MPI_COMM_SELF));
    return at;
}

static void unpacked(const unsigned char *from, int size, void *to, int count, MPI_Datatype t)
{
    int at = 0;
    MPI(MPI_Unpack((void *)from, size, &at, to, count, t, MPI_COMM_SELF));
}

static void same(const unsigned char *seen, const unsigned char *wanted, const char *what, int a,
                 int b)
{
    for (int i = 0; i < MEMORY; i++)
        if (seen[i] != wanted[i]) {
            EXPECT(0,
                   "%s on %s, constructors %d and %d: byte %d (from the middle) is %d and not %d",
                   what, kind_name[kind], a, b, i - MIDDLE, seen[i], wanted[i]);
            return;
        }
}

/* Reads all of the peer's memory, by a call without derived datatypes. */
static void read_back(unsigned char *to)
{
    MPI(MPI_Get(to, MEMORY, MPI_BYTE, peer, 0, MEMORY, MPI_BYTE, w.win));
    MPI(MPI_Win_flush(peer, w.win));
}

static void write_all(const unsigned char *from)
{
    MPI(MPI_Put(from, MEMORY, MPI_BYTE, peer, 0, MEMORY, MPI_BYTE, w.win));
    MPI(MPI_Win_flush(peer, w.win));
}

/* Counts with which both types have the same number of elements of base. */
static void counts_for(MPI_Datatype a, MPI_Datatype b, int *of_a, int *of_b)
{
    int m, n;
    MPI(MPI_Type_size(a, &m));
    MPI(MPI_Type_size(b, &n));
    int g = greatest(m, n), times = 1 + up_to(2);
    *of_a = n / g * times;
    *of_b = m / g * times;
}

/* Whether items around the middle stay inside the memory. */
static int fits(int count, MPI_Datatype t)
{
    MPI_Aint lb, ext, low, span;
    MPI(MPI_Type_get_extent(t, &lb, &ext));
    MPI(MPI_Type_get_true_extent(t, &low, &span));
    MPI_Aint first = low + (ext < 0 ? (count - 1) * ext : 0),
             last = low + span + (ext > 0 ? (count - 1) * ext : 0);
    return first >= -MIDDLE && last <= MIDDLE;
}

static void finish_one(int how, MPI_Request *r)
{
    if (how)
        MPI(MPI_Wait(r, MPI_STATUS_IGNORE));
    MPI(MPI_Win_flush(peer, w.win));
}

static void transfers(int a, int b, MPI_Datatype base_a, MPI_Datatype base_b)
{
    MPI_Datatype here = a < 0 ? base_a : made(a, base_a), there = b < 0 ? base_b : made(b, base_b);
    MPI_Request r = MPI_REQUEST_NULL;
    int n, m, how = up_to(2);
    counts_for(here, there, &n, &m);
    if (fits(n, here) && fits(m, there)) {
        fill(origin, a + 1);
        fill(before, 100 + b);
        write_all(before);
        memcpy(expected, before, MEMORY);
        int size = packed_size(origin + MIDDLE, n, here, packed[0]);
        unpacked(packed[0], size, expected + MIDDLE, m, there);
        if (how)
            MPI(MPI_Rput(origin + MIDDLE, n, here, peer, MIDDLE / SCALE, m, there, w.win, &r));
        else
            MPI(MPI_Put(origin + MIDDLE, n, here, peer, MIDDLE / SCALE, m, there, w.win));
        finish_one(how, &r);
        read_back(result);
        same(result, expected, how ? "MPI_Rput" : "MPI_Put", a, b);

        write_all(before);
        memcpy(expected, origin, MEMORY);
        size = packed_size(before + MIDDLE, m, there, packed[0]);
        unpacked(packed[0], size, expected + MIDDLE, n, here);
        if (how)
            MPI(MPI_Rget(origin + MIDDLE, n, here, peer, MIDDLE / SCALE, m, there, w.win, &r));
        else
            MPI(MPI_Get(origin + MIDDLE, n, here, peer, MIDDLE / SCALE, m, there, w.win));
        finish_one(how, &r);
        same(origin, expected, how ? "MPI_Rget" : "MPI_Get", a, b);
    }
    if (a >= 0)
        MPI(MPI_Type_free(&here));
    if (b >= 0)
        MPI(MPI_Type_free(&there));
}

/* Accumulates of ints: the expected values are computed from both sides packed. */
static void reductions(int a, int b, int c)
{
    MPI_Datatype here = a < 0 ? MPI_INT : made(a, MPI_INT),
                 there = b < 0 ? MPI_INT : made(b, MPI_INT);
    MPI_Datatype back = c < 0 ? MPI_INT : made(c, MPI_INT);
    int n, m, x, size_there, size_back, how = up_to(2), which = up_to(4);
    MPI_Request r = MPI_REQUEST_NULL;
    MPI_Op op = (MPI_Op[]){MPI_SUM, MPI_REPLACE, MPI_BXOR, MPI_NO_OP}[which];
    counts_for(here, there, &n, &m);
    MPI(MPI_Type_size(there, &size_there));
    MPI(MPI_Type_size(back, &size_back));
    x = m * size_there / size_back;
    if (x * size_back == m * size_there && fits(n, here) && fits(m, there) && fits(x, back)) {
        fill_ints(origin, 1);
        fill_ints(before, 2);
        fill_ints(result, 3);
        write_all(before);
        memcpy(expected, before, MEMORY);
        int size = packed_size(origin + MIDDLE, n, here, packed[0]);
        packed_size(before + MIDDLE, m, there, packed[1]);
        static unsigned char old[MEMORY];
        memcpy(old, packed[1], size);
        for (int i = 0; i < size / 4; i++) {
            int *mine = (int *)packed[0] + i, *its = (int *)packed[1] + i;
            *its = op == MPI_SUM       ? *its + *mine
                   : op == MPI_REPLACE ? *mine
                   : op == MPI_BXOR    ? *its ^ *mine
                                       : *its;
        }
        unpacked(packed[1], size, expected + MIDDLE, m, there);
        if (which != 3 && up_to(2)) {
            if (how)
                MPI(MPI_Raccumulate(origin + MIDDLE, n, here, peer, MIDDLE / SCALE, m, there, op,
                                    w.win, &r));
            else
                MPI(MPI_Accumulate(origin + MIDDLE, n, here, peer, MIDDLE / SCALE, m, there, op,
                                   w.win));
            finish_one(how, &r);
        } else {
            static unsigned char wanted[MEMORY];
            memcpy(wanted, result, MEMORY);
            unpacked(old, size, wanted + MIDDLE, x, back);
            if (how)
                MPI(MPI_Rget_accumulate(origin + MIDDLE, n, here, result + MIDDLE, x, back, peer,
                                        MIDDLE / SCALE, m, there, op, w.win, &r));
            else
                MPI(MPI_Get_accumulate(origin + MIDDLE, n, here, result + MIDDLE, x, back, peer,
                                       MIDDLE / SCALE, m, there, op, w.win));
            finish_one(how, &r);
            same(result, wanted, "MPI_Get_accumulate, result", a, c);
        }
        read_back(result);
        same(result, expected, "a reduction", a, b);
    }
    if (a >= 0)
        MPI(MPI_Type_free(&here));
    if (b >= 0)
        MPI(MPI_Type_free(&there));
    if (c >= 0)
        MPI(MPI_Type_free(&back));
}

/* A struct of several predefined datatypes, against bytes and against itself with other
 * displacements. */
static void mixed(void)
{
    MPI_Datatype t, s, types[4] = {MPI_INT, MPI_DOUBLE, MPI_CHAR, MPI_SHORT_INT};
    MPI(MPI_Type_create_struct(4, (int[]){1, 3, 5, 2}, (MPI_Aint[]){0, 8, 40, 48}, types, &s));
    MPI(MPI_Type_create_resized(s, 0, 72, &t));
    MPI(MPI_Type_commit(&t));
    MPI(MPI_Type_free(&s));
    fill(origin, 5);
    fill(before, 6);
    write_all(before);
    memcpy(expected, before, MEMORY);
    int size = packed_size(origin + MIDDLE, 20, t, packed[0]);
    unpacked(packed[0], size, expected + MIDDLE, 20, t);
    MPI(MPI_Put(origin + MIDDLE, 20, t, peer, MIDDLE / SCALE, 20, t, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    read_back(result);
    same(result, expected, "a mixed struct", -1, -1);
    MPI(MPI_Type_free(&t));
}

/* Reductions of pairs, which have padding, and complex numbers, from one stride to another. */
static void elements(void)
{
    struct {
        double value;
        int at;
    } pairs[40], their[40], sum[40];
    MPI_Datatype even, third;
    MPI(MPI_Type_vector(10, 1, 2, MPI_DOUBLE_INT, &even));
    MPI(MPI_Type_vector(5, 2, 4, MPI_DOUBLE_INT, &third));
    MPI(MPI_Type_commit(&even));
    MPI(MPI_Type_commit(&third));
    memset(pairs, 0, sizeof pairs);
    memset(their, 0, sizeof their);
    for (int i = 0; i < 40; i++) {
        pairs[i].value = (i * 7) % 11, pairs[i].at = i;
        their[i].value = (i * 5) % 11, their[i].at = 100 + i;
    }
    MPI(MPI_Put(their, sizeof their, MPI_BYTE, peer, 0, sizeof their, MPI_BYTE, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    MPI(MPI_Accumulate(pairs, 1, even, peer, 0, 1, third, MPI_MAXLOC, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    MPI(MPI_Get(sum, sizeof sum, MPI_BYTE, peer, 0, sizeof sum, MPI_BYTE, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    for (int k = 0; k < 10; k++) {
        int to = k / 2 * 4 + k % 2, from = 2 * k;
        if (pairs[from].value > their[to].value ||
            (pairs[from].value == their[to].value && pairs[from].at < their[to].at))
            their[to] = pairs[from];
    }
    for (int i = 0; i < 40; i++)
        EXPECT(sum[i].value == their[i].value && sum[i].at == their[i].at,
               "MAXLOC between strides: pair %d is (%g, %d)", i, sum[i].value, sum[i].at);
    MPI(MPI_Type_free(&even));
    MPI(MPI_Type_free(&third));

    struct {
        short value;
        int at;
    } small[30], theirs[30], least[30];
    memset(small, 0, sizeof small);
    memset(theirs, 0, sizeof theirs);
    for (int i = 0; i < 30; i++) {
        small[i].value = (short)((i * 3) % 7), small[i].at = i;
        theirs[i].value = (short)((i * 4) % 7), theirs[i].at = 50 + i;
    }
    MPI(MPI_Type_vector(10, 1, 3, MPI_SHORT_INT, &even));
    MPI(MPI_Type_commit(&even));
    MPI(MPI_Put(theirs, sizeof theirs, MPI_BYTE, peer, 0, sizeof theirs, MPI_BYTE, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    MPI(MPI_Get_accumulate(small, 1, even, least, 10, MPI_SHORT_INT, peer, 0, 1, even, MPI_MINLOC,
                           w.win));
    MPI(MPI_Win_flush(peer, w.win));
    for (int k = 0; k < 10; k++)
        EXPECT(least[k].value == theirs[3 * k].value && least[k].at == theirs[3 * k].at,
               "fetched pair %d is (%d, %d)", k, least[k].value, least[k].at);
    MPI(MPI_Get(least, sizeof least, MPI_BYTE, peer, 0, sizeof least, MPI_BYTE, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    for (int k = 0; k < 10; k++) {
        int i = 3 * k;
        int mine = small[i].value < theirs[i].value ||
                   (small[i].value == theirs[i].value && small[i].at < theirs[i].at);
        EXPECT(least[i].at == (mine ? small[i].at : theirs[i].at),
               "MINLOC of short and int between strides: pair %d", k);
    }
    MPI(MPI_Type_free(&even));

    double numbers[12], got[12];
    for (int i = 0; i < 12; i++)
        numbers[i] = i + 1;
    MPI(MPI_Type_vector(3, 1, 2, MPI_C_DOUBLE_COMPLEX, &even));
    MPI(MPI_Type_commit(&even));
    MPI(MPI_Put(numbers, 12, MPI_DOUBLE, peer, 0, 12, MPI_DOUBLE, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    MPI(MPI_Accumulate(numbers, 3, MPI_C_DOUBLE_COMPLEX, peer, 0, 1, even, MPI_PROD, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    MPI(MPI_Get(got, 12, MPI_DOUBLE, peer, 0, 12, MPI_DOUBLE, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    for (int k = 0; k < 3; k++) {
        double a = numbers[4 * k], b = numbers[4 * k + 1], c = numbers[2 * k],
               d = numbers[2 * k + 1];
        EXPECT(got[4 * k] == a * c - b * d && got[4 * k + 1] == a * d + b * c,
               "complex product %d is (%g, %g)", k, got[4 * k], got[4 * k + 1]);
        EXPECT(got[4 * k + 2] == numbers[4 * k + 2],
               "a number between complex products has changed");
    }
    MPI(MPI_Type_free(&even));
}

/* Empty transfers are legal in every form. */
static void nothing(void)
{
    MPI_Datatype empty, hollow;
    int untouched = 7;
    MPI(MPI_Type_contiguous(0, MPI_INT, &empty));
    MPI(MPI_Type_create_resized(empty, 0, 64, &hollow));
    MPI(MPI_Type_commit(&hollow));
    MPI(MPI_Put(NULL, 3, hollow, peer, 0, 5, hollow, w.win));
    MPI(MPI_Get(NULL, 0, MPI_INT, peer, 0, 5, hollow, w.win));
    MPI(MPI_Accumulate(NULL, 3, hollow, peer, 0, 0, MPI_INT, MPI_SUM, w.win));
    MPI(MPI_Accumulate(NULL, 3, hollow, peer, 0, 1, hollow, MPI_SUM, w.win));
    MPI(MPI_Get_accumulate(NULL, 3, hollow, &untouched, 2, hollow, peer, 0, 1, hollow, MPI_MAX,
                           w.win));
    MPI(MPI_Type_free(&hollow));
    MPI(MPI_Type_free(&empty));
    MPI(MPI_Type_vector(3, 1, 2, MPI_INT, &hollow));
    MPI(MPI_Type_commit(&hollow));
    MPI(MPI_Put(NULL, 0, hollow, peer, 0, 0, hollow, w.win));
    MPI(MPI_Accumulate(NULL, 0, hollow, peer, 0, 0, MPI_INT, MPI_SUM, w.win));
    MPI(MPI_Put(&untouched, 1, hollow, MPI_PROC_NULL, 0, 3, MPI_INT, w.win));
    MPI(MPI_Get(&untouched, 1, hollow, MPI_PROC_NULL, 0, 1, hollow, w.win));
    MPI(MPI_Accumulate(&untouched, 1, hollow, MPI_PROC_NULL, 0, 1, hollow, MPI_SUM, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    MPI(MPI_Type_free(&hollow));
    EXPECT(untouched == 7, "an empty operation wrote data");
}

/* MPI_BOTTOM with absolute displacements, as origin and as result. */
static void bottom(void)
{
    static double parts[3][4];
    MPI_Aint at[3];
    MPI_Datatype t, strided;
    for (int i = 0; i < 3; i++) {
        MPI(MPI_Get_address(parts[i], &at[i]));
        for (int k = 0; k < 4; k++)
            parts[i][k] = 10 * i + k;
    }
    MPI(MPI_Type_create_hindexed(3, (int[]){2, 4, 1}, (MPI_Aint[]){at[2], at[0], at[1]}, MPI_DOUBLE,
                                 &t));
    MPI(MPI_Type_vector(7, 1, 3, MPI_DOUBLE, &strided));
    MPI(MPI_Type_commit(&t));
    MPI(MPI_Type_commit(&strided));
    double seen[21], wanted[7] = {20, 21, 0, 1, 2, 3, 10};
    MPI(MPI_Put(MPI_BOTTOM, 1, t, peer, 0, 1, strided, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    MPI(MPI_Accumulate(MPI_BOTTOM, 1, t, peer, 0, 1, strided, MPI_SUM, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    MPI(MPI_Get(seen, 21, MPI_DOUBLE, peer, 0, 21, MPI_DOUBLE, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    for (int k = 0; k < 7; k++)
        EXPECT(seen[3 * k] == 2 * wanted[k], "MPI_BOTTOM as origin: number %d is %g", k,
               seen[3 * k]);
    MPI(MPI_Get_accumulate(NULL, 0, MPI_DOUBLE, MPI_BOTTOM, 1, t, peer, 0, 1, strided, MPI_NO_OP,
                           w.win));
    MPI(MPI_Win_flush(peer, w.win));
    EXPECT(parts[2][0] == 40 && parts[0][3] == 6 && parts[1][0] == 20 && parts[1][1] == 11,
           "MPI_BOTTOM as result");
    MPI(MPI_Get(MPI_BOTTOM, 1, t, peer, 8 / SCALE, 7, MPI_DOUBLE, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    EXPECT(parts[2][0] == seen[1] && parts[0][1] == seen[4], "MPI_BOTTOM as destination of a get");
    MPI(MPI_Type_free(&t));
    MPI(MPI_Type_free(&strided));
}

#ifndef PLAIN
/* Recorded operations keep their datatypes alive, and accumulates of all shapes take effect in
 * order. */
static void deferred(void)
{
    int numbers[64], sums[64];
    MPI_Request r;
    MPI_Group to = group_one((me + 1) % ranks), from = group_one((me + ranks - 1) % ranks);
    int *mine = w.base;
    for (int i = 0; i < 64; i++) {
        numbers[i] = i + 1;
        mine[i] = 1000;
        sums[i] = -1;
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    do_start(NB_ALL, to, 0, w.win);
    for (int round = 0; round < 3; round++) {
        MPI_Datatype t, u;
        MPI(MPI_Type_vector(16, 2, 4, MPI_INT, &t));
        MPI(MPI_Type_create_indexed_block(
            16, 2, (int[]){0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60}, MPI_INT,
            &u));
        MPI(MPI_Type_commit(&t));
        MPI(MPI_Type_commit(&u));
        MPI(MPI_Accumulate(numbers, 1, t, (me + 1) % ranks, 0, 1, u,
                           round == 1 ? MPI_PROD : MPI_SUM, w.win));
        MPI(MPI_Accumulate(numbers, 8, MPI_INT, (me + 1) % ranks, 0, 8, MPI_INT, MPI_SUM, w.win));
        if (round == 2)
            MPI(MPI_Get_accumulate(NULL, 0, MPI_INT, sums, 1, u, (me + 1) % ranks, 0, 1, t,
                                   MPI_NO_OP, w.win));
        MPI(MPI_Type_free(&t));
        MPI(MPI_Type_free(&u));
        /* New datatypes may reuse the handles and memory of freed ones. */
        MPI(MPI_Type_contiguous(3, MPI_CHAR, &t));
        MPI(MPI_Type_commit(&t));
        MPI(MPI_Type_free(&t));
    }
    /* The neighbour posts only now. */
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_post(from, 0, w.win));
    do_complete(NB_ALL, w.win, &r);
    finish(&r);
    MPI(MPI_Win_wait(w.win));
    for (int i = 0; i < 64; i++) {
        int v = i + 1, low = i < 8 ? v : 0, wanted = 1000;
        if (i % 4 < 2) {
            wanted = wanted + v + low;
            wanted = wanted * v + low;
            wanted = wanted + v + low;
        } else
            wanted += 3 * low;
        EXPECT(mine[i] == wanted, "recorded accumulates: number %d is %d and not %d", i, mine[i],
               wanted);
        EXPECT(sums[i] == (i % 4 < 2 ? wanted : -1), "fetched after them: number %d is %d", i,
               sums[i]);
    }
    MPI(MPI_Group_free(&to));
    MPI(MPI_Group_free(&from));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

#else
static void deferred(void) {}
#endif

/* All processes add to the same strided elements of one rank; a lost update would show. */
static void together(int rounds)
{
    int *mine = w.base, total = 0, ones[200];
    MPI_Datatype t;
    MPI(MPI_Type_vector(200, 1, 3, MPI_INT, &t));
    MPI(MPI_Type_commit(&t));
    for (int i = 0; i < 200; i++)
        ones[i] = 1;
    memset(mine, 0, 600 * sizeof *mine);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock_all(0, w.win));
    for (int i = 0; i < rounds; i++) {
        MPI(MPI_Accumulate(ones, 200, MPI_INT, 0, 0, 1, t, MPI_SUM, w.win));
        MPI(MPI_Accumulate(ones, 5, MPI_INT, 0, 0, 5, MPI_INT, MPI_SUM, w.win));
    }
    MPI(MPI_Win_unlock_all(w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (me == 0) {
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win));
        for (int i = 0; i < 600; i++) {
            total = rounds * ranks * ((i % 3 == 0) + (i < 5));
            EXPECT(mine[i] == total, "number %d of all is %d and not %d", i, mine[i], total);
        }
        MPI(MPI_Win_unlock(0, w.win));
    }
    MPI(MPI_Type_free(&t));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

#if MPI_VERSION >= 4
/* Large-count constructors, and large-count calls. */
static void large_counts(void)
{
    MPI_Datatype t, u, v;
    double numbers[60], seen[60];
    MPI_Count blocks[3] = {1, 2, 3}, at[3] = {0, 4, 9}, bytes[3] = {80, 0, 32};
    for (int i = 0; i < 60; i++)
        numbers[i] = i;
    MPI(MPI_Type_vector_c(3, 2, 5, MPI_DOUBLE, &t));
    MPI(MPI_Type_commit(&t));
    MPI(MPI_Type_indexed_c(3, blocks, at, MPI_DOUBLE, &u));
    MPI(MPI_Type_commit(&u));
    MPI_Datatype types[3] = {MPI_DOUBLE, MPI_DOUBLE, MPI_DOUBLE};
    MPI(MPI_Type_create_struct_c(3, blocks, bytes, types, &v));
    MPI(MPI_Type_commit(&v));
    MPI(MPI_Put_c(numbers, 60, MPI_DOUBLE, peer, 0, 60, MPI_DOUBLE, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    MPI(MPI_Accumulate_c(numbers, 1, t, peer, 0, 1, u, MPI_SUM, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    MPI(MPI_Get_c(seen, 1, v, peer, 0, 1, u, w.win));
    MPI(MPI_Win_flush(peer, w.win));
    /* t: 0 1 5 6 10 11; u: 0 4 5 9 10 11; v: 10 0 1 4 5 6 */
    const int ti[6] = {0, 1, 5, 6, 10, 11}, ui[6] = {0, 4, 5, 9, 10, 11},
              vi[6] = {10, 0, 1, 4, 5, 6};
    for (int k = 0; k < 6; k++)
        EXPECT(seen[vi[k]] == ti[k] + ui[k], "large counts: number %d is %g", k, seen[vi[k]]);
    MPI(MPI_Type_free(&t));
    MPI(MPI_Type_free(&u));
    MPI(MPI_Type_free(&v));
}
#else
static void large_counts(void) {}
#endif

/* Elements a gigabyte apart: displacements exceed 32 bits, but little memory is touched. */
static void far_apart(void)
{
    const MPI_Aint far = (MPI_Aint)1 << 30, size = 4 * far + 4096;
    double numbers[5] = {1, 2, 3, 4, 5}, seen[15];
    void *memory = NULL;
    MPI_Win win;
    MPI_Datatype t, spread;
    if (kind == CREATED) {
        REQUIRE((memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) != MAP_FAILED);
        MPI(MPI_Win_create(memory, size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    } else {
        void *base;
        MPI(MPI_Win_allocate(size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    }
    MPI(MPI_Type_create_hvector(5, 1, far, MPI_DOUBLE, &t));
    MPI(MPI_Type_vector(5, 1, 3, MPI_DOUBLE, &spread));
    MPI(MPI_Type_commit(&t));
    MPI(MPI_Type_commit(&spread));
    for (int i = 0; i < 15; i++)
        seen[i] = -1;
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, peer, 0, win));
    MPI(MPI_Put(numbers, 5, MPI_DOUBLE, peer, 16, 1, t, win));
    MPI(MPI_Win_flush(peer, win));
    MPI(MPI_Accumulate(numbers, 5, MPI_DOUBLE, peer, 16, 1, t, MPI_SUM, win));
    MPI(MPI_Win_flush(peer, win));
    MPI(MPI_Get(seen, 1, spread, peer, 16, 1, t, win));
    MPI(MPI_Win_unlock(peer, win));
    for (int i = 0; i < 15; i++)
        EXPECT(seen[i] == (i % 3 == 0 && i < 15 ? 2 * numbers[i / 3] : -1),
               "elements far apart: number %d is %g", i, seen[i]);
    MPI(MPI_Type_free(&t));
    MPI(MPI_Type_free(&spread));
    MPI(MPI_Win_free(&win));
    if (memory)
        munmap(memory, size);
}

static void all(int rounds)
{
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, peer, 0, w.win));
    const MPI_Datatype bases[] = {MPI_CHAR, MPI_SHORT, MPI_INT, MPI_DOUBLE, MPI_C_DOUBLE_COMPLEX,
                                  MPI_FLOAT};
    for (int i = 0; i < rounds; i++) {
        MPI_Datatype base = bases[up_to(6)], other = up_to(3) ? base : MPI_BYTE;
        int a = up_to(CONSTRUCTORS + 1) - 1, b = up_to(CONSTRUCTORS + 1) - 1;
        transfers(a, b, base, other);
        reductions(a, b, up_to(2) ? a : up_to(CONSTRUCTORS + 1) - 1);
    }
    for (int a = -1; a < CONSTRUCTORS; a++) {
        transfers(a, a, MPI_DOUBLE, MPI_DOUBLE);
        transfers(a, -1, MPI_DOUBLE_INT, MPI_DOUBLE_INT);
        reductions(a, a, a);
    }
    mixed();
    elements();
    bottom();
    nothing();
    large_counts();
    MPI(MPI_Win_unlock(peer, w.win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    kind = argc > 1 && strcmp(argv[1], "created") == 0 ? CREATED : ALLOCATED;
    int rounds = argc > 2 ? atoi(argv[2]) : 300;
    w = window(kind, MEMORY, SCALE);
    seed += me;
    peer = (me + 1) % ranks;
    for (int turn = 0; turn < ranks;
         turn++) { /* one at a time: results are compared byte by byte */
        if (turn == me)
            all(rounds);
        else
            MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    peer = me;
    all(20);
    deferred();
    deferred();
    together(rounds);
    peer = (me + 1) % ranks;
    far_apart();
    window_free(&w);
    return test_end();
}
