/// Plans an attention: which rows of queries are done together, against which keys, and how pieces are joined. A
/// sequence with few queries for each key head (decoding) is done by attention_few.c, all key heads together; others in
/// tiles of about QUERY_ROWS rows (query x head of the group) of one key head by attention_many.c. Where there are few
/// queries the keys are cut into pieces of SPLIT tokens, which are joined in a second step: one long sequence keeps all
/// threads busy. All of it depends on the shapes alone, so the result does not depend on the number of threads.
#include "attention_work.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "dit/parallel.h"
#include "engine/scratch.h"
#include "panel.h"
#include "row.h"

#define QUERY_ROWS 256
#define SPLIT_ROWS 64  ///< up to so many rows of a key head the keys are cut
#define SPLIT 512
#define TASKS 8          ///< fewer tasks than these are cut by heads ...
#define HEAD_WORK 65536  ///< ... unless they would have fewer elements than this
#define SMALL 1000000    ///< multiplications that are not worth waking a thread

float attention_load(const struct attention_call *call, const struct attention_place *place, float *q) {
  const struct dit_tensor_view *query = call->query;
  const float scale = (float)call->scale * call->k.scale;
  double sum = 0;
  cast_block(DIT_DTYPE_F32, q, query->dtype,
             row_at(query, place->query * query->strides[0] + place->head * query->strides[1]), call->width);
  for (int64_t i = 0; i < call->width; i++) {
    q[i] *= scale;
  }
  for (int64_t i = 0; i < call->width && call->k.zero != 0; i++) {
    sum += (double)q[i];
  }
  memset(q + call->width, 0, sizeof(float) * (size_t)(panel_round(call->width) - call->width));
  return call->k.zero * (float)sum;
}

/// One row of the result: sinks join the sum, a row without keys is 0.
static void finish_row(const struct attention_call *call, const struct attention_place *place, float max, float sum,
                       float *acc) {
  const float zero = call->v.zero * sum;
  if (call->sinks && sum > 0) {
    sum += expf(call->sinks[place->head] - max);
  }
  const float factor = sum == 0 ? 0 : call->v.scale / sum;
  for (int64_t i = 0; i < call->value_width; i++) {
    acc[i] = (acc[i] + zero) * factor;
  }
  row_write(call->out, place->query * call->out->strides[0] + place->head * call->out->strides[1], call->value_width,
            acc);
}

void attention_store(const struct attention_work *work, const struct attention_task *task, int64_t row, float max,
                     float sum, float *acc) {
  const struct attention_call *call = work->call;
  if (task->partial < 0) {
    const struct attention_place place = attention_find(call, task, row);
    finish_row(call, &place, max, sum, acc);
    return;
  }
  float *out = work->room + task->partial + row * (call->value_width + 2);
  out[0] = max;
  out[1] = sum;
  memcpy(out + 2, acc, sizeof(float) * (size_t)call->value_width);
}

/// Pieces of one tile of queries become one.
static void join_pieces(const struct attention_work *work, const struct attention_task *task) {
  const struct attention_call *call = work->call;
  const int64_t rows = task->heads * task->count * attention_group(call), width = call->value_width + 2;
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
    const struct attention_place place = attention_find(call, task, row);
    finish_row(call, &place, max, sum, first + 2);
  }
}

struct attention_run {
  struct attention_work work;
  atomic_bool failed;
};

static bool is_few(const struct attention_call *call, int64_t queries) {
  return queries * attention_group(call) <= PANEL_FEW;
}

static void run_tasks(void *context, int64_t begin, int64_t end) {
  struct attention_run *run = context;
  const struct attention_call *call = run->work.call;
  for (int64_t i = begin; i < end; i++) {
    const struct attention_task *task = &run->work.tasks[i];
    const bool few = is_few(call, call->starts[task->sequence + 1] - call->starts[task->sequence]);
    if (!(few ? attention_run_few : attention_run_many)(&run->work, task)) {
      atomic_store(&run->failed, true);
    }
  }
}

static void join_tasks(void *context, int64_t begin, int64_t end) {
  struct attention_run *run = context;
  for (int64_t i = begin; i < end; i++) {
    if (run->work.tasks[i].pieces > 0) {
      join_pieces(&run->work, &run->work.tasks[i]);
    }
  }
}

