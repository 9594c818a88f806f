/// Memory of NVIDIA devices: allocations, pinned host memory, copies of all kinds, memory of other processes.
///
/// A copy from or to pageable host memory returns when the host memory may be used again (the driver stages it); from
/// pinned memory it is asynchronous. Copies between devices go directly where the devices can reach each other.
#include <stdatomic.h>
#include <string.h>

#include "device.h"

_Static_assert(sizeof(struct driver_ipc) == DIT_MEMORY_HANDLE_SIZE, "a handle holds the driver's");

enum dit_status cuda_get_memory(int device, struct dit_device_memory *out, struct dit_error *err) {
  size_t free = 0, total = 0;
  DEVICE_ENTER(device);
  const int error = driver.memory_get_info(&free, &total);
  if (error == DRIVER_SUCCESS) {
    *out = (struct dit_device_memory){.free = free, .total = total};
  }
  DEVICE_LEAVE(error, "cuMemGetInfo");
}

enum dit_status cuda_memory_alloc(int device, size_t size, void **ptr, struct dit_error *err) {
  driver_pointer memory = 0;
  if (size == 0) {
    *ptr = NULL;
    return DIT_OK;
  }
  DEVICE_ENTER(device);
  const int error = driver.memory_allocate(&memory, size);
  if (error == DRIVER_SUCCESS) {
    *ptr = (void *)(uintptr_t)memory;
  }
  DEVICE_LEAVE(error, "cuMemAlloc");
}

enum dit_status cuda_memory_free(int device, void *ptr, struct dit_error *err) {
  if (!ptr) {
    return DIT_OK;
  }
  DEVICE_ENTER(device);
  DEVICE_LEAVE(driver.memory_free(device_address(ptr)), "cuMemFree");
}

enum dit_status cuda_memory_set(int device, void *stream, void *ptr, int value, size_t size, struct dit_error *err) {
  if (size == 0) {
    return DIT_OK;
  }
  DEVICE_ENTER(device);
  DEVICE_LEAVE(driver.memory_set(device_address(ptr), (unsigned char)value, size, stream), "cuMemsetD8Async");
}

// Host memory

