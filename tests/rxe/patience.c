/* Loaded into every program of a guest (/etc/ld.so.preload). MPI libraries poll for messages without end; where processors are few and emulated,
 * whoever polls holds up the process, the guest or the thread outside that is to bring what it waits for. Here a look for network events
 * that has found nothing some times in a row sleeps for a moment: a round trip between two guests takes a third of the time.
 * `guests.py --spin` leaves it out. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/epoll.h>
#include <time.h>

enum { LOOKS = 10, NAP_NS = 20000 };

int epoll_wait(int set, struct epoll_event *events, int room, int milliseconds)
{
    static int (*host)(int, struct epoll_event *, int, int);
    static _Thread_local int in_vain;
    if (!host)
        host = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    int found = host(set, events, room, milliseconds);
    if (found != 0 || milliseconds != 0) {
        in_vain = 0;
    } else if (++in_vain > LOOKS) {
        struct timespec nap = {0, NAP_NS};
        nanosleep(&nap, NULL);
    }
    return found;
}
