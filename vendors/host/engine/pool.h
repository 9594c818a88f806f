/// Pooling over up to three spatial dimensions, on row-major arrays of float, double or int64.
///
/// A window of the result is a product of three intervals, one per axis, so tables of begin and count per output
/// position describe fixed, dilated, padded and adaptive windows alike. All functions use dit_parallel_for over planes.
#ifndef DIT_HOST_ENGINE_POOL_H
#define DIT_HOST_ENGINE_POOL_H

#include <stdbool.h>
#include <stdint.h>

struct pool_axis {
  int64_t in, out, step;   ///< step: distance of neighbours in a window
  int64_t *begin, *count;  ///< per output position: first input position, and how many
  int64_t *extent;         ///< what the position counts in the mean's divisor
};

struct pool_shape {
  int64_t planes;
  struct pool_axis axis[3];
  int64_t divisor;  ///< of the mean; 0: the product of the extents
  int work;         ///< enum dit_dtype: F32, F64 or I64
};

/// Fill the tables of one axis (each with room for axis->out); fixed windows as PyTorch places them.
void pool_set_axis(struct pool_axis *axis, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                   bool count_padding);
/// Windows from floor(o in / out) to ceil((o + 1) in / out).
void pool_set_adaptive(struct pool_axis *axis);

/// The largest element of each window; a NaN wins. `indices`, when not NULL, gets its position in the plane.
void pool_max(const struct pool_shape *shape, void *out, int64_t *indices, const void *in);
void pool_mean(const struct pool_shape *shape, void *out, const void *in);
/// The same for tensors whose channels lie side by side: [planes][position][channels]; `planes` is the batch alone. A
/// plane has less than 2^31 positions.
void pool_max_last(const struct pool_shape *shape, int64_t channels, void *out, int64_t *indices, const void *in);
void pool_mean_last(const struct pool_shape *shape, int64_t channels, void *out, const void *in);
/// Are all of `count` indices positions of a plane?
bool pool_check_indices(const int64_t *indices, int64_t count, int64_t plane);
/// grad_in = 0, then each element of grad_out is added at its index.
void pool_max_backward(const struct pool_shape *shape, void *grad_in, const void *grad_out, const int64_t *indices);
void pool_mean_backward(const struct pool_shape *shape, void *grad_in, const void *grad_out);

#endif
