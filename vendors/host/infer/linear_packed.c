/// weight_quant_matmul: 4-bit weights, eight in an int32, w = (q - zero) * scale or (q + offset) * scale with groups
/// along K. A task is a tile of outputs for all rows; a row of its weights is one cache line. What is multiplied with x
/// are the nibbles less 8 (exact); to a group's sums comes its zero times the sum of x, then they are scaled.
#include <stdatomic.h>
#include <string.h>

#include "dit/parallel.h"
#include "engine/gemm_builtin.h"
#include "engine/scratch.h"
#include "engine/simd.h"
#include "infer.h"
#include "panel.h"
#include "row.h"

#if SIMD_X86
#include <immintrin.h>
#endif

#define TILE 128         ///< outputs of a task
#define DEPTH 64         ///< rows of weights at a time: 32 KiB when they are unpacked into memory
#define BLOCK_ROWS 128   ///< rows of x at a time
#define PACKED_AHEAD 16  ///< rows of weights between the one that is read and the one that is asked for

#if SIMD_X86
#define SIMD_PAIRS __attribute__((target(SIMD_V4_SET ",avx512bf16"), noinline))

/// bfloat16 of -8 to 7, twice, because a look-up takes five bits of which the highest is the next nibble's.
#define PAIR_LOW 0xC100, 0xC0E0, 0xC0C0, 0xC0A0, 0xC080, 0xC040, 0xC000, 0xBF80
#define PAIR_HIGH 0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0
static const uint16_t pair_unsigned[32] = {PAIR_LOW, PAIR_HIGH, PAIR_LOW, PAIR_HIGH};
static const uint16_t pair_signed[32] = {PAIR_HIGH, PAIR_LOW, PAIR_HIGH, PAIR_LOW};
/// Of output l: its half word in an even row of weights (four words of it), in the odd row behind; its nibble there.
#define PAIR_4(half) half, half + 8, half, half + 8, half, half + 8, half, half + 8
static const uint16_t pair_place[32] = {PAIR_4(0), PAIR_4(1), PAIR_4(2), PAIR_4(3)};
#define PAIR_SHIFT 0, 0, 4, 4, 8, 8, 12, 12
static const uint16_t pair_shift[32] = {PAIR_SHIFT, PAIR_SHIFT, PAIR_SHIFT, PAIR_SHIFT};
#endif

#define SIMD_BYTES 16
#include "packed_loops.h"
#if SIMD_X86
#define SIMD_BYTES 32
#include "packed_loops.h"
#define SIMD_BYTES 64
#include "packed_loops.h"
#endif
SIMD_MULTI_WIDTHS(kernel_level, static, unpack_rows,
                  (float *tile, const uint32_t *words, int64_t row_words, int64_t depth, uint32_t turn),
                  (tile, words, row_words, depth, turn))

#define FUSED 8  ///< up to so many rows weights need not go through memory

/// False where this processor has no such loop.
static bool multiply_fused(float *sums, const float *x, int64_t rows, const uint32_t *words, int64_t row_words,
                           int64_t depth, uint32_t turn, bool adds) {
#if SIMD_X86
  if (kernel_level == 4 && rows <= FUSED) {
    (rows == 1   ? multiply_packed_1
     : rows <= 4 ? multiply_packed_4
                 : multiply_packed_8)(sums, x, rows, depth, words, row_words, depth, turn, adds);
    return true;
  }
#endif
  return false;
}

/// Whether the processor adds products of pairs of bfloat16.
static bool has_pairs(void) {
#if SIMD_X86
  unsigned a = 0, b = 0, c = 0, d = 0;
  return kernel_level == 4 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1) != 0;
#else
  return false;
#endif
}

struct packed {
  const struct dit_infer_weight_quant_matmul *call;
  float *x;         ///< pieces of DEPTH columns (the last of a group may be shorter), each rows x columns
  uint32_t *pairs;  ///< or NULL; or bfloat16 in blocks of `few` rows, each depth / 2 x few
  float *totals;    ///< of a group's elements of x: groups x rows
  int64_t rows, depth, outputs, group;
  int few;
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

/// Zero and scale of the tile's outputs in group `g`, in the order of the nibbles: w = (nibble - 8 + zero) * scale.
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
    tile->zeros[j] = offsets ? offsets[column] : 0;
    if (p->awq) {
      const uint32_t word = ((const uint32_t *)call->offset.data)[g * call->offset.strides[0] + (tile->first + j) / 8];
      tile->zeros[j] = 8 - (float)(word >> 4 * (j % 8) & 15);
    }
  }
}

