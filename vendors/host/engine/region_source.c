/// Writes a region as C (region_code.h). Elements are made by loops over a row; a row with folds has a loop for each
/// fold that needs the one before. What a later loop needs again is loaded again, made again when that is cheap, or
/// kept in a row of scratch memory. Sizes, strides and numbers are arguments, so that code is shared between shapes.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dit/alloc.h"
#include "region_code.h"

#define LANES 64
#define TERMS 4  // floats that a lane adds up before they go to its double

struct writer {
  const struct region_program *program;
  struct region_text *out;
  int phase[DIT_REGION_MAX_OPS];  // ELEMENT: the loop that makes it; ROW: the loop before which it is known
  int nphases;
  int scratch[DIT_REGION_MAX_OPS];  // number of its scratch row; -1: none
  int nscratch;
  bool is_kept[DIT_REGION_MAX_OPS];  // no contraction with what comes next
  bool is_needed[DIT_REGION_MAX_OPS];
  bool has_trig;
};

static const char *const types[] = {"float", "double", "int64_t", "int32_t"};
static const char *const tags[] = {"f32", "f64", "i64", "bool"};

static void put(struct region_text *out, const char *format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length < 0 || (size_t)length >= sizeof line) {
    out->failed = true;
    return;
  }
  if (out->size + (size_t)length + 1 > out->capacity) {
    const size_t capacity = 2 * out->capacity + 4096;
    char *data = dit_realloc(out->data, capacity);
    if (!data) {
      out->failed = true;
      return;
    }
    out->data = data;
    out->capacity = capacity;
  }
  memcpy(out->data + out->size, line, (size_t)length + 1);
  out->size += (size_t)length;
}

static const char *get_memory_type(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F32:
      return "float";
    case DIT_DTYPE_F64:
      return "double";
    case DIT_DTYPE_I64:
      return "int64_t";
    case DIT_DTYPE_I32:
      return "int32_t";
    case DIT_DTYPE_I16:
      return "int16_t";
    case DIT_DTYPE_I8:
      return "int8_t";
    case DIT_DTYPE_F16:
    case DIT_DTYPE_BF16:
      return "uint16_t";
    default:
      return "uint8_t";
  }
}

static const char *get_load(int dtype) {
  return dtype == DIT_DTYPE_BF16   ? "bfloat_to_float"
         : dtype == DIT_DTYPE_F16  ? "half_to_float"
         : dtype == DIT_DTYPE_BOOL ? "0 != "
                                   : "";
}

static const char *get_store(int dtype) {
  return dtype == DIT_DTYPE_BF16   ? "bfloat_from_float"
         : dtype == DIT_DTYPE_F16  ? "half_from_float"
         : dtype == DIT_DTYPE_BOOL ? "0 != "
                                   : "";
}

static const char *get_rounding(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_BF16:
      return "bfloat_to_float(bfloat_from_float";
    case DIT_DTYPE_F16:
      return "half_to_float(half_from_float";
    case DIT_DTYPE_I32:
      return "((int32_t)";
    case DIT_DTYPE_I16:
      return "((int16_t)";
    case DIT_DTYPE_I8:
      return "((int8_t)";
    case DIT_DTYPE_U8:
      return "((uint8_t)";
    default:
      return "(";
  }
}

// What is known before a line is written

static bool ends_in_product(const struct writer *writer, int index) {
  const struct value *value = &writer->program->values[index];
  switch (value->op) {
    case DIT_REGION_MUL:
    case DIT_REGION_EXP:
    case DIT_REGION_EXPM1:
    case DIT_REGION_SILU_GRAD:
    case DIT_REGION_TANH_GRAD:
    case DIT_REGION_SIGMOID_GRAD:
    case DIT_REGION_GELU:
    case DIT_REGION_GELU_TANH:
    case DIT_REGION_GELU_GRAD:
    case DIT_REGION_GELU_TANH_GRAD:
      return true;
    case DIT_REGION_NEG:
    case DIT_REGION_COPY:
    case DIT_REGION_CAST:
      return ends_in_product(writer, value->args[0]);
    default:
      return false;
  }
}

