/* Shifts the wall clock of a process and of its children by CLOCK_OFFSET seconds (LD_PRELOAD; see clocks.py).
 * Monotonic clocks stay as they are, so waits take as long as without it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t offset(void) {
  static time_t seconds;
  static int is_read;
  if (!is_read) {
    const char *text = getenv("CLOCK_OFFSET");
    seconds = text ? atoll(text) : 0;
    is_read = 1;
  }
  return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int status = (int)syscall(SYS_clock_gettime, clock, now);
  if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
  return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int status = (int)syscall(SYS_gettimeofday, now, zone);
  if (status == 0) now->tv_sec += offset();
  return status;
}

time_t time(time_t *result) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result) *result = now.tv_sec;
  return now.tv_sec;
}

int timespec_get(struct timespec *now, int base) {
  return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0;
}
