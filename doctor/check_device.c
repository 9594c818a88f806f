/// Checks of the device slots that need no stream: properties, memory figures, threads, peers.
#include <ctype.h>
#include <pthread.h>
#include <stddef.h>

#include "doctor.h"

static bool is_text(const char *text, size_t size, bool may_be_empty) {
  const size_t length = strnlen(text, size);
  bool good = length < size && (may_be_empty || length > 0);
  for (size_t i = 0; i < length && good; i++) {
    good = text[i] >= ' ' && text[i] <= '~';
  }
  return good;
}

static bool is_uuid(const char *text) {
  bool good = strlen(text) == 36;
  for (size_t i = 0; good && i < 36; i++) {
    good = i == 8 || i == 13 || i == 18 || i == 23 ? text[i] == '-' : isxdigit((unsigned char)text[i]) != 0;
  }
  return good;
}

static bool check_texts(struct bench *b, int device, const struct dit_device_properties *p) {
  const char *const expected = "text that ends within its field", *const look = "snprintf into the field";
  WANT(b, is_text(p->name, sizeof p->name, false), "a name, as text that ends within its field", look,
       "the name of device %d is empty, unprintable or has no end", device);
  WANT(b, is_text(p->vendor, sizeof p->vendor, true), expected, look, "`vendor` of device %d is no text", device);
  WANT(b, is_text(p->architecture, sizeof p->architecture, true), expected, look,
       "`architecture` of device %d is no text", device);
  WANT(b, is_text(p->uuid, sizeof p->uuid, true) && (!p->uuid[0] || is_uuid(p->uuid)),
       "8-4-4-4-12 hexadecimal digits, or \"\"", "how the UUID is printed", "the uuid of device %d is '%.39s'", device,
       p->uuid);
  return true;
}

static bool check_numbers(struct bench *b, int device, const struct dit_device_properties *p) {
  WANT(b, p->total_memory >= MIB && p->total_memory < UINT64_C(1) << 50, "the device's memory in bytes",
       "units: bytes, not MiB", "total_memory of device %d is %llu", device, (unsigned long long)p->total_memory);
  const struct {
    const char *name;
    int32_t value, least;
  } numbers[] = {{"major", p->major, 0},
                 {"minor", p->minor, 0},
                 {"multi_processor_count", p->multi_processor_count, 1},
                 {"warp_size", p->warp_size, 1},
                 {"max_threads_per_multi_processor", p->max_threads_per_multi_processor, 1},
                 {"max_threads_per_block", p->max_threads_per_block, 1},
                 {"regs_per_multiprocessor", p->regs_per_multiprocessor, 0},
                 {"pci_domain", p->pci_domain, 0},
                 {"pci_bus", p->pci_bus, 0},
                 {"pci_device", p->pci_device, 0},
                 {"clock_rate_khz", p->clock_rate_khz, 0},
                 {"memory_clock_rate_khz", p->memory_clock_rate_khz, 0},
                 {"memory_bus_width", p->memory_bus_width, 0}};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    WANT(b, numbers[i].value >= numbers[i].least, "a number that torch programs can divide by, or 0 where unknown",
         "a field that is not set: start from a struct of zeros", "%s of device %d is %d", numbers[i].name, device,
         (int)numbers[i].value);
  }
  return true;
}

/// A field that was not written shows the byte that stood there before.
static bool check_written(struct bench *b, int device, struct dit_device_properties *out) {
  struct dit_device_properties first, second;
  memset(&first, 0xa5, sizeof first);
  memset(&second, 0x3c, sizeof second);
  CALL(b, get_properties, device, &first);
  CALL(b, get_properties, device, &second);
  unsigned char flags[2];
  memcpy(&flags[0], (const char *)&first + offsetof(struct dit_device_properties, integrated), 1);
  memcpy(&flags[1], (const char *)&first + offsetof(struct dit_device_properties, host_accessible), 1);
  WANT(b, flags[0] <= 1 && flags[1] <= 1, "true or false", "a field that is not set: start from a struct of zeros",
       "device %d: integrated is %u, host_accessible is %u", device, flags[0], flags[1]);
  WANT(b,
       memcmp(first.name, second.name, strnlen(first.name, sizeof first.name - 1)) == 0 &&
           first.total_memory == second.total_memory && first.major == second.major && first.minor == second.minor &&
           first.multi_processor_count == second.multi_processor_count && first.warp_size == second.warp_size &&
           first.shared_memory_per_block == second.shared_memory_per_block &&
           first.l2_cache_size == second.l2_cache_size && first.host_accessible == second.host_accessible,
       "the same answer each time", "a field that is not set, or taken from something that changes",
       "two calls for device %d answered differently", device);
  *out = first;
  return true;
}

