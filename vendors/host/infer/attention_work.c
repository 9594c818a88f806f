/// Attention in tiles with running maxima and sums. A task is a tile of queries of one sequence for all heads that
/// share a key head, so that each key is read and widened once for them. Where a sequence has few queries (decoding)
/// its keys are cut into pieces of SPLIT tokens, which are joined in a second step: one long sequence keeps all threads
/// busy, and the result does not depend on their number.
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "dit/parallel.h"
#include "engine/gemm.h"
#include "engine/mathf.h"
#include "engine/scratch.h"
#include "engine/simd.h"
#include "row.h"

#define QUERY_ROWS 64  ///< rows (query x head of the group) of a tile, about
#define FEW_ROWS 8     ///< up to here dot products are faster than a packed product
#define KEYS 32        ///< keys of a tile of few rows; many rows take MANY_KEYS
#define MANY_KEYS 128
#define SPLIT 512
#define AHEAD 16  ///< tokens between the one that is read and the one that is asked for

struct attention_task {
  int32_t sequence, head;  ///< head of the keys
  int64_t first, count;    ///< queries of the sequence
  int64_t begin, end;      ///< keys
  int64_t partial;         ///< place of the piece's result; -1: the whole, written at once
  int64_t pieces;          ///< of the first piece: how many there are
};

struct attention_work {
  const struct attention_call *call;
  struct attention_task *tasks;
  int64_t count, partials;
  float *room;  ///< of the pieces: maximum, sum and `value_width` numbers for each row
  atomic_bool failed;
};

// Loops for few rows

KERNEL_INLINE void score_keys_body(float *scores, const float *q, const float *k, int64_t rows, int64_t keys,
                                   int64_t width) {
  for (int64_t j = 0; j < keys; j++) {
    const float *key = k + j * width;
    for (int64_t r = 0; r < rows; r++) {
      const float *query = q + r * width;
      float lanes[32] = {0}, sum = 0;
      int64_t i = 0;
      for (; i + 32 <= width; i += 32) {
        for (int l = 0; l < 32; l++) {
          lanes[l] += query[i + l] * key[i + l];
        }
      }
      for (; i < width; i++) {
        sum += query[i] * key[i];
      }
      for (int l = 0; l < 16; l++) {
        lanes[l] += lanes[l + 16];
      }
      for (int l = 0; l < 8; l++) {
        lanes[l] += lanes[l + 8];
      }
      for (int l = 0; l < 8; l++) {
        sum += lanes[l];
      }
      scores[r * keys + j] = sum;
    }
  }
}
KERNEL_MULTI(static, score_keys,
             (float *scores, const float *q, const float *k, int64_t rows, int64_t keys, int64_t width),
             (scores, q, k, rows, keys, width))

KERNEL_INLINE void add_values_body(float *acc, const float *p, const float *v, int64_t rows, int64_t keys,
                                   int64_t width) {
  for (int64_t r = 0; r < rows; r++) {
    float *out = acc + r * width;
    int64_t j = 0;
    for (; j + 4 <= keys; j += 4) {
      const float a = p[r * keys + j], b = p[r * keys + j + 1], c = p[r * keys + j + 2], d = p[r * keys + j + 3];
      const float *x = v + j * width, *y = x + width, *z = y + width, *w = z + width;
      KERNEL_LANES
      for (int64_t i = 0; i < width; i++) {
        out[i] += a * x[i] + b * y[i] + c * z[i] + d * w[i];
      }
    }
    for (; j < keys; j++) {
      const float a = p[r * keys + j], *x = v + j * width;
      KERNEL_LANES
      for (int64_t i = 0; i < width; i++) {
        out[i] += a * x[i];
      }
    }
  }
}
KERNEL_MULTI(static, add_values,
             (float *acc, const float *p, const float *v, int64_t rows, int64_t keys, int64_t width),
             (acc, p, v, rows, keys, width))

/// p = exp(s - max), their sum added to *sum.
KERNEL_INLINE void weigh_row_body(float *p, int64_t keys, float max, float *sum) {
  float lanes[16] = {0}, total = 0;
  int64_t j = 0;
  for (; j + 16 <= keys; j += 16) {
    for (int l = 0; l < 16; l++) {
      const float weight = exp_f32(p[j + l] - max);
      p[j + l] = weight;
      lanes[l] += weight;
    }
  }
  for (; j < keys; j++) {
    p[j] = exp_f32(p[j] - max);
    total += p[j];
  }
  for (int l = 0; l < 16; l++) {
    total += lanes[l];
  }
  *sum += total;
}
KERNEL_MULTI(static, weigh_row, (float *p, int64_t keys, float max, float *sum), (p, keys, max, sum))