/// sums = or += rows [begin, begin + rows) of x by `depth` rows of weights from k on.
static void multiply_depth(const struct packed *p, struct packed_tile *tile, int64_t begin, int64_t rows, int64_t k,
                           int64_t depth, bool adds) {
  const struct dit_tensor_view *given = &p->call->x2;
  const uint32_t *words = (const uint32_t *)given->data + k * given->strides[0] + tile->first / 8;
  const uint32_t turn = p->awq ? 0 : 0x88888888u;
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
#if SIMD_X86
  if (p->pairs) {
    for (int64_t row = 0; row < rows; row += p->few) {
      (p->few == 1   ? multiply_pairs_1
       : p->few == 4 ? multiply_pairs_4
                     : multiply_pairs_8)(tile->sums + row * TILE,
                                         p->pairs + (begin + row) * (p->depth / 2) + k / 2 * p->few, words, row_words,
                                         depth, turn, adds);
    }
    return;
  }
#endif
  const float *x = p->x + k * p->rows + begin * depth;
  if (!gemm_is_batch_invariant() && multiply_fused(tile->sums, x, rows, words, row_words, depth, turn, adds)) {
    return;
  }
  unpack_rows(tile->weights, words, row_words, depth, turn);
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

#define SCALE_PARAMS                                                                                         \
  (float *restrict c, const float *restrict sums, const float *restrict totals, const float *restrict zeros, \
   const float *restrict scales, int64_t rows)
KERNEL_INLINE void scale_sums_body SCALE_PARAMS {
  for (int64_t i = 0; i < rows; i++) {
    for (int j = 0; j < TILE; j++) {
      c[i * TILE + j] += (sums[i * TILE + j] + zeros[j] * totals[i]) * scales[j];
    }
  }
}
KERNEL_MULTI(static, scale_sums, SCALE_PARAMS, (c, sums, totals, zeros, scales, rows))

/// Rows [begin, begin + rows) of x.
static void multiply_rows(const struct packed *p, struct packed_tile *tile, int64_t begin, int64_t rows) {
  memset(tile->c, 0, sizeof(float) * (size_t)(rows * TILE));
  for (int64_t g = 0; g < p->depth / p->group; g++) {
    read_group(p, g, tile);
    for (int64_t k = 0; k < p->group; k += DEPTH) {
      const int64_t depth = p->group - k < DEPTH ? p->group - k : DEPTH;
      multiply_depth(p, tile, begin, rows, g * p->group + k, depth, k > 0);
    }
    scale_sums(tile->c, tile->sums, p->totals + g * p->rows + begin, tile->zeros, tile->scales, rows);
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

/// x as the loops want it, and its totals; padding rows of a last block of pairs are zeros.
static void load_rows(const struct packed *p) {
  const struct dit_tensor_view *given = &p->call->x1;
  const int64_t size = (int64_t)dit_dtype_get_size(given->dtype);
  for (int64_t k = 0, depth = 0; k < p->depth; k += depth) {
    const int64_t left = p->group - k % p->group;
    depth = left < DEPTH ? left : DEPTH;
    for (int64_t row = 0; row < p->rows; row++) {
      const char *from = row_at(given, row_find(given, row)) + k * size;
      float room[DEPTH];
      float *x = p->pairs ? room : p->x + k * p->rows + row * depth;
      cast_block(DIT_DTYPE_F32, x, given->dtype, from, depth);
      for (int64_t i = 0; p->pairs && i < depth; i += 2) {
        uint32_t *block = p->pairs + row / p->few * p->few * (p->depth / 2);
        memcpy(block + (k + i) / 2 * p->few + row % p->few, from + i * size, sizeof(uint32_t));
      }
      float total = 0;
      for (int64_t i = 0; i < depth; i++) {
        total += x[i];
      }
      p->totals[k / p->group * p->rows + row] += total;
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
  p.few = p.rows == 1 ? 1 : p.rows <= 4 ? 4 : 8;
  const bool pairs = call->x1.dtype == DIT_DTYPE_BF16 && p.group % 2 == 0 && has_pairs();
  const size_t totals = (size_t)(p.group > 0 ? p.depth / p.group * p.rows : 0);
  const size_t words = pairs ? (size_t)((p.rows + p.few - 1) / p.few * p.few * (p.depth / 2)) : 0;
  float *room = scratch_take(sizeof(float) * (totals + (pairs ? words : (size_t)(p.rows * p.depth))));
  if (!room) {
    return INFER_NO_MEMORY(err);
  }
  memset(room, 0, sizeof(float) * (totals + words));
  p.totals = room;
  p.x = pairs ? NULL : room + totals;
  p.pairs = pairs ? (uint32_t *)(void *)(room + totals) : NULL;
  load_rows(&p);
  dit_parallel_for(0, (p.outputs + TILE - 1) / TILE, 1 + 16384 / (p.rows * p.depth + 1), multiply_tiles, &p);
  scratch_give(room);
  return atomic_load(&p.failed) ? INFER_NO_MEMORY(err) : DIT_OK;
}
