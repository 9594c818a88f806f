/// The caching allocator's core: one `struct dit_allocator` per device, over a small function table instead of the
/// vendor contract, so that tests run it over a scripted device.
///
/// Threads: every function may be called from any thread. The device's lock is never held while the device is
/// synchronised, an event is recorded or the vendor is asked for memory, so work that runs on a stream may itself
/// allocate and free. Functions marked DIT_API here are exported for the C tests and benchmarks only; the public
/// interface is dit/memory.h.
#ifndef DIT_DEVICE_ALLOCATOR_H
#define DIT_DEVICE_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/device.h"
#include "dit/memory.h"

#define DIT_MIB ((size_t)1 << 20)
#define DIT_MIN_BLOCK_SIZE ((size_t)512)  ///< every block is a multiple of this
#define DIT_SMALL_SIZE (1 * DIT_MIB)      ///< largest request served by the small pool
#define DIT_SMALL_SEGMENT (2 * DIT_MIB)   ///< what the small pool takes from the vendor
#define DIT_LARGE_SEGMENT (20 * DIT_MIB)  ///< default of large_segment_size_mb
#define DIT_MIN_LARGE_ALLOC (10 * DIT_MIB)
#define DIT_ROUND_LARGE (2 * DIT_MIB)  ///< larger requests are rounded to this
#define DIT_MAX_REQUEST ((size_t)1 << 60)
#define DIT_DIVISION_INTERVALS 16  ///< roundup_power2_divisions: 1 MiB, 2 MiB, ... 32 GiB and more

/// What the allocator needs of a device. Streams are the runtime's stream numbers; `context` is the pointer given to
/// dit_allocator_init. No function may call back into the same allocator.
struct dit_allocator_vtable {
  enum dit_status (*memory_alloc)(void *context, size_t size, void **ptr, struct dit_error *err);
  enum dit_status (*memory_free)(void *context, void *ptr, size_t size, struct dit_error *err);
  enum dit_status (*get_memory)(void *context, struct dit_device_memory *out, struct dit_error *err);
  enum dit_status (*synchronize)(void *context, struct dit_error *err);
  enum dit_status (*stream_query)(void *context, int64_t stream, bool *idle, struct dit_error *err);
  enum dit_status (*event_create)(void *context, void **event, struct dit_error *err);
  void (*event_destroy)(void *context, void *event);
  enum dit_status (*event_record)(void *context, void *event, int64_t stream, struct dit_error *err);
  enum dit_status (*event_query)(void *context, void *event, bool *done, struct dit_error *err);
  const char
      *capacity_hint;  ///< how the user gets a larger device, for the out-of-memory message; "" when there is no way
};

struct dit_allocator_config {
  size_t max_split_size;                       ///< SIZE_MAX: unlimited
  size_t max_non_split_rounding;               ///< how much larger than the request an oversize block may be
  size_t large_segment;                        ///< what the large pool takes for requests below DIT_MIN_LARGE_ALLOC
  double gc_threshold;                         ///< 0: off
  double fraction;                             ///< 0: not set
  uint32_t divisions[DIT_DIVISION_INTERVALS];  ///< 0 or 1: no rounding to parts of powers of two
  enum dit_memory_algorithm algorithm;
  bool algorithm_chosen;  ///< by the text (backend:...)
  size_t max_extend;      ///< BF: largest step of growth
  size_t min_size;        ///< BS: smallest block
  size_t max_pending;     ///< BF, BS: uses that may wait before a free polls
  bool adaptable;         ///< BS: sizes are powers of two
};

DIT_API void dit_allocator_config_init(struct dit_allocator_config *config);
/// Parse the grammar described at dit_memory_configure. `out` is untouched on failure. NULL or "" gives the defaults.
DIT_API DIT_NODISCARD enum dit_status dit_allocator_config_parse(const char *text, struct dit_allocator_config *out,
                                                                 struct dit_error *err);

struct dit_allocator;

/// Heap objects for tests; the front keeps its allocators in static storage (dit_allocator_init). `vtable` and
/// `context` are borrowed.
DIT_API DIT_NODISCARD enum dit_status dit_allocator_create(int device, const struct dit_allocator_vtable *vtable,
                                                           void *context, struct dit_allocator **out,
                                                           struct dit_error *err);
