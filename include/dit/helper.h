/// What the tools need of a device besides its operators: timing events on a raw stream, numbers about tensors computed
/// where the tensors are, and copies to pinned memory that do not stop the device.
///
/// One table per kind of device: "host" (the embedded device and CPU tensors: src/numerics), "cuda" (libdit_cuda.so:
/// the CUDA driver, found at run time; kernels built where nvcc is present). A device of neither kind is served by
/// PyTorch's own operators (python/ditorch/helper_torch.py).
///
/// Calls of "cuda" are asynchronous on `stream` (a CUstream; NULL is the default stream of the tensors' device):
/// results are in the slots after the stream has passed. Calls of "host" are done when they return: whoever has work
/// queued on a side stream of the embedded device synchronises it first (only events take `stream` into account there).
/// Functions may be called from any thread. On a stream that is being captured into a CUDA graph everything that
/// enqueues work is DIT_ERR_UNSUPPORTED and leaves the capture alone. DIT_ERR_INVALID: wrong arguments; DIT_ERR_DEVICE:
/// the driver said no, in its words. Outputs are untouched on failure.
#ifndef DIT_HELPER_H
#define DIT_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/numerics.h"

DIT_EXTERN_C_BEGIN

#define DIT_HELPER_VERSION 1
#define DIT_HELPER_BATCH 16  ///< tensors of one batch call
#define DIT_HELPER_MARKS 64  ///< of `watch` that are remembered

enum { DIT_NONFINITE_NAN = 1, DIT_NONFINITE_INF = 2 };

/// How far `a` is from `b`, element by element: |a - b| <= relative * |b| + x holds for all of them when x is at least
/// `excess` and nothing mismatches. Numbers are of the pairs that are finite on both sides.
struct dit_near_result {
  double excess;      ///< largest |a - b| - relative * |b|, at least 0
  double largest;     ///< |b|
  double difference;  ///< largest |a - b|
  int64_t mismatch;   ///< pairs that are not both finite and not the same (all NaN are)
};

/// One pair for `near`: two tensors of one shape.
struct dit_near_pair {
  struct dit_tensor_view a, b;
  double relative;
};

/// Grows at the end only; `struct_size` tells what is there. Optional slots are NULL.
struct dit_helper_vtable {
  size_t struct_size;
  uint32_t version;  ///< DIT_HELPER_VERSION
  const char *name;  ///< "host", "cuda"

  /// Timing events. An event may be recorded again and again; the last recording counts. `event_query` of one that was
  /// never recorded says passed, `event_wait` returns at once. `event_get_elapsed` is DIT_ERR_UNSUPPORTED while one of
  /// them has not passed and DIT_ERR_INVALID when one was never recorded. Destroying a pending event is safe.
  enum dit_status (*event_create)(int device, void **event, struct dit_error *err);
  void (*event_destroy)(void *event);  ///< NULL allowed
  enum dit_status (*event_record)(void *event, void *stream, struct dit_error *err);
  enum dit_status (*event_query)(void *event, bool *passed, struct dit_error *err);
  enum dit_status (*event_wait)(void *event, struct dit_error *err);
  enum dit_status (*event_get_elapsed)(void *start, void *end, double *milliseconds, struct dit_error *err);

  /// Slots: a block of `count` results of `size` bytes, zero at first, that calls fill and the host reads later.
  enum dit_status (*slots_create)(int device, size_t size, size_t count, void **slots, struct dit_error *err);
  void (*slots_destroy)(void *slots);  ///< NULL allowed; waits for calls that still fill it
  /// Copy slots [first, first + count) into `out` in the order of `stream`, and wait for it. Slots that another stream
  /// fills are ready only after that stream was waited for.
  enum dit_status (*slots_read)(void *slots, size_t first, size_t count, void *stream, void *out,
                                struct dit_error *err);

