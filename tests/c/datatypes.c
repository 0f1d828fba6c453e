/*
 * All predefined datatypes: put and get of each, with every operation that MPI allows in
 * accumulate, get_accumulate and fetch_and_op, and compare_and_swap. MPI_Reduce_local is the
 * reference.
 *
 *   datatypes KIND
 */
#include "check.h"

enum { INTEGER = 1, FLOATING = 2, LOGICAL = 4, COMPLEX = 8, BYTE = 16, PAIR = 32, OTHER = 64 };

typedef struct {
    const char *name;
    MPI_Datatype type;
    int class;
    int signature; /* for pairs: bytes of the value; the index is at `second` */
    int second;
} Type;

#define T(type, class) {#type, type, class, 0, 0}
#define P(type, ctype) {#type, type, PAIR, sizeof(((ctype *)0)->value), offsetof(ctype, index)}
#include <stddef.h>
typedef struct { float value; int index; } FloatInt;
typedef struct { double value; int index; } DoubleInt;
typedef struct { long value; int index; } LongInt;
typedef struct { short value; int index; } ShortInt;
typedef struct { int value; int index; } TwoInt;
typedef struct { long double value; int index; } LongDoubleInt;

static Type types[128];
static int type_count;

static void add(Type t)
{
    if (t.type != MPI_DATATYPE_NULL) /* the host has no Fortran or C++ types */
        types[type_count++] = t;
}

static void list_types(void)
{
    const Type list[] = {
        T(MPI_CHAR, INTEGER), T(MPI_WCHAR, OTHER), T(MPI_SIGNED_CHAR, INTEGER),
        T(MPI_UNSIGNED_CHAR, INTEGER), T(MPI_SHORT, INTEGER), T(MPI_UNSIGNED_SHORT, INTEGER),
        T(MPI_INT, INTEGER), T(MPI_UNSIGNED, INTEGER), T(MPI_LONG, INTEGER),
        T(MPI_UNSIGNED_LONG, INTEGER), T(MPI_LONG_LONG, INTEGER),
        T(MPI_UNSIGNED_LONG_LONG, INTEGER), T(MPI_INT8_T, INTEGER), T(MPI_UINT8_T, INTEGER),
        T(MPI_INT16_T, INTEGER), T(MPI_UINT16_T, INTEGER), T(MPI_INT32_T, INTEGER),
        T(MPI_UINT32_T, INTEGER), T(MPI_INT64_T, INTEGER), T(MPI_UINT64_T, INTEGER),
        T(MPI_AINT, INTEGER), T(MPI_OFFSET, INTEGER), T(MPI_COUNT, INTEGER),
        T(MPI_FLOAT, FLOATING), T(MPI_DOUBLE, FLOATING), T(MPI_LONG_DOUBLE, FLOATING),
        T(MPI_C_BOOL, LOGICAL), T(MPI_C_FLOAT_COMPLEX, COMPLEX),
        T(MPI_C_DOUBLE_COMPLEX, COMPLEX), T(MPI_C_LONG_DOUBLE_COMPLEX, COMPLEX),
        T(MPI_BYTE, BYTE), T(MPI_PACKED, OTHER), T(MPI_INTEGER, INTEGER), T(MPI_REAL, FLOATING),
        T(MPI_DOUBLE_PRECISION, FLOATING), T(MPI_LOGICAL, LOGICAL), T(MPI_COMPLEX, COMPLEX),
        T(MPI_DOUBLE_COMPLEX, COMPLEX), T(MPI_CHARACTER, OTHER), T(MPI_INTEGER1, INTEGER),
        T(MPI_INTEGER2, INTEGER), T(MPI_INTEGER4, INTEGER), T(MPI_INTEGER8, INTEGER),
        T(MPI_REAL4, FLOATING), T(MPI_REAL8, FLOATING), T(MPI_COMPLEX8, COMPLEX),
        T(MPI_COMPLEX16, COMPLEX), T(MPI_CXX_BOOL, LOGICAL), T(MPI_CXX_FLOAT_COMPLEX, COMPLEX),
        T(MPI_CXX_DOUBLE_COMPLEX, COMPLEX), T(MPI_CXX_LONG_DOUBLE_COMPLEX, COMPLEX),
        P(MPI_FLOAT_INT, FloatInt), P(MPI_DOUBLE_INT, DoubleInt), P(MPI_LONG_INT, LongInt),
        P(MPI_SHORT_INT, ShortInt), P(MPI_2INT, TwoInt), P(MPI_LONG_DOUBLE_INT, LongDoubleInt),
        T(MPI_2INTEGER, PAIR), T(MPI_2REAL, PAIR), T(MPI_2DOUBLE_PRECISION, PAIR)};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        add(list[i]);
}

