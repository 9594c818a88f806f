/// The block machine (see region.h).
///
/// A block is `rows` rows of `cols` elements. Registers of a block are slots of one scratch piece per thread; a load of
/// memory that already looks like a register, and a store of one that may be written at once, use the memory itself.
/// Operands that are the same for every row are loaded once per thread. Invariant: a slot is free again after the last
/// use of its value, and loads come before the stores of a block, so an operand may be written where it is read.
#include "region.h"

#include <stdlib.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/parallel.h"
#include "region_table.h"
#include "scratch.h"

#define BLOCK 1024
#define WORD 8           // bytes of the widest register element
#define GRAIN (1 << 15)  // elements that are worth a thread
#define SPARE 3          // slots for numbers that are spread over a block

enum value_place { PLACE_SLOT, PLACE_NUMBER, PLACE_SINGLE, PLACE_HOISTED, PLACE_COLUMN };

struct value {
  uint8_t op, klass, level, place, arity, round_class;
  int16_t dtype, operand, slot, direct;  // direct: an operand that the result may be written to at once; -1
  int16_t args[3];
  region_loop *loop, *rounding;
  union {
    float f;
    double d;
    int64_t i;
    int32_t b;
  } number;
};

struct operand {
  struct dit_region_operand layout;
  int width;
  bool is_dense;   // element (r, c) lies at r * size of a row + c
  bool is_native;  // memory looks like its register
  region_move *move;
};

struct region_program {
  enum dit_region_kind kind;
  int ndim, nvalues, noperands, nslots;
  int64_t sizes[DIT_GRAPH_MAX_DIMS];
  int64_t outer, length;  // rows, elements of a row
  int64_t rows, cols;     // of a block
  struct value *values;
  struct operand *operands;
};

// Making a program

static bool is_fold(int op) {
  return op == DIT_REGION_SUM || op == DIT_REGION_MAX || op == DIT_REGION_MIN;
}

static bool check_op(const struct dit_region *region, int index) {
  const struct dit_region_op *op = &region->ops[index];
  const int klass = region_get_class(op->dtype), arity = dit_region_op_get_arity(op->op);
  if (klass < 0 || arity < 0) {
    return false;
  }
  if (op->op == DIT_REGION_LOAD) {
    return op->operand >= 0 && op->operand < region->noperands && region->operands[op->operand].stored < 0 &&
           region->operands[op->operand].dtype == op->dtype;
  }
  for (int k = 0; k < arity; k++) {
    if (op->args[k] < 0 || op->args[k] >= index) {
      return false;
    }
  }
  if (arity == 0) {
    return true;
  }
  const int last = region_get_class(region->ops[op->args[arity - 1]].dtype);
  if (is_fold(op->op)) {
    return region->kind != DIT_REGION_POINTWISE && last == klass && region_find_fold(op->op, last, false) &&
           region->ops[op->args[0]].level == DIT_LEVEL_ELEMENT && op->level == DIT_LEVEL_ROW;
  }
  const bool tests = (op->op >= DIT_REGION_EQ && op->op <= DIT_REGION_GE) || op->op == DIT_REGION_ISNAN;
  for (int k = op->op == DIT_REGION_WHERE ? 1 : 0; k < arity; k++) {
    if (region_get_class(region->ops[op->args[k]].dtype) != last) {
      return false;
    }
  }
  if (op->op == DIT_REGION_WHERE && region_get_class(region->ops[op->args[0]].dtype) != CLASS_BOOL) {
    return false;
  }
  return (tests ? klass == CLASS_BOOL : op->op == DIT_REGION_CAST || klass == last) &&
         region_find_loop(op->op, last, klass);
}

bool region_supports(const struct dit_region *region) {
  if (region->ndim < 0 || region->ndim > DIT_GRAPH_MAX_DIMS || region->nops > DIT_REGION_MAX_OPS ||
      region->noperands > DIT_REGION_MAX_OPERANDS) {
    return false;
  }
  if (region->kind == DIT_REGION_ROWS && region->ndim && region->sizes[region->ndim - 1] > DIT_REGION_MAX_ROW) {
    return false;
  }
  for (int i = 0; i < region->nops; i++) {
    if (!check_op(region, i)) {
      return false;
    }
  }
  for (int i = 0; i < region->noperands; i++) {
    const int stored = region->operands[i].stored;
    if (region_get_class(region->operands[i].dtype) < 0 || stored >= region->nops ||
        (stored >= 0 && (region->ops[stored].dtype != region->operands[i].dtype ||
                         region->ops[stored].op == DIT_REGION_LOAD || region->ops[stored].op == DIT_REGION_NUMBER))) {
      return false;
    }
  }
  return true;
}

static void set_number(struct value *value, const struct dit_region_op *op) {
  switch (value->klass) {
    case CLASS_F32:
      value->number.f = (float)op->number;
      break;
    case CLASS_F64:
      value->number.d = op->number;
      break;
    case CLASS_I64:
      value->number.i = op->integer;
      break;
    default:
      value->number.b = op->integer != 0;
  }
}

