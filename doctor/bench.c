/// What checks have in common: blame, loading and starting the library, host functions, patterns.
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include "core/plugin.h"
#include "doctor.h"

#define UNWRITTEN "(nothing was written here)"
#define LONG_SECONDS 20.0

// Blame

bool bench_blame(struct bench *b, const char *slot, const char *expected, const char *look, const char *format, ...) {
  struct finding *f = b->finding;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(f->seen, sizeof f->seen, format, arguments);
  va_end(arguments);
  if (slot != f->slot) {
    snprintf(f->slot, sizeof f->slot, "%s", slot);
  }
  snprintf(f->expected, sizeof f->expected, "%s", expected);
  snprintf(f->look, sizeof f->look, "%s", look);
  return false;
}

struct dit_error bench_make_error(void) {
  struct dit_error err;
  memset(&err, 0, sizeof err);
  snprintf(err.message, sizeof err.message, "%s", UNWRITTEN);
  return err;
}

bool bench_is_ok(struct bench *b, const char *slot, enum dit_status status, const struct dit_error *err) {
  if (status == DIT_OK) {
    return true;
  }
  return bench_blame(b, b->blame ? b->blame : slot, "DIT_OK", "why this call fails on a healthy, idle device",
                     "%s returned %s (%d): %.500s", slot, dit_status_get_name(status), (int)status, err->message);
}

/// `size` bytes with an end, printable, not empty.
static bool is_text(const char *text, size_t size) {
  const size_t length = strnlen(text, size);
  bool printable = length > 0 && length < size;
  for (size_t i = 0; i < length && printable; i++) {
    printable = (unsigned char)text[i] >= ' ' && text[i] != 0x7f;
  }
  return printable;
}

bool bench_is_error(struct bench *b, const char *slot, enum dit_status status, const struct dit_error *err,
                    const char *what) {
  if (status == DIT_OK) {
    return bench_blame(b, slot, "an error status", "the arguments that this function takes without looking",
                       "%s returned DIT_OK for %s", slot, what);
  }
  if ((int)status < 0 || status >= DIT_STATUS_COUNT) {
    return bench_blame(b, slot, "a status of dit/status.h", "how the vendor's own codes become a dit_status",
                       "%s returned %d for %s", slot, (int)status, what);
  }
  if (strcmp(err->message, UNWRITTEN) == 0) {
    return bench_blame(b, slot, "a message that says what the vendor's runtime said", "dit_error_set, or err->message",
                       "%s returned %s for %s and wrote no message", slot, dit_status_get_name(status), what);
  }
  if (!is_text(err->message, sizeof err->message)) {
    return bench_blame(b, slot, "one line of text that ends within 1024 bytes", "how err->message is written",
                       "%s returned %s for %s with a message that is empty or no text", slot,
                       dit_status_get_name(status), what);
  }
  if (err->status != status) {
    return bench_blame(b, slot, "err->status and the returned status are the same", "dit_error_set sets both",
                       "%s returned %s for %s, and err->status is %d", slot, dit_status_get_name(status), what,
                       (int)err->status);
  }
  return true;
}

// The library

static void set_fact(char *fact, size_t size, const char *text) {
  snprintf(fact, size, "%s", text ? text : "");
}

bool bench_load(struct bench *b) {
  static const struct plugin_kind kind = {"vendor library", "libdit_vendor_"};
  const struct dit_device_vtable *(*get)(void);
  struct dit_error err = {0};
  if (plugin_open(&kind, b->library, &b->handle, &err) != DIT_OK) {
    return bench_blame(b, "library", "a shared library that can be loaded", "the file, and what it is linked with",
                       "%s", err.message);
  }
  plugin_get_path(b->handle, b->facts->path);
  void *symbol = dlsym(b->handle, DIT_VENDOR_DEVICE_SYMBOL);
  memcpy(&get, &symbol, sizeof get);
  if (!get) {
    return bench_blame(b, DIT_VENDOR_DEVICE_SYMBOL, "an exported function of this name",
                       "hidden visibility, C++ name mangling, a version script", "the library does not export it");
  }
  const struct dit_device_vtable *table = get();
  if (!table) {
    return bench_blame(b, DIT_VENDOR_DEVICE_SYMBOL, "the address of a table that lives as long as the process",
                       "what it does before it returns", "it returned NULL");
  }
  b->facts->abi_version = table->abi_version;
  b->facts->struct_size = table->struct_size;
  if (table->abi_version != DIT_DEVICE_ABI_VERSION) {
    return bench_blame(b, "abi_version", "DIT_DEVICE_ABI_VERSION of the headers that ditorch was built with",
                       "`ditorch include`: build against these headers", "it is %u, this ditorch has %d",
                       (unsigned)table->abi_version, DIT_DEVICE_ABI_VERSION);
  }
  if (table->struct_size < SMALLEST_TABLE || table->struct_size % sizeof(void *) != 0) {
    return bench_blame(b, "struct_size", "sizeof(struct dit_device_vtable)",
                       "the initialiser of the table; the compiler's packing",
                       "it is %u; this ditorch needs %zu at "
                       "least and has %zu",
                       (unsigned)table->struct_size, SMALLEST_TABLE, sizeof *table);
  }
  memset(&b->v, 0, sizeof b->v);
  memcpy(&b->v, table, table->struct_size < sizeof b->v ? table->struct_size : sizeof b->v);
  set_fact(b->facts->name, sizeof b->facts->name, b->v.name);
  set_fact(b->facts->version, sizeof b->facts->version, b->v.version);
  return true;
}

