/// Mixture of experts. Gating: softmax over the experts in float, the largest `topk`; equal ones in the order of their
/// numbers. fused_moe: tokens are sorted by expert; for each expert and tile of its outputs the weights are read once
/// and multiplied with all of its tokens (panel.h); results are added up per token in the order of its experts. At most
/// MOE_TOKENS tokens at a time, so the working space does not grow with the prompt.
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "activation.h"
#include "dit/parallel.h"
#include "engine/gemm_builtin.h"
#include "engine/scratch.h"
#include "engine/simd.h"
#include "infer.h"
#include "panel.h"
#include "row.h"

#define MOE_TOKENS 1024

// Gating

struct gating {
  const struct dit_infer_moe_gating_topk_softmax *call;
  atomic_bool failed;
};

/// The `count` largest of `size` probabilities; those taken become negative.
static void take_largest(float *p, int64_t size, int64_t count, int64_t base, float *weights, int32_t *ids) {
  for (int64_t k = 0; k < count; k++) {
    int64_t best = 0;
    for (int64_t i = 1; i < size; i++) {
      best = p[i] > p[best] ? i : best;
    }
    weights[k] = p[best];
    ids[k] = (int32_t)(base + best);
    p[best] = -1;
  }
}

static void gate_tokens(void *context, int64_t begin, int64_t end) {
  struct gating *g = context;
  const struct dit_infer_moe_gating_topk_softmax *call = g->call;
  const int64_t experts = call->router_logits.sizes[1], topk = call->topk;
  const int64_t groups = call->router_n_groups > 0 ? call->router_n_groups : 1;
  float *p = scratch_take(sizeof(float) * (size_t)experts);
  if (!p) {
    atomic_store(&g->failed, true);
    return;
  }
  for (int64_t token = begin; token < end; token++) {
    const float *x = row_read(&call->router_logits, token * call->router_logits.strides[0], experts, p);
    float max = x[0];
    double sum = 0;
    for (int64_t i = 1; i < experts; i++) {
      max = x[i] > max ? x[i] : max;
    }
    for (int64_t i = 0; i < experts; i++) {
      p[i] = expf(x[i] - max);
      sum += p[i];
    }
    for (int64_t i = 0; i < experts; i++) {
      p[i] = (float)(p[i] / sum);
    }
    for (int64_t i = 0; i < groups; i++) {
      const int64_t size = experts / groups, count = topk / groups, at = token * topk + i * count;
      take_largest(p + i * size, size, count, i * size, (float *)call->weights.data + at,
                   (int32_t *)call->ids.data + at);
    }
  }
  scratch_give(p);
}

enum dit_status infer_moe_gating_topk_softmax(const struct dit_infer_moe_gating_topk_softmax *call,
                                              struct dit_error *err) {
  struct gating g = {.call = call};
  dit_parallel_for(0, call->router_logits.sizes[0], 64, gate_tokens, &g);
  return atomic_load(&g.failed) ? INFER_NO_MEMORY(err) : DIT_OK;
}

// Experts

#define TILE 32    ///< outputs of a task
#define LANES 64   ///< rows of a block of many rows
#define DEPTH 512  ///< weights of a row that are widened at a time

/// The rows of one expert. Few (up to PANEL_FEW) lie one after the other; many lie in blocks of LANES, in each of which
/// element i of all rows lies side by side (the last block is as wide as it must be).
struct expert {
  int64_t begin, rows, padded;  ///< padded: rows that there is room for
  bool few;
};

struct moe {
  const struct dit_infer_fused_moe *call;
  int64_t first, tokens;  ///< the part of the tokens that is in work
  int64_t width, inner, count, topk;
  int64_t few;                ///< most rows that count as few; 0 where a row must not depend on their number
  int64_t x_row, hidden_row;  ///< width and inner, padded for few rows
  struct expert *experts;
  int64_t *places;   ///< row of (token, k), -1: none
  int64_t *sources;  ///< its token
  float *x, *hidden, *y;
  atomic_bool failed;
};