  // Numbers. Optional: NULL where the library was built without kernels. `count` is at most DIT_HELPER_BATCH; all
  // tensors are on the device of the slots; slots have the size of the result type. A slot is written as a whole.
  // What is refused and when: include/dit/numerics.h.

  /// Non-finite flags (DIT_NONFINITE_*) of tensors into slots [first, first + count), one byte each.
  enum dit_status (*nonfinite)(const struct dit_tensor_view *views, int count, void *stream, void *slots, size_t first,
                               struct dit_error *err);
  /// The same for statistics; slots of sizeof(struct dit_tensor_stats). Counts, min and max are exact and equal on all
  /// devices (complex128 magnitudes: to the last bit but one); sums agree to rounding.
  enum dit_status (*stats)(const struct dit_tensor_view *views, int count, void *stream, void *slots, size_t first,
                           struct dit_error *err);
  /// One comparison into slot `first`, of sizeof(struct dit_compare_result).
  enum dit_status (*compare)(const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                             const struct dit_compare_options *options, void *stream, void *slots, size_t first,
                             struct dit_error *err);
  /// Hashes into slots of sizeof(struct dit_hash); bit for bit dit_tensor_get_hash.
  enum dit_status (*hash)(const struct dit_tensor_view *views, int count, void *stream, void *slots, size_t first,
                          struct dit_error *err);

  /// Pinned host memory from a pool (aligned to 64 bytes), and a copy into it that does not wait. Free it only after
  /// the copy has passed.
  enum dit_status (*staging_allocate)(size_t size, void **memory, struct dit_error *err);
  void (*staging_free)(void *memory);  ///< NULL allowed
  enum dit_status (*copy_to_host)(void *host, const void *device, size_t size, void *stream, struct dit_error *err);

  // More numbers; optional, as those above.

  /// Like `stats`, at the cost of the flags alone: `numel` is there, `nan` is 1 where there is a NaN and `pos_inf` is 1
  /// where there is an infinity of either sign; all else is 0. A NaN or an infinity in a tensor from number `marking`
  /// on marks `mark` (0: nothing), a number that grows from call to call.
  enum dit_status (*watch)(const struct dit_tensor_view *views, int count, int marking, uint64_t mark, void *stream,
                           void *slots, size_t first, struct dit_error *err);
  /// `stats`, if an earlier `watch` in the order of the stream marked `mark`; else nothing happens and the slots keep
  /// what they have. The last DIT_HELPER_MARKS marks are known.
  enum dit_status (*stats_if)(const struct dit_tensor_view *views, int count, uint64_t mark, void *stream, void *slots,
                              size_t first, struct dit_error *err);
  /// Into slots of sizeof(struct dit_near_result). Products and differences are in float32 where `a` is of 16 bits and
  /// `b` of at most 32, else in float64.
  enum dit_status (*near)(const struct dit_near_pair *pairs, int count, void *stream, void *slots, size_t first,
                          struct dit_error *err);
  /// Into slots of sizeof(struct dit_hash), like `hash` but faster: two of one view are equal when its elements are the
  /// same. Not to be stored, and not to be compared with those of another view or device.
  enum dit_status (*checksum)(const struct dit_tensor_view *views, int count, void *stream, void *slots, size_t first,
                              struct dit_error *err);
};

/// The table for "host" or "cuda"; loaded once. DIT_ERR_UNSUPPORTED where the machine has no such thing: the message
/// says what is missing. Borrowed, valid for the life of the process.
DIT_API DIT_NODISCARD enum dit_status dit_helper_get(const char *name, const struct dit_helper_vtable **helper,
                                                     struct dit_error *err);

/// What libdit_cuda.so exports.
#define DIT_HELPER_CUDA_LIBRARY "libdit_cuda.so"
#define DIT_HELPER_CUDA_SYMBOL "dit_cuda_get_helper"
DIT_API DIT_NODISCARD enum dit_status dit_cuda_get_helper(const struct dit_helper_vtable **helper,
                                                          struct dit_error *err);

DIT_EXTERN_C_END

#endif
