/// Attention of many rows of queries that share a key head, as in prefill. The rows lie in the lanes of vectors: scores
/// (keys x rows) = K (keys x width) @ Q^T, result (values' width x rows) += V^T @ P. So keys and values stay as they
/// lie, softmax runs down the columns without sums across lanes, and only the queries are turned, once.
#include <math.h>
#include <string.h>

#include "attention_work.h"
#include "engine/cast.h"
#include "engine/mathf.h"
#include "engine/scratch.h"
#include "engine/simd.h"
#include "panel.h"

#define KEYS 64   ///< tokens of a tile
#define LANES 64  ///< rows of a block, at most

/// One block of rows against one tile of keys.
struct columns {
  float *p;  ///< keys x lanes
  int64_t lanes, keys, first;
  float *max, *sum, *factor, *bias;  ///< one for each lane, as the following
  const float *slopes;               ///< or NULL
  const int32_t *own, *low, *high;   ///< position, and keys that are seen
  float softcap;
  bool masked, biased;
};

/// Soft limit, slope and mask.
KERNEL_INLINE void shape_columns_body(const struct columns *c) {
  for (int64_t j = 0; j < c->keys; j++) {
    float *restrict p = c->p + j * c->lanes;
    const int32_t key = (int32_t)(c->first + j);
    if (c->biased) {
      for (int64_t l = 0; l < c->lanes; l++) {
        p[l] += c->bias[l];
      }
    }
    if (c->softcap > 0) {
      for (int64_t l = 0; l < c->lanes; l++) {
        p[l] = c->softcap * tanh_f32(p[l] / c->softcap);
      }
    }
    if (c->slopes) {
      for (int64_t l = 0; l < c->lanes; l++) {
        p[l] -= c->slopes[l] * fabsf((float)(c->own[l] - key));
      }
    }
    if (c->masked) {
      for (int64_t l = 0; l < c->lanes; l++) {
        p[l] = key < c->low[l] || key >= c->high[l] ? -INFINITY : p[l];
      }
    }
  }
}
KERNEL_MULTI(static, shape_columns, (const struct columns *c), (c))

/// p = exp(p - max), 16 lanes at a time; the maxima and sums so far are joined. `changed`: a maximum grew.
KERNEL_INLINE void weigh_columns_body(const struct columns *c, bool *changed) {
  int grown = 0;
  for (int64_t from = 0; from < c->lanes; from += PANEL_LANES) {
    float top[PANEL_LANES], sum[PANEL_LANES], safe[PANEL_LANES];
    for (int l = 0; l < PANEL_LANES; l++) {
      top[l] = c->max[from + l];
    }
    for (int64_t j = 0; j < c->keys; j++) {
      const float *p = c->p + j * c->lanes + from;
      for (int l = 0; l < PANEL_LANES; l++) {
        top[l] = p[l] > top[l] || p[l] != p[l] ? p[l] : top[l];
      }
    }
    for (int l = 0; l < PANEL_LANES; l++) {
      safe[l] = top[l] == -INFINITY ? 0 : top[l];
      const float factor = exp_f32(c->max[from + l] - safe[l]);
      grown |= top[l] != c->max[from + l];
      c->factor[from + l] = factor;
      c->max[from + l] = top[l];
      sum[l] = c->sum[from + l] * factor;
    }
    for (int64_t j = 0; j < c->keys; j++) {
      float *p = c->p + j * c->lanes + from;
      for (int l = 0; l < PANEL_LANES; l++) {
        p[l] = exp_f32(p[l] - safe[l]);
        sum[l] += p[l];
      }
    }
    for (int l = 0; l < PANEL_LANES; l++) {
      c->sum[from + l] = sum[l];
    }
  }
  *changed = grown != 0;
}
KERNEL_MULTI(static, weigh_columns, (const struct columns *c, bool *changed), (c, changed))

KERNEL_INLINE void scale_columns_body(float *restrict acc, int64_t width, int64_t lanes, const float *restrict factor) {
  for (int64_t i = 0; i < width; i++) {
    for (int64_t l = 0; l < lanes; l++) {
      acc[i * lanes + l] *= factor[l];
    }
  }
}
KERNEL_MULTI(static, scale_columns, (float *restrict acc, int64_t width, int64_t lanes, const float *restrict factor),
             (acc, width, lanes, factor))

struct many {
  const struct attention_call *call;
  const struct attention_task *task;
  int64_t rows, lanes, blocks;        ///< lanes of a block
  float *q, *acc, *k, *v, *p, *line;  ///< q: blocks x width x lanes, acc: blocks x value_width x lanes
  float *max, *sum, *factor, *bias, *slopes;
  int32_t *own, *low, *high;
};

/// Keys or values of a tile as rows of floats, `*row` apart: where they lie when they are float and packed.
static const float *fetch(const struct many *m, const struct attention_rows *rows, int64_t first, int64_t keys,
                          int64_t width, float *room, int64_t *row) {
  const int64_t offset = m->task->head * rows->head * rows->size;
  if (rows->dtype == DIT_DTYPE_F32 && !m->call->blocks) {
    *row = rows->row;
    return (const float *)(const void *)(attention_token(m->call, rows, m->task, first) + offset);
  }
  *row = width;
  for (int64_t j = 0; j < keys; j++) {
    cast_block(DIT_DTYPE_F32, room + j * width, rows->dtype,
               attention_token(m->call, rows, m->task, first + j) + offset, width);
  }
  return room;
}