/// Counts, then where experts begin, then places: rows of one expert keep the order of their tokens.
static void sort_tokens(struct moe *m) {
  const struct dit_tensor_view *ids = &m->call->topk_ids;
  memset(m->experts, 0, sizeof *m->experts * (size_t)m->count);
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t i = 0; i < m->tokens * m->topk; i++) {
      const int64_t token = m->first + i / m->topk;
      const int64_t id = row_index(ids, token * ids->strides[0] + i % m->topk);
      struct expert *expert = id < 0 || id >= m->count ? NULL : &m->experts[id];
      m->places[i] = expert ? expert->begin + expert->rows : -1;
      if (expert && pass == 1) {
        m->sources[m->places[i]] = token;
      }
      if (expert) {
        expert->rows++;
      }
    }
    int64_t begin = 0;
    for (int64_t e = 0; e < m->count && pass == 0; e++) {
      struct expert *expert = &m->experts[e];
      expert->begin = begin;
      expert->few = expert->rows <= m->few;
      expert->padded = expert->few ? expert->rows : panel_round(expert->rows);
      begin += expert->padded;
      expert->rows = 0;
    }
  }
}

/// Lanes of block `block` of many rows.
static int64_t get_lanes(const struct expert *expert, int64_t block) {
  const int64_t left = expert->padded - block * LANES;
  return left < LANES ? left : LANES;
}

/// The tokens of experts [begin, end) as rows of floats.
static void gather_tokens(void *context, int64_t begin, int64_t end) {
  struct moe *m = context;
  const struct dit_tensor_view *given = &m->call->hidden_states;
  float *line = scratch_take(sizeof(float) * (size_t)m->width);
  if (!line) {
    atomic_store(&m->failed, true);
    return;
  }
  for (int64_t e = begin; e < end; e++) {
    const struct expert *expert = &m->experts[e];
    float *x = m->x + expert->begin * m->x_row;
    if (expert->rows < expert->padded || expert->few) {
      memset(x, 0, sizeof(float) * (size_t)(expert->padded * m->x_row));
    }
    for (int64_t row = 0; row < expert->rows; row++) {
      const char *from = row_at(given, m->sources[expert->begin + row] * given->strides[0]);
      if (expert->few) {
        cast_block(DIT_DTYPE_F32, x + row * m->x_row, given->dtype, from, m->width);
        continue;
      }
      const int64_t lanes = get_lanes(expert, row / LANES);
      float *to = x + row / LANES * LANES * m->x_row + row % LANES;
      cast_block(DIT_DTYPE_F32, line, given->dtype, from, m->width);
      for (int64_t i = 0; i < m->width; i++) {
        to[i * lanes] = line[i];
      }
    }
  }
  scratch_give(line);
}

/// Outputs of one expert: rows [first, first + count) of its matrix w by all of its rows.
struct part {
  const struct expert *expert;
  const struct dit_tensor_view *w;
  int64_t number, first, count, depth;
  const float *x;  ///< the expert's rows, `x_row` each
  int64_t x_row;
};

static const char *get_weights(const struct part *part, int64_t row) {
  return row_at(part->w, part->number * part->w->strides[0] + (part->first + row) * part->w->strides[1]);
}

/// c[row][output].
static void multiply_few(const struct part *part, float *c) {
  const char *rows[TILE];
  for (int64_t j = 0; j < part->count; j++) {
    rows[j] = get_weights(part, j);
  }
  const struct panel_few few = {.dtype = part->w->dtype,
                                .few = part->expert->rows,
                                .heads = 1,
                                .rows = rows,
                                .count = part->count,
                                .width = part->depth,
                                .x = part->x,
                                .x_row = part->x_row,
                                .out = c,
                                .out_row = TILE};
  panel_dot(&few);
}