enum dit_status cuda_host_alloc(size_t size, void **ptr, struct dit_error *err) {
  struct context_guard guard;
  void *memory = NULL;
  if (size == 0) {
    *ptr = NULL;
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(context_enter_any(&guard, err));
  const int error = driver.host_allocate(&memory, size, DRIVER_HOST_PORTABLE);
  if (error == DRIVER_SUCCESS) {
    *ptr = memory;
  }
  DEVICE_LEAVE(error, "cuMemHostAlloc");
}

enum dit_status cuda_host_free(void *ptr, struct dit_error *err) {
  struct context_guard guard;
  if (!ptr) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(context_enter_any(&guard, err));
  DEVICE_LEAVE(driver.host_free(ptr), "cuMemFreeHost");
}

enum dit_status cuda_host_register(void *ptr, size_t size, struct dit_error *err) {
  struct context_guard guard;
  DIT_RETURN_IF_NOT_OK(context_enter_any(&guard, err));
  DEVICE_LEAVE(driver.host_register(ptr, size, DRIVER_HOST_PORTABLE), "cuMemHostRegister");
}

enum dit_status cuda_host_unregister(void *ptr, struct dit_error *err) {
  struct context_guard guard;
  DIT_RETURN_IF_NOT_OK(context_enter_any(&guard, err));
  DEVICE_LEAVE(driver.host_unregister(ptr), "cuMemHostUnregister");
}

// Copies

bool cuda_can_access_peer(int device, int peer) {
  int own = 0, other = 0, can = 0;
  return device != peer && driver.device_get(&own, device) == DRIVER_SUCCESS &&
         driver.device_get(&other, peer) == DRIVER_SUCCESS &&
         driver.device_can_access(&can, own, other) == DRIVER_SUCCESS && can;
}

/// Let the current context reach the peer's memory, once; copies work without it, but through the host.
static void enable_peer(int device, int peer, void *peer_context) {
  static _Atomic unsigned char asked[DRIVER_MAX_DEVICES][DRIVER_MAX_DEVICES];
  if (!atomic_exchange(&asked[device][peer], 1) && cuda_can_access_peer(device, peer)) {
    (void)driver.context_enable_peer(peer_context, 0);
  }
}

static enum dit_status copy_peer(const struct dit_copy *copy, int device, void *stream, struct dit_error *err) {
  void *to = NULL, *from = NULL;
  DIT_RETURN_IF_NOT_OK(context_find(copy->dst_device, &to, err));
  DIT_RETURN_IF_NOT_OK(context_find(copy->src_device, &from, err));
  DEVICE_ENTER(device);
  if (device == copy->dst_device || device == copy->src_device) {
    const int peer = device == copy->dst_device ? copy->src_device : copy->dst_device;
    enable_peer(device, peer, device == copy->dst_device ? from : to);
  }
  DEVICE_LEAVE(driver.copy_peer(device_address(copy->dst), to, device_address(copy->src), from, copy->size, stream),
               "cuMemcpyPeerAsync");
}

enum dit_status cuda_copy_async(const struct dit_copy *copy, int device, void *stream, struct dit_error *err) {
  if (copy->size == 0) {
    return DIT_OK;
  }
  if (copy->kind == DIT_COPY_DEVICE_TO_DEVICE && copy->dst_device != copy->src_device) {
    return copy_peer(copy, device, stream, err);
  }
  DEVICE_ENTER(device);
  switch (copy->kind) {
    case DIT_COPY_HOST_TO_DEVICE:
      DEVICE_LEAVE(driver.copy_to_device(device_address(copy->dst), copy->src, copy->size, stream),
                   "cuMemcpyHtoDAsync");
    case DIT_COPY_DEVICE_TO_HOST:
      DEVICE_LEAVE(driver.copy_to_host(copy->dst, device_address(copy->src), copy->size, stream), "cuMemcpyDtoHAsync");
    default:
      DEVICE_LEAVE(driver.copy_on_device(device_address(copy->dst), device_address(copy->src), copy->size, stream),
                   "cuMemcpyDtoDAsync");
  }
}

enum dit_status cuda_copy(const struct dit_copy *copy, struct dit_error *err) {
  const int device = copy->kind == DIT_COPY_DEVICE_TO_HOST ? copy->src_device : copy->dst_device;
  DIT_RETURN_IF_NOT_OK(cuda_copy_async(copy, device, NULL, err));
  return cuda_stream_synchronize(device, NULL, err);
}

// Memory between processes

enum dit_status cuda_memory_export(int device, const void *ptr, struct dit_memory_handle *handle, void **base,
                                   struct dit_error *err) {
  driver_pointer first = 0;
  size_t size = 0;
  struct driver_ipc ipc;
  DEVICE_ENTER(device);
  int error = driver.memory_get_range(&first, &size, device_address(ptr));
  if (error == DRIVER_SUCCESS) {
    error = driver.ipc_get(&ipc, first);
  }
  if (error == DRIVER_SUCCESS) {
    memcpy(handle->bytes, ipc.bytes, sizeof ipc.bytes);
    *base = (void *)(uintptr_t)first;
  }
  DEVICE_LEAVE(error, "cuIpcGetMemHandle");
}

enum dit_status cuda_memory_import(int device, const struct dit_memory_handle *handle, void **base, size_t *size,
                                   struct dit_error *err) {
  driver_pointer memory = 0, first = 0;
  size_t bytes = 0;
  struct driver_ipc ipc;
  memcpy(ipc.bytes, handle->bytes, sizeof ipc.bytes);
  DEVICE_ENTER(device);
  int error = driver.ipc_open(&memory, ipc, DRIVER_IPC_LAZY_PEER);
  if (error == DRIVER_SUCCESS) {
    error = driver.memory_get_range(&first, &bytes, memory);
    if (error == DRIVER_SUCCESS) {
      *base = (void *)(uintptr_t)memory;
      *size = bytes;
    } else {
      (void)driver.ipc_close(memory);
    }
  }
  DEVICE_LEAVE(error, "cuIpcOpenMemHandle");
}

enum dit_status cuda_memory_close(int device, void *base, size_t size, struct dit_error *err) {
  (void)size;
  DEVICE_ENTER(device);
  DEVICE_LEAVE(driver.ipc_close(device_address(base)), "cuIpcCloseMemHandle");
}
