/// Slots in device memory, pinned staging memory from a pool, copies to the host.
#include "dit/alloc.h"
#include "helper/pool.h"
#include "helper_cuda.h"

enum dit_status cuda_memory_allocate(size_t size, void *stream, driver_pointer *memory, struct dit_error *err) {
  driver_pointer fresh = 0;
  int mode = DRIVER_CAPTURE_RELAXED;
  (void)driver.capture_exchange(&mode);
  int error = driver.memory_allocate(&fresh, size);
  if (error == DRIVER_SUCCESS) {
    error = driver.memory_set(fresh, 0, size, stream);
    if (error != DRIVER_SUCCESS) {
      (void)driver.memory_free(fresh);
    }
  }
  (void)driver.capture_exchange(&mode);
  if (error != DRIVER_SUCCESS) {
    DIT_RETURN_IF_NOT_OK(driver_check(error, "cuMemAlloc", err));
  }
  *memory = fresh;
  return DIT_OK;
}

// Slots

enum dit_status cuda_slots_create(int device, size_t size, size_t count, void **slots, struct dit_error *err) {
  struct context_guard guard;
  if (size == 0 || count > SIZE_MAX / 2 / size) {
    return dit_error_set(err, DIT_ERR_INVALID, "%zu slots of %zu bytes: give a size of 1 or more and a sane count",
                         count, size);
  }
  struct cuda_slots *fresh = dit_calloc(1, sizeof *fresh);
  if (!fresh) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory for a block of slots");
  }
  *fresh = (struct cuda_slots){.device = device, .size = size, .count = count};
  enum dit_status status = context_enter(&guard, device, err);
  if (status == DIT_OK) {
    status = cuda_memory_allocate(size * (count > 0 ? count : 1), NULL, &fresh->memory, err);
    if (status == DIT_OK) {  // any stream may use it from now on
      status = driver_check(driver.stream_synchronize(NULL), "cuStreamSynchronize", err);
    }
    if (status != DIT_OK && fresh->memory) {
      (void)driver.memory_free(fresh->memory);
    }
    context_leave(&guard);
  }
  if (status != DIT_OK) {
    dit_free(fresh);
    return status;
  }
  *slots = fresh;
  return DIT_OK;
}

void cuda_slots_destroy(void *handle) {
  struct cuda_slots *slots = handle;
  struct context_guard guard;
  if (!slots) {
    return;
  }
  if (context_enter(&guard, slots->device, NULL) == DIT_OK) {
    (void)driver.memory_free(slots->memory);
    context_leave(&guard);
  }
  dit_free(slots);
}

enum dit_status cuda_slots_read(void *handle, size_t first, size_t count, void *stream, void *out,
                                struct dit_error *err) {
  const struct cuda_slots *slots = handle;
  struct context_guard guard;
  if (first > slots->count || count > slots->count - first) {
    return dit_error_set(err, DIT_ERR_INVALID, "slots %zu to %zu asked for; the block has %zu", first, first + count,
                         slots->count);
  }
  if (count == 0) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(context_enter(&guard, slots->device, err));
  enum dit_status status = stream_check(stream, err);
  if (status == DIT_OK) {
    driver_pointer from = slots->memory + first * slots->size;
    status = driver_check(driver.copy_to_host(out, from, count * slots->size, stream), "cuMemcpyDtoHAsync", err);
  }
  if (status == DIT_OK) {
    status = driver_check(driver.stream_synchronize(stream), "cuStreamSynchronize", err);
  }
  context_leave(&guard);
  return status;
}

// Staging

/// Pinned memory kept unused for the next capture: pinning costs about 0.2 ms per MiB.
#define STAGING_KEPT ((size_t)512 << 20)

static enum dit_status staging_fresh(size_t size, void **memory, struct dit_error *err) {
  struct context_guard guard;
  int mode = DRIVER_CAPTURE_RELAXED;
  DIT_RETURN_IF_NOT_OK(context_enter_any(&guard, err));
  (void)driver.capture_exchange(&mode);
  enum dit_status status =
      driver_check(driver.host_allocate(memory, size, DRIVER_HOST_PORTABLE), "cuMemHostAlloc", err);
  (void)driver.capture_exchange(&mode);
  context_leave(&guard);
  return status;
}

static void staging_drop(void *memory) {
  struct context_guard guard;
  if (context_enter_any(&guard, NULL) == DIT_OK) {
    (void)driver.host_free(memory);
    context_leave(&guard);
  }
}

static struct pool staging = POOL_INITIALIZER(staging_fresh, staging_drop, STAGING_KEPT);

enum dit_status cuda_staging_allocate(size_t size, void **memory, struct dit_error *err) {
  return pool_take(&staging, size, memory, err);
}

void cuda_staging_free(void *memory) {
  pool_give(&staging, memory);
}

enum dit_status cuda_copy_to_host(void *host, const void *device, size_t size, void *stream, struct dit_error *err) {
  struct context_guard guard;
  driver_pointer from = (uintptr_t)device;
  int ordinal = 0;
  if (size == 0) {
    return DIT_OK;
  }
  // The default stream is that of the context: it must be the one of the memory.
  if (driver.device_count > 1) {
    DIT_RETURN_IF_NOT_OK(
        driver_check(driver.pointer_get(&ordinal, DRIVER_POINTER_ORDINAL, from), "cuPointerGetAttribute", err));
  }
  DIT_RETURN_IF_NOT_OK(context_enter(&guard, ordinal, err));
  enum dit_status status = stream_check(stream, err);
  if (status == DIT_OK) {
    status = driver_check(driver.copy_to_host(host, from, size, stream), "cuMemcpyDtoHAsync", err);
  }
  context_leave(&guard);
  return status;
}
