/// RMS norms and per-token quantisation: out = x * weight / sqrt(mean(x^2) + epsilon), rows of the last dimension. All
/// in float; the sum with the residual is rounded to the tensors' dtype before it is normed, as two operators would do.
/// int8: scale = max |row| / 127, q = round(row / scale) to even; a row of zeros has scale 0.
#include <math.h>
#include <stdatomic.h>

#include "dit/parallel.h"
#include "engine/rows.h"
#include "engine/scratch.h"
#include "engine/simd.h"
#include "infer.h"
#include "row.h"

struct norm {
  const struct dit_tensor_view *x, *residual, *weight;  ///< weight NULL: no norm
  const struct dit_tensor_view *out, *added, *scale;    ///< scale: out is int8
  double epsilon;
  int64_t width;
  const float *gain;  ///< the weight as float
  atomic_bool failed;
};

KERNEL_INLINE void scale_rows_body(float *out, const float *x, const float *gain, int64_t count, float factor) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    out[i] = x[i] * factor * gain[i];
  }
}
KERNEL_MULTI(static, scale_rows, (float *out, const float *x, const float *gain, int64_t count, float factor),
             (out, x, gain, count, factor))

KERNEL_INLINE void add_rows_body(float *out, const float *a, const float *b, int64_t count) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    out[i] = a[i] + b[i];
  }
}
KERNEL_MULTI(static, add_rows, (float *out, const float *a, const float *b, int64_t count), (out, a, b, count))

KERNEL_INLINE void find_largest_body(const float *x, int64_t count, float *largest) {
  float lanes[16] = {0}, most = 0;
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int l = 0; l < 16; l++) {
      const float size = fabsf(x[i + l]);
      lanes[l] = size > lanes[l] ? size : lanes[l];
    }
  }
  for (; i < count; i++) {
    most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
  }
  for (int l = 0; l < 16; l++) {
    most = lanes[l] > most ? lanes[l] : most;
  }
  *largest = most;
}
KERNEL_MULTI(static, find_largest, (const float *x, int64_t count, float *largest), (x, count, largest))

KERNEL_INLINE void round_row_body(int8_t *out, const float *x, int64_t count, float scale) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    const float value = x[i] / scale, low = value < -127.0f ? -127.0f : value, both = low > 127.0f ? 127.0f : low;
    out[i] = (int8_t)(int32_t)((both + 12582912.0f) - 12582912.0f);  // to the nearest whole number, ties to even
  }
}
KERNEL_MULTI(static, round_row, (int8_t * out, const float *x, int64_t count, float scale), (out, x, count, scale))

static void quantize(const struct norm *n, int64_t row, const float *x) {
  int8_t *out = (int8_t *)n->out->data + row * n->width;
  float largest = 0;
  find_largest(x, n->width, &largest);
  ((float *)n->scale->data)[row] = largest / 127;
  round_row(out, x, n->width, largest > 0 ? largest / 127 : 1);
}

static void norm_row(const struct norm *n, int64_t row, float *room) {
  float *second = room + n->width, *result = second + n->width;
  const float *x = row_read(n->x, row_find(n->x, row), n->width, room);
  if (n->residual) {
    add_rows(second, x, row_read(n->residual, row_find(n->residual, row), n->width, second), n->width);
    row_write(n->added, row * n->width, n->width, second);
    x = row_read(n->added, row * n->width, n->width, room);
  }
  if (n->weight) {
    const double mean = row_sum_squares_f32(x, n->width, 0) / (double)n->width;
    scale_rows(result, x, n->gain, n->width, (float)(1 / sqrt(mean + n->epsilon)));
    x = result;
  }
  if (n->scale) {
    quantize(n, row, x);
  } else {
    row_write(n->out, row * n->width, n->width, x);
  }
}

static void norm_rows(void *context, int64_t begin, int64_t end) {
  struct norm *n = context;
  float *room = scratch_take(sizeof(float) * (size_t)(3 * n->width));
  if (!room) {
    atomic_store(&n->failed, true);
    return;
  }
  for (int64_t row = begin; row < end; row++) {
    norm_row(n, row, room);
  }
  scratch_give(room);
}

static enum dit_status run(struct norm *n, struct dit_error *err) {
  float *gain = NULL;
  n->width = n->x->sizes[n->x->ndim - 1];
  if (n->x->numel == 0) {
    return DIT_OK;
  }
  if (n->weight) {
    gain = scratch_take(sizeof(float) * (size_t)n->width);
    if (!gain) {
      return INFER_NO_MEMORY(err);
    }
    n->gain = row_read(n->weight, 0, n->width, gain);
  }
  const int64_t grain = 1 + 16384 / n->width;
  dit_parallel_for(0, row_count(n->x), grain, norm_rows, n);
  scratch_give(gain);
  return atomic_load(&n->failed) ? INFER_NO_MEMORY(err) : DIT_OK;
}

enum dit_status infer_rms_norm(const struct dit_infer_rms_norm *call, struct dit_error *err) {
  struct norm n = {.x = &call->hidden_states, .weight = &call->weight, .out = &call->out, .epsilon = call->epsilon};
  return run(&n, err);
}

enum dit_status infer_add_rms_norm(const struct dit_infer_add_rms_norm *call, struct dit_error *err) {
  struct norm n = {.x = &call->hidden_states,
                   .residual = &call->residual,
                   .weight = &call->weight,
                   .out = &call->out,
                   .added = &call->added,
                   .epsilon = call->epsilon};
  return run(&n, err);
}

enum dit_status infer_rms_norm_w8a8(const struct dit_infer_rms_norm_w8a8 *call, struct dit_error *err) {
  struct norm n = {.x = &call->hidden_states,
                   .weight = &call->weight,
                   .out = &call->out,
                   .scale = &call->scale,
                   .epsilon = call->epsilon};
  return run(&n, err);
}

enum dit_status infer_add_rms_norm_w8a8(const struct dit_infer_add_rms_norm_w8a8 *call, struct dit_error *err) {
  struct norm n = {.x = &call->hidden_states,
                   .residual = &call->residual,
                   .weight = &call->weight,
                   .out = &call->out,
                   .added = &call->added,
                   .scale = &call->scale,
                   .epsilon = call->epsilon};
  return run(&n, err);
}

enum dit_status infer_dynamic_quant(const struct dit_infer_dynamic_quant *call, struct dit_error *err) {
  struct norm n = {.x = &call->x, .out = &call->out, .scale = &call->scale};
  return run(&n, err);
}
