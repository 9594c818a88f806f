/// weight_quant_matmul: 4-bit weights, eight in an int32, w = (q - zero) * scale or (q + offset) * scale with groups
/// along K. A task is a tile of outputs for all rows. Of a group some rows of weights are unpacked at a time as whole
/// numbers (which is exact), multiplied with the rows of x, and the group's sums are scaled.
#include <stdatomic.h>
#include <string.h>

#include "dit/parallel.h"
#include "engine/scratch.h"
#include "engine/simd.h"
#include "infer.h"
#include "panel.h"
#include "row.h"

#if SIMD_X86
#include <immintrin.h>
#endif

#define TILE 64         ///< outputs of a task
#define DEPTH 64        ///< rows of weights that are unpacked at a time: 16 KiB
#define BLOCK_ROWS 256  ///< rows of x at a time

#define SIMD_BYTES 16
#include "packed_loops.h"
#if SIMD_X86
#define SIMD_BYTES 32
#include "packed_loops.h"
#define SIMD_BYTES 64
#include "packed_loops.h"
#endif
SIMD_MULTI_WIDTHS(kernel_level, static, unpack_rows,
                  (float *tile, const uint32_t *words, int64_t row_words, const float *zeros, int64_t depth,
                   uint32_t turn),
                  (tile, words, row_words, zeros, depth, turn))

#define FUSED 8  ///< up to so many rows weights need not go through memory

/// False where this processor has no such loop.
static bool multiply_fused(float *sums, const float *x, int64_t rows, const uint32_t *words, int64_t row_words,
                           const float *zeros, int64_t depth, uint32_t turn, bool adds) {
#if SIMD_X86
  if (kernel_level == 4 && rows <= FUSED) {
    (rows == 1   ? multiply_packed_1
     : rows <= 4 ? multiply_packed_4
                 : multiply_packed_8)(sums, x, rows, depth, words, row_words, zeros, depth, turn, adds);
    return true;
  }
#endif
  return false;
}

struct packed {
  const struct dit_infer_weight_quant_matmul *call;
  float *x;  ///< pieces of DEPTH columns (the last of a group may be shorter), each rows x columns
  int64_t rows, depth, outputs, group;
  bool awq;  ///< zeros are packed as the weights are
  atomic_bool failed;
};

struct packed_tile {
  int64_t first, count;  ///< outputs
  float zeros[TILE], scales[TILE];
  float weights[DEPTH * TILE];
  float sums[BLOCK_ROWS * TILE], c[BLOCK_ROWS * TILE];  ///< of the group; of all groups so far
};

/// Column of nibble i of a packed word.
static const int8_t awq_order[8] = {0, 2, 4, 6, 1, 3, 5, 7};

static inline int64_t get_column(const struct packed *p, int64_t nibble) {
  return p->awq ? nibble / 8 * 8 + awq_order[nibble % 8] : nibble;
}

/// Zero and scale of the tile's outputs in group `g`, in the order of the nibbles: w = (q + zero) * scale.
static void read_group(const struct packed *p, int64_t g, struct packed_tile *tile) {
  const struct dit_infer_weight_quant_matmul *call = p->call;
  float room[TILE], more[TILE];
  const float *given = row_read(&call->scale, g * call->scale.strides[0] + tile->first, tile->count, room);
  const float *offsets = call->offset.handle && !p->awq
                             ? row_read(&call->offset, g * call->offset.strides[0] + tile->first, tile->count, more)
                             : NULL;
  for (int64_t j = 0; j < tile->count; j++) {
    const int64_t column = get_column(p, j);
    tile->scales[j] = given[column];
    tile->zeros[j] = (offsets ? offsets[column] : 0) - (p->awq ? 0 : 8);
    if (p->awq) {
      const uint32_t word = ((const uint32_t *)call->offset.data)[g * call->offset.strides[0] + (tile->first + j) / 8];
      tile->zeros[j] = -(float)(word >> 4 * (j % 8) & 15);
    }
  }
}

/// sums = or += rows [begin, begin + rows) of x by `depth` rows of weights from k on; signed nibbles are those with the
/// highest bit turned, less 8.
static void multiply_depth(const struct packed *p, struct packed_tile *tile, int64_t begin, int64_t rows, int64_t k,
                           int64_t depth, bool adds) {
  const struct dit_tensor_view *given = &p->call->x2;
  const uint32_t *words = (const uint32_t *)given->data + k * given->strides[0] + tile->first / 8;
  const uint32_t turn = p->awq ? 0 : 0x88888888u;
  const float *x = p->x + k * p->rows + begin * depth;
  int64_t row_words = given->strides[0];
  uint32_t room[DEPTH * TILE / 8];
  if (tile->count < TILE) {  // the last words of a row: what stands behind them is not ours
    memset(room, 0, sizeof room);
    for (int64_t i = 0; i < depth; i++) {
      memcpy(room + i * (TILE / 8), words + i * row_words, sizeof(uint32_t) * (size_t)(tile->count / 8));
    }
    words = room;
    row_words = TILE / 8;
  }
  if (multiply_fused(tile->sums, x, rows, words, row_words, tile->zeros, depth, turn, adds)) {
    return;
  }
  unpack_rows(tile->weights, words, row_words, tile->zeros, depth, turn);
  const struct panel_product product = {.c = tile->sums,
                                        .a = x,
                                        .b = tile->weights,
                                        .c_row = TILE,
                                        .a_row = depth,
                                        .a_column = 1,
                                        .b_row = TILE,
                                        .m = rows,
                                        .lanes = TILE,
                                        .k = depth,
                                        .adds = adds};
  panel_multiply(&product);
}

