/// Linear layers with quantised weights. linear_w8a8: int8 by int8, summed as whole numbers, then scaled by row and
/// column. weight_quant_matmul: 4-bit weights, eight in an int32, w = (q - zero) * scale or (q + offset) * scale with
/// groups along K. A task is a tile of outputs for all rows: each weight is unpacked once.
#include "product.h"

#include <stdatomic.h>
#include <string.h>

#include "dit/parallel.h"
#include "engine/gemm.h"
#include "engine/scratch.h"
#include "engine/simd.h"
#include "infer.h"
#include "row.h"

KERNEL_INLINE void multiply_few_body(float *c, const float *a, const float *w, int64_t rows, int64_t count,
                                     int64_t depth) {
  for (int64_t j = 0; j < count; j++) {
    for (int64_t r = 0; r < rows; r++) {
      const float *x = a + r * depth, *y = w + j * depth;
      float lanes[32] = {0}, sum = 0;
      int64_t i = 0;
      for (; i + 32 <= depth; i += 32) {
        for (int l = 0; l < 32; l++) {
          lanes[l] += x[i + l] * y[i + l];
        }
      }
      for (; i < depth; i++) {
        sum += x[i] * y[i];
      }
      for (int l = 0; l < 32; l++) {
        sum += lanes[l];
      }
      c[r * count + j] = sum;
    }
  }
}
KERNEL_MULTI(static, multiply_few,
             (float *c, const float *a, const float *w, int64_t rows, int64_t count, int64_t depth),
             (c, a, w, rows, count, depth))

void infer_multiply(float *c, const float *a, const float *w, int64_t rows, int64_t count, int64_t depth) {
  if (rows <= 4 || depth == 0) {
    multiply_few(c, a, w, rows, count, depth);
    return;
  }
  struct gemm_problem product = {.m = rows,
                                 .n = count,
                                 .k = depth,
                                 .a = a,
                                 .b = w,
                                 .c = c,
                                 .a_strides = {depth, 1},
                                 .b_strides = {1, depth},
                                 .c_strides = {count, 1},
                                 .alpha = 1};
  gemm_multiply(&product);
}

// int8

KERNEL_INLINE void widen_body(int16_t *out, const int8_t *in, int64_t count) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    out[i] = in[i];
  }
}
KERNEL_MULTI(static, widen, (int16_t * out, const int8_t *in, int64_t count), (out, in, count))

KERNEL_INLINE void dot_int16_body(const int16_t *a, const int16_t *b, int64_t count, int32_t *out) {
  int32_t sum = 0;
  for (int64_t i = 0; i < count; i++) {
    sum += (int32_t)a[i] * b[i];
  }
  *out = sum;
}
KERNEL_MULTI(static, dot_int16, (const int16_t *a, const int16_t *b, int64_t count, int32_t *out), (a, b, count, out))

struct whole {
  const struct dit_infer_linear_w8a8 *call;
  const int16_t *a;
  const float *row_scales;
  int64_t rows, depth, outputs;
  atomic_bool failed;
};

/// In pieces whose sums fit 32 bits, added up in 64.
static double dot_rows(const int16_t *a, const int16_t *b, int64_t count) {
  int64_t sum = 0;
  for (int64_t i = 0; i < count; i += 65536) {
    int32_t part = 0;
    dot_int16(a + i, b + i, count - i < 65536 ? count - i : 65536, &part);
    sum += part;
  }
  return (double)sum;
}

static void multiply_whole(void *context, int64_t begin, int64_t end) {
  struct whole *w = context;
  const struct dit_infer_linear_w8a8 *call = w->call;
  int16_t *tile = scratch_take(sizeof(int16_t) * (size_t)(w->depth * PRODUCT_TILE + 1));
  if (!tile) {
    atomic_store(&w->failed, true);
    return;
  }
  for (int64_t t = begin; t < end; t++) {
    const int64_t first = t * PRODUCT_TILE,
                  count = w->outputs - first < PRODUCT_TILE ? w->outputs - first : PRODUCT_TILE;
    float scales[PRODUCT_TILE], line[PRODUCT_TILE];
    for (int64_t j = 0; j < count; j++) {
      widen(tile + j * w->depth, (const int8_t *)call->b.data + (first + j) * call->b.strides[0], w->depth);
      scales[j] =
          row_number(&call->linear_scale, (first + j) * (call->linear_scale.ndim > 0 && call->linear_scale.sizes[0] > 1
                                                             ? call->linear_scale.strides[0]
                                                             : 1));
    }
    for (int64_t row = 0; row < w->rows; row++) {
      for (int64_t j = 0; j < count; j++) {
        const double sum = dot_rows(w->a + row * w->depth, tile + j * w->depth, w->depth);
        line[j] = (float)(sum * w->row_scales[row] * scales[j]) +
                  (call->bias.handle ? row_number(&call->bias, first + j) : 0);
      }
      row_write(&call->out, row * w->outputs + first, count, line);
    }
  }
  scratch_give(tile);
}