/// Operations whose first step on an argument is no addition.
static bool adds(int op) {
  switch (op) {
    case DIT_REGION_MUL:
    case DIT_REGION_DIV:
    case DIT_REGION_SQRT:
    case DIT_REGION_RSQRT:
    case DIT_REGION_RECIPROCAL:
    case DIT_REGION_ABS:
    case DIT_REGION_MAXIMUM:
    case DIT_REGION_MINIMUM:
    case DIT_REGION_CLAMP_MIN:
    case DIT_REGION_CLAMP_MAX:
    case DIT_REGION_RELU:
    case DIT_REGION_WHERE:
    case DIT_REGION_MAX:
    case DIT_REGION_MIN:
      return false;
    default:
      return op < DIT_REGION_EQ || op > DIT_REGION_GE;
  }
}

static bool is_cheap(const struct writer *writer, int index) {
  const struct value *value = &writer->program->values[index];
  switch (value->op) {
    case DIT_REGION_CAST:
    case DIT_REGION_COPY:
    case DIT_REGION_NEG:
    case DIT_REGION_ABS:
    case DIT_REGION_NOT:
    case DIT_REGION_RELU:
    case DIT_REGION_ADD:
    case DIT_REGION_SUB:
    case DIT_REGION_MUL:
    case DIT_REGION_MAXIMUM:
    case DIT_REGION_MINIMUM:
    case DIT_REGION_WHERE:
      break;
    default:
      return false;
  }
  for (int k = 0; k < value->arity; k++) {
    const struct value *argument = &writer->program->values[value->args[k]];
    if (argument->level == DIT_LEVEL_ELEMENT && argument->op != DIT_REGION_LOAD && argument->op != DIT_REGION_NUMBER) {
      return false;
    }
  }
  return true;
}

static void find_phases(struct writer *writer) {
  const struct region_program *program = writer->program;
  writer->nphases = 1;
  for (int i = 0; i < program->nvalues; i++) {
    const struct value *value = &program->values[i];
    int phase = 0;
    for (int k = 0; k < value->arity; k++) {
      phase = writer->phase[value->args[k]] > phase ? writer->phase[value->args[k]] : phase;
    }
    writer->phase[i] = phase + (is_fold(value->op) && program->kind == DIT_REGION_ROWS && !program->is_long);
    if (value->level == DIT_LEVEL_ELEMENT && phase >= writer->nphases) {
      writer->nphases = phase + 1;
    }
    writer->scratch[i] = -1;
    writer->has_trig |= (value->op == DIT_REGION_SIN || value->op == DIT_REGION_COS) && value->klass == CLASS_F32;
  }
  for (int i = 0; i < program->nvalues; i++) {
    const struct value *value = &program->values[i];
    for (int k = 0; k < value->arity; k++) {
      const int a = value->args[k];
      const struct value *argument = &program->values[a];
      if (argument->level == DIT_LEVEL_ELEMENT && argument->arity > 0 && value->level == DIT_LEVEL_ELEMENT &&
          writer->phase[a] < writer->phase[i] && writer->scratch[a] < 0 && !is_cheap(writer, a)) {
        writer->scratch[a] = writer->nscratch++;
      }
      writer->is_kept[a] |= adds(value->op) && ends_in_product(writer, a) &&
                            (argument->dtype == DIT_DTYPE_F32 || argument->dtype == DIT_DTYPE_F64);
    }
  }
}

// Lines

/// The element's index in its operand's row.
static void put_index(struct writer *writer, int operand) {
  const struct region_program *program = writer->program;
  const int64_t stride = program->ndim ? program->operands[operand].layout.strides[program->ndim - 1] : 0;
  if (stride == 1) {
    put(writer->out, "p%d[c]", operand);
  } else {
    put(writer->out, "p%d[c * s%d]", operand, operand);
  }
}

static bool is_same_in_row(const struct region_program *program, int operand) {
  return program->ndim == 0 || program->operands[operand].layout.strides[program->ndim - 1] == 0;
}

