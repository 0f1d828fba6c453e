/*
 * Calls with an error: they return its class and change nothing.
 */
#ifndef WRONG_H
#define WRONG_H

#include "state.h"

/* A call with an error, in its blocking or its nonblocking form. */
typedef struct {
    const char *name;
    MPI_Win win;
    int blocking, target, counters;
    MPI_Aint begin, beyond; /* displacements of the window's begin and of its end */
    MPI_Group group;
    MPI_Request request;
} Wrong;

#define FORM(blocking_call, nonblocking_call) (w->blocking ? (blocking_call) : (nonblocking_call))

static int wrong_operation(Wrong *w)
{
    static _Thread_local uint64_t word;
    MPI_Datatype type = MPI_UINT64_T;
    if (!strcmp(w->name, "put_rank"))
        return MPI_Put(&word, 1, type, ranks, 0, 1, type, w->win);
    if (!strcmp(w->name, "get_count"))
        return MPI_Get(&word, -1, type, w->target, 0, 1, type, w->win);
    if (!strcmp(w->name, "put_tag"))
        return MPIX_Put_tagged(&word, 1, type, w->target, 0, 1, type, -1, w->win);
    if (!strcmp(w->name, "put_counter"))
        return MPIX_Put_notify(&word, 1, type, w->target, 0, 1, type, -1, w->win);
    if (!strcmp(w->name, "put_disp"))
        return MPI_Put(&word, 1, type, w->target, -1, 1, type, w->win);
    if (!strcmp(w->name, "put_range"))
        return MPI_Put(&word, 1, type, w->target, w->beyond, 1, type, w->win);
    if (!strcmp(w->name, "put"))
        return MPI_Put(&word, 1, type, w->target, w->begin, 1, type, w->win);
    return -1;
}

static int wrong_lock(Wrong *w)
{
    int shared = MPI_LOCK_SHARED, t = w->target;
    MPI_Win win = w->win;
    MPI_Request *r = &w->request;
    if (!strcmp(w->name, "lock_type"))
        return FORM(MPI_Win_lock(12345, t, 0, win), MPIX_Win_ilock(12345, t, 0, win, r));
    if (!strcmp(w->name, "lock_rank"))
        return FORM(MPI_Win_lock(shared, ranks, 0, win), MPIX_Win_ilock(shared, ranks, 0, win, r));
    if (!strcmp(w->name, "lock_assert"))
        return FORM(MPI_Win_lock(shared, t, MPI_MODE_NOPUT, win),
                    MPIX_Win_ilock(shared, t, MPI_MODE_NOPUT, win, r));
    if (!strcmp(w->name, "lock"))
        return FORM(MPI_Win_lock(shared, t, 0, win), MPIX_Win_ilock(shared, t, 0, win, r));
    if (!strcmp(w->name, "lock_all"))
        return FORM(MPI_Win_lock_all(0, win), MPIX_Win_ilock_all(0, win, r));
    if (!strcmp(w->name, "unlock"))
        return FORM(MPI_Win_unlock(t, win), MPIX_Win_iunlock(t, win, r));
    if (!strcmp(w->name, "unlock_all"))
        return FORM(MPI_Win_unlock_all(win), MPIX_Win_iunlock_all(win, r));
    if (!strcmp(w->name, "flush"))
        return FORM(MPI_Win_flush(t, win), MPIX_Win_iflush_local(t, win, r));
    if (!strcmp(w->name, "flush_all"))
        return FORM(MPI_Win_flush_local_all(win), MPIX_Win_iflush_all(win, r));
    return -1;
}

static int wrong_active(Wrong *w)
{
    MPI_Win win = w->win;
    MPI_Request *r = &w->request;
    int flag;
    if (!strcmp(w->name, "fence_assert"))
        return FORM(MPI_Win_fence(MPI_MODE_NOCHECK, win),
                    MPIX_Win_ifence(MPI_MODE_NOCHECK, win, r));
    if (!strcmp(w->name, "fence"))
        return FORM(MPI_Win_fence(0, win), MPIX_Win_ifence(0, win, r));
    if (!strcmp(w->name, "start"))
        return FORM(MPI_Win_start(w->group, 0, win), MPIX_Win_istart(w->group, 0, win, r));
    if (!strcmp(w->name, "complete"))
        return FORM(MPI_Win_complete(win), MPIX_Win_icomplete(win, r));
    if (!strcmp(w->name, "post"))
        return FORM(MPI_Win_post(w->group, 0, win), MPIX_Win_ipost(w->group, 0, win, r));
    if (!strcmp(w->name, "wait"))
        return FORM(MPI_Win_wait(win), MPIX_Win_iwait(win, r));
    if (!strcmp(w->name, "test"))
        return MPI_Win_test(win, &flag);
    return -1;
}

static int wrong_notification(Wrong *w)
{
    MPI_Win win = w->win;
    MPI_Request *r = &w->request;
    if (!strcmp(w->name, "expect_tag"))
        return MPIX_Notify_init(win, w->target, MPI_ANY_TAG - 1000, 1, r);
    if (!strcmp(w->name, "expect_count"))
        return MPIX_Notify_init(win, w->target, 1, 0, r);
    if (!strcmp(w->name, "expect_source"))
        return MPIX_Notify_init(win, ranks, 1, 1, r);
    if (!strcmp(w->name, "counter_index"))
        return FORM(MPIX_Win_notify_threshold(win, w->counters, 0),
                    MPIX_Win_notify_ithreshold(win, w->counters, 0, r));
    if (!strcmp(w->name, "counter_value"))
        return FORM(MPIX_Win_notify_threshold(win, 0, -1),
                    MPIX_Win_notify_ithreshold(win, 0, -1, r));
    return -1;
}

/* call: wrong WINDOW NAME CLASS BLOCKING TARGET */
static void wrong(const Line *line, MPI_Win win)
{
    static const char *const names[] = {"rank",   "count",  "tag",       "arg",      "locktype",
                                        "assert", "disp",   "rma_range", "rma_sync", NULL};
    const int classes[] = {MPI_ERR_RANK,      MPI_ERR_COUNT,  MPI_ERR_TAG,
                           MPI_ERR_ARG,       MPI_ERR_LOCKTYPE, MPI_ERR_ASSERT,
                           MPI_ERR_DISP,      MPI_ERR_RMA_RANGE, MPI_ERR_RMA_SYNC};
    const Room *room = &rooms[number(line, 1)];
    Wrong w = {.name = line->words[2],
               .win = win,
               .blocking = integer(line, 4),
               .target = integer(line, 5),
               .begin = room->kind == DYNAMIC ? room->bases[integer(line, 5)] : 0,
               .beyond = (MPI_Aint)(room->bytes / (size_t)room->unit),
               .counters = room->counters,
               .group = group_in(comm, 1, &own_rank),
               .request = MPI_REQUEST_NULL};
    int (*const calls[])(Wrong *) = {wrong_operation, wrong_lock, wrong_active, wrong_notification};
    int code = -1, wanted = classes[which(line->words[3], names)];
    for (int i = 0; i < 4 && code == -1; i++)
        code = calls[i](&w);
    REQUIRE(code != -1);
    if (code == MPI_SUCCESS || class_of(code) != wanted)
        differs("%s on window %s returns class %d (%s) and not %s", w.name, line->words[1],
                code == MPI_SUCCESS ? 0 : class_of(code), error_text(code), line->words[3]);
    if (code != MPI_SUCCESS && w.request != MPI_REQUEST_NULL)
        differs("%s on window %s fails and sets its request", w.name, line->words[1]);
    MPI(MPI_Group_free(&w.group));
}

#endif
