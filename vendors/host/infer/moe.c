/// Mixture of experts. Gating: softmax over the experts in float, the largest `topk`; equal ones in the order of their
/// numbers. fused_moe: tokens are sorted by expert; for each expert and tile of its outputs the weights are widened
/// once and multiplied with all of its tokens; results are added up per token in the order of its experts. At most
/// MOE_TOKENS tokens at a time, so the working space does not grow with the prompt.
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "dit/parallel.h"
#include "engine/scratch.h"
#include "infer.h"
#include "product.h"
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

struct moe {
  const struct dit_infer_fused_moe *call;
  int64_t first, tokens;  ///< the part of the tokens that is in work
  int64_t width, inner, experts, topk, tiles;
  int64_t *ends;    ///< experts + 1: where an expert's rows begin
  int64_t *places;  ///< row of (token, k); -1: none
  float *x, *hidden, *y;
  atomic_bool failed;
};

/// Counts, then ends, then places: rows of one expert keep the order of their tokens.
static void sort_tokens(struct moe *m) {
  const struct dit_tensor_view *ids = &m->call->topk_ids, *x = &m->call->hidden_states;
  memset(m->ends, 0, sizeof(int64_t) * (size_t)(m->experts + 2));
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t i = 0; i < m->tokens * m->topk; i++) {
      const int64_t token = m->first + i / m->topk;
      const int64_t id = row_index(ids, token * ids->strides[0] + i % m->topk);
      if (id < 0 || id >= m->experts) {
        m->places[i] = -1;
      } else if (pass == 0) {
        m->ends[id + 2]++;
      } else {
        m->places[i] = m->ends[id + 1]++;
        cast_block(DIT_DTYPE_F32, m->x + m->places[i] * m->width, x->dtype, row_at(x, token * x->strides[0]), m->width);
      }
    }
    for (int64_t e = 0; e < m->experts && pass == 0; e++) {
      m->ends[e + 2] += m->ends[e + 1];
    }
  }
}

/// Rows `first` on of an expert's matrix, widened.
static void load_weights(const struct dit_tensor_view *w, int64_t expert, int64_t first, int64_t count, int64_t depth,
                         float *tile) {
  for (int64_t j = 0; j < count; j++) {
    cast_block(DIT_DTYPE_F32, tile + j * depth, w->dtype,
               row_at(w, expert * w->strides[0] + (first + j) * w->strides[1]), depth);
  }
}

static void run_up(struct moe *m, int64_t expert, int64_t first, int64_t count, float *tile) {
  const int64_t begin = m->ends[expert], rows = m->ends[expert + 1] - begin;
  float *gate = tile + PRODUCT_TILE * m->width, *up = gate + rows * count;
  load_weights(&m->call->gate_up_weights, expert, first, count, m->width, tile);
  infer_multiply(gate, m->x + begin * m->width, tile, rows, count, m->width);
  load_weights(&m->call->gate_up_weights, expert, m->inner + first, count, m->width, tile);
  infer_multiply(up, m->x + begin * m->width, tile, rows, count, m->width);
  for (int64_t row = 0; row < rows; row++) {
    infer_gate_row(m->hidden + (begin + row) * m->inner + first, gate + row * count, up + row * count, count);
  }
}

static void run_down(struct moe *m, int64_t expert, int64_t first, int64_t count, float *tile) {
  const int64_t begin = m->ends[expert], rows = m->ends[expert + 1] - begin;
  float *out = tile + PRODUCT_TILE * m->inner;
  load_weights(&m->call->down_weights, expert, first, count, m->inner, tile);
  infer_multiply(out, m->hidden + begin * m->inner, tile, rows, count, m->inner);
  for (int64_t row = 0; row < rows; row++) {
    memcpy(m->y + (begin + row) * m->width + first, out + row * count, sizeof(float) * (size_t)count);
  }
}

static void run_tiles(struct moe *m, int64_t begin, int64_t end, int64_t outputs, int64_t depth,
                      void (*run)(struct moe *, int64_t, int64_t, int64_t, float *)) {
  const int64_t tiles = (outputs + PRODUCT_TILE - 1) / PRODUCT_TILE;
  for (int64_t i = begin; i < end; i++) {
    const int64_t expert = i / tiles, first = i % tiles * PRODUCT_TILE, rows = m->ends[expert + 1] - m->ends[expert];
    if (rows == 0) {
      continue;
    }
    float *tile = scratch_take(sizeof(float) * (size_t)(PRODUCT_TILE * (depth + 2 * rows)));
    if (!tile) {
      atomic_store(&m->failed, true);
      return;
    }
    run(m, expert, first, outputs - first < PRODUCT_TILE ? outputs - first : PRODUCT_TILE, tile);
    scratch_give(tile);
  }
}

static void run_ups(void *context, int64_t begin, int64_t end) {
  struct moe *m = context;
  run_tiles(m, begin, end, m->inner, m->width, run_up);
}

static void run_downs(void *context, int64_t begin, int64_t end) {
  struct moe *m = context;
  run_tiles(m, begin, end, m->width, m->inner, run_down);
}

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
    float weight = row_number(given, (m->first + token) * given->strides[0] + k);
    weight = m->call->renormalize ? weight / total : weight;
    for (int64_t i = 0; i < m->width && place >= 0; i++) {
      sum[i] += weight * m->y[place * m->width + i];
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
  const int64_t up = m->experts * ((m->inner + PRODUCT_TILE - 1) / PRODUCT_TILE);
  const int64_t down = m->experts * ((m->width + PRODUCT_TILE - 1) / PRODUCT_TILE);
  sort_tokens(m);
  dit_parallel_for(0, up, 1, run_ups, m);
  dit_parallel_for(0, down, 1, run_downs, m);
  dit_parallel_for(0, m->tokens, 16, add_tokens, m);
  return atomic_load(&m->failed) ? INFER_NO_MEMORY(err) : DIT_OK;
}

enum dit_status infer_fused_moe(const struct dit_infer_fused_moe *call, struct dit_error *err) {
  struct moe m = {.call = call,
                  .width = call->hidden_states.sizes[1],
                  .inner = call->down_weights.sizes[2],
                  .experts = call->gate_up_weights.sizes[0],
                  .topk = call->topk_ids.sizes[1]};
  const int64_t tokens = call->hidden_states.sizes[0], most = tokens < MOE_TOKENS ? tokens : MOE_TOKENS;
  const int64_t rows = most * m.topk;
  enum dit_status status = DIT_OK;
  if (call->out.numel == 0) {
    return DIT_OK;
  }
  m.ends = scratch_take(sizeof(int64_t) * (size_t)(m.experts + 2 + rows));
  m.x = scratch_take(sizeof(float) * (size_t)(rows * (2 * m.width + m.inner) + 1));
  if (m.ends && m.x) {
    m.places = m.ends + m.experts + 2;
    m.y = m.x + rows * m.width;
    m.hidden = m.y + rows * m.width;
  } else {
    status = INFER_NO_MEMORY(err);
  }
  for (; m.first < tokens && status == DIT_OK; m.first += most) {
    m.tokens = tokens - m.first < most ? tokens - m.first : most;
    status = run_part(&m, err);
  }
  scratch_give(m.ends);
  scratch_give(m.x);
  return status;
}
