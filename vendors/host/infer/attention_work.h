/// Between the planner of an attention (attention_work.c) and its two loops: few rows of queries (attention_few.c) and
/// many (attention_many.c).
#ifndef DIT_HOST_INFER_ATTENTION_WORK_H
#define DIT_HOST_INFER_ATTENTION_WORK_H

#include "attention.h"

/// A tile of queries for some key heads of one sequence, or a piece of its keys. Row r of a task is head r / (count *
/// group) of its key heads, then query, then head of the group.
struct attention_task {
  int32_t sequence, head, heads;  ///< first head of the keys, and how many
  int64_t first, count;           ///< queries of the sequence
  int64_t begin, end;             ///< keys
  int64_t partial;                ///< place of the piece's result; -1: the whole, written at once
  int64_t pieces;                 ///< of the first piece: how many there are
};

struct attention_work {
  const struct attention_call *call;
  struct attention_task *tasks;
  int64_t count, partials, size;  ///< size: multiplications of all tasks
  float *room;                    ///< of the pieces: maximum, sum and `value_width` numbers for each row
};

/// What a row of queries is: its number in the tensors, its head and its position among the keys.
struct attention_place {
  int64_t query, head, own;
};

static inline int64_t attention_group(const struct attention_call *call) {
  return call->heads / call->key_heads;
}

static inline struct attention_place attention_find(const struct attention_call *call,
                                                    const struct attention_task *task, int64_t row) {
  const int64_t group = attention_group(call), start = call->starts[task->sequence];
  const int64_t within = row % (task->count * group), number = task->first + within / group;
  const int64_t queries = call->starts[task->sequence + 1] - start;
  return (struct attention_place){.query = start + number,
                                  .head = (task->head + row / (task->count * group)) * group + within % group,
                                  .own = call->lengths[task->sequence] - queries + number};
}

/// The keys [low, high) that a query at `own` sees.
static inline int64_t attention_low(const struct attention_call *call, int64_t own) {
  return call->window > 0 ? own - call->window + 1 : 0;
}
static inline int64_t attention_high(const struct attention_call *call, int64_t own) {
  return call->causal ? own + 1 : call->window > 0 ? own + call->window : INT32_MAX;
}

/// Where token `j` of the task's sequence lies, head 0.
static inline const char *attention_token(const struct attention_call *call, const struct attention_rows *rows,
                                          const struct attention_task *task, int64_t j) {
  const int64_t *blocks = call->blocks ? call->blocks + task->sequence * call->table_row : NULL;
  const int64_t at = blocks ? blocks[j / call->block_size] * rows->block + j % call->block_size * rows->row
                            : (call->starts[task->sequence] + j) * rows->row;
  return (const char *)rows->view->data + at * rows->size;
}

/// One row of queries as float, scaled (by the scale of int8 keys too), zeros behind it up to panel_round(width).
/// Returns what the zero of int8 keys adds to each of its scores.
float attention_load(const struct attention_call *call, const struct attention_place *place, float *q);

/// The sums of one row, kept for the join or written as result.
void attention_store(const struct attention_work *work, const struct attention_task *task, int64_t row, float max,
                     float sum, float *acc);

/// Both: false without memory.
bool attention_run_few(const struct attention_work *work, const struct attention_task *task);
bool attention_run_many(const struct attention_work *work, const struct attention_task *task);

#endif
