/// The process's device: which vendor is active, how many devices, what a thread has chosen, fork and shutdown.
///
/// State machine: idle -> loading -> active -> idle ...; a child forked while loading, or active and used (memory, a
/// stream or an event was asked for), is a bad fork for ever; one forked before any use goes on with the device.
/// Invariant: when the state reads active, the vendor tables and the device count are set and do not change until
/// shutdown. Init and shutdown exclude each other; shutdown must not run while other threads use the device. A vendor
/// library that was active stays loaded after shutdown (its tables are borrowed for the process's life). Nothing is
/// registered with atexit: a process may end with streams at work (see vendors). Depends on registry.c and, for
/// shutdown, on the other files here.
#include <pthread.h>
#include <string.h>

#include "device/allocator.h"
#include "device/memory_watch.h"
#include "dit/graph.h"
#include "dit/log.h"
#include "dit/memory.h"
#include "dit/options.h"

enum runtime_state { STATE_IDLE, STATE_LOADING, STATE_ACTIVE, STATE_BAD_FORK };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static atomic_int state = STATE_IDLE;
static atomic_int device_count;
static atomic_bool launch_blocking;
static atomic_bool used;
static struct dit_vendor active;

atomic_uint dit_generation;
_Thread_local struct dit_thread dit_thread;

// State

static int get_state(void) {
  return atomic_load_explicit(&state, memory_order_acquire);
}

bool dit_runtime_is_active(void) {
  return get_state() == STATE_ACTIVE;
}

bool dit_runtime_is_bad_fork(void) {
  return get_state() == STATE_BAD_FORK;
}

bool dit_runtime_is_launch_blocking(void) {
  return atomic_load_explicit(&launch_blocking, memory_order_relaxed);
}

void dit_runtime_note_use(void) {
  atomic_store_explicit(&used, true, memory_order_relaxed);
}

static bool is_loaded(void) {
  int now = get_state();
  return now == STATE_ACTIVE || (now == STATE_BAD_FORK && active.handle != NULL);
}

const struct dit_device_vtable *dit_runtime_get_vtable(void) {
  return is_loaded() ? &active.device : NULL;
}

const struct dit_kernel_vtable *dit_runtime_get_kernels(void) {
  return is_loaded() && active.has_kernels ? &active.kernels : NULL;
}

const struct dit_graph_engine *dit_runtime_get_graph_engine(void) {
  return is_loaded() && active.has_graph_engine ? &active.graph_engine : NULL;
}

const char *dit_runtime_get_path(void) {
  return is_loaded() ? active.path : "";
}

static enum dit_status set_bad_fork(struct dit_error *err) {
  return dit_error_set(
      err, DIT_ERR_DEVICE,
      "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
      "'spawn' start method (the parent had used the ditorch device before the fork; its streams and "
      "locks do not exist in the child)");
}

enum dit_status dit_runtime_check(struct dit_error *err) {
  int now = get_state();
  if (DIT_LIKELY(now == STATE_ACTIVE)) {
    return DIT_OK;
  }
  if (now == STATE_BAD_FORK) {
    return set_bad_fork(err);
  }
  return dit_error_set(err, DIT_ERR_DEVICE,
                       "no device is active; call dit_runtime_init (Python: import ditorch) first");
}

// Fork

