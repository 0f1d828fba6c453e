/*
 * Compares what a program has done with what its text predicts.
 */
#ifndef RESULTS_H
#define RESULTS_H

#include "operations.h"

/* Compares this process's memory with the bytes of a value. */
static void check_memory(int window, uint64_t disp, size_t len, uint64_t value, const char *when)
{
    const unsigned char *there = rooms[window].base + disp;
    for (size_t at = 0; at < len; at++)
        if (there[at] != byte_of(value, len, at)) {
            uint64_t word = 0;
            memcpy(&word, there, len < 8 ? len : 8);
            differs("%s: window %d, displacement %llu, length %zu: byte %zu is %#x and not %#x "
                    "(value %llu; there is %llu)",
                    when, window, (unsigned long long)disp, len, at, there[at],
                    byte_of(value, len, at), (unsigned long long)value, (unsigned long long)word);
            return;
        }
}

static void check_region(const Line *line)
{
    int window = integer(line, 1);
    const unsigned char *there = rooms[window].base + number(line, 3);
    const char *hex = line->words[4];
    for (size_t at = 0; hex[2 * at]; at++) {
        char byte[3] = {hex[2 * at], hex[2 * at + 1], 0};
        if (there[at] != strtoul(byte, NULL, 16)) {
            differs("at the end: window %d, byte %zu from %s on is %02x and not %s", window, at,
                    line->words[3], there[at], byte);
            return;
        }
    }
}

/* The words that an operation has fetched, and the bytes between them. */
static void check_fetched(int id, Op *op)
{
    size_t words = (size_t)op->len / 8, bytes = span(op, RESULT);
    if (op->fetch)
        for (size_t i = 0; i < words; i++) {
            uint64_t word, wanted = number(op->fetch, 2 + (int)i);
            memcpy(&word, op->result + word_at(op, RESULT, i), 8);
            if (word != wanted) {
                differs("operation %d has fetched %llu and not %llu (word %zu)", id,
                        (unsigned long long)word, (unsigned long long)wanted, i);
                break;
            }
        }
    unsigned char *between = resized(NULL, bytes, 1);
    memcpy(between, op->result, bytes);
    for (size_t i = 0; i < words; i++)
        memset(between + word_at(op, RESULT, i), UNFETCHED, 8);
    for (size_t at = 0; at < bytes; at++)
        if (between[at] != UNFETCHED) {
            differs("operation %d wrote between its results, at %zu", id, at);
            break;
        }
    free(between);
}

/* Both what resets took and what is left. */
static void check_count(const Line *line)
{
    Room *room = &rooms[integer(line, 1)];
    int counter = integer(line, 3);
    MPI_Count value;
    MPI(MPIX_Win_get_notify_value(room->win, counter, &value));
    if ((uint64_t)value + room->taken[counter] != number(line, 4))
        differs("counter %d of window %s: %lld notifications, %llu of them taken, and not %s",
                counter, line->words[1], (long long)value + (long long)room->taken[counter],
                (unsigned long long)room->taken[counter], line->words[4]);
}

/* ---- Tags ---- */

/* A notification has come. */
static void see(int window, int source, int tag)
{
    seen = resized(seen, (size_t)seen_count + 1, sizeof *seen);
    seen[seen_count++] = (Arrival){window, source, tag, 0};
}

/* Whether the program has a line WHAT for this process and window. */
static const Line *line_of(const char *what, int window)
{
    for (int i = 0; i < program.all.count; i++) {
        const Line *line = &program.all.lines[i];
        if (is(line, what) && integer(line, 1) == window && integer(line, 2) == own_rank)
            return line;
    }
    return NULL;
}

static Arrival *lines_of(const char *what, int window, int *count)
{
    Arrival *list = NULL;
    *count = 0;
    for (int i = 0; i < program.all.count; i++) {
        const Line *line = &program.all.lines[i];
        if (!is(line, what) || integer(line, 1) != window || integer(line, 2) != own_rank)
            continue;
        list = resized(list, (size_t)*count + 1, sizeof *list);
        list[(*count)++] = (Arrival){window, integer(line, 3), integer(line, 4), 0};
    }
    return list;
}

/* Marks the first of a list that was not seen. False if there is none. */
static int mark(Arrival *list, int count, int source, int tag, int in_order)
{
    for (int i = 0; i < count; i++)
        if (!list[i].seen && list[i].source == source) {
            if (list[i].tag == tag)
                return list[i].seen = 1;
            if (in_order)
                return 0;
        }
    return 0;
}