static const struct {
    const char *name;
    MPI_Op op;
    int classes;
} ops[] = {{"MPI_MAX", MPI_MAX, INTEGER | FLOATING},
           {"MPI_MIN", MPI_MIN, INTEGER | FLOATING},
           {"MPI_SUM", MPI_SUM, INTEGER | FLOATING | COMPLEX},
           {"MPI_PROD", MPI_PROD, INTEGER | FLOATING | COMPLEX},
           {"MPI_LAND", MPI_LAND, INTEGER | LOGICAL},
           {"MPI_LOR", MPI_LOR, INTEGER | LOGICAL},
           {"MPI_LXOR", MPI_LXOR, INTEGER | LOGICAL},
           {"MPI_BAND", MPI_BAND, INTEGER | BYTE},
           {"MPI_BOR", MPI_BOR, INTEGER | BYTE},
           {"MPI_BXOR", MPI_BXOR, INTEGER | BYTE},
           {"MPI_MINLOC", MPI_MINLOC, PAIR},
           {"MPI_MAXLOC", MPI_MAXLOC, PAIR},
           {"MPI_REPLACE", MPI_REPLACE, 127},
           {"MPI_NO_OP", MPI_NO_OP, 127}};

enum { MAX = 300, ROOM = MAX * 32 };
static char origin[ROOM], target[ROOM], expected[ROOM], result[ROOM], seen[ROOM];
static int skipped, checked;

static int pair_of_same(const Type *t) { return t->class == PAIR && t->signature == 0; }

/* Element i of seed s, as bytes of the type. Small numbers, so that sums are exact. */
static void fill(const Type *t, char *at, int count, int s)
{
    MPI_Aint low, extent;
    MPI_Type_get_extent(t->type, &low, &extent);
    memset(at, 0, (size_t)extent * count);
    for (int i = 0; i < count; i++) {
        char *p = at + i * extent;
        int v = (i * 7 + s * 3) % 5 + 1, size;
        MPI_Type_size(t->type, &size);
        if (t->class == FLOATING || t->class == COMPLEX ||
            (t->class == PAIR && strstr(t->name, "FLOAT")) ||
            (t->class == PAIR && strstr(t->name, "DOUBLE")) || strcmp(t->name, "MPI_2REAL") == 0) {
            int parts = t->class == COMPLEX || pair_of_same(t) ? 2 : 1;
            int each = t->class == PAIR && !pair_of_same(t) ? t->signature : size / parts;
            for (int k = 0; k < parts; k++)
                if (each == 4)
                    *(float *)(p + k * each) = v + k;
                else if (each == 8)
                    *(double *)(p + k * each) = v + k;
                else {
                    long double x = v + k;
                    memcpy(p + k * each, &x, 10); /* the remaining bytes are padding */
                }
            if (t->class == PAIR && !pair_of_same(t))
                *(int *)(p + t->second) = i + s;
        } else if (t->class == PAIR) {
            int each = pair_of_same(t) ? size / 2 : t->signature,
                second = pair_of_same(t) ? size / 2 : t->second;
            memcpy(p, &(long){v}, each);
            *(int *)(p + second) = i + s;
        } else if (t->class == LOGICAL)
            *p = (i + s) % 3 != 0;
        else
            memcpy(p, &(long){v + (t->class == BYTE ? 16 * s : 0)}, size < 8 ? size : 8);
    }
}

