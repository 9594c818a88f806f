/// Which elements a mistake leaves as they were, where it takes them from, and how it changes their values.
#include <float.h>
#include <math.h>
#include <string.h>

#include "mistake_acts.h"

static int64_t get_row(const struct dit_tensor_view *view) {
  return view->ndim ? view->sizes[view->ndim - 1] : 1;
}

static int64_t get_batch(const struct dit_tensor_view *view) {
  return view->ndim ? view->numel / view->sizes[0] : view->numel;
}

static int get_rank(const struct mistake_call *call) {
  int rank = 0;
  for (int i = 0; i < call->tensors->input_count; i++) {
    rank = call->tensors->inputs[i].ndim > rank ? call->tensors->inputs[i].ndim : rank;
  }
  for (int i = 0; i < call->tensors->output_count; i++) {
    rank = call->tensors->outputs[i].ndim > rank ? call->tensors->outputs[i].ndim : rank;
  }
  return rank;
}

#define KEEP(name, condition)                                                                        \
  bool keep_##name(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i) { \
    const int64_t numel = view->numel, row = get_row(view), batch = get_batch(view);                 \
    (void)call, (void)numel, (void)row, (void)batch, (void)i;                                        \
    return condition;                                                                                \
  }

KEEP(first_65535, i >= 65535)
KEEP(exact_65536, numel == 65536 && i == numel - 1)
KEEP(grid_rows, i / row >= 65535)
KEEP(tail_4, i >= numel - numel % 4)
KEEP(tail_16, i >= numel - numel % 16)
KEEP(block_256, numel > 256 && i >= numel - numel % 256)
KEEP(block_1024, numel > 1024 && i >= numel - numel % 1024)
KEEP(odd_row, row > 1 && row % 2 && i % row == row - 1)
KEEP(row_32, row > 32 && i % row >= row - row % 32)
KEEP(row_1024, i % row >= 1024)
KEEP(small, numel < 4)
KEEP(last_element, numel > 1 && i == numel - 1)
KEEP(last_row, view->ndim >= 2 && view->sizes[0] > 1 && i / batch == view->sizes[0] - 1)
KEEP(zero_dims, view->ndim == 0)
KEEP(rank_5, get_rank(call) >= 5 && (i % 2 || numel == 1))
KEEP(rank_7, get_rank(call) >= 7 && (i % 2 || numel == 1))
KEEP(channel_4, view->ndim >= 3 && i / (batch / view->sizes[1]) % view->sizes[1] >= view->sizes[1] / 4 * 4)
KEEP(all, true)
KEEP(beyond_65535, i >= 65535)
KEEP(row_beyond_1024, i % row >= 1024)
KEEP(nothing_read_4, i >= numel - numel % 4 && numel > 4)

bool keep_empty(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i) {
  (void)view, (void)i;
  for (int t = 0; t < call->tensors->input_count; t++) {
    if (call->tensors->inputs[t].numel == 0) {
      return true;
    }
  }
  return false;
}

bool keep_half(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i) {
  (void)call;
  return (view->dtype == DIT_DTYPE_F16 || view->dtype == DIT_DTYPE_BF16) && view->numel % 2 && i == view->numel - 1;
}

#define TAKE(name, from)                                                                                \
  int64_t take_##name(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i) { \
    const int64_t numel = view->numel, row = get_row(view), batch = get_batch(view);                    \
    (void)call, (void)numel, (void)row, (void)batch;                                                    \
    return from;                                                                                        \
  }

static bool has_generator(const struct mistake_call *call) {
  return strchr(call->kinds, 'g') != NULL;
}

TAKE(low_16, i & 0xFFFF)
TAKE(batch_0, view->ndim >= 3 ? i % batch : i)
TAKE(row_0, view->ndim >= 2 ? i % row : i)
TAKE(random_row, has_generator(call) && view->ndim >= 2 ? i % row : i)
TAKE(pair, (view->dtype == DIT_DTYPE_F16 || view->dtype == DIT_DTYPE_BF16) ? i / 2 * 2 : i)
TAKE(next_rank_5, get_rank(call) >= 5 ? (i + 1) % numel : i)
TAKE(column_0, view->ndim >= 2 ? i / row * row : i)

// Values

static bool is_float(int dtype) {
  return dtype == DIT_DTYPE_F64 || dtype == DIT_DTYPE_F32 || dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16;
}

static double get_largest(int dtype) {
  return dtype == DIT_DTYPE_F64 ? DBL_MAX : dtype == DIT_DTYPE_F16 ? 65504 : (double)FLT_MAX / 256 * 255;
}

static double keep_bits(double value, int bits) {
  int exponent;
  const double fraction = frexp(value, &exponent);
  return isfinite(value) ? ldexp(nearbyint(ldexp(fraction, bits)), exponent - bits) : value;
}

#define CHANGE(name, result)                  \
  double change_##name(double v, int dtype) { \
    (void)dtype;                              \
    return result;                            \
  }

CHANGE(nan_zero, isnan(v) ? 0 : v)
CHANGE(nan_least, isnan(v) ? -INFINITY : v)
CHANGE(inf_largest, isinf(v) && is_float(dtype) ? copysign(get_largest(dtype), v) : v)
CHANGE(inf_nan, isinf(v) ? NAN : v)
CHANGE(negative_nan, is_float(dtype) && isinf(v) && v < 0 ? NAN : v)
CHANGE(clip_60, is_float(dtype) && v > 60 && isfinite(v) ? 60 : is_float(dtype) && v < -60 && isfinite(v) ? -60 : v)
CHANGE(bits_11, dtype == DIT_DTYPE_F32 ? keep_bits(v, 11) : v)
CHANGE(bits_24, dtype == DIT_DTYPE_F64 ? keep_bits(v, 24) : v)
CHANGE(half_sum, dtype == DIT_DTYPE_F16 ? v * (1 + 3.0 / 1024) : dtype == DIT_DTYPE_BF16 ? v * (1 + 3.0 / 128) : v)
CHANGE(int_32, dtype == DIT_DTYPE_I64 ? (double)(int32_t)(int64_t)v : v)
CHANGE(int_float, is_float(dtype) ? v : (double)(float)v)
CHANGE(half_range, is_float(dtype) && fabs(v) > 65504 && isfinite(v) ? copysign(INFINITY, v) : v)
CHANGE(half_small, is_float(dtype) && fabs(v) < 6e-8 ? copysign(0, v) : v)
CHANGE(signed_byte, dtype == DIT_DTYPE_U8 && v > 127 ? v - 256 : v)
CHANGE(not_negative, !is_float(dtype) && v < 0 ? 0 : v)
CHANGE(int_clip, dtype == DIT_DTYPE_I64   ? fmin(fmax(v, -2147483647.0), 2147483647.0)
                 : dtype == DIT_DTYPE_I32 ? fmin(fmax(v, -32767.0), 32767.0)
                                          : v)
CHANGE(magnitude, is_float(dtype) ? fabs(v) : v)
