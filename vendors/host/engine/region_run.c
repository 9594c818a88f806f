/// The block machine (see region.h).
///
/// A block is `rows` rows of `cols` elements. Registers of a block are slots of one scratch piece per thread; a load of
/// memory that already looks like a register, and a store of one that may be written at once, use the memory itself.
/// Operands that are the same for every row are loaded once per thread. Invariant: a slot is free again after the last
/// use of its value, and loads come before the stores of a block, so an operand may be written where it is read.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dit/parallel.h"
#include "region_code.h"
#include "scratch.h"

#define WORD 8  // bytes of the widest register element

static int64_t get_row_offset(const struct region_program *program, const struct operand *operand, int64_t row) {
  int64_t offset = 0;
  for (int d = program->ndim - 2; d >= 0 && row; d--) {
    const int64_t rest = row / program->sizes[d];
    offset += (row - rest * program->sizes[d]) * operand->layout.strides[d];
    row = rest;
  }
  return offset;
}

static void *get_slot(const struct block *block, int slot) {
  return block->slots + (size_t)slot * block->slot_bytes;
}

static int get_register_width(int klass) {
  return klass == CLASS_F32 || klass == CLASS_BOOL ? 4 : 8;
}

void *region_get_place(const struct block *block, int index, int64_t row, int64_t col) {
  const struct region_program *program = block->program;
  const struct operand *operand = &program->operands[index];
  const int64_t stride = program->ndim ? operand->layout.strides[program->ndim - 1] : 0;
  return (char *)block->data[index] + (get_row_offset(program, operand, row) + col * stride) * operand->width;
}

/// Elements of the block from memory to `out`, or back.
static void move_block(const struct block *block, int index, char *reg, int klass, int level) {
  const struct region_program *program = block->program;
  const struct operand *operand = &program->operands[index];
  const int64_t stride = program->ndim ? operand->layout.strides[program->ndim - 1] : 0;
  const int width = get_register_width(klass);
  const bool loads = operand->layout.stored < 0;
  if (level == DIT_LEVEL_ROW && program->ndim == 2) {
    char *memory = region_get_place(block, index, block->row, 0);
    const int64_t step = operand->layout.strides[0];
    loads ? operand->move(reg, 1, memory, step, block->rows) : operand->move(memory, step, reg, 1, block->rows);
    return;
  }
  const bool whole =
      level == DIT_LEVEL_ELEMENT && operand->is_dense && (block->rows == 1 || block->cols == program->length);
  const int64_t rows = whole ? 1 : block->rows;
  const int64_t count = level == DIT_LEVEL_ROW ? 1 : whole ? block->rows * block->cols : block->cols;
  const int64_t step = whole ? 1 : stride;
  for (int64_t r = 0; r < rows; r++) {
    char *memory = region_get_place(block, index, block->row + r, level == DIT_LEVEL_ROW ? 0 : block->col);
    char *element = reg + r * count * width;
    loads ? operand->move(element, 1, memory, step, count) : operand->move(memory, step, element, 1, count);
  }
}

static const void *load_value(const struct block *block, const struct value *value) {
  const struct operand *operand = &block->program->operands[value->operand];
  if (operand->is_native && value->level == DIT_LEVEL_ELEMENT &&
      ((operand->is_dense && (block->rows == 1 || block->cols == block->program->length)) ||
       (block->rows == 1 && operand->layout.strides[block->program->ndim - 1] == 1))) {
    return region_get_place(block, value->operand, block->row, block->col);
  }
  void *slot = get_slot(block, value->slot);
  move_block(block, value->operand, slot, value->klass, value->level);
  return slot;
}

/// One number, or a number per row, over the whole block.
static const void *spread(const struct block *block, int spare, const void *from, int klass, bool per_row) {
  char *out = get_slot(block, spare);
  const int width = get_register_width(klass);
  const int64_t cols = block->cols > 0 ? block->cols : 1;  // an empty row has values of its own, too
  const int64_t rows = per_row ? block->rows : 1, count = per_row ? block->cols : block->rows * cols;
  for (int64_t r = 0; r < rows; r++) {
    if (width == 4) {
      uint32_t bits;
      memcpy(&bits, (const char *)from + r * 4, 4);
      uint32_t *o = (uint32_t *)(void *)out + r * count;
      for (int64_t i = 0; i < count; i++) {
        o[i] = bits;
      }
    } else {
      uint64_t bits;
      memcpy(&bits, (const char *)from + r * 8, 8);
      uint64_t *o = (uint64_t *)(void *)out + r * count;
      for (int64_t i = 0; i < count; i++) {
        o[i] = bits;
      }
    }
  }
  return out;
}

static bool is_single(const struct value *value) {
  return value->place == PLACE_NUMBER || value->place == PLACE_SINGLE;
}