static void put_operation(struct writer *writer, int i, bool wide) {
  const struct value *value = &writer->program->values[i];
  const struct value *last = &writer->program->values[value->args[value->arity - 1]];
  struct region_text *out = writer->out;
  const bool is_trig = (value->op == DIT_REGION_SIN || value->op == DIT_REGION_COS) && last->klass == CLASS_F32;
  put(out, "const %s v%d = ", types[value->klass], i);
  if (writer->is_kept[i]) {
    put(out, "keep_%s(", tags[value->klass]);
  }
  put(out, "%s(", value->op == DIT_REGION_COPY ? "(" : get_rounding(value->dtype));
  if (value->op == DIT_REGION_CAST) {
    put(out, value->klass == CLASS_BOOL ? "0 != v%d" : "v%d", value->args[0]);
  } else if (is_trig) {
    const char *name = value->op == DIT_REGION_SIN ? "sin" : "cos";
    put(out, wide ? "%sf(v%d)" : "%s_f32(v%d)", name, value->args[0]);
  } else {
    put(out, "op_%s_%s(", dit_region_op_get_name(value->op), tags[last->klass]);
    for (int k = 0; k < value->arity; k++) {
      put(out, "%sv%d", k ? ", " : "", value->args[k]);
    }
    put(out, ")");
  }
  put(out, "))%s;\n", writer->is_kept[i] ? ", zero)" : "");
  if (is_trig && !wide) {
    put(out, "far |= !(fabsf(v%d) <= MATHF_TRIG_MAX);\n", value->args[0]);
  }
}

static void put_element(struct writer *writer, int i, int phase, bool wide) {
  const struct region_program *program = writer->program;
  const struct value *value = &program->values[i];
  if (value->op == DIT_REGION_LOAD) {
    if (!is_same_in_row(program, value->operand)) {
      put(writer->out, "const %s v%d = %s(", types[value->klass], i, get_load(value->dtype));
      put_index(writer, value->operand);
      put(writer->out, ");\n");
    }
  } else if (writer->phase[i] < phase && writer->scratch[i] >= 0) {
    put(writer->out, "const %s v%d = r%d[c];\n", types[value->klass], i, i);
  } else if (value->arity > 0) {
    put_operation(writer, i, wide);
  }
}

static void need(struct writer *writer, int i, int phase) {
  const struct value *value = &writer->program->values[i];
  if (writer->is_needed[i] || value->level == DIT_LEVEL_ROW) {
    return;
  }
  writer->is_needed[i] = true;
  if (writer->phase[i] < phase && writer->scratch[i] >= 0) {
    return;
  }
  for (int k = 0; k < value->arity; k++) {
    need(writer, value->args[k], phase);
  }
}

static bool folds_in(const struct writer *writer, int i, int phase) {
  const struct value *value = &writer->program->values[i];
  return is_fold(value->op) && writer->phase[value->args[0]] == phase;
}

static bool stores_in(const struct writer *writer, int operand, int phase) {
  const int stored = writer->program->operands[operand].layout.stored;
  return stored >= 0 && writer->program->values[stored].level == DIT_LEVEL_ELEMENT &&
         !is_fold(writer->program->values[stored].op) && writer->phase[stored] == phase;
}

static const char *get_reduction(const struct value *value) {
  const bool is_float = value->klass == CLASS_F32 || value->klass == CLASS_F64;
  if (value->op == DIT_REGION_SUM) {
    return "+";
  }
  if (!is_float) {
    return value->op == DIT_REGION_MAX ? "max" : "min";
  }
  return value->op == DIT_REGION_MAX ? value->klass == CLASS_F32 ? "max_f32" : "max_f64"
         : value->klass == CLASS_F32 ? "min_f32"
                                     : "min_f64";
}

/// The accumulator's type: sums of floats are kept in double.
static const char *get_fold_type(const struct value *value) {
  if (value->op == DIT_REGION_SUM) {
    return value->klass == CLASS_I64 ? "uint64_t" : "double";
  }
  return types[value->klass];
}

static const char *get_fold_start(const struct value *value) {
  if (value->op == DIT_REGION_SUM) {
    return "0";
  }
  const bool is_max = value->op == DIT_REGION_MAX;
  return value->klass == CLASS_I64    ? is_max ? "INT64_MIN" : "INT64_MAX"
         : value->klass == CLASS_BOOL ? is_max ? "0" : "1"
         : is_max                     ? "-INFINITY"
                                      : "INFINITY";
}

