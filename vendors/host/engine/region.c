/// Making a region runnable: the block machine's program (region_run.c) and, later, the code that replaces it.
#include "region.h"

#include <stdlib.h>
#include <string.h>

#include "dit/alloc.h"
#include "region_code.h"

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

static bool is_long(const struct dit_region *region) {
  return region->kind == DIT_REGION_ROWS && region->ndim && region->sizes[region->ndim - 1] > DIT_REGION_MAX_ROW;
}

/// Folds of elementwise values, and nothing that needs them.
static bool suits_long(const struct dit_region *region) {
  for (int i = 0; i < region->nops; i++) {
    const struct dit_region_op *op = &region->ops[i];
    for (int k = 0; k < dit_region_op_get_arity(op->op); k++) {
      if (is_fold(region->ops[op->args[k]].op)) {
        return false;
      }
    }
    if (op->level == DIT_LEVEL_ROW && !is_fold(op->op) && op->op != DIT_REGION_NUMBER) {
      return false;
    }
  }
  return true;
}

bool region_supports(const struct dit_region *region) {
  if (region->ndim < 0 || region->ndim > DIT_GRAPH_MAX_DIMS || region->nops > DIT_REGION_MAX_OPS ||
      region->noperands > DIT_REGION_MAX_OPERANDS) {
    return false;
  }
  if (is_long(region) && !suits_long(region)) {
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
  int16_t holds[DIT_REGION_MAX_OPS + REGION_SPARE];
  find_last_uses(program, last);
  program->nslots = REGION_SPARE;
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
    int slot = REGION_SPARE;
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
  program->cols =
      (program->kind == DIT_REGION_ROWS && !program->is_long) || length < REGION_BLOCK ? length : REGION_BLOCK;
  program->rows = REGION_BLOCK / program->cols > 0 ? REGION_BLOCK / program->cols : 1;
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

/// Code for the region, if there is to be any; without memory for it the block machine goes on alone.
static void prepare_code(struct region_program *program, const struct dit_region *region) {
  struct region_text source = {0};
  const size_t nstrides = (size_t)program->noperands * DIT_GRAPH_MAX_DIMS + 1;
  program->strides = dit_calloc(nstrides, sizeof *program->strides);
  program->numbers = dit_calloc((size_t)program->nvalues + 1, sizeof *program->numbers);
  if (!program->strides || !program->numbers) {
    return;
  }
  for (int i = 0; i < program->noperands; i++) {
    memcpy(program->strides + (size_t)i * DIT_GRAPH_MAX_DIMS, program->operands[i].layout.strides,
           DIT_GRAPH_MAX_DIMS * sizeof *program->strides);
  }
  for (int i = 0; i < program->nvalues; i++) {
    if (program->values[i].klass == CLASS_F32 || program->values[i].klass == CLASS_F64) {
      program->numbers[i].real = region->ops[i].number;
    } else {
      program->numbers[i].integer = region->ops[i].integer;
      if (program->values[i].klass == CLASS_BOOL) {
        program->numbers[i].integer = region->ops[i].integer != 0;
      }
    }
  }
  if (region_code_is_off()) {
    return;
  }
  struct region_key key;
  region_key_make(&key, program);
  if (region_code_recall(&key, program)) {
    return;
  }
  if (region_write_source(program, &source)) {
    program->code = region_code_get(&source);
    region_code_remember(&key, program);
  } else {
    dit_free(source.data);
  }
}

const char *region_describe(const struct region_program *program) {
  return program->code && region_code_get_state(program->code) == 1 ? "c" : "vm";
}

const char *region_get_source(const struct region_program *program) {
  return program->code ? region_code_get_source(program->code) : NULL;
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
  program->is_long = is_long(region);
  set_blocks(program);
  for (int i = 0; i < region->noperands; i++) {
    set_operand(program, &program->operands[i], &region->operands[i]);
  }
  for (int i = 0; i < region->nops; i++) {
    set_value(program, i, &region->ops[i]);
  }
  for (int i = 0; i < program->nvalues; i++) {
    program->nfolds += is_fold(program->values[i].op);
  }
  find_direct_stores(program);
  give_slots(program);
  prepare_code(program, region);
  *out = program;
  return DIT_OK;
}

void region_destroy(struct region_program *program) {
  if (program) {
    dit_free(program->values);
    dit_free(program->operands);
    dit_free(program->strides);
    dit_free(program->numbers);
    dit_free(program);
  }
}