KERNEL_INLINE void dequantize_body(float *out, const int8_t *q, int64_t count, float scale, float zero) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    out[i] = ((float)q[i] + zero) * scale;
  }
}
KERNEL_MULTI(static, dequantize, (float *out, const int8_t *q, int64_t count, float scale, float zero),
             (out, q, count, scale, zero))

KERNEL_INLINE void scale_row_body(float *p, int64_t count, float factor) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    p[i] *= factor;
  }
}
KERNEL_MULTI(static, scale_row, (float *p, int64_t count, float factor), (p, count, factor))

// Tiles

struct tile {
  const struct attention_call *call;
  const struct attention_task *task;
  int64_t group, rows, most;               ///< heads of a key head, rows of queries, keys of a tile
  float *q, *k, *v, *p, *acc, *max, *sum;  ///< rooms
};

/// Where token `j` of the task's sequence and head lies.
static inline int64_t find_token(const struct attention_call *call, const struct attention_rows *rows,
                                 const struct attention_task *task, const int64_t *blocks, int64_t j) {
  return (blocks ? blocks[j / call->block_size] * rows->block + j % call->block_size * rows->row
                 : (call->starts[task->sequence] + j) * rows->row) +
         task->head * rows->head;
}

/// Rows of one head lie apart by all heads of a token, a stride that processors do not foresee.
static inline void foresee(const char *row, int64_t bytes) {
#if defined(__GNUC__)
  for (int64_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(row + i);
  }
#else
  (void)row, (void)bytes;
#endif
}

/// Keys or values of tokens `first` on, widened.
static void fetch(const struct attention_call *call, const struct attention_rows *rows,
                  const struct attention_task *task, int64_t first, int64_t count, int64_t width, float *out) {
  const int64_t *blocks = call->blocks ? call->blocks + task->sequence * call->table_row : NULL;
  const int64_t size = rows->quantized ? 1 : dit_dtype_get_size(rows->view->dtype);
  for (int64_t j = first; j < first + count; j++, out += width) {
    const int64_t at = find_token(call, rows, task, blocks, j);
    if (j + AHEAD < task->end) {
      foresee((const char *)rows->view->data + find_token(call, rows, task, blocks, j + AHEAD) * size, width * size);
    }
    if (rows->quantized) {
      dequantize(out, (const int8_t *)rows->view->data + at, width, rows->scale, rows->zero);
    } else {
      cast_block(DIT_DTYPE_F32, out, rows->view->dtype, row_at(rows->view, at), width);
    }
  }
}

/// Bias, soft limit and mask of one row of scores; -inf hides a key. Tells the largest one.
static float shape_scores(const struct tile *t, int64_t row, int64_t first, int64_t keys, float *scores) {
  const struct attention_call *call = t->call;
  const int64_t queries = call->starts[t->task->sequence + 1] - call->starts[t->task->sequence];
  const int64_t own = call->lengths[t->task->sequence] - queries + t->task->first + row / t->group;
  const int64_t head = t->task->head * t->group + row % t->group;
  const int64_t low = call->window > 0 ? own - call->window + 1 - first : 0;
  const int64_t high = call->causal ? own + 1 - first : call->window > 0 ? own + call->window - first : keys;
  float max = -INFINITY;
  for (int64_t j = 0; j < keys; j++) {
    float score = scores[j];
    if (call->softcap > 0) {
      score = (float)call->softcap * tanhf(score / (float)call->softcap);
    }
    if (call->slopes) {
      score -= call->slopes[head] * (float)llabs(own - (first + j));
    }
    score = j < low || j >= high ? -INFINITY : score;
    scores[j] = score;
    max = score > max || score != score ? score : max;
  }
  return max;
}

