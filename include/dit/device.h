/// The vendor contract: the device functions a chip vendor implements, one versioned struct of function pointers.
///
/// A vendor is a shared library that exports
///   const struct dit_device_vtable *dit_vendor_get_device(void);      (required, DIT_VENDOR_DEVICE_SYMBOL)
///   const struct dit_kernel_vtable *dit_vendor_get_kernels(void);     (optional, DIT_VENDOR_KERNELS_SYMBOL)
/// and is loaded by dlopen with local scope. The struct only ever grows at its end: a slot that lies beyond the
/// vendor's struct_size counts as NULL. A slot marked (optional) may be NULL; the others must be there, or loading
/// fails and names them.
///
/// Rules: functions are thread safe; a device index is always passed explicitly and was checked against count();
/// a stream handle NULL is the device's default stream; sizes are bytes; on failure outputs are untouched and the
/// message says what the vendor's runtime said. No function may abort, exit or print.
#ifndef DIT_DEVICE_H
#define DIT_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/error.h"

DIT_EXTERN_C_BEGIN

#define DIT_DEVICE_ABI_VERSION 1
#define DIT_VENDOR_DEVICE_SYMBOL "dit_vendor_get_device"
#define DIT_VENDOR_KERNELS_SYMBOL "dit_vendor_get_kernels"
#define DIT_MAX_DEVICES 64

/// Static properties of one device.
struct dit_device_properties {
  char name[128];
  char vendor[32];
  char architecture[32];
  char uuid[40];  ///< 8-4-4-4-12 hexadecimal, "" when unknown
  uint64_t total_memory;
  int32_t major, minor;  ///< answer to torch.cuda.get_device_capability
  int32_t multi_processor_count;
  int32_t warp_size;
  int32_t max_threads_per_multi_processor;
  int32_t max_threads_per_block;
  int32_t regs_per_multiprocessor;
  int32_t pci_domain, pci_bus, pci_device;
  uint64_t shared_memory_per_block;
  uint64_t shared_memory_per_multiprocessor;
  uint64_t l2_cache_size;
  int32_t clock_rate_khz, memory_clock_rate_khz, memory_bus_width;
  bool integrated;
  bool host_accessible;  ///< device pointers may be read and written by the host: the CPU fallback then aliases instead
                         ///< of copying
};

#define DIT_MEMORY_HANDLE_SIZE 64
/// Names one vendor allocation to other processes: plain bytes, equal when they name the same allocation.
struct dit_memory_handle {
  uint8_t bytes[DIT_MEMORY_HANDLE_SIZE];
};

struct dit_device_memory {
  uint64_t free;
  uint64_t total;
};

enum dit_event_flag {
  DIT_EVENT_TIMING = 1 << 0,
  DIT_EVENT_BLOCKING = 1 << 1,  ///< synchronise by sleeping instead of spinning
  DIT_EVENT_INTERPROCESS = 1 << 2,
};

enum dit_copy_kind { DIT_COPY_HOST_TO_DEVICE, DIT_COPY_DEVICE_TO_HOST, DIT_COPY_DEVICE_TO_DEVICE };

/// One contiguous copy. Device-to-device may cross devices.
struct dit_copy {
  void *dst;
  const void *src;
  size_t size;
  enum dit_copy_kind kind;
  int32_t dst_device;  ///< meaningful when the destination is on a device
  int32_t src_device;  ///< meaningful when the source is on a device
};

enum dit_reduce_op {
  DIT_REDUCE_OP_SUM,
  DIT_REDUCE_OP_AVG,
  DIT_REDUCE_OP_PRODUCT,
  DIT_REDUCE_OP_MIN,
  DIT_REDUCE_OP_MAX
};

#define DIT_UNIQUE_ID_SIZE 128
struct dit_unique_id {
  uint8_t bytes[DIT_UNIQUE_ID_SIZE];
};

