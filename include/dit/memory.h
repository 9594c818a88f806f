/// Device memory: the caching allocator over any vendor.
///
/// Algorithm (the one users of torch.cuda know): per device and stream, blocks rounded to 512 bytes; a small pool
/// (requests up to 1 MiB carved from 2 MiB segments) and a large pool (20 MiB segments for requests under 10 MiB, above
/// that the request rounded to 2 MiB); best fit, split, coalesce; a block freed on its own stream is reusable at once
/// by that stream; a block that record_stream saw on other streams is reusable when events recorded there have
/// completed. When the device is full: free cached segments (oldest first when garbage_collection_threshold is set),
/// then all, then fail with DIT_ERR_NOMEM and the numbers.
#ifndef DIT_MEMORY_H
#define DIT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/error.h"

DIT_EXTERN_C_BEGIN

/// How memory is found, kept and given back. TORCH is the algorithm above. BF: one pool per stream for all sizes, best
/// fit, split, coalesced; it grows by steps that double. BS: a block is a piece of vendor memory of its own, kept for
/// requests of the very same rounded size. RAW: nothing is kept. Streams, statistics, snapshot, limits and the measures
/// against a full device are the same for all.
enum dit_memory_algorithm {
  DIT_ALGORITHM_TORCH,
  DIT_ALGORITHM_BF,
  DIT_ALGORITHM_BS,
  DIT_ALGORITHM_RAW,
  DIT_ALGORITHM_COUNT
};

/// size 0 gives NULL. The message of DIT_ERR_NOMEM follows PyTorch's: "CUDA out of memory. Tried to allocate 2.00 GiB.
/// GPU 0 has a total capacity of
/// ... of which ... is free. ... allocated by PyTorch, and ... is reserved by PyTorch but unallocated. ...".
DIT_API DIT_NODISCARD enum dit_status dit_memory_alloc(int device, int64_t stream, size_t size, void **ptr,
                                                       struct dit_error *err);
/// NULL allowed. An address the allocator did not hand out is reported to the log once and ignored.
DIT_API void dit_memory_free(void *ptr);
/// Work queued on `stream` uses the block at `ptr` (any address inside it).
DIT_API DIT_NODISCARD enum dit_status dit_memory_record_stream(const void *ptr, int64_t stream, struct dit_error *err);
/// Give unused segments back to the vendor (synchronises the device first). device -1: all.
DIT_API DIT_NODISCARD enum dit_status dit_memory_empty_cache(int device, struct dit_error *err);
/// Start and size of the live block that contains `ptr`, and its device; false when there is none.
DIT_API bool dit_memory_find(const void *ptr, void **base, size_t *size, int *device);
/// Fraction of the device's memory this process may use, 0 < fraction <= 1.
DIT_API DIT_NODISCARD enum dit_status dit_memory_set_fraction(int device, double fraction, struct dit_error *err);
DIT_API double dit_memory_get_fraction(int device);

/// Configuration in the grammar of PYTORCH_CUDA_ALLOC_CONF: comma list of key:value. Keys: max_split_size_mb,
/// garbage_collection_threshold, roundup_power2_divisions (N or [256:1,512:2,>:8]), expandable_segments (accepted; True
/// is accepted and has no effect here, said in the docs), backend (native, bf, bs, raw; without it option `allocator`),
/// pinned_use_cuda_host_register, pinned_num_register_threads, release_lock_on_cudamalloc, max_non_split_rounding_mb,
/// pinned_use_background_threads, per_process_memory_fraction, graph_capture_record_stream_reuse,
/// throw_on_cudamalloc_oom. An unknown key or bad value is
/// DIT_ERR_INVALID, names it and lists the valid keys; nothing is changed then. NULL or "" resets to the defaults.
DIT_API DIT_NODISCARD enum dit_status dit_memory_configure(const char *text, struct dit_error *err);
/// The text last accepted ("" by default). Borrowed until the next configure.
DIT_API const char *dit_memory_get_configuration(void);

