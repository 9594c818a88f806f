/// What the files of the CUDA helper share: slots, the slots of the table, and the launch side of the kernels.
#ifndef DIT_CUDA_HELPER_CUDA_H
#define DIT_CUDA_HELPER_CUDA_H

#include "driver.h"
#include "helper_kernels.h"

struct cuda_slots {
  int device;
  size_t size, count;
  driver_pointer memory;
};

// helper_event.c

enum dit_status cuda_event_create(int device, void **event, struct dit_error *err);
void cuda_event_destroy(void *event);
enum dit_status cuda_event_record(void *event, void *stream, struct dit_error *err);
enum dit_status cuda_event_query(void *event, bool *passed, struct dit_error *err);
enum dit_status cuda_event_wait(void *event, struct dit_error *err);
enum dit_status cuda_event_get_elapsed(void *start, void *end, double *milliseconds, struct dit_error *err);

// helper_memory.c

enum dit_status cuda_slots_create(int device, size_t size, size_t count, void **slots, struct dit_error *err);
void cuda_slots_destroy(void *slots);
enum dit_status cuda_slots_read(void *slots, size_t first, size_t count, void *stream, void *out,
                                struct dit_error *err);
enum dit_status cuda_staging_allocate(size_t size, void **memory, struct dit_error *err);
void cuda_staging_free(void *memory);
enum dit_status cuda_copy_to_host(void *host, const void *device, size_t size, void *stream, struct dit_error *err);
/// Device memory in the current context, filled with zeros in the order of `stream`; allowed while another thread
/// captures a graph.
DIT_NODISCARD enum dit_status cuda_memory_allocate(size_t size, void *stream, driver_pointer *memory,
                                                   struct dit_error *err);

// helper_module.c

enum cuda_kernel {
  CUDA_NONFINITE,
  CUDA_NONFINITE_STRIDED,
  CUDA_STATS,
  CUDA_STATS_STRIDED,
  CUDA_COMPARE,
  CUDA_HASH,
  CUDA_HASH_STRIDED,
  CUDA_NEAR,
  CUDA_CHECKSUM,
  CUDA_CHECKSUM_STRIDED,
  CUDA_KERNELS,
};
/// Was the library built with kernels?
bool cuda_module_is_built(void);
/// The kernel for a device, in its current context; loaded when first asked for. DIT_ERR_UNSUPPORTED when the driver
/// takes none of the forms that were built.
DIT_NODISCARD enum dit_status cuda_module_get(int device, enum cuda_kernel kernel, void **function,
                                              struct dit_error *err);
/// Scratch memory of a stream of the current context's device.
DIT_NODISCARD enum dit_status cuda_scratch_get(int device, void *stream, struct kernel_scratch **scratch,
                                               struct dit_error *err);

// helper_plan.c: views to launch parameters; no CUDA in it

enum plan_order {
  PLAN_ANY,        ///< dimensions sorted by stride
  PLAN_ROW_MAJOR,  ///< as they are
};
/// One or two tensors of one shape as the fewest dimensions, innermost first, strides in bytes.
struct plan {
  int ndim;      ///< 0: every operand is packed
  int operands;  ///< 1 or 2
  int64_t sizes[DIT_MAX_DIMS];
  int64_t strides[2][DIT_MAX_DIMS];
};
/// The refusals of include/dit/numerics.h; `numbers`: the dtype must have numbers to compute with.
DIT_NODISCARD enum dit_status plan_check(const struct dit_tensor_view *view, const char *what, bool numbers,
                                         struct dit_error *err);
DIT_NODISCARD enum dit_status plan_check_pair(const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                                              const struct dit_compare_options *options, struct dit_error *err);
void plan_init(struct plan *plan, const struct dit_tensor_view *a, const struct dit_tensor_view *b,
               enum plan_order order);
/// Blocks for a tensor's statistics, flags or comparison.
uint32_t plan_get_blocks(int64_t numel, int dtype);
/// Elements per slot of the hash.
int64_t plan_get_hash_slot(int64_t numel);
/// The hash's state after dtype and shape.
struct hash_state plan_get_hash_prefix(const struct dit_tensor_view *view);
/// Add a tensor to a batch. False when the pool of dimensions is full.
bool plan_add(struct kernel_tensor *tensor, const struct dit_tensor_view *view, const struct plan *plan,
              struct kernel_dim *pool, int capacity, int *used);
/// The launch of one comparison but for `out` and `scratch`.
void plan_compare(struct kernel_compare *task, const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                  const struct dit_compare_options *options);

/// Add a pair to a launch; `out` and `scratch` are the caller's. False when the pool of dimensions is full.
bool plan_add_pair(struct kernel_near *task, int index, const struct dit_near_pair *pair, int *used);

// helper_launch.c

enum dit_status cuda_nonfinite(const struct dit_tensor_view *views, int count, void *stream, void *slots, size_t first,
                               struct dit_error *err);
enum dit_status cuda_stats(const struct dit_tensor_view *views, int count, void *stream, void *slots, size_t first,
                           struct dit_error *err);
enum dit_status cuda_compare(const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                             const struct dit_compare_options *options, void *stream, void *slots, size_t first,
                             struct dit_error *err);
enum dit_status cuda_watch(const struct dit_tensor_view *views, int count, int marking, uint64_t mark, void *stream,
                           void *slots, size_t first, struct dit_error *err);
enum dit_status cuda_stats_if(const struct dit_tensor_view *views, int count, uint64_t mark, void *stream, void *slots,
                              size_t first, struct dit_error *err);
enum dit_status cuda_near(const struct dit_near_pair *pairs, int count, void *stream, void *slots, size_t first,
                          struct dit_error *err);
enum dit_status cuda_checksum(const struct dit_tensor_view *views, int count, void *stream, void *slots, size_t first,
                              struct dit_error *err);
enum dit_status cuda_hash(const struct dit_tensor_view *views, int count, void *stream, void *slots, size_t first,
                          struct dit_error *err);

#endif
