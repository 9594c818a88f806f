/// Rows that are too long to stay close (DIT_REGION_MAX_ROW): chunks are folded side by side, in any number of threads
/// to the same result, and joined in order.
#include <math.h>
#include <string.h>

#include "dit/parallel.h"
#include "region_code.h"
#include "scratch.h"

#define CHUNK REGION_CHUNK

static double join_real(int op, double a, double x) {
  return op == DIT_REGION_SUM ? a + x : op == DIT_REGION_MAX ? (x > a || x != x ? x : a) : (x < a || x != x ? x : a);
}

static int64_t join_integer(int op, int64_t a, int64_t x) {
  return op == DIT_REGION_SUM   ? (int64_t)((uint64_t)a + (uint64_t)x)
         : op == DIT_REGION_MAX ? (x > a ? x : a)
                                : (x < a ? x : a);
}

static void join(const struct value *value, union partial *whole, union partial part) {
  if (value->klass == CLASS_F32 || value->klass == CLASS_F64) {
    whole->real = join_real(value->op, whole->real, part.real);
  } else {
    whole->integer = join_integer(value->op, whole->integer, part.integer);
  }
}

/// The fold of a block, a register of the value's class, into what the chunk has so far.
void region_join_partial(const struct value *value, union partial *partial, const void *reg) {
  union partial part;
  if (value->klass == CLASS_F32) {
    part.real = *(const float *)reg;
  } else if (value->klass == CLASS_BOOL) {
    part.integer = *(const int32_t *)reg;
  } else {
    memcpy(&part, reg, sizeof part);
  }
  join(value, partial, part);
}

static void begin_partial(const struct value *value, union partial *partial) {
  if (value->klass == CLASS_F32 || value->klass == CLASS_F64) {
    partial->real = value->op == DIT_REGION_MAX ? -INFINITY : value->op == DIT_REGION_MIN ? INFINITY : 0;
  } else if (value->klass == CLASS_BOOL) {
    partial->integer = value->op == DIT_REGION_MIN;
  } else {
    partial->integer = value->op == DIT_REGION_MAX ? INT64_MIN : value->op == DIT_REGION_MIN ? INT64_MAX : 0;
  }
}

static int64_t count_chunks(const struct region_program *program) {
  return (program->length + CHUNK - 1) / CHUNK;
}

static void run_chunks(void *context, int64_t begin, int64_t end) {
  struct work *work = context;
  const struct region_program *program = work->program;
  const int64_t chunks = count_chunks(program);
  struct block block;
  if (!region_begin_thread(work, &block)) {
    return;
  }
  for (int64_t i = begin; i < end; i++) {
    const int64_t first = i % chunks * CHUNK;
    const int64_t last = program->length - first < CHUNK ? program->length : first + CHUNK;
    union partial *partial = work->partials + i * program->nfolds;
    for (int v = 0; v < program->nvalues; v++) {
      if (is_fold(program->values[v].op)) {
        begin_partial(&program->values[v], partial++);
      }
    }
    block.row = i / chunks;
    block.rows = 1;
    for (block.col = first; block.col < last; block.col += program->cols) {
      block.cols = last - block.col < program->cols ? last - block.col : program->cols;
      block.partials = work->partials + i * program->nfolds;
      region_run_block(&block);
    }
  }
  scratch_give(block.slots);
}

/// The chunks of a row into its result.
static void store_row(const struct work *work, struct block *block, int index, int fold) {
  const struct region_program *program = block->program;
  const struct value *value = &program->values[index];
  const int64_t chunks = count_chunks(program);
  const union partial *partials = work->partials + block->row * chunks * program->nfolds + fold;
  union partial whole = partials[0];
  for (int64_t c = 1; c < chunks; c++) {
    join(value, &whole, partials[c * program->nfolds]);
  }
  const float single = (float)whole.real;
  const int32_t flag = (int32_t)whole.integer;
  const void *reg = value->klass == CLASS_F32    ? (const void *)&single
                    : value->klass == CLASS_BOOL ? (const void *)&flag
                                                 : (const void *)&whole;
  for (int i = 0; i < program->noperands; i++) {
    if (program->operands[i].layout.stored == index) {
      program->operands[i].move(region_get_place(block, i, block->row, 0), 1, reg, 1, 1);
    }
  }
}

void region_store_rows(struct work *work) {
  const struct region_program *program = work->program;
  struct block block = {.program = program, .data = work->data};
  for (block.row = 0; block.row < program->outer; block.row++) {
    int fold = 0;
    for (int i = 0; i < program->nvalues; i++) {
      if (is_fold(program->values[i].op)) {
        store_row(work, &block, i, fold++);
      }
    }
  }
}

bool region_run_long(struct work *work) {
  const struct region_program *program = work->program;
  const int64_t chunks = count_chunks(program), units = program->outer * chunks;
  work->partials = scratch_take((size_t)(units * program->nfolds + 1) * sizeof *work->partials);
  if (!work->partials) {
    return false;
  }
  dit_parallel_for(0, units, 1, run_chunks, work);
  if (!work->failed) {
    region_store_rows(work);
  }
  scratch_give(work->partials);
  return !work->failed;
}