/// Gives all memory back, also that of live blocks. No other thread may use the allocator any more. NULL allowed.
DIT_API void dit_allocator_destroy(struct dit_allocator *allocator);

/// Later allocations follow `config`; what exists stays as it is.
DIT_API void dit_allocator_set_config(struct dit_allocator *allocator, const struct dit_allocator_config *config);
DIT_API void dit_allocator_set_fraction(struct dit_allocator *allocator, double fraction);
DIT_API double dit_allocator_get_fraction(struct dit_allocator *allocator);

DIT_API DIT_NODISCARD enum dit_status dit_allocator_alloc(struct dit_allocator *allocator, int64_t stream, size_t size,
                                                          void **ptr, struct dit_error *err);
/// Finds the allocator from the address alone. False when `ptr` is not the start of a live block of any allocator. This
/// and the next two look at device memory only (device >= 0); the functions named pinned at the rest.
DIT_API bool dit_allocator_free(void *ptr);
/// DIT_ERR_INVALID when no live block contains `ptr`.
DIT_API DIT_NODISCARD enum dit_status dit_allocator_record_stream(const void *ptr, int64_t stream,
                                                                  struct dit_error *err);
DIT_API bool dit_allocator_find(const void *ptr, void **base, size_t *size, int *device);
/// What a free found.
struct dit_allocator_freed {
  int device;
  size_t size, requested;
};
bool dit_allocator_free_block(void *ptr, bool pinned, struct dit_allocator_freed *out);
enum dit_status dit_allocator_record_pinned(const void *ptr, int64_t stream, struct dit_error *err);
bool dit_allocator_find_pinned(const void *ptr, void **base, size_t *size);
/// Is the address in memory that some allocator holds, free or not?
bool dit_allocator_owns(const void *ptr);
/// Was memory of this device ever asked for?
bool dit_memory_is_used(int device);
/// For allocations without `backend:` in the configuration; `config` gives the algorithm and its parameters.
void dit_memory_set_default(const struct dit_allocator_config *config);
DIT_API DIT_NODISCARD enum dit_status dit_allocator_empty_cache(struct dit_allocator *allocator, struct dit_error *err);

/// See dit_memory_pool_release.
DIT_API DIT_NODISCARD enum dit_status dit_allocator_release_pool(struct dit_allocator *allocator, int64_t pool,
                                                                 struct dit_error *err);

DIT_API void dit_allocator_get_stats(struct dit_allocator *allocator, struct dit_memory_stats *out);
DIT_API void dit_allocator_reset_peak(struct dit_allocator *allocator);
DIT_API void dit_allocator_reset_accumulated(struct dit_allocator *allocator);

/// A copy of the segments and blocks of any number of allocators. Zero-initialise, append, visit, reset.
struct dit_allocator_snapshot {
  struct dit_memory_segment *segments;
  struct dit_memory_block *blocks;
  size_t segment_count, segment_capacity, block_count, block_capacity;
};
DIT_API DIT_NODISCARD enum dit_status dit_allocator_snapshot_append(struct dit_allocator_snapshot *snapshot,
                                                                    struct dit_allocator *allocator,
                                                                    struct dit_error *err);
/// In address order; ends when `visit` returns false.
DIT_API void dit_allocator_snapshot_visit(struct dit_allocator_snapshot *snapshot,
                                          bool (*visit)(void *context, const struct dit_memory_segment *),
                                          void *context);
DIT_API void dit_allocator_snapshot_reset(struct dit_allocator_snapshot *snapshot);

/// Verify every internal invariant (debug and tests): false and a message on the first one that does not hold.
DIT_API bool dit_allocator_check(struct dit_allocator *allocator, struct dit_error *err);

/// "512 bytes", "1.50 KiB", "512.00 MiB", "2.00 GiB": the sizes of PyTorch's messages.
DIT_API const char *dit_allocator_format_size(uint64_t size, char *buffer, size_t buffer_size);

/// dit_runtime_shutdown calls this after all devices were drained and before streams, events and the vendor go away:
/// gives all device memory back. Addresses still held by the framework are ignored when they are freed later.
void dit_memory_shutdown(void);

#endif