// Only the forking thread lives on. The lock may have been held by a thread that is gone, so it starts afresh.
static void after_fork_in_child(void) {
  int now = get_state();
  if (now == STATE_LOADING || (now == STATE_ACTIVE && atomic_load(&used))) {
    atomic_store(&state, STATE_BAD_FORK);
    atomic_fetch_add(&dit_generation, 1);
  }
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void watch_forks(void) {
  pthread_atfork(NULL, NULL, after_fork_in_child);
}

// Init and shutdown

static enum dit_status init_locked(const char *vendor, struct dit_error *err) {
  if (get_state() == STATE_ACTIVE) {
    if (dit_registry_matches(&active, vendor)) {
      return DIT_OK;
    }
    return dit_error_set(err, DIT_ERR_INVALID,
                         "vendor '%s' cannot be activated: vendor '%s' (%s) is the device of this process already; one "
                         "process has one vendor",
                         vendor ? vendor : "(null)", active.device.name, active.path);
  }
  struct dit_vendor loaded;
  int count = 0;
  DIT_RETURN_IF_NOT_OK(dit_registry_load(vendor, &loaded, err));
  DIT_RETURN_IF_NOT_OK(dit_vendor_start(&loaded, &count, err));
  enum dit_status status = dit_memory_apply_options(err);
  if (status != DIT_OK) {
    if (loaded.device.finalize) {
      loaded.device.finalize();
    }
    dit_registry_unload(&loaded);
    return status;
  }
  active = loaded;
  int option = dit_option_find("launch_blocking");
  atomic_store(&launch_blocking, option >= 0 && dit_option_get_int(option) != 0);
  atomic_store(&device_count, count);
  return DIT_OK;
}

enum dit_status dit_runtime_init(const char *vendor, struct dit_error *err) {
  if (dit_runtime_is_bad_fork()) {
    return set_bad_fork(err);
  }
  pthread_once(&fork_once, watch_forks);
  pthread_mutex_lock(&lock);
  bool was_active = get_state() == STATE_ACTIVE;
  if (!was_active) {
    atomic_store(&state, STATE_LOADING);
  }
  enum dit_status status = init_locked(vendor, err);
  if (!was_active) {
    atomic_store_explicit(&state, status == DIT_OK ? STATE_ACTIVE : STATE_IDLE, memory_order_release);
  }
  pthread_mutex_unlock(&lock);
  return status;
}

static void drain_devices(void) {
  for (int device = 0; device < atomic_load(&device_count); device++) {
    struct dit_error err = {0};
    if (active.device.synchronize(device, &err) != DIT_OK) {
      dit_log_write(DIT_LOG_WARNING, "shutdown: device %d did not drain: %s", device, err.message);
    }
  }
}

void dit_runtime_shutdown(void) {
  if (dit_runtime_is_bad_fork()) {
    return;
  }
  pthread_mutex_lock(&lock);
  if (get_state() == STATE_ACTIVE) {
    drain_devices();
    dit_check_clear();
    dit_memory_shutdown();
    dit_host_shutdown();
    dit_event_shutdown();
    dit_stream_shutdown();
    if (active.device.finalize) {
      active.device.finalize();
    }
    atomic_store(&device_count, 0);
    atomic_store(&used, false);
    atomic_fetch_add(&dit_generation, 1);
    atomic_store_explicit(&state, STATE_IDLE, memory_order_release);
  }
  pthread_mutex_unlock(&lock);
}

// Devices

struct dit_thread *dit_thread_get(void) {
  if (!dit_thread_is_current()) {
    unsigned generation = atomic_load(&dit_generation);
    memset(&dit_thread, 0, sizeof dit_thread);
    dit_thread.generation = generation;
  }
  return &dit_thread;
}

int dit_device_get_count(void) {
  return atomic_load_explicit(&device_count, memory_order_acquire);
}

int dit_device_get_current(void) {
  return dit_thread_is_current() ? dit_thread.device : 0;
}

enum dit_status dit_device_check(int device, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_runtime_check(err));
  int count = dit_device_get_count();
  if (DIT_LIKELY(device >= 0 && device < count)) {
    return DIT_OK;
  }
  if (count == 0) {
    return dit_error_set(err, DIT_ERR_ORDINAL, "CUDA error: invalid device ordinal: %d; vendor '%s' has no devices",
                         device, active.device.name);
  }
  return dit_error_set(err, DIT_ERR_ORDINAL, "CUDA error: invalid device ordinal: %d; valid: 0 to %d (vendor '%s')",
                       device, count - 1, active.device.name);
}

enum dit_status dit_device_set_current(int device, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_device_check(device, err));
  struct dit_thread *thread = dit_thread_get();
  if (active.device.bind_thread) {
    DIT_RETURN_IF_NOT_OK(active.device.bind_thread(device, err));
  }
  thread->device = device;
  dit_affinity_apply(device);
  return DIT_OK;
}

static bool is_uuid(const char *text) {
  static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  bool good = strlen(text) == sizeof form - 1;
  for (size_t i = 0; good && form[i]; i++) {
    good = form[i] == '-' ? text[i] == '-' : strchr("0123456789abcdefABCDEF", text[i]) != NULL;
  }
  return good;
}

// What a vendor says goes into Python objects and other programs' arithmetic: texts end, a UUID is one or empty.
static enum dit_status check_properties(int device, struct dit_device_properties *p, struct dit_error *err) {
  p->name[sizeof p->name - 1] = p->vendor[sizeof p->vendor - 1] = '\0';
  p->architecture[sizeof p->architecture - 1] = p->uuid[sizeof p->uuid - 1] = '\0';
  if (!is_uuid(p->uuid)) {
    p->uuid[0] = '\0';
  }
  const struct {
    const char *name;
    int32_t value;
  } numbers[] = {{"major", p->major},
                 {"minor", p->minor},
                 {"multi_processor_count", p->multi_processor_count},
                 {"warp_size", p->warp_size},
                 {"max_threads_per_multi_processor", p->max_threads_per_multi_processor},
                 {"max_threads_per_block", p->max_threads_per_block},
                 {"regs_per_multiprocessor", p->regs_per_multiprocessor}};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    if (numbers[i].value < 0) {
      return dit_error_set(err, DIT_ERR_DEVICE,
                           "vendor '%s': %s of device %d is %d; `ditorch doctor --vendor %s` says what else is wrong",
                           active.device.name, numbers[i].name, device, (int)numbers[i].value, active.path);
    }
  }
  return DIT_OK;
}

enum dit_status dit_device_get_properties(int device, struct dit_device_properties *out, struct dit_error *err) {
  struct dit_device_properties found;
  memset(&found, 0, sizeof found);
  DIT_RETURN_IF_NOT_OK(dit_device_check(device, err));
  DIT_RETURN_IF_NOT_OK(active.device.get_properties(device, &found, err));
  DIT_RETURN_IF_NOT_OK(check_properties(device, &found, err));
  *out = found;
  return DIT_OK;
}

enum dit_status dit_device_synchronize(int device, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_device_check(device, err));
  DIT_RETURN_IF_NOT_OK(active.device.synchronize(device, err));
  return active.device.check_last_error ? active.device.check_last_error(device, err) : DIT_OK;
}