static void run_value(struct block *block, int index) {
  const struct region_program *program = block->program;
  const struct value *value = &program->values[index];
  const bool per_row = value->level == DIT_LEVEL_ROW;
  const int64_t count = per_row ? block->rows : block->rows * block->cols;
  const void *in[3] = {NULL, NULL, NULL};
  unsigned single = 0;
  for (int k = 0; k < value->arity; k++) {
    const struct value *argument = &program->values[value->args[k]];
    in[k] = block->at[value->args[k]];
    const bool is_row = argument->level == DIT_LEVEL_ROW && !per_row && !is_single(argument);
    if (is_single(argument) || (is_row && block->rows == 1)) {
      if (k == value->arity - 1 && k > 0) {
        single |= 1u << k;
      } else {
        in[k] = spread(block, k, in[k], argument->klass, false);
      }
    } else if (is_row) {
      in[k] = spread(block, k, in[k], argument->klass, true);
    }
  }
  void *out = get_slot(block, value->slot);
  if (block->direct && value->direct >= 0 && (block->rows == 1 || block->cols == program->length)) {
    out = region_get_place(block, value->direct, block->row, block->col);
  }
  value->loop(out, in, single, count);
  if (value->rounding) {
    value->rounding(out, (const void *[]){out}, 0, count);
  }
  block->at[index] = out;
}

static void run_fold(struct block *block, int index) {
  const struct region_program *program = block->program;
  const struct value *value = &program->values[index];
  const struct value *argument = &program->values[value->args[0]];
  const int width = get_register_width(value->klass);
  const char *in = block->at[value->args[0]];
  char *out = get_slot(block, value->slot);
  if (is_single(argument)) {
    in = spread(block, 0, in, argument->klass, false);
  }
  for (int64_t r = 0; r < block->rows; r++) {
    const void *row = in + r * block->cols * width;
    value->loop(program->kind == DIT_REGION_COLUMNS ? out : out + r * width, &row, 0, block->cols);
  }
  if (program->is_long) {
    region_join_partial(value, block->partials, out);
    block->partials++;
  }
  if (value->rounding && program->kind == DIT_REGION_ROWS) {
    value->rounding(out, (const void *[]){out}, 0, block->rows);
  }
  block->at[index] = out;
}

void region_run_block(struct block *block) {
  const struct region_program *program = block->program;
  for (int i = 0; i < program->nvalues; i++) {
    const struct value *value = &program->values[i];
    if (value->place == PLACE_NUMBER || value->place == PLACE_SINGLE || value->place == PLACE_HOISTED) {
      continue;
    }
    if (value->op == DIT_REGION_LOAD) {
      block->at[i] = load_value(block, value);
    } else if (is_fold(value->op)) {
      run_fold(block, i);
    } else {
      run_value(block, i);
    }
  }
  for (int i = 0; i < program->noperands; i++) {
    const int stored = program->operands[i].layout.stored;
    if (stored < 0 || program->values[stored].place == PLACE_COLUMN ||
        (program->is_long && is_fold(program->values[stored].op))) {
      continue;
    }
    const struct value *value = &program->values[stored];
    char *reg = (char *)(uintptr_t)block->at[stored];
    if (reg != region_get_place(block, i, block->row, block->col)) {
      move_block(block, i, reg, value->klass, value->level);
    }
  }
}

/// What is the same for all blocks of a thread: numbers, and operands that no row changes.
static void begin_blocks(struct block *block) {
  const struct region_program *program = block->program;
  for (int i = 0; i < program->nvalues; i++) {
    const struct value *value = &program->values[i];
    if (value->place == PLACE_NUMBER) {
      block->at[i] = &value->number;
    } else if (value->place == PLACE_SINGLE) {
      void *slot = get_slot(block, value->slot);
      program->operands[value->operand].move(slot, 1, block->data[value->operand], 1, 1);
      block->at[i] = slot;
    } else if (value->place == PLACE_HOISTED) {
      struct block first = *block;
      first.row = first.col = 0;
      first.rows = program->rows;
      first.cols = program->cols;
      move_block(&first, value->operand, get_slot(block, value->slot), value->klass, value->level);
      block->at[i] = get_slot(block, value->slot);
    }
  }
}

bool region_begin_thread(struct work *work, struct block *block) {
  const struct region_program *program = work->program;
  memset(block, 0, sizeof *block);
  block->program = program;
  block->data = work->data;
  block->direct = work->direct;
  block->slot_bytes = ((size_t)(program->rows * program->cols) * WORD + 63) & ~(size_t)63;
  block->slots = scratch_take(block->slot_bytes * (size_t)program->nslots);
  if (!block->slots) {
    work->failed = 1;
    return false;
  }
  begin_blocks(block);
  return true;
}