/// Collectives. Counts are elements, dtypes enum dit_dtype; everything is enqueued on `stream`. comm_create waits for
/// all ranks. DIT_ERR_UNSUPPORTED: the library behind it is missing, or lacks the dtype or operation.
struct dit_collective_vtable {
  uint32_t struct_size;
  enum dit_status (*get_unique_id)(struct dit_unique_id *id, struct dit_error *err);
  enum dit_status (*comm_create)(int device, int nranks, int rank, const struct dit_unique_id *id, void **comm,
                                 struct dit_error *err);
  void (*comm_destroy)(void *comm);
  enum dit_status (*comm_get_async_error)(void *comm, struct dit_error *err);
  enum dit_status (*comm_get_name)(void *comm, char *name, size_t size, struct dit_error *err);  ///< (optional)
  enum dit_status (*all_reduce)(const void *send, void *recv, size_t count, int dtype, enum dit_reduce_op op,
                                void *comm, void *stream, struct dit_error *err);
  enum dit_status (*broadcast)(const void *send, void *recv, size_t count, int dtype, int root, void *comm,
                               void *stream, struct dit_error *err);
  enum dit_status (*all_gather)(const void *send, void *recv, size_t send_count, int dtype, void *comm, void *stream,
                                struct dit_error *err);
  enum dit_status (*reduce)(const void *send, void *recv, size_t count, int dtype, enum dit_reduce_op op, int root,
                            void *comm, void *stream, struct dit_error *err);
  enum dit_status (*reduce_scatter)(const void *send, void *recv, size_t recv_count, int dtype, enum dit_reduce_op op,
                                    void *comm, void *stream, struct dit_error *err);
  enum dit_status (*send)(const void *buffer, size_t count, int dtype, int peer, void *comm, void *stream,
                          struct dit_error *err);
  enum dit_status (*recv)(void *buffer, size_t count, int dtype, int peer, void *comm, void *stream,
                          struct dit_error *err);
  enum dit_status (*all_to_all)(const void *send, void *recv, size_t count_per_rank, int dtype, void *comm,
                                void *stream,
                                struct dit_error *err);  ///< (optional)
  enum dit_status (*all_to_all_v)(const void *send, const size_t *send_counts, const size_t *send_offsets, void *recv,
                                  const size_t *recv_counts, const size_t *recv_offsets, int dtype, void *comm,
                                  void *stream, struct dit_error *err);  ///< (optional)
};

struct dit_device_vtable {
  uint32_t abi_version;  ///< DIT_DEVICE_ABI_VERSION
  uint32_t struct_size;  ///< sizeof(struct dit_device_vtable) when the vendor was built
  const char *name;      ///< short lower-case name: "host"
  const char *version;   ///< the vendor library's own version text

  // process
  enum dit_status (*init)(struct dit_error *err);  ///< once, before anything else but count()
  void (*finalize)(void);                          ///< (optional) at process exit, no work pending
  enum dit_status (*get_driver_version)(int *version, struct dit_error *err);   ///< (optional)
  enum dit_status (*get_runtime_version)(int *version, struct dit_error *err);  ///< (optional)

  // devices
  enum dit_status (*count)(int *count, struct dit_error *err);  ///< may be called before init; 0 is not an error
  enum dit_status (*get_properties)(int device, struct dit_device_properties *out, struct dit_error *err);
  enum dit_status (*get_memory)(int device, struct dit_device_memory *out, struct dit_error *err);
  enum dit_status (*bind_thread)(int device,
                                 struct dit_error *err);        ///< (optional) the calling thread will use this device
  enum dit_status (*reset)(int device, struct dit_error *err);  ///< (optional) tear the device's context down
  enum dit_status (*synchronize)(int device,
                                 struct dit_error *err);  ///< wait for all work on all streams of the device
  enum dit_status (*check_last_error)(int device,
                                      struct dit_error *err);  ///< (optional) report an asynchronous failure
  bool (*can_access_peer)(int device, int peer);               ///< (optional) absent: false

