/* Loaded before the C library, so that one process believes its host's clock to be wrong by POSTRIDER_CLOCK_SHIFT_S seconds.
   Only the wall clock is: the one that never jumps goes on as it is, as on a host whose clock was set badly. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    const char *shift = getenv("POSTRIDER_CLOCK_SHIFT_S");
    if (!failed && clock == CLOCK_REALTIME && shift) now->tv_sec += atol(shift);
    return failed;
}