/// c[block][output][lane]; `room` has TILE * DEPTH numbers.
static void multiply_many(const struct part *part, float *c, float *room) {
  if (part->depth == 0) {
    memset(c, 0, sizeof(float) * (size_t)(part->expert->padded * TILE));
  }
  for (int64_t k = 0; k < part->depth; k += DEPTH) {
    const int64_t depth = part->depth - k < DEPTH ? part->depth - k : DEPTH;
    for (int64_t j = 0; j < part->count; j++) {
      cast_block(DIT_DTYPE_F32, room + j * DEPTH, part->w->dtype,
                 get_weights(part, j) + k * (int64_t)dit_dtype_get_size(part->w->dtype), depth);
    }
    for (int64_t from = 0; from < part->expert->padded; from += LANES) {
      const int64_t lanes = get_lanes(part->expert, from / LANES);
      const struct panel_product product = {.c = c + from * TILE,
                                            .a = room,
                                            .b = part->x + from * part->x_row + k * lanes,
                                            .c_row = lanes,
                                            .a_row = DEPTH,
                                            .a_column = 1,
                                            .b_row = lanes,
                                            .m = part->count,
                                            .lanes = lanes,
                                            .k = depth,
                                            .adds = k > 0};
      panel_multiply(&product);
    }
  }
}

static void multiply(const struct part *part, float *c, float *room) {
  if (part->expert->few) {
    multiply_few(part, c);
  } else {
    multiply_many(part, c, room);
  }
}

static void run_up(struct moe *m, int64_t number, int64_t first, int64_t count, float *room) {
  const struct expert *expert = &m->experts[number];
  struct part part = {.expert = expert,
                      .w = &m->call->gate_up_weights,
                      .number = number,
                      .first = first,
                      .count = count,
                      .depth = m->width,
                      .x = m->x + expert->begin * m->x_row,
                      .x_row = m->x_row};
  float *gate = room + TILE * DEPTH, *up = gate + expert->padded * TILE;
  float *hidden = m->hidden + expert->begin * m->hidden_row;
  multiply(&part, gate, room);
  part.first += m->inner;
  multiply(&part, up, room);
  for (int64_t row = 0; row < expert->rows && expert->few; row++) {
    infer_gate_row(hidden + row * m->hidden_row + first, gate + row * TILE, up + row * TILE, count);
  }
  for (int64_t from = 0; from < expert->padded && !expert->few; from += LANES) {
    const int64_t lanes = get_lanes(expert, from / LANES);
    infer_gate_row(hidden + from * m->hidden_row + first * lanes, gate + from * TILE, up + from * TILE, count * lanes);
  }
}

static void run_down(struct moe *m, int64_t number, int64_t first, int64_t count, float *room) {
  const struct expert *expert = &m->experts[number];
  const struct part part = {.expert = expert,
                            .w = &m->call->down_weights,
                            .number = number,
                            .first = first,
                            .count = count,
                            .depth = m->inner,
                            .x = m->hidden + expert->begin * m->hidden_row,
                            .x_row = m->hidden_row};
  float *c = room + TILE * DEPTH;
  multiply(&part, c, room);
  for (int64_t row = 0; row < expert->rows; row++) {
    float *y = m->y + (expert->begin + row) * m->width + first;
    const int64_t lanes = expert->few ? 0 : get_lanes(expert, row / LANES);
    const float *from = lanes ? c + row / LANES * LANES * TILE + row % LANES : c + row * TILE;
    for (int64_t j = 0; j < count; j++) {
      y[j] = from[j * (lanes ? lanes : 1)];
    }
  }
}

static void run_tiles(struct moe *m, int64_t begin, int64_t end, int64_t outputs,
                      void (*run)(struct moe *, int64_t, int64_t, int64_t, float *)) {
  const int64_t tiles = (outputs + TILE - 1) / TILE;
  for (int64_t i = begin; i < end; i++) {
    const int64_t expert = i / tiles, first = i % tiles * TILE;
    if (m->experts[expert].rows == 0) {
      continue;
    }
    float *room = scratch_take(sizeof(float) * (size_t)(TILE * (DEPTH + 2 * m->experts[expert].padded)));
    if (!room) {
      atomic_store(&m->failed, true);
      return;
    }
    run(m, expert, first, outputs - first < TILE ? outputs - first : TILE, room);
    scratch_give(room);
  }
}

static void run_ups(void *context, int64_t begin, int64_t end) {
  struct moe *m = context;
  run_tiles(m, begin, end, m->inner, run_up);
}

static void run_downs(void *context, int64_t begin, int64_t end) {
  struct moe *m = context;
  run_tiles(m, begin, end, m->width, run_down);
}

