/// Attention of a few rows of queries for each key head, as in decoding: the keys are read where they lie, in the order
/// of memory (a block of tokens, all of the task's heads, while the next block is asked for), and widened in registers.
#include <math.h>
#include <string.h>

#include "attention_work.h"
#include "engine/mathf.h"
#include "engine/scratch.h"
#include "engine/simd.h"
#include "panel.h"

#define KEYS 32   ///< tokens of a block
#define LANES 16  ///< sums of a row's weights

/// One row of scores of a block: soft limit, slope and mask; keys outside [low, high) are hidden.
KERNEL_INLINE void shape_row_body(float *scores, int64_t low, int64_t high, float softcap, float slope,
                                  float distance) {
  if (softcap > 0) {
    KERNEL_LANES
    for (int64_t j = 0; j < KEYS; j++) {
      scores[j] = softcap * tanh_f32(scores[j] / softcap);
    }
  }
  if (slope != 0) {
    KERNEL_LANES
    for (int64_t j = 0; j < KEYS; j++) {
      scores[j] -= slope * fabsf(distance - (float)j);
    }
  }
  for (int64_t j = 0; j < low && j < KEYS; j++) {
    scores[j] = -INFINITY;
  }
  for (int64_t j = high < 0 ? 0 : high; j < KEYS; j++) {
    scores[j] = -INFINITY;
  }
}
KERNEL_MULTI(static, shape_row, (float *scores, int64_t low, int64_t high, float softcap, float slope, float distance),
             (scores, low, high, softcap, slope, distance))

/// p = exp(p - maximum so far) of a block; the weights are added to LANES sums. Where the maximum grew, the sums are
/// scaled and `factor` tells by what; a NaN among the scores is one in the weights.
KERNEL_INLINE void weigh_row_body(float *restrict p, float *restrict sums, float *max, float *factor) {
  float most[LANES];
  for (int l = 0; l < LANES; l++) {
    most[l] = p[l];
  }
  for (int j = LANES; j < KEYS; j += LANES) {
    for (int l = 0; l < LANES; l++) {
      most[l] = p[j + l] > most[l] ? p[j + l] : most[l];
    }
  }
  for (int l = 0; l < LANES / 2; l++) {
    most[l] = most[l + LANES / 2] > most[l] ? most[l + LANES / 2] : most[l];
  }
  for (int l = 0; l < LANES / 4; l++) {
    most[l] = most[l + LANES / 4] > most[l] ? most[l + LANES / 4] : most[l];
  }
  for (int l = 0; l < LANES / 8; l++) {
    most[l] = most[l + LANES / 8] > most[l] ? most[l + LANES / 8] : most[l];
  }
  float top = most[1] > most[0] ? most[1] : most[0];
  *factor = 1;
  if (top > *max) {
    *factor = exp_f32(*max - top);
    *max = top;
    for (int l = 0; l < LANES; l++) {
      sums[l] *= *factor;
    }
  }
  top = *max == -INFINITY ? 0 : *max;
  KERNEL_LANES
  for (int j = 0; j < KEYS; j++) {
    p[j] = exp_f32(p[j] - top);
  }
  for (int j = 0; j < KEYS; j += LANES) {
    for (int l = 0; l < LANES; l++) {
      sums[l] += p[j + l];
    }
  }
}
KERNEL_MULTI(static, weigh_row, (float *restrict p, float *restrict sums, float *max, float *factor),
             (p, sums, max, factor))

KERNEL_INLINE void scale_row_body(float *p, int64_t count, float factor) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    p[i] *= factor;
  }
}
KERNEL_MULTI(static, scale_row, (float *p, int64_t count, float factor), (p, count, factor))

struct few {
  const struct attention_call *call;
  const struct attention_task *task;
  int64_t rows, width, value_width;        ///< rows of a key head; widths of padded rows
  float *q, *acc, *p, *max, *sums, *bias;  ///< sums: LANES for each row
  struct attention_place *places;
  const char *k[KEYS + PANEL_AHEAD], *v[KEYS + PANEL_AHEAD];
};

/// Tokens of a block and some behind it; returns how many the latter are.
static int64_t find_tokens(struct few *f, int64_t first, int64_t keys) {
  const int64_t rest = f->task->end - first, count = rest < KEYS + PANEL_AHEAD ? rest : KEYS + PANEL_AHEAD;
  for (int64_t j = 0; j < count; j++) {
    f->k[j] = attention_token(f->call, &f->call->k, f->task, first + j);
    f->v[j] = attention_token(f->call, &f->call->v, f->task, first + j);
  }
  return count - keys;
}

