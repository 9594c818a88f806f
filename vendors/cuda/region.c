/// What regions can be kernels, and how they are laid over threads (region.h).
#include "region.h"

#include <string.h>

#include "engine/region_lists.h"

#define MAX_LONG_BLOCK 512
#define WANTED_BLOCKS 528    // of a kernel that folds in parts
#define LEAST_PART_ROW 8192  // elements of a part, and rows of one
#define LEAST_PART_COLUMN 64

int region_get_class(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F32:
    case DIT_DTYPE_F16:
    case DIT_DTYPE_BF16:
      return CLASS_F32;
    case DIT_DTYPE_F64:
      return CLASS_F64;
    case DIT_DTYPE_BOOL:
      return CLASS_BOOL;
    case DIT_DTYPE_I64:
    case DIT_DTYPE_I32:
    case DIT_DTYPE_I16:
    case DIT_DTYPE_I8:
    case DIT_DTYPE_U8:
      return CLASS_I64;
    default:
      return -1;
  }
}

// Operations by the class of their last argument: those of region_ops.h

#define IS_ONE(NAME, ...) || op == DIT_REGION_##NAME
static bool is_of_floats(int op) {
  return op == DIT_REGION_ISNAN || op == DIT_REGION_SIN || op == DIT_REGION_COS || op == DIT_REGION_WHERE ||
         op == DIT_REGION_ADD_SCALED ||
         op == DIT_REGION_LERP REGION_FLOAT_1(IS_ONE) REGION_FLOAT_2(IS_ONE) REGION_COMPARE(IS_ONE);
}
static bool is_of_integers(int op) {
  return op == DIT_REGION_WHERE REGION_INTEGER_1(IS_ONE) REGION_INTEGER_2(IS_ONE) REGION_COMPARE(IS_ONE);
}
static bool is_of_bools(int op) {
  return op == DIT_REGION_WHERE REGION_BOOL_1(IS_ONE) REGION_BOOL_2(IS_ONE) REGION_COMPARE(IS_ONE);
}

static bool has_operation(int op, int klass) {
  return op == DIT_REGION_CAST || (klass == CLASS_I64    ? is_of_integers(op)
                                   : klass == CLASS_BOOL ? is_of_bools(op)
                                                         : is_of_floats(op));
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
  if (region_is_fold(op->op)) {
    return region->kind != DIT_REGION_POINTWISE && last == klass &&
           region->ops[op->args[0]].level == DIT_LEVEL_ELEMENT && !(op->op == DIT_REGION_SUM && klass == CLASS_BOOL);
  }
  const bool picks = op->op == DIT_REGION_WHERE;
  for (int k = picks; k < arity; k++) {
    if (region_get_class(region->ops[op->args[k]].dtype) != last) {
      return false;
    }
  }
  if (picks && region_get_class(region->ops[op->args[0]].dtype) != CLASS_BOOL) {
    return false;
  }
  const bool tests = (op->op >= DIT_REGION_EQ && op->op <= DIT_REGION_GE) || op->op == DIT_REGION_ISNAN;
  return (tests ? klass == CLASS_BOOL : op->op == DIT_REGION_CAST || klass == last) && has_operation(op->op, last);
}

static bool is_long(const struct dit_region *region) {
  return region->kind == DIT_REGION_ROWS && region->ndim && region->sizes[region->ndim - 1] > DIT_REGION_MAX_ROW;
}

bool region_supports(const struct dit_region *region) {
  if (region->ndim < 0 || region->ndim > DIT_GRAPH_MAX_DIMS || region->nops > DIT_REGION_MAX_OPS ||
      region->noperands > DIT_REGION_MAX_OPERANDS) {
    return false;
  }
  for (int i = 0; i < region->nops; i++) {
    if (!check_op(region, i)) {
      return false;
    }
  }
  for (int i = 0; i < region->noperands; i++) {
    const struct dit_region_operand *operand = &region->operands[i];
    if (region_get_class(operand->dtype) < 0 || operand->stored >= region->nops ||
        (operand->stored >= 0 &&
         (region->ops[operand->stored].dtype != operand->dtype || region->ops[operand->stored].op == DIT_REGION_LOAD ||
          region->ops[operand->stored].op == DIT_REGION_NUMBER))) {
      return false;
    }
    for (int d = 0; d < region->ndim; d++) {
      if (operand->strides[d] < 0) {
        return false;
      }
    }
  }
  return true;
}

// Threads

static bool fits_narrow(const struct dit_region *region) {
  const double limit = 1 << 30;
  double count = 1;
  for (int d = 0; d < region->ndim; d++) {
    count *= (double)region->sizes[d];
  }
  for (int k = 0; k < region->noperands && count < limit; k++) {
    double span = 0;
    for (int d = 0; d < region->ndim; d++) {
      span += (double)(region->sizes[d] - 1) * (double)region->operands[k].strides[d];
    }
    count = span >= limit ? limit : count;
  }
  return count < limit;
}

