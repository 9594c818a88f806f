/// Memory of the runs: the piece on the device, and guarded scratch tensors.
#include "machine.h"

#include <stdio.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/memory.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif
#if defined(HAS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

void machine_close(const void *address, size_t size) {
#if defined(HAS_SANITIZER)
  __asan_poison_memory_region(address, size);
#else
  (void)address, (void)size;
#endif
}

void machine_open(const void *address, size_t size) {
#if defined(HAS_SANITIZER)
  __asan_unpoison_memory_region(address, size);
#else
  (void)address, (void)size;
#endif
}

enum dit_status machine_init(struct machine *machine, const char *vendor, struct dit_error *err) {
  memset(machine, 0, sizeof *machine);
  if (!vendor) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(dit_runtime_init(vendor, err));
  machine->has_device = true;
  if (dit_device_get_count() < 1) {
    return dit_error_set(err, DIT_ERR_DEVICE, "vendor '%s' has no device on this machine", vendor);
  }
  DIT_RETURN_IF_NOT_OK(dit_device_set_current(0, err));
  DIT_RETURN_IF_NOT_OK(dit_stream_acquire(0, 0, &machine->side_stream, err));
  return dit_stream_get_raw(0, machine->side_stream, &machine->side_raw, err);
}

void machine_fork(const struct machine *machine, struct machine *out) {
  memset(out, 0, sizeof *out);
  out->has_device = machine->has_device;
  out->side_stream = machine->side_stream;
  out->side_raw = machine->side_raw;
}

void machine_release(struct machine *machine) {
  if (machine->has_device) {
    dit_memory_free(machine->device);
  } else {
    dit_free(machine->device);
  }
  dit_free(machine->before);
  dit_free(machine->after);
  dit_free(machine->host);
  machine->device = machine->before = machine->after = machine->host = NULL;
  machine->capacity = 0;
}

void machine_reset(struct machine *machine) {
  machine_release(machine);
  if (machine->has_device) {
    dit_runtime_shutdown();
    machine->has_device = false;
  }
}

static enum dit_status take_device_memory(struct machine *machine, size_t size, void **out, struct dit_error *err) {
  if (machine->has_device) {
    return dit_memory_alloc(0, 0, size, out, err);
  }
  *out = dit_malloc(size);
  return *out ? DIT_OK : dit_error_set(err, DIT_ERR_NOMEM, "no memory for %zu bytes", size);
}

/// dit_malloc aligns to 16; the pieces begin at a multiple of the guard, as device memory does.
static unsigned char *align_up(unsigned char *address) {
  return address + (MACHINE_GUARD - (uintptr_t)address % MACHINE_GUARD) % MACHINE_GUARD;
}

enum dit_status machine_reserve(struct machine *machine, size_t size, struct dit_error *err) {
  if (size <= machine->capacity) {
    return DIT_OK;
  }
  machine_release(machine);
  const size_t capacity = size + size / 2 + 65536, bytes = capacity + MACHINE_GUARD;
  void *device = NULL;
  machine->before = dit_malloc(bytes);
  machine->after = dit_malloc(bytes);
  machine->host = dit_malloc(bytes);
  if (!machine->before || !machine->after || !machine->host) {
    machine_release(machine);
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for cases of %zu bytes", size);
  }
  enum dit_status status = take_device_memory(machine, bytes, &device, err);
  if (status != DIT_OK) {
    machine_release(machine);
    return status;
  }
  machine->device = device;
  machine->capacity = capacity;
  return DIT_OK;
}

enum dit_status machine_copy_in(struct machine *machine, size_t size, struct dit_error *err) {
  memcpy(align_up(machine->host), machine->before, size);
  if (!machine->has_device) {
    memcpy(align_up(machine->device), machine->before, size);
    return DIT_OK;
  }
  return dit_memory_copy(align_up(machine->device), 0, machine->before, -1, size, 0, 0, false, err);
}

enum dit_status machine_copy_out(struct machine *machine, size_t size, struct dit_error *err) {
  return machine_read(machine, machine->after, align_up(machine->device), size, err);
}

enum dit_status machine_read(struct machine *machine, void *to, const void *from, size_t size, struct dit_error *err) {
  if (size == 0) {
    return DIT_OK;
  }
  if (!machine->has_device) {
    memcpy(to, from, size);
    return DIT_OK;
  }
  return dit_memory_copy(to, -1, from, 0, size, 0, 0, false, err);
}

unsigned char *machine_get_address(const struct machine *machine, bool on_host, size_t offset) {
  return align_up(on_host ? machine->host : machine->device) + offset;
}

enum dit_status machine_synchronize(struct machine *machine, bool side, struct dit_error *err) {
  return machine->has_device ? dit_stream_synchronize(0, side ? machine->side_stream : 0, err) : DIT_OK;
}

enum dit_status machine_set_stream(struct machine *machine, bool side, struct dit_error *err) {
  return machine->has_device ? dit_stream_set_current(0, side ? machine->side_stream : 0, err) : DIT_OK;
}

// Scratch

struct scratch_block {
  struct scratch_block *next;
  unsigned char *memory;  ///< guard, bytes, guard
  size_t size;
};