KERNEL_INLINE void scale_sums_body(float *restrict c, const float *restrict sums, const float *restrict scales,
                                   int64_t rows) {
  for (int64_t i = 0; i < rows; i++) {
    for (int j = 0; j < TILE; j++) {
      c[i * TILE + j] += sums[i * TILE + j] * scales[j];
    }
  }
}
KERNEL_MULTI(static, scale_sums,
             (float *restrict c, const float *restrict sums, const float *restrict scales, int64_t rows),
             (c, sums, scales, rows))

/// Rows [begin, begin + rows) of x.
static void multiply_rows(const struct packed *p, struct packed_tile *tile, int64_t begin, int64_t rows) {
  memset(tile->c, 0, sizeof(float) * (size_t)(rows * TILE));
  for (int64_t g = 0; g < p->depth / p->group; g++) {
    read_group(p, g, tile);
    for (int64_t k = 0; k < p->group; k += DEPTH) {
      const int64_t depth = p->group - k < DEPTH ? p->group - k : DEPTH;
      multiply_depth(p, tile, begin, rows, g * p->group + k, depth, k > 0);
    }
    scale_sums(tile->c, tile->sums, tile->scales, rows);
  }
}

static void write_rows(const struct packed *p, const struct packed_tile *tile, int64_t begin, int64_t rows) {
  const struct dit_infer_weight_quant_matmul *call = p->call;
  float room[TILE];
  const float *bias = call->bias.handle ? row_read(&call->bias, tile->first, tile->count, room) : NULL;
  for (int64_t i = 0; i < rows; i++) {
    float line[TILE];
    for (int64_t j = 0; j < tile->count; j++) {
      const int64_t column = get_column(p, j);
      line[column] = tile->c[i * TILE + j] + (bias ? bias[column] : 0);
    }
    row_write(&call->out, (begin + i) * p->outputs + tile->first, tile->count, line);
  }
}

static void multiply_tiles(void *context, int64_t begin, int64_t end) {
  struct packed *p = context;
  struct packed_tile *tile = scratch_take(sizeof *tile);
  if (!tile) {
    atomic_store(&p->failed, true);
    return;
  }
  for (int64_t t = begin; t < end; t++) {
    tile->first = t * TILE;
    tile->count = p->outputs - tile->first < TILE ? p->outputs - tile->first : TILE;
    memset(tile->zeros, 0, sizeof tile->zeros);
    memset(tile->scales, 0, sizeof tile->scales);
    for (int64_t row = 0; row < p->rows; row += BLOCK_ROWS) {
      const int64_t rows = p->rows - row < BLOCK_ROWS ? p->rows - row : BLOCK_ROWS;
      multiply_rows(p, tile, row, rows);
      write_rows(p, tile, row, rows);
    }
  }
  scratch_give(tile);
}

static void load_rows(const struct packed *p) {
  const struct dit_tensor_view *given = &p->call->x1;
  const int64_t size = (int64_t)dit_dtype_get_size(given->dtype);
  for (int64_t k = 0, depth = 0; k < p->depth; k += depth) {
    const int64_t left = p->group - k % p->group;
    depth = left < DEPTH ? left : DEPTH;
    for (int64_t row = 0; row < p->rows; row++) {
      cast_block(DIT_DTYPE_F32, p->x + k * p->rows + row * depth, given->dtype,
                 row_at(given, row_find(given, row)) + k * size, depth);
    }
  }
}

enum dit_status infer_weight_quant_matmul(const struct dit_infer_weight_quant_matmul *call, struct dit_error *err) {
  struct packed p = {.call = call,
                     .depth = call->x2.sizes[0],
                     .outputs = call->x2.sizes[1] * 8,
                     .group = call->group_size > 0 ? call->group_size : call->x2.sizes[0],
                     .awq = call->offset.handle && call->offset.dtype == DIT_DTYPE_I32};
  p.rows = p.outputs > 0 ? call->out.numel / p.outputs : 0;
  if (call->out.numel == 0) {
    return DIT_OK;
  }
  p.x = scratch_take(sizeof(float) * (size_t)(p.rows * p.depth));
  if (!p.x) {
    return INFER_NO_MEMORY(err);
  }
  load_rows(&p);
  dit_parallel_for(0, (p.outputs + TILE - 1) / TILE, 1 + 16384 / (p.rows * p.depth + 1), multiply_tiles, &p);
  scratch_give(p.x);
  return atomic_load(&p.failed) ? INFER_NO_MEMORY(err) : DIT_OK;
}
