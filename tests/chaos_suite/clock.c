/* The wall clock of one process and of those that it starts, wrong by as many microseconds as a file says.

   Loaded with LD_PRELOAD. PENSTOCKS_CHAOS_CLOCK names the file, 8 bytes, which may change at any moment: the clock
   jumps. Only what tells the wall clock is moved: clock_gettime of CLOCK_REALTIME, gettimeofday, time. Clocks that
   only go forward, sleeps, and waits that end by such a clock are the kernel's own.

   Waits until a moment of the wall clock end when the moved clock shows it, as after a jump of the real one: earlier
   when it jumps forward, and later, perhaps by hours, when it jumps back. The kernel knows nothing of our jumps, so
   such a wait is made of short ones. Between two of them the mutex is held: who signals with it held is never missed,
   and librdkafka does. These are all waits of that kind in what capture and Postgres load (`nm -D --undefined-only`):
   cnd_timedwait (librdkafka), pthread_cond_timedwait (OpenSSL; Python's is for another clock), sem_timedwait
   (multiprocessing). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

enum { SECOND = 1000000000, SLICE = 50000000, YEAR_2001 = 978307200 };

static const volatile int64_t *moved_by;

__attribute__((constructor)) static void find_the_file(void) {
    const char *path = getenv("PENSTOCKS_CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *found = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (found == MAP_FAILED) {
        perror("PENSTOCKS_CHAOS_CLOCK");
        _exit(127);
    }
    close(file);
    moved_by = found;
}

static int64_t nanoseconds(struct timespec moment) { return (int64_t)moment.tv_sec * SECOND + moment.tv_nsec; }

static struct timespec moment(int64_t since) { return (struct timespec){since / SECOND, since % SECOND}; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && moved_by && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        *now = moment(nanoseconds(*now) + *moved_by * 1000);
    return result;
}

static struct timespec read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec moved = read_clock(CLOCK_REALTIME);
    *now = (struct timeval){moved.tv_sec, moved.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *now) {
    time_t moved = read_clock(CLOCK_REALTIME).tv_sec;
    return now ? (*now = moved) : moved;
}

/* Until the moved clock shows the end. */
static int64_t left_until(const struct timespec *end) {
    return nanoseconds(*end) - nanoseconds(read_clock(CLOCK_REALTIME));
}

static struct timespec after_at_most_a_slice(int64_t left) {
    int64_t wait = left < 0 ? 0 : left < SLICE ? left : SLICE;
    return moment(nanoseconds(read_clock(CLOCK_MONOTONIC)) + wait);
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *end) {
    if (end->tv_sec < YEAR_2001) /* not of the wall clock: the condition was made with CLOCK_MONOTONIC */
        return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, end);
    int64_t left;
    int result;
    do {
        left = left_until(end);
        struct timespec slice = after_at_most_a_slice(left);
        result = pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &slice);
    } while (result == ETIMEDOUT && left > SLICE);
    return result;
}

int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *end) {
    int result = pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, end);
    return result == 0 ? thrd_success : result == ETIMEDOUT ? thrd_timedout : thrd_error;
}

int sem_timedwait(sem_t *semaphore, const struct timespec *end) {
    int64_t left;
    int result;
    do {
        left = left_until(end);
        struct timespec slice = after_at_most_a_slice(left);
        result = sem_clockwait(semaphore, CLOCK_MONOTONIC, &slice);
    } while (result != 0 && errno == ETIMEDOUT && left > SLICE);
    return result;
}
