/// Checks of the tables themselves: what stands in them before anything is called.
#include <dlfcn.h>
#include <stddef.h>

#include "dit/kernel.h"
#include "doctor.h"

static bool check_library(struct bench *b) {
  snprintf(b->finding->slot, sizeof b->finding->slot, "library");
  return bench_load(b);
}

static bool check_symbol(struct bench *b) {
  const struct dit_device_vtable *(*get)(void);
  void *symbol = dlsym(b->handle, DIT_VENDOR_DEVICE_SYMBOL);
  memcpy(&get, &symbol, sizeof get);
  const struct dit_device_vtable *first = get(), *second = get();
  WANT(b, first == second, "the same table each time", "a table on the stack, or one made per call",
       "two calls returned %p and %p", (const void *)first, (const void *)second);
  return true;
}

static bool check_name(struct bench *b) {
  const char *name = b->v.name;
  WANT(b, name, "a short lower-case name", "the initialiser of the table", "it is NULL");
  const size_t length = strnlen(name, 128), valid = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-");
  WANT(b, length > 0 && length <= 64 && valid == length, "1 to 64 characters of a-z, 0-9, '_' and '-'",
       "the initialiser of the table", "it is '%.80s'", name);
  return true;
}

static bool check_version(struct bench *b) {
  const char *version = b->v.version;
  WANT(b, version, "the library's own version as text, \"\" when there is none", "the initialiser of the table",
       "it is NULL");
  const size_t length = strnlen(version, 128);
  bool printable = length < 128;
  for (size_t i = 0; i < length && printable; i++) {
    printable = version[i] >= ' ' && version[i] <= '~';
  }
  WANT(b, printable, "a printable text of less than 128 characters", "the initialiser of the table",
       "it is longer, or no text: '%.60s'", version);
  return true;
}

/// All of the required slots that are NULL: the first is blamed, the others are named in its words.
static bool check_required(struct bench *b) {
  char missing[512] = "";
  const char *first = NULL;
  size_t length = 0;
  for (size_t i = 0; i < slot_count; i++) {
    if (slot_infos[i].required && slot_is_empty(&b->v, slot_infos[i].offset)) {
      first = first ? first : slot_infos[i].name;
      length +=
          (size_t)snprintf(missing + length, sizeof missing - length, "%s%s", length ? ", " : "", slot_infos[i].name);
    }
  }
  return !first || bench_blame(b, first, "a function: the slot is required",
                               "the initialiser of the table; was the "
                               "struct_size computed with an older header?",
                               "NULL: %s", missing);
}

static bool check_pair(struct bench *b, const char *const *names, size_t count) {
  size_t there = 0;
  const char *gone = NULL;
  for (size_t i = 0; i < count; i++) {
    if (slot_is_empty(&b->v, slot_find(names[i])->offset)) {
      gone = names[i];
    } else {
      there++;
    }
  }
  if (there == 0 || there == count) {
    return true;
  }
  return bench_blame(b, gone, "all of them or none", "the initialiser of the table", "it is NULL, and %s is there",
                     names[gone == names[0] ? 1 : 0]);
}

static bool check_halves(struct bench *b) {
  static const char *const registers[] = {"host_register", "host_unregister"};
  static const char *const profiler[] = {"profiler_start", "profiler_stop"};
  static const char *const sharing[] = {"memory_export", "memory_import", "memory_close"};
  return check_pair(b, registers, 2) && check_pair(b, profiler, 2) && check_pair(b, sharing, 3);
}

static bool check_collectives(struct bench *b) {
  const struct dit_collective_vtable *table = b->v.collectives;
  const size_t smallest = offsetof(struct dit_collective_vtable, all_to_all);
  WANT(b, table->struct_size >= smallest && table->struct_size <= 65536, "sizeof(struct dit_collective_vtable)",
       "the initialiser of the table of collectives", "its struct_size is %u, at least %zu is needed",
       (unsigned)table->struct_size, smallest);
  const struct {
    const char *name;
    bool there;
  } slots[] = {{"get_unique_id", table->get_unique_id},
               {"comm_create", table->comm_create},
               {"comm_destroy", table->comm_destroy},
               {"comm_get_async_error", table->comm_get_async_error},
               {"all_reduce", table->all_reduce},
               {"broadcast", table->broadcast},
               {"all_gather", table->all_gather},
               {"reduce", table->reduce},
               {"reduce_scatter", table->reduce_scatter},
               {"send", table->send},
               {"recv", table->recv}};
  for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
    WANT(b, slots[i].there, "every function of the collectives that is not optional, or no table at all",
         "the initialiser of the table of collectives", "%s is NULL", slots[i].name);
  }
  return true;
}

static bool check_kernels(struct bench *b) {
  const struct dit_kernel_vtable *(*get)(void);
  void *symbol = dlsym(b->handle, DIT_VENDOR_KERNELS_SYMBOL);
  memcpy(&get, &symbol, sizeof get);
  const struct dit_kernel_vtable *table = get ? get() : NULL;
  if (!table) {
    return true;
  }
  WANT(b, table->abi_version == DIT_KERNEL_ABI_VERSION, "DIT_KERNEL_ABI_VERSION of the headers of this ditorch",
       "`ditorch include`: build against these headers", "its abi_version is %u, this ditorch has %d",
       (unsigned)table->abi_version, DIT_KERNEL_ABI_VERSION);
  WANT(b, table->struct_size >= offsetof(struct dit_kernel_vtable, copy), "sizeof(struct dit_kernel_vtable)",
       "the initialiser of the table", "its struct_size is %u", (unsigned)table->struct_size);
  return true;
}

static const struct check loading[] = {
    {"library", "the library can be loaded and has a table of this version", "", check_library,
     CHECK_NOT_LOADED | CHECK_FIRST},
};
const struct check_group load_group = {loading, 1};

static const struct check checks[] = {
    {DIT_VENDOR_DEVICE_SYMBOL, "the table is the same at each call", "", check_symbol, CHECK_NOT_STARTED},
    {"name", "a short lower-case name", "", check_name, CHECK_NOT_STARTED},
    {"version", "a version text", "", check_version, CHECK_NOT_STARTED},
    {"table", "every required slot is there", "", check_required, CHECK_NOT_STARTED},
    {"table", "optional slots that belong together come together", "", check_halves, CHECK_NOT_STARTED},
    {"collectives", "the table of collectives is complete", "", check_collectives, CHECK_NOT_STARTED},
    {DIT_VENDOR_KERNELS_SYMBOL, "the table of kernels, where there is one, has this version", "", check_kernels,
     CHECK_NOT_STARTED},
};
const struct check_group table_group = {checks, sizeof checks / sizeof checks[0]};