/// The algorithm of later allocations.
DIT_API enum dit_memory_algorithm dit_memory_get_algorithm(void);
DIT_API const char *dit_algorithm_get_name(enum dit_memory_algorithm algorithm);  ///< "torch", "bf", "bs", "raw"

/// Put the options about memory in force (allocator, host_allocator, alloc_conf, memory_check, metrics, cpu_affinity
/// and their relatives). dit_runtime_init does it; call it again when options changed while the vendor is active.
DIT_API DIT_NODISCARD enum dit_status dit_memory_apply_options(struct dit_error *err);

/// Code of ditorch is about to read or write device memory by host instructions, and has done so: around kernels of a
/// device whose memory is host memory, CPU tensors that stand for device tensors, and the like. May nest, may end on
/// another thread. Does nothing unless option memory_protect closes the pages of device memory to everybody else.
DIT_API void dit_memory_access_begin(void);
DIT_API void dit_memory_access_end(void);
DIT_API bool dit_memory_access_is_watched(void);  ///< do the two do anything?

struct dit_memory_stat {
  int64_t current, peak, allocated, freed;
};
enum dit_memory_pool { DIT_POOL_ALL, DIT_POOL_SMALL, DIT_POOL_LARGE, DIT_POOL_COUNT };
/// Same meaning as the keys of torch.cuda.memory_stats().
struct dit_memory_stats {
  struct dit_memory_stat allocation[DIT_POOL_COUNT];      ///< number of live allocations
  struct dit_memory_stat segment[DIT_POOL_COUNT];         ///< number of vendor allocations held
  struct dit_memory_stat active[DIT_POOL_COUNT];          ///< blocks live or waiting for a stream
  struct dit_memory_stat inactive_split[DIT_POOL_COUNT];  ///< free pieces of partly used segments
  struct dit_memory_stat allocated_bytes[DIT_POOL_COUNT];
  struct dit_memory_stat reserved_bytes[DIT_POOL_COUNT];
  struct dit_memory_stat active_bytes[DIT_POOL_COUNT];
  struct dit_memory_stat inactive_split_bytes[DIT_POOL_COUNT];
  struct dit_memory_stat requested_bytes[DIT_POOL_COUNT];  ///< before rounding
  struct dit_memory_stat oversize_allocations;
  struct dit_memory_stat oversize_segments;
  int64_t num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free;
  int64_t max_split_size;  ///< -1 when unlimited
};
DIT_API DIT_NODISCARD enum dit_status dit_memory_get_stats(int device, struct dit_memory_stats *out,
                                                           struct dit_error *err);
DIT_API DIT_NODISCARD enum dit_status dit_memory_reset_peak(int device, struct dit_error *err);
DIT_API DIT_NODISCARD enum dit_status dit_memory_reset_accumulated(int device, struct dit_error *err);

enum dit_block_state { DIT_BLOCK_ALLOCATED, DIT_BLOCK_PENDING_FREE, DIT_BLOCK_INACTIVE };
struct dit_memory_block {
  const void *address;
  size_t size, requested_size;
  enum dit_block_state state;
};
struct dit_memory_segment {
  const void *address;
  int device;
  int64_t stream;
  bool large;
  size_t total_size, allocated_size, active_size, requested_size;
  int block_count;
  const struct dit_memory_block *blocks;  ///< in address order; valid during the callback
};
/// Call `visit` for every segment of `device` (-1: all) in address order, from a copy taken under the lock. A visit
/// that returns false ends the walk. DIT_ERR_NOMEM when the copy cannot be made.
DIT_API DIT_NODISCARD enum dit_status dit_memory_visit(int device,
                                                       bool (*visit)(void *context, const struct dit_memory_segment *),
                                                       void *context, struct dit_error *err);

DIT_EXTERN_C_END

#endif