KERNEL_INLINE void add_weighted_body(float *restrict sum, const float *restrict y, int64_t count, float weight) {
  for (int64_t i = 0; i < count; i++) {
    sum[i] += weight * y[i];
  }
}
KERNEL_MULTI(static, add_weighted, (float *restrict sum, const float *restrict y, int64_t count, float weight),
             (sum, y, count, weight))

/// The weighted sum of one token's experts. `sum` has room for a row.
static void add_experts(const struct moe *m, int64_t token, float *sum) {
  const struct dit_tensor_view *given = &m->call->topk_weights;
  float total = 0;
  memset(sum, 0, sizeof(float) * (size_t)m->width);
  for (int64_t k = 0; k < m->topk; k++) {
    total += row_number(given, (m->first + token) * given->strides[0] + k);
  }
  for (int64_t k = 0; k < m->topk; k++) {
    const int64_t place = m->places[token * m->topk + k];
    const float weight = row_number(given, (m->first + token) * given->strides[0] + k);
    if (place >= 0) {
      add_weighted(sum, m->y + place * m->width, m->width, m->call->renormalize ? weight / total : weight);
    }
  }
  row_write(&m->call->out, (m->first + token) * m->width, m->width, sum);
}

static void add_tokens(void *context, int64_t begin, int64_t end) {
  struct moe *m = context;
  float *sum = scratch_take(sizeof(float) * (size_t)m->width);
  if (!sum) {
    atomic_store(&m->failed, true);
    return;
  }
  for (int64_t token = begin; token < end; token++) {
    add_experts(m, token, sum);
  }
  scratch_give(sum);
}

static enum dit_status run_part(struct moe *m, struct dit_error *err) {
  sort_tokens(m);
  dit_parallel_for(0, m->count, 1 + 65536 / (m->tokens * m->width + 1), gather_tokens, m);
  memset(m->hidden, 0, m->hidden_row > m->inner ? sizeof(float) * (size_t)((m->y - m->hidden)) : 0);
  if (!atomic_load(&m->failed)) {
    dit_parallel_for(0, m->count * ((m->inner + TILE - 1) / TILE), 1, run_ups, m);
    dit_parallel_for(0, m->count * ((m->width + TILE - 1) / TILE), 1, run_downs, m);
    dit_parallel_for(0, m->tokens, 16, add_tokens, m);
  }
  return atomic_load(&m->failed) ? INFER_NO_MEMORY(err) : DIT_OK;
}

enum dit_status infer_fused_moe(const struct dit_infer_fused_moe *call, struct dit_error *err) {
  struct moe m = {.call = call,
                  .width = call->hidden_states.sizes[1],
                  .inner = call->down_weights.sizes[2],
                  .count = call->gate_up_weights.sizes[0],
                  .topk = call->topk_ids.sizes[1]};
  const int64_t tokens = call->hidden_states.sizes[0], most = tokens < MOE_TOKENS ? tokens : MOE_TOKENS;
  m.few = gemm_is_batch_invariant() ? 0 : PANEL_FEW;
  const int64_t asked = most * m.topk, crowded = asked / (m.few + 1);  // experts that may have many rows
  const int64_t rows = asked + (PANEL_LANES - 1) * (crowded < m.count ? crowded : m.count);
  enum dit_status status = DIT_OK;
  if (call->out.numel == 0) {
    return DIT_OK;
  }
  m.x_row = panel_round(m.width);
  m.hidden_row = panel_round(m.inner);
  m.places = scratch_take(sizeof(int64_t) * (size_t)(asked + rows) + sizeof *m.experts * (size_t)m.count);
  m.x = scratch_take(sizeof(float) * (size_t)(rows * (m.x_row + m.hidden_row + m.width) + 1));
  if (m.places && m.x) {
    m.sources = m.places + asked;
    m.experts = (struct expert *)(void *)(m.sources + rows);
    m.hidden = m.x + rows * m.x_row;
    m.y = m.hidden + rows * m.hidden_row;
  } else {
    status = INFER_NO_MEMORY(err);
  }
  for (; m.first < tokens && status == DIT_OK; m.first += most) {
    m.tokens = tokens - m.first < most ? tokens - m.first : most;
    status = run_part(&m, err);
  }
  scratch_give(m.places);
  scratch_give(m.x);
  return status;
}