static bool is_native(int dtype) {
  return dtype == DIT_DTYPE_F32 || dtype == DIT_DTYPE_F64 || dtype == DIT_DTYPE_I64;
}

static void set_operand(struct region_program *program, struct operand *operand,
                        const struct dit_region_operand *layout) {
  operand->layout = *layout;
  operand->width = (int)dit_dtype_get_size(layout->dtype);
  operand->is_native = is_native(layout->dtype);
  operand->move = layout->stored < 0 ? region_find_load(layout->dtype) : region_find_store(layout->dtype);
  operand->is_dense = true;
  int64_t expected = 1;
  for (int d = program->ndim - 1; d >= 0; d--) {
    operand->is_dense &= program->sizes[d] == 1 || layout->strides[d] == expected;
    expected *= program->sizes[d];
  }
}

static void place_load(const struct region_program *program, struct value *value) {
  const struct dit_region_operand *layout = &program->operands[value->operand].layout;
  bool same_rows = true;
  for (int d = 0; d < program->ndim - 1; d++) {
    same_rows &= program->sizes[d] == 1 || layout->strides[d] == 0;
  }
  const bool same_columns = program->ndim == 0 || program->length == 1 || layout->strides[program->ndim - 1] == 0;
  if (same_rows && same_columns) {
    value->place = PLACE_SINGLE;
  } else if (same_rows && program->cols == program->length && value->level == DIT_LEVEL_ELEMENT) {
    value->place = PLACE_HOISTED;
  }
}

static void find_last_uses(const struct region_program *program, int16_t *last) {
  for (int i = 0; i < program->nvalues; i++) {
    last[i] = (int16_t)i;
    for (int k = 0; k < program->values[i].arity; k++) {
      last[program->values[i].args[k]] = (int16_t)i;
    }
  }
  for (int i = 0; i < program->noperands; i++) {
    if (program->operands[i].layout.stored >= 0) {
      last[program->operands[i].layout.stored] = (int16_t)program->nvalues;
    }
  }
}

/// Values that live to the end of a thread's work keep their slots; the others share.
static void give_slots(struct region_program *program) {
  int16_t last[DIT_REGION_MAX_OPS];
  int16_t holds[DIT_REGION_MAX_OPS + SPARE];
  find_last_uses(program, last);
  program->nslots = SPARE;
  for (int i = 0; i < program->nvalues; i++) {
    struct value *value = &program->values[i];
    if (value->place != PLACE_HOISTED && value->place != PLACE_COLUMN && value->place != PLACE_SINGLE) {
      continue;
    }
    holds[program->nslots] = INT16_MAX;
    value->slot = (int16_t)program->nslots++;
  }
  for (int i = 0; i < program->nvalues; i++) {
    struct value *value = &program->values[i];
    if (value->place != PLACE_SLOT) {
      continue;
    }
    int slot = SPARE;
    while (slot < program->nslots && holds[slot] >= i) {
      slot++;
    }
    program->nslots = slot == program->nslots ? slot + 1 : program->nslots;
    holds[slot] = last[i];
    value->slot = (int16_t)slot;
  }
}

static void set_blocks(struct region_program *program) {
  const int64_t length = program->length > 0 ? program->length : 1;
  program->cols = program->kind == DIT_REGION_ROWS || length < BLOCK ? length : BLOCK;
  program->rows = BLOCK / program->cols > 0 ? BLOCK / program->cols : 1;
  if (program->outer > 0 && program->rows > program->outer) {
    program->rows = program->outer;
  }
}

static void set_value(struct region_program *program, int index, const struct dit_region_op *op) {
  struct value *value = &program->values[index];
  value->op = op->op;
  value->klass = (uint8_t)region_get_class(op->dtype);
  value->level = op->level;
  value->dtype = op->dtype;
  value->operand = op->operand;
  value->direct = -1;
  value->arity = (uint8_t)dit_region_op_get_arity(op->op);
  memcpy(value->args, op->args, sizeof value->args);
  if (op->op == DIT_REGION_NUMBER) {
    value->place = PLACE_NUMBER;
    set_number(value, op);
  } else if (op->op == DIT_REGION_LOAD) {
    place_load(program, value);
  } else if (is_fold(op->op)) {
    value->loop = region_find_fold(op->op, value->klass, program->kind == DIT_REGION_COLUMNS);
    value->place = program->kind == DIT_REGION_COLUMNS ? PLACE_COLUMN : PLACE_SLOT;
  } else {
    const int from = program->values[value->args[value->arity - 1]].klass;
    value->loop = region_find_loop(op->op, from, value->klass);
  }
  if (op->op > DIT_REGION_MIN && op->op != DIT_REGION_COPY) {
    value->rounding = region_find_rounding(op->dtype);
  } else if (is_fold(op->op)) {
    value->rounding = region_find_rounding(op->dtype);
  }
}

static void find_direct_stores(struct region_program *program) {
  for (int i = 0; i < program->noperands; i++) {
    const struct operand *operand = &program->operands[i];
    const int stored = operand->layout.stored;
    if (stored >= 0 && operand->is_native && operand->is_dense && program->values[stored].level == DIT_LEVEL_ELEMENT) {
      program->values[stored].direct = (int16_t)i;
    }
  }
}

