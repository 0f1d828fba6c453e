#include "harness.h"

#include "../common/stats.h"
#include "../common/timing.h"

static const double NAP_US = 10.0;     /* polling interval of a rank that waits for an event */
static const double LEAD_US = 250.0;   /* from the agreement to the common start */
static const double MARGIN_US = 20.0;  /* polls during this time before the common start */

enum { WAKE_SAMPLES = 41 };

void wait_politely(MPI_Request *request, double nap_us)
{
    int done = 0;
    for (;;) {
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (done)
            return;
        sleep_for_us(nap_us);
    }
}

void await_message(MPI_Comm comm, int source)
{
    int there = 0;
    for (;;) {
        MPI_Iprobe(source, 0, comm, &there, MPI_STATUS_IGNORE);
        if (there)
            return;
        sleep_for_us(NAP_US);
    }
}

void barrier_politely(MPI_Comm comm, double nap_us)
{
    MPI_Request barrier;
    MPI_Ibarrier(comm, &barrier);
    wait_politely(&barrier, nap_us);
}

double common_start(MPI_Comm comm)
{
    double mine = now_us() + LEAD_US, start;
    MPI_Request agreement;
    MPI_Iallreduce(&mine, &start, 1, MPI_DOUBLE, MPI_MAX, comm, &agreement);
    wait_politely(&agreement, NAP_US);
    return start;
}

void begin(struct iteration *it)
{
    sleep_until_us(it->start_us - MARGIN_US);
    yield_until_us(it->start_us);
}

void begin_late(struct iteration *it)
{
    if (!it->delayed) {
        begin(it);
        return;
    }
    sleep_until_us(it->start_us + it->delay_us);
    it->stamp[DELAY] = now_us() - it->start_us;
}

void stay_away(struct iteration *it)
{
    if (!it->delayed)
        return;
    double left = now_us();
    sleep_until_us(left + it->delay_us);
    it->stamp[DELAY] = now_us() - left;
}

void work(struct iteration *it)
{
    if (it->delayed)
        it->stamp[DELAY] = work_for_us(it->delay_us);
}

/* splitmix64: neighbouring seeds give unrelated bytes. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t seed_of(int iteration, bool delayed, int origin)
{
    return mix(((uint64_t)iteration * 2 + delayed) * MAX_RANKS + (uint64_t)origin);
}

void fill(char *bytes, size_t count, uint64_t seed)
{
    for (size_t at = 0; at < count; at += sizeof(uint64_t)) {
        uint64_t word = mix(seed + at);
        for (size_t k = 0; k < sizeof word && at + k < count; k++)
            bytes[at + k] = (char)(word >> (8 * k));
    }
}

static double timer_overshoot_us(double delay_us)
{
    double late[WAKE_SAMPLES];
    for (int i = 0; i < WAKE_SAMPLES; i++) {
        double when = now_us() + delay_us;
        sleep_until_us(when);
        late[i] = now_us() - when;
    }
    return spread_of(late, WAKE_SAMPLES).median;
}

/* Rank 0 sends the time; rank 1 was asleep and receives it later by its wake-up time. */
static double message_wake_us(MPI_Comm comm, int rank)
{
    double late[WAKE_SAMPLES];
    for (int i = 0; i < WAKE_SAMPLES; i++) {
        double sent = common_start(comm);
        if (rank == 0) {
            yield_until_us(sent);
            MPI_Send(&sent, 1, MPI_DOUBLE, 1, 0, comm);
        } else if (rank == 1) {
            await_message(comm, 0);
            late[i] = now_us() - sent;
            MPI_Recv(&sent, 1, MPI_DOUBLE, 0, 0, comm, MPI_STATUS_IGNORE);
        }
    }
    return rank == 1 ? spread_of(late, WAKE_SAMPLES).median : 0.0;
}

double measured_wake_us(MPI_Comm comm, double delay_us)
{
    int rank;
    MPI_Comm_rank(comm, &rank);
    double mine = message_wake_us(comm, rank);
    if (rank == 1)
        mine += timer_overshoot_us(delay_us);
    MPI_Request told;
    MPI_Ibcast(&mine, 1, MPI_DOUBLE, 1, comm, &told);
    wait_politely(&told, NAP_US);
    return mine;
}
