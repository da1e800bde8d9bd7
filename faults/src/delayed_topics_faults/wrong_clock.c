/* Shifts the wall clock of the process that preloads this library by the seconds in the file that WRONG_CLOCK names (8 bytes).
   Timed waits are passed to the kernel in its own time, so that they last as long as with the right clock: libfaketime 0.9.10
   misses cnd_timedwait, with which librdkafka waits, and lengthens the wait by the shift. Clocks that count from boot stay right. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define REALTIME_SINCE 1000000000 /* an absolute time beyond this is wall-clock time, not time since boot */

static volatile int64_t *shift;
static int (*wait_until)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*c11_wait_until)(cnd_t *, mtx_t *, const struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("WRONG_CLOCK");
    int file = name ? open(name, O_RDONLY) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) shift = page;
    if (file >= 0) close(file);
    wait_until = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    c11_wait_until = dlsym(RTLD_NEXT, "cnd_timedwait");
}

static int64_t seconds(void) { return shift ? *shift : 0; }

int clock_gettime(clockid_t id, struct timespec *at) {
    int failed = (int)syscall(SYS_clock_gettime, id, at);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += seconds();
    return failed;
}

int timespec_get(struct timespec *at, int base) { return clock_gettime(CLOCK_REALTIME, at) ? 0 : base; }

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

static struct timespec real_time(const struct timespec *until) {
    struct timespec real = *until;
    if (real.tv_sec > REALTIME_SINCE) real.tv_sec -= seconds();
    return real;
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    struct timespec real = real_time(until);
    return wait_until(cond, mutex, &real);
}

int cnd_timedwait(cnd_t *cond, mtx_t *mutex, const struct timespec *until) {
    struct timespec real = real_time(until);
    return c11_wait_until(cond, mutex, &real);
}
