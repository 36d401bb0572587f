/*
 * Stands before the C library (LD_PRELOAD) in the process of a member: syncs take longer or fail, and
 * the wall clock is stepped, as a file says that the process shares with the run. steering.py has
 * the layout of the file, and writes it. Without the file every call is that of the C library.
 *
 * The monotonic clock is left alone: nobody can step it on Linux either.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define STEERING "JEPSEN_LIKE_STEERING"
#define NS_A_MS INT64_C(1000000)
#define NS_A_S INT64_C(1000000000)
/* A sync that is held up looks so often whether it still is: a stalled disk may come back. */
#define LOOK_NS (5 * NS_A_MS)

#define PATHS 16
#define PATH_BYTES 512

struct steering {
    int64_t sync_delay_ms;  /* each sync takes so much longer */
    int64_t syncs_to_fail;  /* so many syncs end with EIO; all of them if negative */
    int64_t clock_step_ms;  /* how far the wall clock is ahead; behind if negative */
    int64_t loaded;         /* how many processes have this library */
    int64_t syncs_delayed;  /* syncs that took longer */
    int64_t syncs_failed;   /* syncs that ended with EIO */
    int64_t times_stepped;  /* readings of the wall clock that were ahead or behind */
    char failed[PATHS][PATH_BYTES]; /* the last files whose syncs failed, in turn */
};

static struct steering *steering;

static int (*real_sync_data)(int);
static int (*real_sync)(int);
static int (*real_sem_timedwait)(sem_t *, const struct timespec *);
static int (*real_clock_gettime)(clockid_t, struct timespec *);

_Static_assert(sizeof(time_t) == 8 && sizeof(long) == 8, "a 64-bit system");

static int64_t value_of(const int64_t *field)
{
    return __atomic_load_n(field, __ATOMIC_RELAXED);
}

__attribute__((constructor)) static void load(void)
{
    real_sync_data = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    real_sync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    real_sem_timedwait =
        (int (*)(sem_t *, const struct timespec *))dlsym(RTLD_NEXT, "sem_timedwait");
    real_clock_gettime =
        (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv(STEERING);
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return;
    void *shared =
        mmap(NULL, sizeof *steering, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (shared == MAP_FAILED)
        return;
    steering = shared;
    __atomic_add_fetch(&steering->loaded, 1, __ATOMIC_RELAXED);
}

/* --- syncs ----------------------------------------------------------------------------------- */

static int64_t monotonic_ns(void)
{
    struct timespec now;
    real_clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_A_S + now.tv_nsec;
}

static void hold_up(void)
{
    const struct timespec look = {0, LOOK_NS};
    const int64_t begin_ns = monotonic_ns();
    if (value_of(&steering->sync_delay_ms) <= 0)
        return;
    __atomic_add_fetch(&steering->syncs_delayed, 1, __ATOMIC_RELAXED);
    while (monotonic_ns() - begin_ns < value_of(&steering->sync_delay_ms) * NS_A_MS)
        nanosleep(&look, NULL);
}

static void note_failed(int descriptor)
{
    const int64_t number = __atomic_fetch_add(&steering->syncs_failed, 1, __ATOMIC_RELAXED);
    char *path = steering->failed[number % PATHS];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const ssize_t size = readlink(link, path, PATH_BYTES - 1);
    path[size < 0 ? 0 : size] = '\0';
}

/* Whether this sync is one of those that fail; then there is one less left. */
static int fails(int descriptor)
{
    int64_t left = value_of(&steering->syncs_to_fail);
    while (left > 0 && !__atomic_compare_exchange_n(&steering->syncs_to_fail, &left, left - 1, 0,
                                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    if (left != 0)
        note_failed(descriptor);
    return left != 0;
}

static int synced(int descriptor, int (*real)(int))
{
    if (steering != NULL) {
        hold_up();
        if (fails(descriptor)) {
            errno = EIO; /* and nothing is synced: what was written may be gone */
            return -1;
        }
    }
    return real(descriptor);
}

int fdatasync(int descriptor)
{
    return synced(descriptor, real_sync_data);
}

int fsync(int descriptor)
{
    return synced(descriptor, real_sync);
}

/* --- the wall clock -------------------------------------------------------------------------- */

static void step(struct timespec *moment, int64_t step_ms)
{
    int64_t ns = moment->tv_nsec + step_ms % 1000 * NS_A_MS;
    moment->tv_sec += step_ms / 1000;
    if (ns < 0) {
        ns += NS_A_S;
        moment->tv_sec -= 1;
    } else if (ns >= NS_A_S) {
        ns -= NS_A_S;
        moment->tv_sec += 1;
    }
    moment->tv_nsec = ns;
}

static int64_t clock_step_ms(void)
{
    return steering == NULL ? 0 : value_of(&steering->clock_step_ms);
}

static int is_wall_clock(clockid_t id)
{
    return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE || id == CLOCK_TAI;
}

/* Other libraries may call this before `load` has run. */
int clock_gettime(clockid_t id, struct timespec *now)
{
    int ended = real_clock_gettime == NULL ? (int)syscall(SYS_clock_gettime, id, now)
                                           : real_clock_gettime(id, now);
    if (ended == 0 && is_wall_clock(id)) {
        const int64_t step_ms = clock_step_ms();
        if (step_ms != 0) {
            __atomic_add_fetch(&steering->times_stepped, 1, __ATOMIC_RELAXED);
            step(now, step_ms);
        }
    }
    return ended;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone; /* obsolete: programs pass NULL */
    if (clock_gettime(CLOCK_REALTIME, &precise) != 0)
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into)
{
    struct timespec precise;
    if (clock_gettime(CLOCK_REALTIME, &precise) != 0)
        return -1;
    if (into != NULL)
        *into = precise.tv_sec;
    return precise.tv_sec;
}

/* Waits until a time of the wall clock, which the kernel knows without the step. Pythons that are
 * built for old C libraries wait for locks with it. */
int sem_timedwait(sem_t *semaphore, const struct timespec *until)
{
    struct timespec moment = *until;
    step(&moment, -clock_step_ms());
    return real_sem_timedwait(semaphore, &moment);
}