static void weigh_keys(const struct few *f, int64_t row, int64_t first, int64_t keys) {
  const struct attention_call *call = f->call;
  const struct attention_place *place = &f->places[row];
  const float slope = call->slopes ? call->slopes[place->head] : 0;
  const int64_t low = attention_low(call, place->own) - first, high = attention_high(call, place->own) - first;
  float *p = f->p + row * KEYS, factor = 1;
  for (int64_t j = 0; j < keys && f->bias[row] != 0; j++) {
    p[j] += f->bias[row];
  }
  if (low > 0 || high < KEYS || keys < KEYS || call->softcap > 0 || slope != 0) {
    shape_row(p, low, high < keys ? high : keys, (float)call->softcap, slope, (float)(place->own - first));
  }
  weigh_row(p, f->sums + row * LANES, &f->max[row], &factor);
  if (factor != 1) {
    scale_row(f->acc + row * f->value_width, f->value_width, factor);
  }
}

/// Keys or values of a block, all heads together where they lie together, else one after the other.
static void run_panel(const struct few *f, const struct attention_rows *rows, struct panel_few *panel,
                      void (*run)(const struct panel_few *)) {
  const int64_t heads = f->task->heads;
  panel->dtype = rows->dtype;
  panel->few = f->rows;
  panel->offset = f->task->head * rows->head * rows->size;
  panel->head = rows->head * rows->size;
  panel->heads = rows->head == panel->width ? heads : 1;
  for (int64_t head = 0; head < heads; head += panel->heads) {
    run(panel);
    panel->offset += panel->head;
    panel->x += panel->x_head;
    panel->out += panel->out_head;
  }
}

static void add_block(struct few *f, int64_t first) {
  const struct attention_call *call = f->call;
  const int64_t keys = f->task->end - first < KEYS ? f->task->end - first : KEYS;
  const int64_t ahead = find_tokens(f, first, keys);
  struct panel_few scores = {.rows = f->k,
                             .count = keys,
                             .ahead = ahead,
                             .width = call->width,
                             .x = f->q,
                             .x_row = f->width,
                             .x_head = f->rows * f->width,
                             .out = f->p,
                             .out_row = KEYS,
                             .out_head = f->rows * KEYS};
  run_panel(f, &call->k, &scores, panel_dot);
  for (int64_t row = 0; row < f->rows * f->task->heads; row++) {
    weigh_keys(f, row, first, keys);
  }
  struct panel_few values = {.rows = f->v,
                             .count = keys,
                             .ahead = ahead,
                             .width = call->value_width,
                             .x = f->p,
                             .x_row = KEYS,
                             .x_head = f->rows * KEYS,
                             .out = f->acc,
                             .out_row = f->value_width,
                             .out_head = f->rows * f->value_width};
  run_panel(f, &call->v, &values, panel_add);
}

bool attention_run_few(const struct attention_work *work, const struct attention_task *task) {
  const struct attention_call *call = work->call;
  struct few f = {.call = call,
                  .task = task,
                  .rows = task->count * attention_group(call),
                  .width = panel_round(call->width),
                  .value_width = panel_round(call->value_width)};
  const int64_t all = f.rows * task->heads;
  f.q = scratch_take(sizeof(float) * (size_t)(all * (f.width + f.value_width + KEYS + LANES + 2)) +
                     sizeof(struct attention_place) * (size_t)all);
  if (!f.q) {
    return false;
  }
  f.acc = f.q + all * f.width;
  f.p = f.acc + all * f.value_width;
  f.sums = f.p + all * KEYS;
  f.places = (struct attention_place *)(void *)(f.sums + all * LANES);
  f.max = (float *)(void *)(f.places + all);
  f.bias = f.max + all;
  memset(f.acc, 0, sizeof(float) * (size_t)(all * f.value_width));
  memset(f.p, 0, sizeof(float) * (size_t)(all * (KEYS + LANES)));  // and the sums
  for (int64_t row = 0; row < all; row++) {
    f.places[row] = attention_find(call, task, row);
    f.bias[row] = attention_load(call, &f.places[row], f.q + row * f.width);
    f.max[row] = -INFINITY;
  }
  for (int64_t first = task->begin; first < task->end; first += KEYS) {
    add_block(&f, first);
  }
  for (int64_t row = 0; row < all; row++) {
    float sum = 0;
    for (int l = 0; l < LANES; l++) {
      sum += f.sums[row * LANES + l];
    }
    attention_store(work, task, row, f.max[row], sum, f.acc + row * f.value_width);
  }
  scratch_give(f.q);
  return true;
}
