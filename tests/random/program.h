/*
 * A program as text, read line by line. tests/swarm/text.rs writes it and describes the lines.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "check.h"

/* The words of a line, and its number in the file. */
typedef struct {
    long number;
    int count;
    char **words, *text;
} Line;

typedef struct {
    Line *lines;
    int count;
} Lines;

enum kind { PUT, GET, ACCUMULATE, GET_ACCUMULATE, COMPARE_AND_SWAP, NOTIFY };
enum notified { NOT, BY_COUNTER, BY_TAG };
enum source { NO_DATA, VALUE, ONE_MORE_THAN };
enum side { ORIGIN, RESULT, TARGET };

typedef struct {
    enum kind kind;
    enum notified notified;
    enum source source;
    MPI_Op reduction;
    int window, target, number, single;
    int sides[3]; /* indices of side lines, or -1 */
    uint64_t disp, len, value, compare;
    const Line *fetch; /* the words to fetch, or NULL */
    /* While it runs. NULL: not issued, or no such buffer. */
    unsigned char *origin, *result;
    int issued;
} Op;

typedef struct {
    uint64_t seed;
    Lines all, calls, types, sides;
    Op *ops;
    int op_count;
} Program;

/* Each thread runs programs of its own. */
#define OWN static _Thread_local
OWN int own_rank; /* of this process in the program */

static uint64_t number(const Line *line, int at)
{
    REQUIRE(at < line->count);
    return strtoull(line->words[at], NULL, 10);
}

static int integer(const Line *line, int at) { return (int)(int64_t)number(line, at); }

static int is(const Line *line, const char *word) { return !strcmp(line->words[0], word); }

/* The index of a word in a list that ends with NULL. */
static int which(const char *word, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], word))
            return i;
    complain(__FILE__, __LINE__, "unknown word %s", word);
    MPI_Abort(MPI_COMM_WORLD, 3);
    return -1;
}

static void *resized(void *memory, size_t count, size_t size)
{
    memory = realloc(memory, (count ? count : 1) * size);
    REQUIRE(memory != NULL);
    return memory;
}

static void append(Lines *to, Line line)
{
    /* Powers of two: the last one is full if the count is one. */
    if ((to->count & (to->count - 1)) == 0)
        to->lines = resized(to->lines, 2 * (size_t)to->count + 1, sizeof(Line));
    to->lines[to->count++] = line;
}

/* Reads the next line; false at the end of the file. */
static int next_line(FILE *file, long *at, Line *line)
{
    size_t room = 0;
    char *rest = NULL;
    *line = (Line){++*at, 0, NULL, NULL};
    if (getline(&line->text, &room, file) < 0) {
        free(line->text);
        return 0;
    }
    size_t most = 1;
    for (const char *c = line->text; *c; c++)
        most += *c == ' ';
    line->words = resized(NULL, most, sizeof(char *));
    for (char *word = strtok_r(line->text, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest))
        line->words[line->count++] = word;
    REQUIRE(line->count > 0);
    return 1;
}

static void read_op(Program *p, const Line *line)
{
    static const char *const kinds[] = {
        "put", "get", "accumulate", "get_accumulate", "compare_and_swap", "notify", NULL};
    static const char *const reductions[] = {"replace", "no_op", "sum",  "prod", "min",
                                             "max",     "land",  "lor",  "lxor", "band",
                                             "bor",     "bxor",  NULL};
    static const char *const sources[] = {"none", "value", "one_more_than", NULL};
    static const char *const notified[] = {"none", "counter", "tag", NULL};
    const MPI_Op ops[] = {MPI_REPLACE, MPI_NO_OP, MPI_SUM,  MPI_PROD, MPI_MIN, MPI_MAX,
                          MPI_LAND,    MPI_LOR,   MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR};
    Op op = {.kind = which(line->words[1], kinds),
             .window = integer(line, 2),
             .target = integer(line, 3),
             .disp = number(line, 4),
             .len = number(line, 5),
             .reduction = ops[which(line->words[6], reductions)],
             .source = which(line->words[7], sources),
             .value = number(line, 8),
             .compare = number(line, 9),
             .notified = which(line->words[10], notified),
             .number = integer(line, 11),
             .single = integer(line, 12),
             .sides = {integer(line, 13), integer(line, 14), integer(line, 15)}};
    p->ops = resized(p->ops, (size_t)p->op_count + 1, sizeof(Op));
    p->ops[p->op_count++] = op;
}

/* The rank of a process of MPI_COMM_WORLD in the program of a seed: another order of the processes
 * puts other ranks on a node together. */
static int rank_of(uint64_t seed, int process)
{
    int order[64];
    REQUIRE(ranks <= 64);
    for (int i = 0; i < ranks; i++) {
        int other = (int)(next_random(&seed) % (uint64_t)(i + 1));
        order[i] = order[other];
        order[other] = i;
    }
    return order[process];
}

/* Reads the next program; false at the end of the file. */
static int read_program(FILE *file, long *at, Program *p)
{
    Line line;
    memset(p, 0, sizeof *p);
    while (next_line(file, at, &line)) {
        append(&p->all, line);
        if (is(&line, "program")) {
            REQUIRE(integer(&line, 2) == ranks);
            p->seed = number(&line, 1);
            own_rank = rank_of(p->seed, me);
        } else if (is(&line, "type"))
            append(&p->types, line);
        else if (is(&line, "side"))
            append(&p->sides, line);
        else if (is(&line, "op"))
            read_op(p, &line);
        else if (is(&line, "call") && integer(&line, 1) == own_rank) {
            /* From the name of the call on. */
            line.words += 2;
            line.count -= 2;
            append(&p->calls, line);
        }
        else if (is(&line, "done"))
            break;
    }
    /* The lines stay where they are from here on. */
    for (int i = 0; i < p->all.count; i++)
        if (is(&p->all.lines[i], "fetch"))
            p->ops[integer(&p->all.lines[i], 1)].fetch = &p->all.lines[i];
    REQUIRE(p->all.count == 0 || is(&p->all.lines[p->all.count - 1], "done"));
    return p->all.count > 0;
}

static void free_program(Program *p)
{
    for (int i = 0; i < p->all.count; i++) {
        free(p->all.lines[i].words);
        free(p->all.lines[i].text);
    }
    free(p->all.lines);
    free(p->calls.lines);
    free(p->types.lines);
    free(p->sides.lines);
    free(p->ops);
}

/* One byte of a value of this length: the value itself if it has 8 bytes, otherwise a pattern. As
 * bytes_of in tests/swarm/program.rs. */
static unsigned char byte_of(uint64_t value, size_t len, size_t at)
{
    if (len == 8)
        return ((unsigned char *)&value)[at];
    return (unsigned char)((value * 0x9E3779B97F4A7C15u + at * (value | 1)) >> 24);
}

static void fill(void *to, uint64_t value, size_t len)
{
    for (size_t at = 0; at < len; at++)
        ((unsigned char *)to)[at] = byte_of(value, len, at);
}

#endif