static void add_keys(const struct tile *t, int64_t first, int64_t keys) {
  const struct attention_call *call = t->call;
  fetch(call, &call->k, t->task, first, keys, call->width, t->k);
  if (t->rows <= FEW_ROWS) {
    score_keys(t->p, t->q, t->k, t->rows, keys, call->width);
  } else {
    struct gemm_problem product = {.m = t->rows,
                                   .n = keys,
                                   .k = call->width,
                                   .a = t->q,
                                   .b = t->k,
                                   .c = t->p,
                                   .a_strides = {call->width, 1},
                                   .b_strides = {1, call->width},
                                   .c_strides = {keys, 1},
                                   .alpha = 1};
    gemm_multiply(&product);
  }
  for (int64_t row = 0; row < t->rows; row++) {
    float *p = t->p + row * keys;
    const float max = shape_scores(t, row, first, keys, p);
    const float top = max > t->max[row] || max != max ? max : t->max[row];
    if (top == -INFINITY) {
      memset(p, 0, sizeof(float) * (size_t)keys);
      continue;
    }
    if (top != t->max[row]) {
      const float factor = t->max[row] == -INFINITY ? 0 : expf(t->max[row] - top);
      scale_row(t->acc + row * call->value_width, call->value_width, factor);
      t->sum[row] *= factor;
      t->max[row] = top;
    }
    weigh_row(p, keys, top, &t->sum[row]);
  }
  fetch(call, &call->v, t->task, first, keys, call->value_width, t->v);
  if (t->rows <= FEW_ROWS) {
    add_values(t->acc, t->p, t->v, t->rows, keys, call->value_width);
  } else {
    struct gemm_problem product = {.m = t->rows,
                                   .n = call->value_width,
                                   .k = keys,
                                   .a = t->p,
                                   .b = t->v,
                                   .c = t->acc,
                                   .a_strides = {keys, 1},
                                   .b_strides = {call->value_width, 1},
                                   .c_strides = {call->value_width, 1},
                                   .alpha = 1,
                                   .beta = 1};
    gemm_multiply(&product);
  }
}

/// One row of the result: sinks join the sum, a row without keys is 0.
static void finish_row(const struct attention_call *call, const struct attention_task *task, int64_t row, float max,
                       float sum, float *acc) {
  const int64_t group = call->heads / call->key_heads, head = task->head * group + row % group;
  const int64_t query = call->starts[task->sequence] + task->first + row / group;
  if (call->sinks && sum > 0) {
    sum += expf(call->sinks[head] - max);
  }
  scale_row(acc, call->value_width, sum == 0 ? 0 : 1 / sum);
  row_write(call->out, query * call->out->strides[0] + head * call->out->strides[1], call->value_width, acc);
}

static void load_queries(const struct tile *t) {
  const struct attention_call *call = t->call;
  for (int64_t row = 0; row < t->rows; row++) {
    const int64_t query = call->starts[t->task->sequence] + t->task->first + row / t->group;
    const int64_t head = t->task->head * t->group + row % t->group;
    float *q = t->q + row * call->width;
    cast_block(DIT_DTYPE_F32, q, call->query->dtype,
               row_at(call->query, query * call->query->strides[0] + head * call->query->strides[1]), call->width);
    scale_row(q, call->width, (float)call->scale);
    t->max[row] = -INFINITY;
    t->sum[row] = 0;
  }
  memset(t->acc, 0, sizeof(float) * (size_t)(t->rows * call->value_width));
}

static void run_task(struct attention_work *work, const struct attention_task *task) {
  const struct attention_call *call = work->call;
  struct tile t = {.call = call, .task = task, .group = call->heads / call->key_heads};
  t.rows = task->count * t.group;
  t.most = t.rows <= FEW_ROWS ? KEYS : MANY_KEYS;
  const int64_t both = call->width + call->value_width;
  float *room = scratch_take(sizeof(float) * (size_t)(t.rows * (both + t.most + 2) + t.most * both));
  if (!room) {
    atomic_store(&work->failed, true);
    return;
  }
  t.q = room;
  t.acc = t.q + t.rows * call->width;
  t.p = t.acc + t.rows * call->value_width;
  t.max = t.p + t.rows * t.most;
  t.sum = t.max + t.rows;
  t.k = t.sum + t.rows;
  t.v = t.k + t.most * call->width;
  load_queries(&t);
  for (int64_t first = task->begin; first < task->end; first += t.most) {
    add_keys(&t, first, task->end - first < t.most ? task->end - first : t.most);
  }
  for (int64_t row = 0; row < t.rows; row++) {
    float *acc = t.acc + row * call->value_width;
    if (task->partial < 0) {
      finish_row(call, task, row, t.max[row], t.sum[row], acc);
      continue;
    }
    float *out = work->room + task->partial + row * (call->value_width + 2);
    out[0] = t.max[row];
    out[1] = t.sum[row];
    memcpy(out + 2, acc, sizeof(float) * (size_t)call->value_width);
  }
  scratch_give(room);
}