/* Takes the notifications that no expectation has taken, and compares all with what was sent. */
static void check_tags(int window)
{
    MPI_Win win = rooms[window].win;
    int sent_count, left_count, flag, in_order = line_of("predicted", window) != NULL;
    Arrival *sent = lines_of("sent", window, &sent_count);
    Arrival *left = lines_of("left", window, &left_count);
    MPI_Request request;
    MPI_Status status;
    if (owed[window] > (uint64_t)sent_count)
        differs("window %d: expectations took %llu notifications, but %d were sent", window,
                (unsigned long long)owed[window], sent_count);
    MPI(MPIX_Notify_init(win, MPI_ANY_SOURCE, MPI_ANY_TAG, 1, &request));
    for (uint64_t i = owed[window]; i < (uint64_t)sent_count; i++) {
        MPI(MPIX_Notify_iprobe(win, MPI_ANY_SOURCE, MPI_ANY_TAG, &flag, &status));
        if (!flag) {
            differs("window %d: %d notifications were sent, but none is left after %llu", window,
                    sent_count, (unsigned long long)i);
            break;
        }
        MPI(MPI_Start(&request));
        MPI(MPI_Wait(&request, &status));
        see(window, status.MPI_SOURCE, status.MPI_TAG);
        if (in_order && !mark(left, left_count, status.MPI_SOURCE, status.MPI_TAG, 1))
            differs("window %d: source %d, tag %d is left, where another one was expected", window,
                    status.MPI_SOURCE, status.MPI_TAG);
    }
    MPI(MPI_Request_free(&request));
    MPI(MPIX_Notify_iprobe(win, MPI_ANY_SOURCE, MPI_ANY_TAG, &flag, &status));
    if (flag)
        differs("window %d: source %d, tag %d is left beside the %d that were sent", window,
                status.MPI_SOURCE, status.MPI_TAG, sent_count);
    for (int i = 0; i < seen_count; i++)
        if (seen[i].window == window && !mark(sent, sent_count, seen[i].source, seen[i].tag, 0))
            differs("window %d: source %d, tag %d came more often than it was sent", window,
                    seen[i].source, seen[i].tag);
    free(sent);
    free(left);
}

/* ---- Operations whose results depend on each other: process 0 has all values ---- */

OWN uint64_t *values;

static int by_value(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static void check_permutation(const Line *line)
{
    int count = line->count - 1;
    uint64_t *found = resized(NULL, (size_t)count, sizeof *found);
    for (int i = 0; i < count; i++)
        found[i] = values[number(line, 1 + i)];
    qsort(found, (size_t)count, sizeof *found, by_value);
    for (int i = 0; i < count; i++)
        if (found[i] != (uint64_t)i) {
            differs("line %ld: the operations have not fetched distinct numbers: the %d-th is %llu",
                    line->number, i, (unsigned long long)found[i]);
            break;
        }
    free(found);
}

static void check_sums(const Line *line)
{
    for (int at = 2; at < line->count; at += 2) {
        uint64_t found = values[number(line, at)];
        if (found + number(line, at + 1) > number(line, 1))
            differs("operation %s has fetched %llu, more than the sum %s", line->words[at],
                    (unsigned long long)found, line->words[1]);
    }
}

static void check_election(const Line *line)
{
    uint64_t winner = values[number(line, 1)];
    int won = 0;
    for (int at = 2; at < line->count; at += 2) {
        uint64_t found = values[number(line, at)], value = number(line, at + 1);
        won += value == winner;
        if (found != (value == winner ? 0 : winner))
            differs("compare-and-swap %s to %llu has fetched %llu, but %llu is in the cell",
                    line->words[at], (unsigned long long)value, (unsigned long long)found,
                    (unsigned long long)winner);
    }
    if (!won)
        differs("the cell holds %llu, which no compare-and-swap wrote", (unsigned long long)winner);
}

static void check_twins(const Line *line)
{
    int written = integer(line, 1);
    for (int at = 2 + written; at < line->count; at += 2) {
        uint64_t one = values[number(line, at)], other = values[number(line, at + 1)];
        int known = one == 0;
        for (int i = 0; i < written; i++)
            known |= number(line, 2 + i) == one;
        if (one != other || !known)
            differs("twins %llu and %llu under a lock (%s and %s)", (unsigned long long)one,
                    (unsigned long long)other, line->words[at], line->words[at + 1]);
    }
    if (written && values[number(line, 2 + written)] == 0)
        differs("twins were written, but hold 0");
}

/* Sums up the values of all operations and cells, each of which one process knows. */
static void gather(void)
{
    int count = program.op_count;
    uint64_t *own = NULL;
    for (int i = 0; i < program.all.count; i++)
        count += is(&program.all.lines[i], "cell");
    own = calloc((size_t)count + 1, sizeof *own);
    values = calloc((size_t)count + 1, sizeof *values);
    REQUIRE(own != NULL && values != NULL);
    for (int i = 0; i < program.op_count; i++)
        if (program.ops[i].result)
            own[i] = fetched(&program.ops[i]);
    for (int i = 0, at = program.op_count; i < program.all.count; i++) {
        const Line *line = &program.all.lines[i];
        if (!is(line, "cell"))
            continue;
        if (integer(line, 2) == own_rank)
            memcpy(&own[at], rooms[integer(line, 1)].base + number(line, 3), 8);
        at++;
    }
    MPI(MPI_Reduce(own, values, count, MPI_UINT64_T, MPI_SUM, 0, comm));
    free(own);
}

static void check_groups(void)
{
    gather();
    for (int i = 0; own_rank == 0 && i < program.all.count; i++) {
        const Line *line = &program.all.lines[i];
        if (is(line, "permutation"))
            check_permutation(line);
        else if (is(line, "sums"))
            check_sums(line);
        else if (is(line, "election"))
            check_election(line);
        else if (is(line, "twins"))
            check_twins(line);
    }
    free(values);
}

/* All checks at the end of a program. */
static void check_results(void)
{
    for (int i = 0; i < program.all.count; i++) {
        const Line *line = &program.all.lines[i];
        if (line->count < 3 || integer(line, 2) != own_rank)
            continue;
        if (is(line, "end"))
            check_memory(integer(line, 1), number(line, 3), (size_t)number(line, 4),
                         number(line, 5), "at the end");
        else if (is(line, "region"))
            check_region(line);
        else if (is(line, "count"))
            check_count(line);
    }
    for (int i = 0; i < program.op_count; i++)
        if (program.ops[i].result)
            check_fetched(i, &program.ops[i]);
    for (int w = 0; w < room_count; w++)
        check_tags(w);
    check_groups();
}

#endif