static void put_fold(struct writer *writer, int i, const char *at, const char *type) {
  const struct value *value = &writer->program->values[i];
  if (value->op == DIT_REGION_SUM) {
    put(writer->out, "%s += (%s)v%d;\n", at, type, value->args[0]);
  } else {
    put(writer->out, "%s = join_%s_%s(%s, v%d);\n", at, value->op == DIT_REGION_MAX ? "max" : "min", tags[value->klass],
        at, value->args[0]);
  }
}

static void find_needed(struct writer *writer, int phase) {
  const struct region_program *program = writer->program;
  memset(writer->is_needed, 0, sizeof writer->is_needed);
  for (int i = 0; i < program->nvalues; i++) {
    if (folds_in(writer, i, phase)) {
      need(writer, program->values[i].args[0], phase);
    }
    if (writer->scratch[i] >= 0 && writer->phase[i] == phase) {
      need(writer, i, phase);
    }
  }
  for (int k = 0; k < program->noperands; k++) {
    if (stores_in(writer, k, phase)) {
      need(writer, program->operands[k].layout.stored, phase);
    }
  }
}

/// A sum whose lanes take TERMS floats at a time: converting each of them costs as much as the addition.
static bool has_part(const struct value *value) {
  return value->op == DIT_REGION_SUM && value->klass == CLASS_F32;
}

/// What happens to element c. Folds go to accumulators: one, one per column, or one per lane.
static void put_body(struct writer *writer, int phase, bool wide, bool in_lanes) {
  const struct region_program *program = writer->program;
  struct region_text *out = writer->out;
  for (int i = 0; i < program->nvalues; i++) {
    if (writer->is_needed[i]) {
      put_element(writer, i, phase, wide);
    }
    if (folds_in(writer, i, phase)) {
      const bool is_part = in_lanes && has_part(&program->values[i]);
      char at[32];
      snprintf(at, sizeof at, "a%d%s", i,
               is_part                               ? "_part[k]"
               : in_lanes                            ? "_lanes[k]"
               : program->kind == DIT_REGION_COLUMNS ? "[c]"
                                                     : "");
      put_fold(writer, i, at, is_part ? "float" : get_fold_type(&program->values[i]));
    }
    if (writer->scratch[i] >= 0 && writer->phase[i] == phase) {
      put(out, "r%d[c] = v%d;\n", i, i);
    }
  }
  for (int k = 0; k < program->noperands; k++) {
    if (stores_in(writer, k, phase)) {
      put_index(writer, k);
      put(out, " = (%s)%s(v%d);\n", get_memory_type(program->operands[k].layout.dtype),
          get_store(program->operands[k].layout.dtype), program->operands[k].layout.stored);
    }
  }
}

static void put_lane_array(struct writer *writer, int i, const char *type, const char *name) {
  put(writer->out, "%s a%d%s[%d];\nfor (int k = 0; k < %d; k++) {\na%d%s[k] = %s;\n}\n", type, i, name, LANES, LANES, i,
      name, get_fold_start(&writer->program->values[i]));
}

/// A row's folds in LANES side by side, so that they need not wait for each other; they are joined pair by pair.
static void put_lanes(struct writer *writer, int phase) {
  const struct region_program *program = writer->program;
  struct region_text *out = writer->out;
  put(out, "if (n >= %d) {\n", TERMS * LANES);
  for (int i = 0; i < program->nvalues; i++) {
    if (folds_in(writer, i, phase)) {
      put_lane_array(writer, i, get_fold_type(&program->values[i]), "_lanes");
    }
  }
  put(out, "for (; done + %d <= n; done += %d) {\n", TERMS * LANES, TERMS * LANES);
  for (int i = 0; i < program->nvalues; i++) {
    if (folds_in(writer, i, phase) && has_part(&program->values[i])) {
      put_lane_array(writer, i, "float", "_part");
    }
  }
  put(out, "for (int64_t at = done; at < done + %d; at += %d) {\n#pragma omp simd\n", TERMS * LANES, LANES);
  put(out, "for (int64_t k = 0; k < %d; k++) {\nconst int64_t c = at + k;\n", LANES);
  put_body(writer, phase, false, true);
  put(out, "}\n}\n");
  for (int i = 0; i < program->nvalues; i++) {
    if (folds_in(writer, i, phase) && has_part(&program->values[i])) {
      put(out, "#pragma omp simd\nfor (int k = 0; k < %d; k++) {\na%d_lanes[k] += (double)a%d_part[k];\n}\n", LANES, i,
          i);
    }
  }
  put(out, "}\n");
  for (int i = 0; i < program->nvalues; i++) {
    if (!folds_in(writer, i, phase)) {
      continue;
    }
    const struct value *value = &program->values[i];
    for (int half = LANES / 2; half >= 1; half /= 2) {
      put(out, "%sfor (int k = 0; k < %d; k++) {\n", half >= 8 ? "#pragma omp simd\n" : "", half);
      if (value->op == DIT_REGION_SUM) {
        put(out, "a%d_lanes[k] += a%d_lanes[k + %d];\n}\n", i, i, half);
      } else {
        put(out, "a%d_lanes[k] = join_%s_%s(a%d_lanes[k], a%d_lanes[k + %d]);\n}\n", i,
            value->op == DIT_REGION_MAX ? "max" : "min", tags[value->klass], i, i, half);
      }
    }
    put(out, "a%d = a%d_lanes[0];\n", i, i);
  }
  put(out, "}\n");
}