bool bench_start(struct bench *b) {
  int count = -1;
  struct dit_error err = bench_make_error();
  b->started = true;
  const enum dit_status status = b->v.init(&err);
  TRY(bench_is_ok(b, "init", status, &err));
  CALL(b, count, &count);
  b->count = count < 0 ? 0 : count > DIT_MAX_DEVICES ? DIT_MAX_DEVICES : count;
  b->facts->devices = count;
  return true;
}

// Time and host functions

double bench_get_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void bench_sleep(double seconds) {
  struct timespec left = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  while (nanosleep(&left, &left) != 0) {
  }
}

void gate_wait(void *argument) {
  struct gate *gate = argument;
  const double end = bench_get_seconds() + LONG_SECONDS;
  atomic_store(&gate->reached, true);
  while (!atomic_load(&gate->open) && bench_get_seconds() < end) {
    bench_sleep(2e-4);
  }
  atomic_store(&gate->passed, true);
}

bool gate_await(struct gate *gate) {
  const double end = bench_get_seconds() + LONG_SECONDS;
  while (!atomic_load(&gate->reached) && bench_get_seconds() < end) {
    bench_sleep(2e-4);
  }
  return atomic_load(&gate->reached);
}

void slow_run(void *argument) {
  struct slow *slow = argument;
  bench_sleep(SLOW_SECONDS);
  atomic_fetch_add(&slow->done, 1);
}

bool bench_await(const atomic_int *counter, int value, double seconds) {
  const double end = bench_get_seconds() + seconds;
  while (atomic_load(counter) < value && bench_get_seconds() < end) {
    bench_sleep(2e-4);
  }
  return atomic_load(counter) >= value;
}

struct probe {
  pthread_t caller;
  atomic_bool returned, inline_call;
  atomic_int done;
};

/// In the caller's own thread, or while the caller waits for it: then nothing is queued.
static void run_probe(void *argument) {
  struct probe *probe = argument;
  const double end = bench_get_seconds() + 2;
  bool same = pthread_equal(pthread_self(), probe->caller);
  while (!same && !atomic_load(&probe->returned) && bench_get_seconds() < end) {
    bench_sleep(2e-4);
  }
  atomic_store(&probe->inline_call, same || !atomic_load(&probe->returned));
  atomic_store(&probe->done, 1);
}

bool bench_is_queued(struct bench *b, bool *queued) {
  static bool known, answer;
  if (!known) {
    static struct probe probe;  // outlives the call if the function comes late
    void *stream = NULL;
    probe.caller = pthread_self();
    CALL(b, stream_create, 0, 0, &stream);
    CALL(b, stream_launch_host, 0, stream, run_probe, &probe);
    atomic_store(&probe.returned, true);
    if (!bench_await(&probe.done, 1, LONG_SECONDS)) {
      return bench_blame(b, "stream_launch_host", "the function runs when earlier work is done",
                         "the queue of a created stream: is its worker there?",
                         "a host function on an idle stream did not run within %.0f s", LONG_SECONDS);
    }
    CALL(b, stream_synchronize, 0, stream);
    CALL(b, stream_destroy, 0, stream);
    known = true;
    answer = !atomic_load(&probe.inline_call);
    b->facts->queued = answer;
  }
  *queued = answer;
  return true;
}

// Memory

void bench_fill(unsigned char *bytes, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; i++) {
    bytes[i] = (unsigned char)(i * 31 + (i >> 8) * 7 + seed);
  }
}

size_t bench_compare(const unsigned char *bytes, size_t size, unsigned seed) {
  size_t i = 0;
  while (i < size && bytes[i] == (unsigned char)(i * 31 + (i >> 8) * 7 + seed)) {
    i++;
  }
  return i;
}

struct dit_copy bench_copy_in(int device, void *dst, const void *src, size_t size) {
  return (struct dit_copy){dst, src, size, DIT_COPY_HOST_TO_DEVICE, device, -1};
}

struct dit_copy bench_copy_out(int device, void *dst, const void *src, size_t size) {
  return (struct dit_copy){dst, src, size, DIT_COPY_DEVICE_TO_HOST, -1, device};
}

bool bench_put(struct bench *b, int device, void *dst, const void *src, size_t size) {
  const struct dit_copy copy = bench_copy_in(device, dst, src, size);
  CALL(b, copy, &copy);
  return true;
}

bool bench_get(struct bench *b, int device, void *dst, const void *src, size_t size) {
  const struct dit_copy copy = bench_copy_out(device, dst, src, size);
  CALL(b, copy, &copy);
  return true;
}