/// Blocks side by side in a row; rows without elements have one, so that their folds get their value.
static int64_t count_pieces(const struct region_program *program) {
  const int64_t pieces = (program->length + program->cols - 1) / program->cols;
  return pieces == 0 && program->kind == DIT_REGION_ROWS ? 1 : pieces;
}

static void run_rows(void *context, int64_t begin, int64_t end) {
  struct work *work = context;
  const struct region_program *program = work->program;
  const int64_t pieces = count_pieces(program);
  struct block block;
  if (!region_begin_thread(work, &block)) {
    return;
  }
  for (int64_t i = begin; i < end; i++) {
    block.row = i / pieces * program->rows;
    block.col = i % pieces * program->cols;
    block.rows = program->outer - block.row < program->rows ? program->outer - block.row : program->rows;
    block.cols = program->length - block.col < program->cols ? program->length - block.col : program->cols;
    region_run_block(&block);
  }
  scratch_give(block.slots);
}

static void begin_column(const struct value *value, void *slot, int64_t cols) {
  for (int64_t i = 0; i < cols; i++) {
    if (value->klass == CLASS_I64) {
      ((int64_t *)slot)[i] = value->op == DIT_REGION_MAX ? INT64_MIN : value->op == DIT_REGION_MIN ? INT64_MAX : 0;
    } else if (value->klass == CLASS_BOOL) {
      ((int32_t *)slot)[i] = value->op == DIT_REGION_MIN;
    } else if (value->klass == CLASS_F64 || value->op == DIT_REGION_SUM) {
      ((double *)slot)[i] = value->op == DIT_REGION_MAX ? -INFINITY : value->op == DIT_REGION_MIN ? INFINITY : 0;
    } else {
      ((float *)slot)[i] = value->op == DIT_REGION_MAX ? -INFINITY : INFINITY;
    }
  }
}

static void end_column(struct block *block, int index) {
  const struct region_program *program = block->program;
  for (int i = 0; i < program->noperands; i++) {
    const struct operand *operand = &program->operands[i];
    if (operand->layout.stored != index) {
      continue;
    }
    const struct value *value = &program->values[index];
    char *slot = get_slot(block, value->slot);
    const void *from = slot;
    if (value->klass == CLASS_F32 && value->op == DIT_REGION_SUM) {
      from = get_slot(block, 0);
      region_find_loop(DIT_REGION_CAST, CLASS_F64, CLASS_F32)(get_slot(block, 0), (const void *[]){slot}, 0,
                                                              block->cols);
    }
    const int64_t stride = program->ndim ? operand->layout.strides[program->ndim - 1] : 0;
    operand->move(region_get_place(block, i, 0, block->col), stride, from, 1, block->cols);
  }
}

static void run_columns(void *context, int64_t begin, int64_t end) {
  struct work *work = context;
  const struct region_program *program = work->program;
  struct block block;
  if (!region_begin_thread(work, &block)) {
    return;
  }
  for (int64_t piece = begin; piece < end; piece++) {
    block.col = piece * program->cols;
    block.cols = program->length - block.col < program->cols ? program->length - block.col : program->cols;
    for (int i = 0; i < program->nvalues; i++) {
      if (program->values[i].place == PLACE_COLUMN) {
        begin_column(&program->values[i], get_slot(&block, program->values[i].slot), block.cols);
      }
    }
    for (block.row = 0; block.row < program->outer; block.row += program->rows) {
      block.rows = program->outer - block.row < program->rows ? program->outer - block.row : program->rows;
      region_run_block(&block);
    }
    for (int i = 0; i < program->nvalues; i++) {
      if (program->values[i].place == PLACE_COLUMN) {
        end_column(&block, i);
      }
    }
  }
  scratch_give(block.slots);
}

bool region_run(const struct region_program *program, void *const *data) {
  struct work work = {.program = program, .data = data, .direct = true};
  for (int i = 0; i < program->noperands; i++) {
    for (int k = 0; k < program->noperands; k++) {
      work.direct &= program->operands[i].layout.stored < 0 || i == k || data[i] != data[k];
    }
  }
  if (program->code && region_code_run(&work)) {
    return !work.failed;
  }
  if (program->is_long) {
    return region_run_long(&work);
  }
  const int64_t pieces = count_pieces(program);
  const int64_t each = program->rows * program->cols;
  if (program->kind == DIT_REGION_COLUMNS) {
    const int64_t grain = program->outer * program->cols >= REGION_GRAIN ? 1 : pieces;
    dit_parallel_for(0, pieces, grain, run_columns, &work);
  } else {
    const int64_t blocks = (program->outer + program->rows - 1) / program->rows * pieces;
    dit_parallel_for(0, blocks, each >= REGION_GRAIN ? 1 : REGION_GRAIN / each, run_rows, &work);
  }
  return !work.failed;
}