/// One loop over the elements of a row; `wide`: with libm's trigonometry.
static void put_loop(struct writer *writer, int phase, bool wide) {
  const struct region_program *program = writer->program;
  struct region_text *out = writer->out;
  bool folds = false;
  find_needed(writer, phase);
  put(out, "{\nint64_t done = 0;\n");
  for (int i = 0; i < program->nvalues; i++) {
    folds |= folds_in(writer, i, phase) && program->kind == DIT_REGION_ROWS;
  }
  if (folds) {
    put_lanes(writer, phase);
  }
  if (!wide) {
    put(out, "#pragma omp simd");
    if (writer->has_trig) {
      put(out, " reduction(| : far)");
    }
    for (int i = 0; i < program->nvalues && folds; i++) {
      if (folds_in(writer, i, phase)) {
        put(out, " reduction(%s : a%d)", get_reduction(&program->values[i]), i);
      }
    }
    put(out, "\n");
  }
  put(out, "for (int64_t c = done; c < n; c++) {\n");
  put_body(writer, phase, wide, false);
  put(out, "}\n}\n");
}

static void put_head(struct writer *writer) {
  const struct region_program *program = writer->program;
  struct region_text *out = writer->out;
  put(out, "void region(const struct region_call *call, int64_t begin, int64_t end);\n");
  put(out, "void region(const struct region_call *call, int64_t begin, int64_t end) {\n");
  put(out, "const uint64_t zero = call->zero;\n(void)zero;\n");
  if (program->ndim) {
    put(out, "const int64_t length = call->sizes[%d];\n", program->ndim - 1);
  } else {
    put(out, "const int64_t length = 1;\n");
  }
  for (int d = 0; d + 1 < program->ndim; d++) {
    put(out, "const int64_t size%d = call->sizes[%d];\n", d, d);
  }
  for (int i = 0; i < program->nvalues; i++) {
    const struct value *value = &program->values[i];
    if (value->op == DIT_REGION_NUMBER) {
      put(out, "const %s v%d = (%s)call->numbers[%d].%s;\n", types[value->klass], i, types[value->klass], i,
          value->klass == CLASS_F32 || value->klass == CLASS_F64 ? "real" : "integer");
    }
    if (writer->scratch[i] >= 0) {
      put(out, "%s *const r%d = (%s *)(void *)(call->scratch + (size_t)length * 8 * %d);\n", types[value->klass], i,
          types[value->klass], writer->scratch[i]);
    }
  }
  for (int k = 0; k < program->noperands; k++) {
    const struct dit_region_operand *layout = &program->operands[k].layout;
    const char *type = get_memory_type(layout->dtype);
    const char *qualifier = layout->stored < 0 ? "const " : "";
    put(out, "%s%s *const b%d = (%s%s *)call->data[%d];\n", qualifier, type, k, qualifier, type, k);
    for (int d = 0; d + 1 < program->ndim; d++) {
      if (layout->strides[d] != 0) {
        put(out, "const int64_t t%d_%d = call->strides[%d];\n", k, d, k * DIT_GRAPH_MAX_DIMS + d);
      }
    }
    if (program->ndim && layout->strides[program->ndim - 1] > 1) {
      put(out, "const int64_t s%d = call->strides[%d];\n", k, k * DIT_GRAPH_MAX_DIMS + program->ndim - 1);
    } else {
      put(out, "const int64_t s%d = %d;\n(void)s%d;\n", k, program->ndim ? (int)layout->strides[program->ndim - 1] : 0,
          k);
    }
  }
}

