/// Starting a vendor library: init within a time limit, then the number of devices.
///
/// init runs on a thread of its own, as a driver that hangs must not take the program with it. Invariant: what the
/// thread touches lives until the thread has ended; after a hang that is for ever, with the library, because the thread
/// is inside of it. Depends on registry.c and the options.
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "device/device_internal.h"
#include "dit/alloc.h"
#include "dit/options.h"
#include "dit/thread.h"

struct start {
  pthread_mutex_t lock;
  pthread_cond_t ended;
  enum dit_status (*init)(struct dit_error *err);
  bool done, abandoned;  ///< guarded by lock
  enum dit_status status;
  struct dit_error err;
};

static void destroy_start(struct start *start) {
  pthread_cond_destroy(&start->ended);
  pthread_mutex_destroy(&start->lock);
  dit_free(start);
}

static void *run_init(void *argument) {
  struct start *start = argument;
  enum dit_status status = start->init(&start->err);
  pthread_mutex_lock(&start->lock);
  start->status = status;
  start->done = true;
  const bool abandoned = start->abandoned;
  pthread_cond_signal(&start->ended);
  pthread_mutex_unlock(&start->lock);
  if (abandoned) {
    destroy_start(start);  // nobody waits any more; the device stays unused
  }
  return NULL;
}

/// False: the time is up, and `start` belongs to the thread.
static bool await_init(struct start *start, int64_t seconds) {
  struct timespec end;
  clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_sec += (time_t)seconds;
  pthread_mutex_lock(&start->lock);
  int code = 0;
  while (!start->done && code != ETIMEDOUT) {
    code = pthread_cond_timedwait(&start->ended, &start->lock, &end);
  }
  const bool done = start->done;
  start->abandoned = !done;
  pthread_mutex_unlock(&start->lock);
  return done;
}

static struct start *make_start(enum dit_status (*init)(struct dit_error *err)) {
  struct start *start = dit_calloc(1, sizeof *start);
  if (start) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&start->lock, NULL);
    pthread_cond_init(&start->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    start->init = init;
  }
  return start;
}

static enum dit_status call_init(const struct dit_vendor *vendor, int64_t seconds, bool *hangs, struct dit_error *err) {
  pthread_t thread;
  struct start *start = seconds > 0 ? make_start(vendor->device.init) : NULL;
  if (!start || dit_thread_create(&thread, run_init, start) != 0) {  // without a thread there is no limit
    if (start) {
      destroy_start(start);
    }
    return vendor->device.init(err);
  }
  if (!await_init(start, seconds)) {
    pthread_detach(thread);
    *hangs = true;
    return dit_error_set(err, DIT_ERR_DEVICE,
                         "its init has not returned within %lld s (DITORCH_VENDOR_TIMEOUT); the driver may hang: "
                         "`ditorch doctor --vendor %s` looks closer",
                         (long long)seconds, vendor->path);
  }
  pthread_join(thread, NULL);
  const enum dit_status status = start->status;
  if (status != DIT_OK && err) {
    *err = start->err;
    err->message[sizeof err->message - 1] = '\0';
  }
  destroy_start(start);
  return status;
}

static enum dit_status get_count(const struct dit_vendor *vendor, int *count, struct dit_error *err) {
  int found = -1;
  DIT_RETURN_IF_NOT_OK(vendor->device.count(&found, err));
  if (found < 0 || found > DIT_MAX_DEVICES) {
    return dit_error_set(err, DIT_ERR_DEVICE, "it reports %d devices; valid: 0 to %d", found, DIT_MAX_DEVICES);
  }
  *count = found;
  return DIT_OK;
}

enum dit_status dit_vendor_start(struct dit_vendor *vendor, int *count, struct dit_error *err) {
  const int option = dit_option_find("vendor_timeout");
  bool hangs = false;
  if (err) {
    *err = (struct dit_error){0};
  }
  enum dit_status status = call_init(vendor, option >= 0 ? dit_option_get_int(option) : 0, &hangs, err);
  if (status == DIT_OK) {
    status = get_count(vendor, count, err);
    if (status != DIT_OK && vendor->device.finalize) {
      vendor->device.finalize();
    }
  }
  if (status == DIT_OK) {
    return DIT_OK;
  }
  if (err && !err->message[0]) {
    (void)dit_error_set(err, status, "%s, and it says nothing more", dit_status_get_name(status));
  }
  (void)dit_error_prefix(err, "vendor library '%s' did not start: ", vendor->path);
  if (hangs) {
    memset(vendor, 0, sizeof *vendor);  // a thread is inside of the library
  } else {
    dit_registry_unload(vendor);
  }
  return status;
}
