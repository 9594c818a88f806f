/// What the files of src/device share: the loaded vendor, the process state, the thread state, shutdown of each part.
///
/// runtime.c owns the state machine (idle, loading, active, bad fork) and the devices; registry.c loads libraries;
/// stream.c, event.c, copy.c and host_memory.c are each one section of include/dit/runtime.h; allocator.c is
/// include/dit/memory.h.
#ifndef DIT_DEVICE_INTERNAL_H
#define DIT_DEVICE_INTERNAL_H

#include <limits.h>
#include <stdatomic.h>

#include "dit/graph.h"
#include "dit/kernel.h"
#include "dit/runtime.h"

#define DIT_HIDDEN __attribute__((visibility("hidden")))

// registry.c

/// A loaded vendor library. The tables are full-size copies: slots beyond the vendor's own struct_size are NULL.
struct dit_vendor {
  void *handle;
  char path[PATH_MAX];  ///< absolute file name
  struct dit_device_vtable device;
  struct dit_kernel_vtable kernels;
  bool has_kernels;
  struct dit_graph_engine graph_engine;
  bool has_graph_engine;
};

/// Load and check the library; on failure nothing stays loaded and `out` is untouched.
DIT_NODISCARD enum dit_status dit_registry_load(const char *vendor, struct dit_vendor *out, struct dit_error *err);
/// Close a library whose start failed.
void dit_registry_unload(struct dit_vendor *vendor);
/// Does `vendor` (name or path) mean the library that is loaded?
bool dit_registry_matches(const struct dit_vendor *loaded, const char *vendor);

// vendor_start.c

/// Call init, within the time limit of option vendor_timeout, and count. On failure the library is closed again, unless
/// init hangs: then a thread stays in it.
DIT_NODISCARD enum dit_status dit_vendor_start(struct dit_vendor *vendor, int *count, struct dit_error *err);

// runtime.c

/// DIT_OK when a vendor is active; DIT_ERR_DEVICE in a bad fork and before init.
DIT_NODISCARD enum dit_status dit_runtime_check(struct dit_error *err);
/// Memory, a stream or an event of the vendor is about to be made: from here on a forked child cannot use the device.
void dit_runtime_note_use(void);
/// CUDA_LAUNCH_BLOCKING as it was at init.
bool dit_runtime_is_launch_blocking(void);

/// What a thread has chosen. Valid while `generation` is the process's: shutdown and a bad fork put every thread back
/// to device 0, stream 0.
struct dit_thread {
  unsigned generation;
  int device;
  int64_t stream[DIT_MAX_DEVICES];
  void *raw[DIT_MAX_DEVICES];
};
extern DIT_HIDDEN _Thread_local struct dit_thread dit_thread;
extern DIT_HIDDEN atomic_uint dit_generation;

static inline bool dit_thread_is_current(void) {
  return DIT_LIKELY(dit_thread.generation == atomic_load_explicit(&dit_generation, memory_order_relaxed));
}
/// The thread's state, put back to the start when it is from another generation.
struct dit_thread *dit_thread_get(void);

// host_memory.c

struct dit_allocator_freed;
/// A block without observers (memory_watch.c). `give` is false when `ptr` is not the start of a live block.
DIT_NODISCARD enum dit_status dit_host_take(size_t size, void **ptr, struct dit_error *err);
bool dit_host_give(void *ptr, struct dit_allocator_freed *freed);
/// The live block that contains `ptr`.
bool dit_host_find(const void *ptr, void **base, size_t *size);
/// Vendor memory of host_pool.c, counted with the rest. A negative size is given back.
void dit_host_count_reserved(int64_t size);
/// The vendor's host_alloc and host_free, timed (dit/host_times.h).
DIT_NODISCARD enum dit_status dit_host_vendor_alloc(size_t size, void **address, struct dit_error *err);
DIT_NODISCARD enum dit_status dit_host_vendor_free(void *address, struct dit_error *err);

// affinity.c

/// Below 0: off; 0: equal shares; above: so many CPUs per share.
void dit_affinity_configure(int64_t cores);
/// The calling thread has chosen the device.
void dit_affinity_apply(int device);
/// Which share of how many belongs to a device of this process.
DIT_API void dit_affinity_get_share(int device, int devices, int local_rank, int local_size, int *share, int *shares);
/// The CPUs of a share, into `out` (room for `count`); their number.
DIT_API int dit_affinity_choose(const int *cpus, int count, int share, int shares, int64_t cores, int *out);

// host_pool.c: pinned memory under the algorithms of the device allocator

struct dit_allocator_config;
void dit_host_pool_configure(const struct dit_allocator_config *config);
/// The algorithm for later pinned blocks; TORCH is host_memory.c itself.
int dit_host_pool_get_algorithm(void);
DIT_NODISCARD enum dit_status dit_host_pool_alloc(size_t size, void **ptr, struct dit_error *err);
DIT_NODISCARD enum dit_status dit_host_pool_record(const void *ptr, int device, int64_t stream, struct dit_error *err);
void dit_host_pool_empty_cache(void);
void dit_host_pool_shutdown(void);

/// Is [ptr, ptr + size) inside one live pinned block? If so the block is marked as used by the stream. `pinned` is the
/// answer.
DIT_NODISCARD enum dit_status dit_host_use_range(const void *ptr, size_t size, int device, int64_t stream, bool *pinned,
                                                 struct dit_error *err);

// shutdown: dit_runtime_shutdown calls dit_memory_shutdown (allocator.h) and then these, in this order, with the
// devices drained and the vendor still active

void dit_host_shutdown(void);
void dit_event_shutdown(void);
void dit_stream_shutdown(void);

#endif