/// Bytes that a tensor reaches; false when that is no number.
static bool count_bytes(int ndim, const int64_t *sizes, const int64_t *strides, int dtype, int64_t numel,
                        size_t *bytes) {
  int64_t last = 0, total;
  for (int d = 0; d < ndim && numel > 0; d++) {
    int64_t reach;
    if (strides[d] < 0 || __builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return false;
    }
  }
  if (__builtin_mul_overflow(last + (numel > 0), (int64_t)dit_dtype_get_size(dtype), &total)) {
    return false;
  }
  *bytes = (size_t)total;
  return true;
}

static enum dit_status fill(struct machine *machine, unsigned char *memory, int value, size_t size,
                            struct dit_error *err) {
  if (!machine->has_device) {
    memset(memory, value, size);
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(dit_memory_set(memory, 0, value, size, dit_stream_get_current(0), err));
  return dit_stream_synchronize(0, dit_stream_get_current(0), err);
}

static enum dit_status allocate(struct diopiContext *context, int ndim, const int64_t *sizes, const int64_t *strides,
                                int dtype, struct dit_tensor_view *out, struct dit_error *err) {
  struct scratch *scratch = context->host;
  size_t bytes;
  int64_t numel;
  DIT_RETURN_IF_NOT_OK(dit_shape_get_numel(ndim, sizes, &numel, err));
  if (!count_bytes(ndim, sizes, strides, dtype, numel, &bytes) || bytes > (size_t)1 << 40) {
    return dit_error_set(err, DIT_ERR_INVALID, "a scratch tensor of this size cannot be made");
  }
  struct scratch_block *block = dit_calloc(1, sizeof *block);
  void *memory = NULL;
  const size_t total = bytes + 3 * MACHINE_GUARD;
  enum dit_status status = block ? take_device_memory(scratch->machine, total, &memory, err) : DIT_ERR_NOMEM;
  if (status != DIT_OK) {
    dit_free(block);
    return status;
  }
  *block = (struct scratch_block){NULL, memory, bytes};
  pthread_mutex_lock(&scratch->mutex);
  block->next = scratch->blocks;
  scratch->blocks = block;
  pthread_mutex_unlock(&scratch->mutex);
  DIT_RETURN_IF_NOT_OK(fill(scratch->machine, memory, scratch->pattern, total, err));
  unsigned char *begin = align_up(block->memory) + MACHINE_GUARD;
  machine_close(begin - MACHINE_GUARD, MACHINE_GUARD);
  machine_close(begin + bytes, MACHINE_GUARD);
  *out = (struct dit_tensor_view){.data = begin,
                                  .sizes = sizes,
                                  .strides = strides,
                                  .numel = numel,
                                  .storage = memory,
                                  .handle = block,
                                  .ndim = ndim,
                                  .dtype = (int16_t)dtype,
                                  .device_index = 0,
                                  .flags = DIT_TENSOR_ON_DEVICE};
  out->flags |= dit_shape_is_contiguous(ndim, sizes, strides) ? DIT_TENSOR_CONTIGUOUS : 0;
  out->flags |= dit_shape_is_dense(ndim, sizes, strides) ? DIT_TENSOR_DENSE : 0;
  return DIT_OK;
}

void scratch_attach(struct scratch *scratch, struct machine *machine, struct diopiContext *context,
                    unsigned char pattern) {
  *scratch = (struct scratch){machine, NULL, pattern, PTHREAD_MUTEX_INITIALIZER};
  context->allocate = allocate;
  context->host = scratch;
}

/// First byte of a guard zone that is not the pattern; -1 when all are.
static int64_t find_damage(const struct scratch *scratch, const unsigned char *zone) {
  unsigned char bytes[MACHINE_GUARD];
  if (machine_read(scratch->machine, bytes, zone, sizeof bytes, NULL) != DIT_OK) {
    return 0;
  }
  for (int i = 0; i < MACHINE_GUARD; i++) {
    if (bytes[i] != scratch->pattern) {
      return i;
    }
  }
  return -1;
}

bool scratch_is_intact(const struct scratch *scratch, char *reason, size_t size) {
  for (const struct scratch_block *block = scratch->blocks; block; block = block->next) {
    const unsigned char *begin = align_up(block->memory) + MACHINE_GUARD;
    machine_open(block->memory, block->size + 3 * MACHINE_GUARD);
    const int64_t low = find_damage(scratch, begin - MACHINE_GUARD), high = find_damage(scratch, begin + block->size);
    if (low >= 0 || high >= 0) {
      snprintf(reason, size, "wrote outside a scratch tensor of %zu bytes, at byte %+lld", block->size,
               low >= 0 ? (long long)low - MACHINE_GUARD : (long long)block->size + high);
      return false;
    }
  }
  return true;
}

void scratch_reset(struct scratch *scratch) {
  while (scratch->blocks) {
    struct scratch_block *block = scratch->blocks;
    scratch->blocks = block->next;
    machine_open(block->memory, block->size + 3 * MACHINE_GUARD);
    if (scratch->machine->has_device) {
      dit_memory_free(block->memory);
    } else {
      dit_free(block->memory);
    }
    dit_free(block);
  }
}
