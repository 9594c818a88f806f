/// What the random operators share: the generator's numbers, and the work that follows their checks.
#ifndef DIT_HOST_OPS_RANDOM_H
#define DIT_HOST_OPS_RANDOM_H

#include "engine/scalar.h"
#include "frame.h"

/// Counters that belong to one call: four 32-bit numbers each.
struct random_span {
  uint64_t seed, offset;
};

/// Take `words` 32-bit numbers from the generator and move its offset forward; call it when all arguments are checked.
/// An argument error for a NULL generator.
diopiError_t random_reserve(struct frame *frame, diopiGeneratorHandle_t generator, uint64_t words,
                            struct random_span *span);
/// The same check without taking anything.
diopiError_t random_check(struct frame *frame, diopiGeneratorHandle_t generator);

enum random_kind { RANDOM_UNIFORM, RANDOM_NORMAL, RANDOM_BERNOULLI, RANDOM_INTEGER };

struct random_task {
  struct frame frame;
  enum random_kind kind;
  struct dit_tensor_view v_out, v_a, v_b;  ///< a and b: means and deviations, or probabilities, as tensors
  int64_t a_strides[DIT_MAX_DIMS], b_strides[DIT_MAX_DIMS];
  double a, b;  ///< from and to, mean and deviation, probability
  int64_t from;
  uint64_t range;  ///< 0: all 64-bit numbers
  bool wide;       ///< two words per element
  int work;        ///< dtype that the loops write
  diopiGeneratorHandle_t generator;
  bool reserved;  ///< the numbers are in `span`
  struct random_span span;
  int64_t numel;
  const void *pa, *pb;
  void *out;
};

/// The numbers that rounding to a half type makes of one.
static inline float random_round(int dtype, float value) {
  return dtype == DIT_DTYPE_F16 ? half_to_float(half_from_float(value)) : bfloat_to_float(bfloat_from_float(value));
}

/// Fill `v_out` on the frame's stream: everything is checked, there is at least one element, no number is drawn yet.
diopiError_t random_launch(struct random_task *task);

struct permutation_task {
  struct frame frame;
  struct dit_tensor_view out;  ///< 1-d, n elements
  struct random_span span;
  int64_t n;
  bool wide;  ///< two words per element
};
diopiError_t permutation_run(struct permutation_task *task);

/// Rows of weights to rows of class numbers; takes 2 words per sample, without replacement per class, when it runs.
struct sample_task {
  struct frame frame;
  struct dit_tensor_view out, in;
  diopiGeneratorHandle_t generator;
  int64_t rows, classes, samples;
  bool replacement;
};
diopiError_t sample_run(struct sample_task *task);

/// Dropout with a mask that is smaller than the input: drawn first, then multiplied in, broadcast.
struct feature_task {
  struct frame *frame;
  const struct dit_tensor_view *out, *mask, *in;
  double keep;
  struct random_span span;
};
diopiError_t feature_run(struct feature_task *task);

#endif