static bool check_properties(struct bench *b) {
  static struct dit_device_properties found[DIT_MAX_DEVICES];
  for (int i = 0; i < b->count; i++) {
    TRY(check_written(b, i, &found[i]));
    TRY(check_texts(b, i, &found[i]));
    TRY(check_numbers(b, i, &found[i]));
    for (int k = 0; k < i; k++) {
      WANT(b, !found[i].uuid[0] || strcmp(found[i].uuid, found[k].uuid) != 0, "a uuid of its own for each device",
           "how the UUID is made of the device index", "devices %d and %d both have %s", k, i, found[i].uuid);
    }
  }
  return true;
}

static bool check_memory(struct bench *b) {
  for (int i = 0; i < b->count; i++) {
    struct dit_device_properties properties;
    struct dit_device_memory memory;
    memset(&memory, 0xa5, sizeof memory);
    CALL(b, get_properties, i, &properties);
    CALL(b, get_memory, i, &memory);
    WANT(b, memory.total > 0 && memory.free <= memory.total, "free is at most total",
         "the order of the two numbers; units: bytes", "device %d: %llu free of %llu", i,
         (unsigned long long)memory.free, (unsigned long long)memory.total);
    WANT(b, memory.total / 2 <= properties.total_memory && properties.total_memory / 2 <= memory.total,
         "about the total_memory of get_properties", "units: bytes in both",
         "device %d: total is %llu, total_memory is %llu", i, (unsigned long long)memory.total,
         (unsigned long long)properties.total_memory);
  }
  return true;
}

struct binder {
  struct bench *b;
  pthread_t thread;
  enum dit_status status;
  int device;
  struct dit_error err;
};

static void *bind(void *argument) {
  struct binder *binder = argument;
  for (int i = 0; i < 20 && binder->status == DIT_OK; i++) {
    binder->status = binder->b->v.bind_thread(binder->device, &binder->err);
  }
  return NULL;
}

static bool check_bind(struct bench *b) {
  struct binder binders[4];
  for (int i = 0; i < 4; i++) {
    binders[i] = (struct binder){.b = b, .device = i % b->count, .err = bench_make_error()};
    WANT(b, pthread_create(&binders[i].thread, NULL, bind, &binders[i]) == 0, "a thread", "ulimit -u", "no thread");
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(binders[i].thread, NULL);
  }
  for (int i = 0; i < 4; i++) {
    TRY(bench_is_ok(b, "bind_thread", binders[i].status, &binders[i].err));
  }
  return true;
}

static bool check_peers(struct bench *b) {
  for (int i = 0; i < b->count; i++) {
    for (int k = 0; k < b->count; k++) {
      const bool first = b->v.can_access_peer(i, k), second = b->v.can_access_peer(i, k);
      WANT(b, first == second, "the same answer each time", "what the answer is taken from",
           "devices %d and %d: two answers differ", i, k);
    }
  }
  return true;
}

static bool check_last(struct bench *b) {
  for (int i = 0; i < b->count; i++) {
    CALL(b, check_last_error, i);
  }
  return true;
}

static const struct check checks[] = {
    {"get_properties", "every field is written, with sane values", "", check_properties, 0},
    {"get_memory", "free and total", "get_properties", check_memory, 0},
    {"bind_thread", "threads choose devices", "", check_bind, 0},
    {"can_access_peer", "answers for every pair", "", check_peers, 0},
    {"check_last_error", "a fresh device has none", "", check_last, 0},
};
const struct check_group device_group = {checks, sizeof checks / sizeof checks[0]};