/// The tasks of one tile of queries; without room they are only counted.
static void add_tile(struct attention_work *work, const struct attention_task *tile, int64_t pieces, int64_t step) {
  const struct attention_call *call = work->call;
  const int64_t rows = tile->heads * tile->count * attention_group(call);
  for (int64_t i = 0; i < pieces; i++) {
    struct attention_task task = *tile;
    if (pieces > 1) {
      task.begin = tile->begin + i * step;
      task.end = task.begin + step < tile->end ? task.begin + step : tile->end;
      task.partial = work->partials;
      task.pieces = i == 0 ? pieces : 0;
      work->partials += rows * (call->value_width + 2);
    }
    if (work->tasks) {
      work->tasks[work->count] = task;
    }
    work->count++;
    work->size += rows * (task.end - task.begin) * (call->width + call->value_width);
  }
}

/// Key heads of a task: all of them, unless too few tasks came of it.
static int64_t choose_heads(const struct attention_call *call, int64_t queries, int64_t pieces, int64_t keys) {
  int64_t heads = is_few(call, queries) ? call->key_heads : 1;
  while (heads > 1 && call->sequences * pieces * (call->key_heads / heads) < TASKS &&
         keys * (heads / 2) * (call->width + call->value_width) >= HEAD_WORK) {
    heads = (heads + 1) / 2;
  }
  return heads;
}

static void add_sequence(struct attention_work *work, int64_t sequence) {
  const struct attention_call *call = work->call;
  const int64_t group = attention_group(call), most = group < QUERY_ROWS ? QUERY_ROWS / group : 1;
  const int64_t queries = call->starts[sequence + 1] - call->starts[sequence];
  const int64_t keys = call->lengths[sequence], before = keys - queries;
  for (int64_t first = 0; first < queries; first += most) {
    struct attention_task tile = {.sequence = (int32_t)sequence, .first = first, .partial = -1};
    tile.count = queries - first < most ? queries - first : most;
    const int64_t low = attention_low(call, before + first),
                  high = attention_high(call, before + first + tile.count - 1);
    tile.begin = low < 0 ? 0 : low;
    tile.end = high < keys ? high : keys;
    tile.end = tile.end < tile.begin ? tile.begin : tile.end;
    const bool split = queries * group <= SPLIT_ROWS && tile.end - tile.begin > SPLIT;
    const int64_t pieces = split ? (tile.end - tile.begin + SPLIT - 1) / SPLIT : 1;
    const int64_t heads = choose_heads(call, queries, pieces, split ? SPLIT : tile.end - tile.begin);
    for (int64_t head = 0; head < call->key_heads; head += heads) {
      tile.head = (int32_t)head;
      tile.heads = (int32_t)(call->key_heads - head < heads ? call->key_heads - head : heads);
      add_tile(work, &tile, pieces, SPLIT);
    }
  }
}

static void add_tasks(struct attention_work *work) {
  work->count = work->partials = work->size = 0;
  for (int64_t sequence = 0; sequence < work->call->sequences; sequence++) {
    add_sequence(work, sequence);
  }
}

bool attention_run(const struct attention_call *call) {
  struct attention_run run = {.work = {.call = call}};
  struct attention_work *work = &run.work;
  add_tasks(work);
  if (work->count == 0) {
    return true;
  }
  work->tasks = scratch_take(sizeof *work->tasks * (size_t)work->count);
  work->room = work->partials ? scratch_take(sizeof(float) * (size_t)work->partials) : NULL;
  if (work->tasks && (work->room || !work->partials)) {
    add_tasks(work);
    const int64_t grain = work->size < SMALL ? work->count : 1;
    dit_parallel_for(0, work->count, grain, run_tasks, &run);
    if (work->partials && !atomic_load(&run.failed)) {
      dit_parallel_for(0, work->count, grain, join_tasks, &run);
    }
  } else {
    atomic_store(&run.failed, true);
  }
  scratch_give(work->tasks);
  scratch_give(work->room);
  return !atomic_load(&run.failed);
}