/// Where the operands' rows begin, and what is the same along the row.
static void put_row(struct writer *writer) {
  const struct region_program *program = writer->program;
  struct region_text *out = writer->out;
  for (int k = 0; k < program->noperands; k++) {
    const struct dit_region_operand *layout = &program->operands[k].layout;
    put(out, "%s%s *const p%d = b%d + first * s%d", layout->stored < 0 ? "const " : "", get_memory_type(layout->dtype),
        k, k, k);
    for (int d = 0; d + 1 < program->ndim; d++) {
      if (layout->strides[d] != 0) {
        put(out, " + i%d * t%d_%d", d, k, d);
      }
    }
    put(out, ";\n(void)p%d;\n", k);
  }
  for (int i = 0; i < program->nvalues; i++) {
    const struct value *value = &program->values[i];
    if (value->op == DIT_REGION_LOAD && (value->level == DIT_LEVEL_ROW || is_same_in_row(program, value->operand))) {
      put(out, "const %s v%d = %s(p%d[0]);\n", types[value->klass], i, get_load(value->dtype), value->operand);
    }
  }
}

static void put_row_values(struct writer *writer, int phase) {
  const struct region_program *program = writer->program;
  for (int i = 0; i < program->nvalues; i++) {
    const struct value *value = &program->values[i];
    if (value->level == DIT_LEVEL_ROW && value->arity > 0 && !is_fold(value->op) && writer->phase[i] == phase) {
      put_operation(writer, i, true);
    } else if (is_fold(value->op) && writer->phase[i] == phase) {
      put(writer->out, "const %s v%d = %s((%s)a%d));\n", types[value->klass], i, get_rounding(value->dtype),
          types[value->klass], i);
    }
  }
}

static void put_accumulators(struct writer *writer, int phase, const char *size) {
  for (int i = 0; i < writer->program->nvalues; i++) {
    if (folds_in(writer, i, phase)) {
      const struct value *value = &writer->program->values[i];
      if (size[0]) {
        put(writer->out, "%s a%d%s;\nfor (int64_t c = 0; c < n; c++) {\na%d[c] = %s;\n}\n", get_fold_type(value), i,
            size, i, get_fold_start(value));
      } else {
        put(writer->out, "%s a%d = %s;\n", get_fold_type(value), i, get_fold_start(value));
      }
    }
  }
}

/// From a row to the next one.
static void put_odometer(struct writer *writer) {
  const int outer = writer->program->ndim - 1;
  for (int d = outer - 1; d >= 0; d--) {
    put(writer->out, "if (++i%d == size%d) {\ni%d = 0;\n", d, d, d);
  }
  for (int d = 0; d < outer; d++) {
    put(writer->out, "}\n");
  }
}

static void put_start(struct writer *writer, const char *row) {
  const int outer = writer->program->ndim - 1;
  put(writer->out, "int64_t rest = %s;\n(void)rest;\n", row);
  for (int d = outer - 1; d >= 0; d--) {
    put(writer->out, "int64_t i%d = rest %% size%d;\nrest /= size%d;\n", d, d, d);
  }
}

static void put_columns(struct writer *writer) {
  const struct region_program *program = writer->program;
  struct region_text *out = writer->out;
  char size[16];
  snprintf(size, sizeof size, "[%d]", REGION_TILE);
  put(out, "const int64_t outer = 1");
  for (int d = 0; d + 1 < program->ndim; d++) {
    put(out, " * size%d", d);
  }
  put(out, ";\nfor (int64_t unit = begin; unit < end; unit++) {\nconst int64_t first = unit * %d;\n", REGION_TILE);
  put(out, "const int64_t n = length - first < %d ? length - first : %d;\n", REGION_TILE, REGION_TILE);
  put_accumulators(writer, 0, size);
  put_start(writer, "0");
  put(out, "for (int64_t row = 0; row < outer; row++) {\n");
  put_row(writer);
  put_loop(writer, 0, false);
  put_odometer(writer);
  put(out, "}\n");
  for (int k = 0; k < program->noperands; k++) {
    const struct dit_region_operand *layout = &program->operands[k].layout;
    if (layout->stored >= 0 && is_fold(program->values[layout->stored].op)) {
      const struct value *value = &program->values[layout->stored];
      put(out, "for (int64_t c = 0; c < n; c++) {\nb%d[(first + c) * s%d] = (%s)%s((%s)a%d[c]);\n}\n", k, k,
          get_memory_type(layout->dtype), get_store(layout->dtype), types[value->klass], layout->stored);
    }
  }
  put(out, "}\n}\n");
}

