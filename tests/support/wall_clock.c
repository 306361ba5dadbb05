/* Moves the wall clock of one process, and its boot-time clock, by the seconds that stand in a file it has mapped: one number
   for each, a missing one is zero. Other clocks are left alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *seconds;

__attribute__((constructor)) static void map(void)
{
    const char *path = getenv("WALL_CLOCK_OFFSET");
    int fd = path ? open(path, O_RDONLY) : -1;
    void *at = fd < 0 ? MAP_FAILED : mmap(0, 2 * sizeof *seconds, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        abort();
    close(fd);
    seconds = at;
}

int clock_gettime(clockid_t id, struct timespec *t)
{
    int r = syscall(SYS_clock_gettime, id, t);
    if (r == 0 && seconds && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE || id == CLOCK_TAI))
        t->tv_sec += seconds[0];
    if (r == 0 && seconds && id == CLOCK_BOOTTIME)
        t->tv_sec += seconds[1];
    return r;
}

int gettimeofday(struct timeval *t, void *zone)
{
    struct timespec s;
    int r = clock_gettime(CLOCK_REALTIME, &s);
    (void)zone;
    t->tv_sec = s.tv_sec;
    t->tv_usec = s.tv_nsec / 1000;
    return r;
}

time_t time(time_t *t)
{
    struct timespec s;
    clock_gettime(CLOCK_REALTIME, &s);
    if (t)
        *t = s.tv_sec;
    return s.tv_sec;
}