/* Compares data bytes only, without the padding of pairs and of long double. */
static int same(const Type *t, const char *a, const char *b, int count)
{
    MPI_Aint low, extent;
    int size;
    MPI_Type_get_extent(t->type, &low, &extent);
    MPI_Type_size(t->type, &size);
    for (int i = 0; i < count; i++) {
        const char *x = a + i * extent, *y = b + i * extent;
        int long_double = strstr(t->name, "LONG_DOUBLE") != NULL;
        if (t->class == PAIR && !pair_of_same(t)) {
            if (memcmp(x, y, long_double ? 10 : t->signature) ||
                memcmp(x + t->second, y + t->second, sizeof(int)))
                return 0;
        } else if (long_double) {
            for (int k = 0; k < size; k += 16)
                if (memcmp(x + k, y + k, 10))
                    return 0;
        } else if (memcmp(x, y, size))
            return 0;
    }
    return 1;
}

/* expected = target (op) origin. Returns false if the host does not support the combination. */
static int reference(const Type *t, MPI_Op op, int count)
{
    MPI_Aint low, extent;
    MPI_Type_get_extent(t->type, &low, &extent);
    memcpy(expected, target, (size_t)extent * count);
    if (op == MPI_NO_OP)
        return 1;
    if (op == MPI_REPLACE) {
        memcpy(expected, origin, (size_t)extent * count);
        return 1;
    }
    return MPI_Reduce_local(origin, expected, count, t->type, op) == MPI_SUCCESS;
}

/* Writes and reads the target's part as bytes, so put and get of bytes are tested first. */
static void set(Window *w, int rank, size_t bytes)
{
    MPI(MPI_Put(target, bytes, MPI_BYTE, rank, 0, bytes, MPI_BYTE, w->win));
    MPI(MPI_Win_flush(rank, w->win));
}
static void look(Window *w, int rank, size_t bytes)
{
    MPI(MPI_Get(seen, bytes, MPI_BYTE, rank, 0, bytes, MPI_BYTE, w->win));
    MPI(MPI_Win_flush(rank, w->win));
}

static void check_type(Window *w, const Type *t, int rank)
{
    MPI_Aint low, extent;
    MPI(MPI_Type_get_extent(t->type, &low, &extent));
    for (int round = 0; round < 3; round++) {
        int count = round == 0 ? 1 : round == 1 ? 7 : MAX;
        size_t bytes = extent * count;
        fill(t, origin, count, 1);
        fill(t, target, count, 2);
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, w->win));
        set(w, rank, bytes);
        memset(result, 0, bytes);
        MPI(MPI_Get(result, count, t->type, rank, 0, count, t->type, w->win));
        MPI(MPI_Win_flush(rank, w->win));
        EXPECT(same(t, result, target, count), "%s x %d: MPI_Get", t->name, count);
        MPI(MPI_Put(origin, count, t->type, rank, 0, count, t->type, w->win));
        MPI(MPI_Win_flush(rank, w->win));
        look(w, rank, bytes);
        EXPECT(same(t, seen, origin, count), "%s x %d: MPI_Put", t->name, count);
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
            if (!(ops[o].classes & t->class))
                continue;
            if (!reference(t, ops[o].op, count)) {
                skipped++;
                continue;
            }
            checked++;
            if (ops[o].op != MPI_NO_OP) {
                set(w, rank, bytes);
                MPI(MPI_Accumulate(origin, count, t->type, rank, 0, count, t->type, ops[o].op,
                                   w->win));
                MPI(MPI_Win_flush(rank, w->win));
                look(w, rank, bytes);
                EXPECT(same(t, seen, expected, count), "%s x %d: MPI_Accumulate with %s", t->name,
                       count, ops[o].name);
            }
            set(w, rank, bytes);
            memset(result, 0, bytes);
            int none = ops[o].op == MPI_NO_OP;
            MPI(MPI_Get_accumulate(none ? NULL : origin, none ? 0 : count, t->type, result, count,
                                   t->type, rank, 0, count, t->type, ops[o].op, w->win));
            MPI(MPI_Win_flush(rank, w->win));
            look(w, rank, bytes);
            EXPECT(same(t, seen, expected, count), "%s x %d: MPI_Get_accumulate with %s", t->name,
                   count, ops[o].name);
            EXPECT(same(t, result, target, count), "%s x %d: MPI_Get_accumulate with %s: result",
                   t->name, count, ops[o].name);
            if (count == 1) {
                set(w, rank, bytes);
                memset(result, 0, bytes);
                MPI(MPI_Fetch_and_op(none ? NULL : origin, result, t->type, rank, 0, ops[o].op,
                                     w->win));
                MPI(MPI_Win_flush(rank, w->win));
                look(w, rank, bytes);
                EXPECT(same(t, seen, expected, 1), "%s: MPI_Fetch_and_op with %s", t->name,
                       ops[o].name);
                EXPECT(same(t, result, target, 1), "%s: MPI_Fetch_and_op with %s: result", t->name,
                       ops[o].name);
            }
        }
        if (count == 1 && t->class & (INTEGER | LOGICAL | BYTE)) {
            char compare[64];
            for (int equal = 0; equal < 2; equal++) {
                set(w, rank, bytes);
                memcpy(compare, target, bytes);
                if (!equal)
                    compare[0] ^= 1;
                memset(result, 0, bytes);
                MPI(MPI_Compare_and_swap(origin, compare, result, t->type, rank, 0, w->win));
                MPI(MPI_Win_flush(rank, w->win));
                look(w, rank, bytes);
                EXPECT(same(t, result, target, 1), "%s: MPI_Compare_and_swap: result", t->name);
                EXPECT(same(t, seen, equal ? origin : target, 1), "%s: MPI_Compare_and_swap, %s",
                       t->name, equal ? "equal" : "not equal");
            }
        }
        MPI(MPI_Win_unlock(rank, w->win));
    }
}

