/// One new token per sequence on the host (see attention_token.h): a task per sequence and head of the pool.
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "attention_token.h"
#include "dit/parallel.h"
#include "engine/rows.h"
#include "engine/scratch.h"

struct step_run {
  const struct token_step *step;
  atomic_bool failed;
};

/// One head of one sequence; `line` has room for its scores, `row` for a row of a pool.
#define DEFINE_STEP(REAL, suffix, EXP)                                                                             \
  static void score_##suffix(const struct token_step *s, int64_t sequence, int64_t head, REAL *line, REAL *row) {  \
    const int64_t count = s->lengths[sequence], *places = s->places + s->offsets[sequence];                        \
    const REAL *q = (const REAL *)s->q + (sequence * s->heads + head) * s->width;                                  \
    for (int64_t j = 0; j < count; j++) {                                                                          \
      token_pool_fetch(s->k, places[j], head / (s->heads / s->k->heads), row);                                     \
      line[j] = (REAL)(row_dot_##suffix(q, row, s->width) * s->scale);                                             \
    }                                                                                                              \
  }                                                                                                                \
  static void reduce_##suffix(const struct token_step *s, int64_t sequence, int64_t head, REAL *line, REAL *row) { \
    const int64_t count = s->lengths[sequence], *places = s->places + s->offsets[sequence];                        \
    REAL *out = (REAL *)s->out + (sequence * s->heads + head) * s->width, max = -(REAL)INFINITY, sum = 0;          \
    for (int64_t j = 0; j < count; j++) {                                                                          \
      if (s->mask && s->mask[sequence * s->mask_sequence + head * s->mask_head + j * s->mask_key]) {               \
        line[j] = -(REAL)INFINITY;                                                                                 \
      }                                                                                                            \
      max = line[j] > max || line[j] != line[j] ? line[j] : max;                                                   \
    }                                                                                                              \
    memset(out, 0, sizeof(REAL) * (size_t)s->width);                                                               \
    for (int64_t j = 0; j < count; j++) {                                                                          \
      const REAL weight = max == -(REAL)INFINITY ? 0 : EXP(line[j] - max);                                         \
      sum += weight;                                                                                               \
      if (weight == 0) {                                                                                           \
        continue;                                                                                                  \
      }                                                                                                            \
      token_pool_fetch(s->v, places[j], head / (s->heads / s->v->heads), row);                                     \
      for (int64_t i = 0; i < s->width; i++) {                                                                     \
        out[i] += weight * row[i];                                                                                 \
      }                                                                                                            \
    }                                                                                                              \
    for (int64_t i = 0; i < s->width; i++) {                                                                       \
      out[i] = sum == 0 ? 0 : out[i] / sum;                                                                        \
    }                                                                                                              \
  }                                                                                                                \
  static void run_##suffix(void *context, int64_t begin, int64_t end) {                                            \
    struct step_run *run = context;                                                                                \
    const struct token_step *s = run->step;                                                                        \
    for (int64_t i = begin; i < end; i++) {                                                                        \
      const int64_t sequence = i / s->heads, head = i % s->heads, count = s->lengths[sequence];                    \
      REAL *room = scratch_take(sizeof(REAL) * (size_t)(count + s->width + 1)), *line = room + s->width;           \
      if (!room) {                                                                                                 \
        atomic_store(&run->failed, true);                                                                          \
        return;                                                                                                    \
      }                                                                                                            \
      REAL *scores = s->scores ? (REAL *)s->scores + head * s->score_row + s->starts[sequence] : NULL;             \
      if (s->k) {                                                                                                  \
        score_##suffix(s, sequence, head, scores ? scores : line, room);                                           \
      }                                                                                                            \
      if (s->v) {                                                                                                  \
        memcpy(line, scores ? scores : line, scores ? sizeof(REAL) * (size_t)count : 0);                           \
        reduce_##suffix(s, sequence, head, line, room);                                                            \
      }                                                                                                            \
      scratch_give(room);                                                                                          \
    }                                                                                                              \
  }
DEFINE_STEP(float, f32, expf)
DEFINE_STEP(double, f64, exp)

bool token_step_run(const struct token_step *step, bool wide) {
  struct step_run run = {step, false};
  dit_parallel_for(0, step->sequences * step->heads, 1, wide ? run_f64 : run_f32, &run);
  return !atomic_load(&run.failed);
}