enum dit_status infer_linear_w8a8(const struct dit_infer_linear_w8a8 *call, struct dit_error *err) {
  struct whole w = {.call = call, .depth = call->b.sizes[1], .outputs = call->b.sizes[0]};
  w.rows = w.depth > 0 ? call->a.numel / w.depth : 0;
  if (call->out.numel == 0) {
    return DIT_OK;
  }
  int16_t *a = scratch_take(sizeof(int16_t) * (size_t)(w.rows * w.depth));
  float *scales = scratch_take(sizeof(float) * (size_t)w.rows);
  enum dit_status status = a && scales ? DIT_OK : INFER_NO_MEMORY(err);
  if (status == DIT_OK) {
    const struct dit_tensor_view *given = &call->rms_scale;
    const int64_t last = given->ndim > 0 ? given->sizes[given->ndim - 1] : 1;
    for (int64_t row = 0; row < w.rows; row++) {
      widen(a + row * w.depth, (const int8_t *)call->a.data + row_find(&call->a, row), w.depth);
      scales[row] = row_number(given, row_find(given, row / last) + row % last);
    }
    w.a = a;
    w.row_scales = scales;
    dit_parallel_for(0, (w.outputs + PRODUCT_TILE - 1) / PRODUCT_TILE, 1, multiply_whole, &w);
    status = atomic_load(&w.failed) ? INFER_NO_MEMORY(err) : DIT_OK;
  }
  scratch_give(a);
  scratch_give(scales);
  return status;
}

// Four bits

struct packed {
  const struct dit_infer_weight_quant_matmul *call;
  const float *x;
  int64_t rows, depth, outputs, group;
  bool awq;  ///< zeros are packed as the weights are
  atomic_bool failed;
};

/// Column of nibble i of a packed word.
static const int8_t awq_order[8] = {0, 2, 4, 6, 1, 3, 5, 7};

/// Zero and scale of the tile's outputs in group `g`, in the order of the nibbles: w = (q + zero) * scale.
static void read_group(const struct packed *p, int64_t g, int64_t first, float *zeros, float *scales) {
  const struct dit_infer_weight_quant_matmul *call = p->call;
  float room[PRODUCT_TILE], more[PRODUCT_TILE];
  const int64_t count = p->outputs - first < PRODUCT_TILE ? p->outputs - first : PRODUCT_TILE;
  const float *given = row_read(&call->scale, g * call->scale.strides[0] + first, count, room);
  const float *offsets =
      call->offset.handle && !p->awq ? row_read(&call->offset, g * call->offset.strides[0] + first, count, more) : NULL;
  for (int64_t j = 0; j < count; j++) {
    const int64_t column = p->awq ? j / 8 * 8 + awq_order[j % 8] : j;
    scales[j] = given[column];
    zeros[j] = offsets ? offsets[column] : 0;
    if (p->awq) {
      const uint32_t word = ((const uint32_t *)call->offset.data)[g * call->offset.strides[0] + (first + j) / 8];
      zeros[j] = -(float)(word >> 4 * (j % 8) & 15);
    }
  }
}

/// out[j] = (nibble j + zero) * scale; signed nibbles are those with the highest bit turned, less 8.
KERNEL_INLINE void unpack_row_body(float *out, const uint32_t *words, const float *zeros, const float *scales,
                                   int64_t count, uint32_t turn, float less) {
  for (int64_t j = 0; j < count; j += 8) {
    for (int i = 0; i < 8; i++) {
      const int nibble = (int)((words[j / 8] >> 4 * i & 15) ^ turn);
      out[j + i] = ((float)nibble - less + zeros[j + i]) * scales[j + i];
    }
  }
}
KERNEL_MULTI(static, unpack_row,
             (float *out, const uint32_t *words, const float *zeros, const float *scales, int64_t count, uint32_t turn,
              float less),
             (out, words, zeros, scales, count, turn, less))