  // memory
  enum dit_status (*memory_alloc)(int device, size_t size, void **ptr,
                                  struct dit_error *err);  ///< DIT_ERR_NOMEM when full; aligned to 512
  enum dit_status (*memory_free)(int device, void *ptr, struct dit_error *err);  ///< no work may be pending on it
  enum dit_status (*memory_set)(int device, void *stream, void *ptr, int value, size_t size, struct dit_error *err);
  enum dit_status (*host_alloc)(size_t size, void **ptr, struct dit_error *err);  ///< pinned host memory, aligned to 64
  enum dit_status (*host_free)(void *ptr, struct dit_error *err);
  enum dit_status (*host_register)(void *ptr, size_t size, struct dit_error *err);  ///< (optional) pin existing memory
  enum dit_status (*host_unregister)(void *ptr, struct dit_error *err);             ///< (optional)

  // copies
  enum dit_status (*copy)(const struct dit_copy *copy,
                          struct dit_error *err);  ///< synchronous, in the order of the default stream
  enum dit_status (*copy_async)(const struct dit_copy *copy, int stream_device, void *stream, struct dit_error *err);

  // streams
  enum dit_status (*stream_create)(int device, int priority, void **stream,
                                   struct dit_error *err);  ///< priority: 0 normal, < 0 higher
  enum dit_status (*stream_destroy)(int device, void *stream, struct dit_error *err);  ///< waits for its work
  enum dit_status (*stream_synchronize)(int device, void *stream, struct dit_error *err);
  enum dit_status (*stream_query)(int device, void *stream, bool *idle, struct dit_error *err);
  enum dit_status (*stream_wait_event)(int device, void *stream, void *event,
                                       struct dit_error *err);  ///< event may belong to another device
  enum dit_status (*stream_launch_host)(
      int device, void *stream, void (*function)(void *), void *argument,
      struct dit_error *err);  ///< run `function` on the host when earlier work is done
  enum dit_status (*stream_get_priority_range)(int device, int *least, int *greatest,
                                               struct dit_error *err);  ///< (optional)

  // events
  enum dit_status (*event_create)(int device, unsigned flags, void **event, struct dit_error *err);
  void (*event_destroy)(int device, void *event);  ///< safe while pending
  enum dit_status (*event_record)(int device, void *event, void *stream, struct dit_error *err);
  enum dit_status (*event_query)(int device, void *event, bool *done, struct dit_error *err);  ///< never recorded: done
  enum dit_status (*event_synchronize)(int device, void *event, struct dit_error *err);
  enum dit_status (*event_get_elapsed)(int device, void *start, void *end, double *milliseconds, struct dit_error *err);

  // profiler of the vendor
  enum dit_status (*profiler_start)(const char *path, unsigned flags, struct dit_error *err);  ///< (optional)
  enum dit_status (*profiler_stop)(struct dit_error *err);                                     ///< (optional)

  const struct dit_collective_vtable *collectives;  ///< (optional)

  /// (optional) What this vendor runs on, for `ditorch doctor`: one line, NUL-terminated, cut to `size` bytes.
  void (*describe)(char *text, size_t size);

  // memory between processes: all three or none (optional)
  /// A handle of the allocation that contains `ptr`, and where that allocation begins. Contents and addresses stay as
  /// they are. DIT_ERR_UNSUPPORTED when this allocation cannot be shared.
  enum dit_status (*memory_export)(int device, const void *ptr, struct dit_memory_handle *handle, void **base,
                                   struct dit_error *err);
  /// Map the allocation behind another process's handle: the same memory, seen by both. `size` is all of it.
  enum dit_status (*memory_import)(int device, const struct dit_memory_handle *handle, void **base, size_t *size,
                                   struct dit_error *err);
  enum dit_status (*memory_close)(int device, void *base, size_t size,
                                  struct dit_error *err);  ///< unmap; no work pending

  /// (optional) There are as many devices as the option host_devices says, which ditorch sets from CUDA_VISIBLE_DEVICES
  /// before it starts the vendor. false: the devices are the vendor's own, and it, or its driver, obeys that variable.
  bool counts_by_option;
};

DIT_EXTERN_C_END

#endif