static void put_partials(struct writer *writer) {
  const struct region_program *program = writer->program;
  int fold = 0;
  for (int i = 0; i < program->nvalues; i++) {
    const struct value *value = &program->values[i];
    if (is_fold(value->op)) {
      const bool is_real = value->klass == CLASS_F32 || value->klass == CLASS_F64;
      put(writer->out, "((union number *)(void *)call->scratch)[unit * %d + %d].%s = %sa%d;\n", program->nfolds, fold++,
          is_real ? "real" : "integer", is_real ? "" : "(int64_t)", i);
    }
  }
}

/// Elementwise regions and rows: a unit is a piece of a row.
static void put_rows(struct writer *writer, int64_t piece) {
  const struct region_program *program = writer->program;
  struct region_text *out = writer->out;
  const bool splits = piece > 0;
  if (splits) {
    put(out, "const int64_t pieces = (length + %lld) / %lld;\nint64_t at = begin %% pieces;\n", (long long)piece - 1,
        (long long)piece);
  }
  put_start(writer, splits ? "begin / pieces" : "begin");
  put(out, "for (int64_t unit = begin; unit < end; unit++) {\n");
  if (splits) {
    put(out, "const int64_t first = at * %lld;\n", (long long)piece);
    put(out, "const int64_t n = length - first < %lld ? length - first : %lld;\n", (long long)piece, (long long)piece);
  } else {
    put(out, "const int64_t first = 0, n = length;\n");
  }
  put_row(writer);
  for (int phase = 0; phase < writer->nphases; phase++) {
    if (!program->is_long) {
      put_row_values(writer, phase);
    }
    put_accumulators(writer, phase, "");
    if (writer->has_trig) {
      put(out, "int far = 0;\n");
    }
    put_loop(writer, phase, false);
    if (writer->has_trig) {
      put(out, "if (far) {\n");
      put_loop(writer, phase, true);
      put(out, "}\n");
    }
  }
  if (program->is_long) {
    put_partials(writer);
  } else {
    put_row_values(writer, writer->nphases);
  }
  for (int k = 0; k < program->noperands; k++) {
    const struct dit_region_operand *layout = &program->operands[k].layout;
    if (layout->stored >= 0 && program->values[layout->stored].level == DIT_LEVEL_ROW && !program->is_long) {
      put(out, "p%d[0] = (%s)%s(v%d);\n", k, get_memory_type(layout->dtype), get_store(layout->dtype), layout->stored);
    }
  }
  if (splits) {
    put(out, "if (++at == pieces) {\nat = 0;\n");
  }
  put_odometer(writer);
  put(out, splits ? "}\n}\n}\n" : "}\n}\n");
}

bool region_write_source(struct region_program *program, struct region_text *out) {
  struct writer *writer = dit_calloc(1, sizeof *writer);
  if (!writer) {
    return false;
  }
  writer->program = program;
  writer->out = out;
  find_phases(writer);
  bool fits = !writer->has_trig || (program->kind == DIT_REGION_POINTWISE);
  if (fits) {
    put_head(writer);
    if (program->kind == DIT_REGION_COLUMNS) {
      put_columns(writer);
    } else {
      put_rows(writer, program->kind == DIT_REGION_POINTWISE ? REGION_PIECE : program->is_long ? REGION_CHUNK : 0);
    }
  }
  program->nscratch = writer->nscratch;
  program->nphases = writer->nphases;
  program->has_trig = writer->has_trig;
  fits = fits && !out->failed;
  dit_free(writer);
  return fits;
}