/// tile[k][j] for `count` outputs from `first` on, j in the order of the nibbles.
static void unpack(const struct packed *p, int64_t first, int64_t count, float *tile) {
  float zeros[PRODUCT_TILE] = {0}, scales[PRODUCT_TILE] = {0};
  for (int64_t k = 0; k < p->depth; k++) {
    if (k % p->group == 0) {
      read_group(p, k / p->group, first, zeros, scales);
    }
    const uint32_t *words = (const uint32_t *)p->call->x2.data + k * p->call->x2.strides[0] + first / 8;
    unpack_row(tile + k * count, words, zeros, scales, count, p->awq ? 0 : 8, p->awq ? 0 : 8);
  }
}

/// c (rows x count) = x (rows x depth) by tile (depth x count).
KERNEL_INLINE void multiply_tile_body(float *c, const float *x, const float *tile, int64_t rows, int64_t count,
                                      int64_t depth) {
  for (int64_t r = 0; r < rows; r++) {
    float sums[PRODUCT_TILE] = {0};
    for (int64_t k = 0; k < depth; k++) {
      const float factor = x[r * depth + k];
      for (int64_t j = 0; j < count; j++) {
        sums[j] += factor * tile[k * count + j];
      }
    }
    memcpy(c + r * count, sums, sizeof(float) * (size_t)count);
  }
}
KERNEL_MULTI(static, multiply_tile,
             (float *c, const float *x, const float *tile, int64_t rows, int64_t count, int64_t depth),
             (c, x, tile, rows, count, depth))

static void multiply_packed(void *context, int64_t begin, int64_t end) {
  struct packed *p = context;
  const struct dit_infer_weight_quant_matmul *call = p->call;
  float *tile = scratch_take(sizeof(float) * (size_t)((p->depth + p->rows) * PRODUCT_TILE + 1));
  if (!tile) {
    atomic_store(&p->failed, true);
    return;
  }
  float *c = tile + p->depth * PRODUCT_TILE, room[PRODUCT_TILE];
  for (int64_t t = begin; t < end; t++) {
    const int64_t first = t * PRODUCT_TILE,
                  count = p->outputs - first < PRODUCT_TILE ? p->outputs - first : PRODUCT_TILE;
    unpack(p, first, count, tile);
    if (p->rows <= 4) {
      multiply_tile(c, p->x, tile, p->rows, count, p->depth);
    } else {
      struct gemm_problem product = {.m = p->rows,
                                     .n = count,
                                     .k = p->depth,
                                     .a = p->x,
                                     .b = tile,
                                     .c = c,
                                     .a_strides = {p->depth, 1},
                                     .b_strides = {count, 1},
                                     .c_strides = {count, 1},
                                     .alpha = 1};
      gemm_multiply(&product);
    }
    const float *bias = call->bias.handle ? row_read(&call->bias, first, count, room) : NULL;
    for (int64_t row = 0; row < p->rows; row++) {
      float line[PRODUCT_TILE] = {0};
      for (int64_t j = 0; j < count; j++) {
        const int64_t column = p->awq ? j / 8 * 8 + awq_order[j % 8] : j;
        line[column] = c[row * count + j] + (bias ? bias[column] : 0);
      }
      row_write(&call->out, row * p->outputs + first, count, line);
    }
  }
  scratch_give(tile);
}

enum dit_status infer_weight_quant_matmul(const struct dit_infer_weight_quant_matmul *call, struct dit_error *err) {
  struct packed p = {.call = call,
                     .depth = call->x2.sizes[0],
                     .outputs = call->x2.sizes[1] * 8,
                     .group = call->group_size > 0 ? call->group_size : call->x2.sizes[0],
                     .awq = call->offset.handle && call->offset.dtype == DIT_DTYPE_I32};
  p.rows = p.depth > 0 ? call->x1.numel / p.depth : 0;
  if (call->out.numel == 0) {
    return DIT_OK;
  }
  float *x = scratch_take(sizeof(float) * (size_t)(p.rows * p.depth));
  if (!x) {
    return INFER_NO_MEMORY(err);
  }
  for (int64_t row = 0; row < p.rows; row++) {
    cast_block(DIT_DTYPE_F32, x + row * p.depth, call->x1.dtype, row_at(&call->x1, row_find(&call->x1, row)), p.depth);
  }
  p.x = x;
  dit_parallel_for(0, (p.outputs + PRODUCT_TILE - 1) / PRODUCT_TILE, 1, multiply_packed, &p);
  scratch_give(x);
  return atomic_load(&p.failed) ? INFER_NO_MEMORY(err) : DIT_OK;
}