enum dit_status region_create(const struct dit_region *region, struct region_program **out, struct dit_error *err) {
  if (!region_supports(region)) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "a region with an operation, dtype or length that the host lacks");
  }
  struct region_program *program = dit_calloc(1, sizeof *program);
  if (program) {
    program->values = dit_calloc((size_t)region->nops + 1, sizeof *program->values);
    program->operands = dit_calloc((size_t)region->noperands + 1, sizeof *program->operands);
  }
  if (!program || !program->values || !program->operands) {
    region_destroy(program);
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a region");
  }
  program->kind = region->kind;
  program->ndim = region->ndim;
  program->nvalues = region->nops;
  program->noperands = region->noperands;
  memcpy(program->sizes, region->sizes, sizeof program->sizes);
  program->outer = 1;
  for (int d = 0; d + 1 < region->ndim; d++) {
    program->outer *= region->sizes[d];
  }
  program->length = region->ndim ? region->sizes[region->ndim - 1] : 1;
  set_blocks(program);
  for (int i = 0; i < region->noperands; i++) {
    set_operand(program, &program->operands[i], &region->operands[i]);
  }
  for (int i = 0; i < region->nops; i++) {
    set_value(program, i, &region->ops[i]);
  }
  find_direct_stores(program);
  give_slots(program);
  *out = program;
  return DIT_OK;
}

void region_destroy(struct region_program *program) {
  if (program) {
    dit_free(program->values);
    dit_free(program->operands);
    dit_free(program);
  }
}

// Running

struct work {
  const struct region_program *program;
  void *const *data;
  bool direct;  // results may be written while operands are still read
  int failed;
};

struct block {
  const struct region_program *program;
  void *const *data;
  char *slots;
  size_t slot_bytes;
  bool direct;
  int64_t row, col, rows, cols;
  const void *at[DIT_REGION_MAX_OPS];
};

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

static char *get_place(const struct block *block, int index, int64_t row, int64_t col) {
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
    char *memory = get_place(block, index, block->row, 0);
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
    char *memory = get_place(block, index, block->row + r, level == DIT_LEVEL_ROW ? 0 : block->col);
    char *element = reg + r * count * width;
    loads ? operand->move(element, 1, memory, step, count) : operand->move(memory, step, element, 1, count);
  }
}

static const void *load_value(const struct block *block, const struct value *value) {
  const struct operand *operand = &block->program->operands[value->operand];
  if (operand->is_native && value->level == DIT_LEVEL_ELEMENT &&
      ((operand->is_dense && (block->rows == 1 || block->cols == block->program->length)) ||
       (block->rows == 1 && operand->layout.strides[block->program->ndim - 1] == 1))) {
    return get_place(block, value->operand, block->row, block->col);
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
    out = get_place(block, value->direct, block->row, block->col);
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
  if (value->rounding && program->kind == DIT_REGION_ROWS) {
    value->rounding(out, (const void *[]){out}, 0, block->rows);
  }
  block->at[index] = out;
}

static void run_block(struct block *block) {
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
    if (stored < 0 || program->values[stored].place == PLACE_COLUMN) {
      continue;
    }
    const struct value *value = &program->values[stored];
    char *reg = (char *)(uintptr_t)block->at[stored];
    if (reg != get_place(block, i, block->row, block->col)) {
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

static bool begin_thread(struct work *work, struct block *block) {
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
  if (!begin_thread(work, &block)) {
    return;
  }
  for (int64_t i = begin; i < end; i++) {
    block.row = i / pieces * program->rows;
    block.col = i % pieces * program->cols;
    block.rows = program->outer - block.row < program->rows ? program->outer - block.row : program->rows;
    block.cols = program->length - block.col < program->cols ? program->length - block.col : program->cols;
    run_block(&block);
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
    operand->move(get_place(block, i, 0, block->col), stride, from, 1, block->cols);
  }
}

static void run_columns(void *context, int64_t begin, int64_t end) {
  struct work *work = context;
  const struct region_program *program = work->program;
  struct block block;
  if (!begin_thread(work, &block)) {
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
      run_block(&block);
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
  struct work work = {program, data, true, 0};
  for (int i = 0; i < program->noperands; i++) {
    for (int k = 0; k < program->noperands; k++) {
      work.direct &= program->operands[i].layout.stored < 0 || i == k || data[i] != data[k];
    }
  }
  const int64_t pieces = count_pieces(program);
  const int64_t each = program->rows * program->cols;
  if (program->kind == DIT_REGION_COLUMNS) {
    const int64_t grain = program->outer * program->cols >= GRAIN ? 1 : pieces;
    dit_parallel_for(0, pieces, grain, run_columns, &work);
  } else {
    const int64_t blocks = (program->outer + program->rows - 1) / program->rows * pieces;
    dit_parallel_for(0, blocks, each >= GRAIN ? 1 : GRAIN / each, run_rows, &work);
  }
  return !work.failed;
}
