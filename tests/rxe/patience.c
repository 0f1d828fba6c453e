/*
 * Preloaded into every program of a guest (/etc/ld.so.preload). MPI libraries poll without end.
 * With few, emulated processors, a polling process delays the process, guest or thread it waits
 * for. Here a poll for network events waits a moment if several polls in a row found nothing: a
 * round trip between two guests takes a fifth of the time. `guests.py --spin` leaves it out.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

enum { LOOKS = 10 };
static const struct timespec moment = {0, 20000};
static _Thread_local int in_vain;

/* Whether to wait; each poll that found nothing increases the count. */
static int waits(int milliseconds)
{
    return milliseconds == 0 && ++in_vain > LOOKS;
}

static int found(int count)
{
    if (count != 0)
        in_vain = 0;
    return count;
}

/* UCX polls with this, */
int epoll_wait(int set, struct epoll_event *events, int room, int milliseconds)
{
    static int (*host)(int, struct epoll_event *, int, int);
    if (!host)
        host = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    return found(waits(milliseconds) ? epoll_pwait2(set, events, room, &moment, NULL)
                                     : host(set, events, room, milliseconds));
}

/* Open MPI with this. */
int poll(struct pollfd *files, nfds_t count, int milliseconds)
{
    static int (*host)(struct pollfd *, nfds_t, int);
    if (!host)
        host = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");
    return found(waits(milliseconds) ? ppoll(files, count, &moment, NULL)
                                     : host(files, count, milliseconds));
}

/* For guests.py: the time stamp counter, which an emulated processor shares. */
unsigned long long processor_ticks(void)
{
    return __builtin_ia32_rdtsc();
}