static void load_queries(const struct many *m) {
  const struct attention_call *call = m->call;
  memset(m->q, 0, sizeof(float) * (size_t)(m->blocks * m->lanes * call->width));
  memset(m->acc, 0, sizeof(float) * (size_t)(m->blocks * m->lanes * call->value_width));
  for (int64_t row = 0; row < m->blocks * m->lanes; row++) {
    const struct attention_place place = attention_find(call, m->task, row < m->rows ? row : m->rows - 1);
    float *q = m->q + row / m->lanes * m->lanes * call->width + row % m->lanes;
    m->bias[row] = attention_load(call, &place, m->line);
    m->own[row] = (int32_t)place.own;
    m->low[row] = (int32_t)attention_low(call, place.own);
    m->high[row] = (int32_t)attention_high(call, place.own);
    m->slopes[row] = call->slopes ? call->slopes[place.head] : 0;
    m->max[row] = -INFINITY;
    m->sum[row] = 0;
    for (int64_t i = 0; i < call->width && row < m->rows; i++) {
      q[i * m->lanes] = m->line[i];
    }
  }
}

/// Rows rise: the first row of a block sees the earliest keys, the last one the latest.
static void add_block(const struct many *m, int64_t block, int64_t first, int64_t keys, const float *k, int64_t k_row,
                      const float *v, int64_t v_row) {
  const struct attention_call *call = m->call;
  const int64_t from = block * m->lanes, last = from + m->lanes - 1;
  if (m->high[last] <= first || m->low[from] >= first + keys) {
    return;
  }
  struct columns c = {.p = m->p,
                      .lanes = m->lanes,
                      .keys = keys,
                      .first = first,
                      .max = m->max + from,
                      .sum = m->sum + from,
                      .factor = m->factor + from,
                      .bias = m->bias + from,
                      .slopes = call->slopes ? m->slopes + from : NULL,
                      .own = m->own + from,
                      .low = m->low + from,
                      .high = m->high + from,
                      .softcap = (float)call->softcap,
                      .masked = m->high[from] < first + keys || m->low[last] > first,
                      .biased = call->k.zero != 0};
  const struct panel_product scores = {.c = m->p,
                                       .a = k,
                                       .b = m->q + from * call->width,
                                       .c_row = m->lanes,
                                       .a_row = k_row,
                                       .a_column = 1,
                                       .b_row = m->lanes,
                                       .m = keys,
                                       .lanes = m->lanes,
                                       .k = call->width};
  panel_multiply(&scores);
  if (c.softcap > 0 || c.slopes || c.masked || c.biased) {
    shape_columns(&c);
  }
  bool changed = false;
  weigh_columns(&c, &changed);
  float *acc = m->acc + from * call->value_width;
  if (changed) {
    scale_columns(acc, call->value_width, m->lanes, c.factor);
  }
  const struct panel_product values = {.c = acc,
                                       .a = v,
                                       .b = m->p,
                                       .c_row = m->lanes,
                                       .a_row = 1,
                                       .a_column = v_row,
                                       .b_row = m->lanes,
                                       .m = call->value_width,
                                       .lanes = m->lanes,
                                       .k = keys,
                                       .adds = true};
  panel_multiply(&values);
}

static bool take_room(struct many *m) {
  const struct attention_call *call = m->call;
  const int64_t both = call->width + call->value_width, all = m->blocks * m->lanes;
  m->q = scratch_take(sizeof(float) * (size_t)(all * (both + 8) + KEYS * (m->lanes + both) + panel_round(both)));
  if (!m->q) {
    return false;
  }
  m->acc = m->q + all * call->width;
  m->p = m->acc + all * call->value_width;
  m->max = m->p + KEYS * m->lanes;
  m->sum = m->max + all;
  m->factor = m->sum + all;
  m->bias = m->factor + all;
  m->slopes = m->bias + all;
  m->own = (int32_t *)(void *)(m->slopes + all);
  m->low = m->own + all;
  m->high = m->low + all;
  m->k = (float *)(void *)(m->high + all);
  m->v = m->k + KEYS * call->width;
  m->line = m->v + KEYS * call->value_width;
  return true;
}

bool attention_run_many(const struct attention_work *work, const struct attention_task *task) {
  const struct attention_call *call = work->call;
  struct many m = {.call = call, .task = task, .rows = task->count * attention_group(call)};
  m.lanes = m.rows < LANES ? panel_round(m.rows) : LANES;
  m.blocks = (m.rows + m.lanes - 1) / m.lanes;
  if (!take_room(&m)) {
    return false;
  }
  load_queries(&m);
  for (int64_t first = task->begin; first < task->end; first += KEYS) {
    const int64_t keys = task->end - first < KEYS ? task->end - first : KEYS;
    int64_t k_row, v_row;
    const float *k = fetch(&m, &call->k, first, keys, call->width, m.k, &k_row);
    const float *v = fetch(&m, &call->v, first, keys, call->value_width, m.v, &v_row);
    for (int64_t block = 0; block < m.blocks; block++) {
      add_block(&m, block, first, keys, k, k_row, v, v_row);
    }
  }
  for (int64_t row = 0; row < m.rows; row++) {
    const float *acc = m.acc + row / m.lanes * m.lanes * call->value_width + row % m.lanes;
    for (int64_t i = 0; i < call->value_width; i++) {
      m.line[i] = acc[i * m.lanes];
    }
    attention_store(work, task, row, m.max[row], m.sum[row], m.line);
  }
  scratch_give(m.q);
  return true;
}