/* All processes update one element concurrently: no update is lost, with any count and call
 * [AT-1]. */
static void atomicity(Window *w)
{
    enum { TURNS = 300 };
    int64_t one = 1, two[2] = {1, 1}, old;
    double half = 0.5;
    memset(w->base, 0, 64);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock_all(0, w->win));
    for (int i = 0; i < TURNS; i++) {
        int t = i % ranks;
        MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, t, 0, 1, MPI_INT64_T, MPI_SUM, w->win));
        MPI(MPI_Accumulate(two, 2, MPI_INT64_T, t, 0, 2, MPI_INT64_T, MPI_SUM, w->win));
        MPI(MPI_Fetch_and_op(&one, &old, MPI_INT64_T, t, 0, MPI_SUM, w->win));
        MPI(MPI_Accumulate(&half, 1, MPI_DOUBLE, t, 24, 1, MPI_DOUBLE, MPI_SUM, w->win));
        /* An increment by compare_and_swap. */
        MPI(MPI_Fetch_and_op(NULL, &old, MPI_INT64_T, t, 16, MPI_NO_OP, w->win));
        MPI(MPI_Win_flush(t, w->win));
        for (;;) {
            int64_t next = old + 1, was;
            MPI(MPI_Compare_and_swap(&next, &old, &was, MPI_INT64_T, t, 16, w->win));
            MPI(MPI_Win_flush(t, w->win));
            if (was == old)
                break;
            old = was;
        }
    }
    MPI(MPI_Win_unlock_all(w->win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    int64_t turns = 0;
    for (int i = 0; i < TURNS; i++)
        turns += i % ranks == me;
    turns *= ranks;
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, w->win));
    EXPECT(load64(w->base) == 3 * turns && load64((int64_t *)w->base + 1) == turns,
           "sums: %ld %ld, not %ld %ld", (long)load64(w->base),
           (long)load64((int64_t *)w->base + 1), 3 * (long)turns, (long)turns);
    EXPECT(load64((int64_t *)w->base + 2) == turns, "compare_and_swap: %ld, not %ld",
           (long)load64((int64_t *)w->base + 2), (long)turns);
    EXPECT(((double *)w->base)[3] == turns * 0.5, "doubles: %g", ((double *)w->base)[3]);
    MPI(MPI_Win_unlock(me, w->win));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    REQUIRE(argc == 2);
    list_types();
    /* For MPI_Reduce_local of a combination that the host lacks. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    Window w = window(strcmp(argv[1], "created") == 0, ROOM, 1);
    for (int i = 0; i < type_count; i++)
        check_type(&w, &types[i], (me + 1) % ranks);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    atomicity(&w);
    window_free(&w);
    if (me == 0)
        printf("NOTE %d types, %d combinations with an operation, %d not supported by the host\n",
               type_count, checked / 3, skipped / 3);
    return test_end();
}