/// Can the operand's rows be moved as vectors?
static bool suits_vectors(const struct dit_region *region, const struct dit_region_operand *operand, int lanes) {
  for (int d = 0; d + 1 < region->ndim; d++) {
    if (region->sizes[d] > 1 && operand->strides[d] % lanes != 0) {
      return false;
    }
  }
  return operand->strides[region->ndim - 1] == 1;
}

static void set_lanes(struct region_plan *plan) {
  const struct dit_region *region = plan->region;
  int width = 1, vectors = 0;
  plan->lanes = 1;
  for (int k = 0; k < region->noperands && region->ndim; k++) {
    if (region->operands[k].strides[region->ndim - 1] == 1) {
      const int own = (int)dit_dtype_get_size(region->operands[k].dtype);
      width = own > width ? own : width;
    }
  }
  int lanes = width == 1 ? 8 : 16 / width;
  while (lanes > 1 && plan->length % lanes != 0) {
    lanes /= 2;
  }
  if (lanes == 1 || region->kind == DIT_REGION_COLUMNS) {
    return;
  }
  for (int k = 0; k < region->noperands; k++) {
    plan->is_vector[k] = suits_vectors(region, &region->operands[k], lanes);
    vectors += plan->is_vector[k];
  }
  plan->lanes = vectors ? lanes : 1;
}

/// A warp for short rows, more threads for longer ones, so that each has few elements to keep.
static void set_threads(struct region_plan *plan) {
  if (plan->region->kind != DIT_REGION_ROWS) {
    plan->threads = plan->region->kind == DIT_REGION_COLUMNS ? REGION_COLUMN_LINES * REGION_WARP : REGION_POINT_THREADS;
    return;
  }
  if (plan->is_long) {
    plan->threads = MAX_LONG_BLOCK;
    return;
  }
  const int64_t chunks = (plan->length + plan->lanes - 1) / plan->lanes;
  int turns = 1;
  plan->threads = REGION_WARP;
  while (chunks > (int64_t)plan->threads * REGION_TURNS) {
    plan->threads *= plan->threads == REGION_WARP ? 4 : 2;
  }
  while (chunks > (int64_t)plan->threads * turns) {
    turns *= 2;
  }
  plan->each = turns * plan->lanes;
}

/// Does a value hang on a fold? Then whole rows have to be known.
static bool goes_on(const struct dit_region *region) {
  for (int i = 0; i < region->nops; i++) {
    for (int k = 0; k < dit_region_op_get_arity(region->ops[i].op); k++) {
      if (region_is_fold(region->ops[region->ops[i].args[k]].op)) {
        return true;
      }
    }
  }
  return false;
}

/// Folds that too few blocks would share.
static void set_parts(struct region_plan *plan) {
  const bool is_columns = plan->region->kind == DIT_REGION_COLUMNS;
  int64_t units = plan->outer, most = plan->length / LEAST_PART_ROW, folds = 0;
  plan->parts = 1;
  if (is_columns) {
    units = (plan->length + REGION_WARP - 1) / REGION_WARP;
    most = plan->outer / LEAST_PART_COLUMN;
  }
  for (int i = 0; i < plan->region->nops; i++) {
    folds += region_is_fold(plan->region->ops[i].op);
  }
  if ((!plan->is_long && !is_columns) || units == 0 || folds == 0 || goes_on(plan->region)) {
    return;
  }
  const int64_t room = (int64_t)REGION_SCRATCH / 8 / folds / (is_columns ? plan->length : units);
  int64_t parts = WANTED_BLOCKS / units;
  parts = parts > most ? most : parts;
  parts = parts > room ? room : parts;
  plan->parts = parts > 1 ? (int)parts : 1;
}

void region_plan_init(struct region_plan *plan, const struct dit_region *region) {
  memset(plan, 0, sizeof *plan);
  plan->region = region;
  plan->is_long = is_long(region);
  plan->is_narrow = fits_narrow(region);
  plan->outer = 1;
  for (int d = 0; d + 1 < region->ndim; d++) {
    plan->outer *= region->sizes[d];
  }
  plan->length = region->ndim ? region->sizes[region->ndim - 1] : 1;
  for (int i = 0; i < region->nops; i++) {
    if (region->ops[i].op == DIT_REGION_NUMBER) {
      plan->numbers[plan->nnumbers++] = i;
    }
  }
  set_lanes(plan);
  set_threads(plan);
  plan->block = plan->threads == REGION_WARP ? REGION_ROW_WARPS * REGION_WARP : plan->threads;
  set_parts(plan);
}