static void run_tasks(void *context, int64_t begin, int64_t end) {
  struct attention_work *work = context;
  for (int64_t i = begin; i < end; i++) {
    run_task(work, &work->tasks[i]);
  }
}

/// Pieces of one tile of queries become one.
static void join_pieces(struct attention_work *work, const struct attention_task *task) {
  const struct attention_call *call = work->call;
  const int64_t rows = task->count * (call->heads / call->key_heads), width = call->value_width + 2;
  for (int64_t row = 0; row < rows; row++) {
    float *first = work->room + task->partial + row * width, max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < task->pieces; i++) {
      const float other = first[i * rows * width];
      max = other > max || other != other ? other : max;
    }
    for (int64_t i = 0; i < task->pieces; i++) {
      float *piece = first + i * rows * width;
      const float factor = piece[0] == -INFINITY ? 0 : expf(piece[0] - max);
      sum += piece[1] * factor;
      for (int64_t d = 0; d < call->value_width; d++) {
        first[2 + d] = piece[2 + d] * factor + (i > 0 ? first[2 + d] : 0);
      }
    }
    finish_row(call, task, row, max, sum, first + 2);
  }
}

static void join_tasks(void *context, int64_t begin, int64_t end) {
  struct attention_work *work = context;
  for (int64_t i = begin; i < end; i++) {
    if (work->tasks[i].pieces > 0) {
      join_pieces(work, &work->tasks[i]);
    }
  }
}

/// The tasks of one tile of queries; without room they are only counted.
static void add_tile(struct attention_work *work, int32_t sequence, int32_t head, int64_t first, int64_t count,
                     int64_t queries) {
  const struct attention_call *call = work->call;
  const int64_t before = call->lengths[sequence] - queries, group = call->heads / call->key_heads;
  int64_t begin = call->window > 0 ? before + first - call->window + 1 : 0, end = call->lengths[sequence];
  end = call->causal && before + first + count < end ? before + first + count : end;
  begin = begin < 0 ? 0 : begin;
  const bool split = queries * group <= QUERY_ROWS && end - begin > SPLIT;
  const int64_t pieces = split ? (end - begin + SPLIT - 1) / SPLIT : 1;
  for (int64_t i = 0; i < pieces; i++) {
    if (work->tasks) {
      work->tasks[work->count] =
          (struct attention_task){.sequence = sequence,
                                  .head = head,
                                  .first = first,
                                  .count = count,
                                  .begin = split ? begin + i * SPLIT : begin,
                                  .end = split && begin + (i + 1) * SPLIT < end ? begin + (i + 1) * SPLIT : end,
                                  .partial = split ? work->partials : -1,
                                  .pieces = split && i == 0 ? pieces : 0};
    }
    work->count++;
    work->partials += split ? count * group * (call->value_width + 2) : 0;
  }
}

static void add_tiles(struct attention_work *work) {
  const struct attention_call *call = work->call;
  const int64_t group = call->heads / call->key_heads, most = group < QUERY_ROWS ? QUERY_ROWS / group : 1;
  work->count = work->partials = 0;
  for (int64_t sequence = 0; sequence < call->sequences; sequence++) {
    const int64_t queries = call->starts[sequence + 1] - call->starts[sequence];
    for (int64_t head = 0; head < call->key_heads; head++) {
      for (int64_t first = 0; first < queries; first += most) {
        add_tile(work, (int32_t)sequence, (int32_t)head, first, queries - first < most ? queries - first : most,
                 queries);
      }
    }
  }
}

bool attention_run(const struct attention_call *call) {
  struct attention_work work = {.call = call};
  add_tiles(&work);
  if (work.count == 0) {
    return true;
  }
  work.tasks = scratch_take(sizeof *work.tasks * (size_t)work.count);
  work.room = work.partials ? scratch_take(sizeof(float) * (size_t)work.partials) : NULL;
  if (work.tasks && (work.room || !work.partials)) {
    add_tiles(&work);
    dit_parallel_for(0, work.count, 1, run_tasks, &work);
    if (work.partials && !atomic_load(&work.failed)) {
      dit_parallel_for(0, work.count, 1, join_tasks, &work);
    }
  } else {
    atomic_store(&work.failed, true);
  }
  scratch_give(work.tasks);
  scratch_give(work.room);
  return !atomic_load(&work.failed);
}
