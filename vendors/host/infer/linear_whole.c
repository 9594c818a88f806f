/// linear_w8a8: int8 by int8, summed as whole numbers, then scaled by row and column. A task is a tile of outputs for
/// all rows; four rows by four outputs share their loads.
#include <stdatomic.h>
#include <string.h>

#include "dit/parallel.h"
#include "engine/scratch.h"
#include "engine/simd.h"
#include "infer.h"
#include "row.h"

#if SIMD_X86
#include <immintrin.h>
#endif

#define TILE 32        ///< outputs of a task, a multiple of 4
#define BLOCK_ROWS 32  ///< rows that stay near while a tile's outputs pass
#define WHOLE_ROWS 4   ///< rows of a that share a load of b
#define WHOLE_PAD 32   ///< rows of a are padded to a multiple
#define WHOLE_DEPTH 65536

#define SIMD_BYTES 16
#include "whole_loops.h"
#if SIMD_X86
#define SIMD_BYTES 32
#include "whole_loops.h"
#define SIMD_BYTES 64
#include "whole_loops.h"
#endif
SIMD_MULTI_WIDTHS(kernel_level, static, dot_whole,
                  (int32_t * out, const int16_t *const *a, const int8_t *const *b, int64_t width), (out, a, b, width))

KERNEL_INLINE void widen_body(int16_t *out, const int8_t *in, int64_t count) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    out[i] = in[i];
  }
}
KERNEL_MULTI(static, widen, (int16_t * out, const int8_t *in, int64_t count), (out, in, count))

struct whole {
  const struct dit_infer_linear_w8a8 *call;
  int16_t *a;
  float *row_scales;
  int64_t rows, depth, padded, outputs;
};

/// Four outputs from `column` on for rows [begin, end); fewer repeat the last one.
static void multiply_four(const struct whole *w, int64_t begin, int64_t end, int64_t column, int64_t count,
                          const float *scales, const float *bias) {
  const struct dit_infer_linear_w8a8 *call = w->call;
  for (int64_t row = begin; row < end; row += WHOLE_ROWS) {
    int64_t sums[4 * WHOLE_ROWS] = {0};
    for (int64_t k = 0; k < w->depth; k += WHOLE_DEPTH) {
      const int16_t *a[WHOLE_ROWS];
      const int8_t *b[4];
      int32_t part[4 * WHOLE_ROWS];
      for (int64_t i = 0; i < 4; i++) {
        a[i] = w->a + (row + i < end ? row + i : end - 1) * w->padded + k;
        b[i] = (const int8_t *)call->b.data + (column + (i < count ? i : count - 1)) * call->b.strides[0] + k;
      }
      dot_whole(part, a, b, w->depth - k < WHOLE_DEPTH ? w->depth - k : WHOLE_DEPTH);
      for (int i = 0; i < 4 * WHOLE_ROWS; i++) {
        sums[i] += part[i];
      }
    }
    for (int64_t i = 0; i < WHOLE_ROWS && row + i < end; i++) {
      float line[4];
      for (int64_t j = 0; j < count; j++) {
        line[j] = (float)((double)sums[4 * i + j] * (double)w->row_scales[row + i] * (double)scales[j]) + bias[j];
      }
      row_write(&call->out, (row + i) * w->outputs + column, count, line);
    }
  }
}

static void multiply_tiles(void *context, int64_t begin, int64_t end) {
  const struct whole *w = context;
  const struct dit_infer_linear_w8a8 *call = w->call;
  const struct dit_tensor_view *given = &call->linear_scale;
  const int64_t step = given->ndim > 0 && given->sizes[0] > 1 ? given->strides[0] : 1;
  for (int64_t t = begin; t < end; t++) {
    const int64_t first = t * TILE, count = w->outputs - first < TILE ? w->outputs - first : TILE;
    float scales[TILE], bias[TILE] = {0};
    for (int64_t j = 0; j < count; j++) {
      scales[j] = row_number(given, (first + j) * step);
      bias[j] = call->bias.handle ? row_number(&call->bias, first + j) : 0;
    }
    for (int64_t row = 0; row < w->rows; row += BLOCK_ROWS) {
      const int64_t last = row + BLOCK_ROWS < w->rows ? row + BLOCK_ROWS : w->rows;
      for (int64_t j = 0; j < count; j += 4) {
        multiply_four(w, row, last, first + j, count - j < 4 ? count - j : 4, scales + j, bias + j);
      }
    }
  }
}

enum dit_status infer_linear_w8a8(const struct dit_infer_linear_w8a8 *call, struct dit_error *err) {
  struct whole w = {.call = call, .depth = call->b.sizes[1], .outputs = call->b.sizes[0]};
  w.rows = w.outputs > 0 ? call->out.numel / w.outputs : 0;
  w.padded = (w.depth + WHOLE_PAD - 1) / WHOLE_PAD * WHOLE_PAD;
  if (call->out.numel == 0) {
    return DIT_OK;
  }
  w.a = scratch_take(sizeof(int16_t) * (size_t)(w.rows * w.padded) + sizeof(float) * (size_t)w.rows);
  if (!w.a) {
    return INFER_NO_MEMORY(err);
  }
  w.row_scales = (float *)(void *)(w.a + w.rows * w.padded);
  const struct dit_tensor_view *given = &call->rms_scale;
  const int64_t last = given->ndim > 0 ? given->sizes[given->ndim - 1] : 1;
  for (int64_t row = 0; row < w.rows; row++) {
    int16_t *a = w.a + row * w.padded;
    widen(a, (const int8_t *)call->a.data + row_find(&call->a, row), w.depth);
    memset(a + w.depth, 0, sizeof(int16_t) * (size_t)(w.padded - w.depth));
    w.row_scales[row] = w.depth > 0 ? row_number(given, row_find(given, row / last) + row % last) : 0;
  }
  dit_parallel_for(0, (w.outputs + TILE - 1) / TILE, 1 + 65536 / (w.rows * w.depth + 1), multiply_tiles, &w);
  scratch_give(w.a);
  return DIT_OK;
}
