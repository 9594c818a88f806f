/// Writes a region as CUDA C++ (region.h). Elements are made by threads, `lanes` neighbours at once; a row with folds
/// has a loop for each fold that needs the one before. What a later loop needs again is kept in registers where the row
/// is short enough, else loaded and made again. Results of elements are stored by the last loop alone, so that a tensor
/// may be written that the region reads. Sizes, strides and numbers are arguments: code is shared between shapes.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dit/alloc.h"
#include "region.h"

#define KEPT_WORDS 96  // registers of a thread that hold elements from one loop to the next

struct writer {
  const struct region_plan *plan;
  const struct dit_region *region;
  struct region_text *out;
  int phase[DIT_REGION_MAX_OPS];  // ELEMENT: the first loop that could make it; ROW: the loop before which it is known
  int home[DIT_REGION_MAX_OPS];   // the loop that does make it
  int nphases;
  bool is_kept[DIT_REGION_MAX_OPS];
  bool is_needed[DIT_REGION_MAX_OPS];
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

static int get_class(const struct writer *writer, int i) {
  return region_get_class(writer->region->ops[i].dtype);
}

static const char *get_type(const struct writer *writer, int i) {
  return types[get_class(writer, i)];
}

static int get_arity(const struct writer *writer, int i) {
  return dit_region_op_get_arity(writer->region->ops[i].op);
}

static bool is_element(const struct writer *writer, int i) {
  return writer->region->ops[i].level == DIT_LEVEL_ELEMENT && !region_is_fold(writer->region->ops[i].op);
}

static int64_t get_stride(const struct writer *writer, int operand) {
  const struct dit_region *region = writer->region;
  return region->ndim ? region->operands[operand].strides[region->ndim - 1] : 0;
}

/// A load that is the same for all of a row.
static bool is_of_row(const struct writer *writer, int i) {
  const struct dit_region_op *op = &writer->region->ops[i];
  return op->op == DIT_REGION_LOAD && (op->level == DIT_LEVEL_ROW || get_stride(writer, op->operand) == 0);
}

/// Does the value live in a loop over elements (not before it)?
static bool is_looped(const struct writer *writer, int i) {
  return is_element(writer, i) && !is_of_row(writer, i) && writer->region->ops[i].op != DIT_REGION_NUMBER;
}

// What is known before a line is written

static void find_phases(struct writer *writer) {
  const struct dit_region *region = writer->region;
  writer->nphases = 1;
  for (int i = 0; i < region->nops; i++) {
    const struct dit_region_op *op = &region->ops[i];
    int phase = 0;
    for (int k = 0; k < get_arity(writer, i); k++) {
      phase = writer->phase[op->args[k]] > phase ? writer->phase[op->args[k]] : phase;
    }
    writer->nphases = is_element(writer, i) && phase >= writer->nphases ? phase + 1 : writer->nphases;
    writer->phase[i] = phase + (region_is_fold(op->op) && region->kind == DIT_REGION_ROWS);
  }
}

static bool folds_in(const struct writer *writer, int i, int phase) {
  const struct dit_region_op *op = &writer->region->ops[i];
  return region_is_fold(op->op) && writer->phase[op->args[0]] == phase;
}

static bool stores_element(const struct writer *writer, int operand) {
  const int stored = writer->region->operands[operand].stored;
  return stored >= 0 && is_element(writer, stored);
}

static void need(struct writer *writer, int i, int phase) {
  if (writer->is_needed[i] || !is_looped(writer, i)) {
    return;
  }
  writer->is_needed[i] = true;
  if (writer->is_kept[i] && writer->home[i] < phase) {
    return;
  }
  for (int k = 0; k < get_arity(writer, i); k++) {
    need(writer, writer->region->ops[i].args[k], phase);
  }
}

static void find_needed(struct writer *writer, int phase) {
  const struct dit_region *region = writer->region;
  memset(writer->is_needed, 0, sizeof writer->is_needed);
  for (int i = 0; i < region->nops; i++) {
    if (folds_in(writer, i, phase)) {
      need(writer, region->ops[i].args[0], phase);
    }
  }
  for (int k = 0; k < region->noperands && phase == writer->nphases - 1; k++) {
    if (stores_element(writer, k)) {
      need(writer, region->operands[k].stored, phase);
    }
  }
}

/// The loops that need a value; `home` is the first one.
static int count_uses(struct writer *writer, int i) {
  int uses = 0;
  for (int phase = 0; phase < writer->nphases; phase++) {
    find_needed(writer, phase);
    writer->home[i] = writer->is_needed[i] && uses == 0 ? phase : writer->home[i];
    uses += writer->is_needed[i];
  }
  return uses;
}

/// What more than one loop needs is kept while there are registers; results before what they are made of.
static void find_kept(struct writer *writer) {
  const int each = writer->plan->each;
  int words = 0;
  for (int i = writer->region->nops - 1; i >= 0 && each > 0 && writer->nphases > 1; i--) {
    const int klass = get_class(writer, i), cost = each * (klass == CLASS_F64 || klass == CLASS_I64 ? 2 : 1);
    if (words + cost <= KEPT_WORDS && count_uses(writer, i) > 1) {
      words += cost;
      writer->is_kept[i] = true;
    }
  }
}

// Lines

static void put_operation(struct writer *writer, int i) {
  const struct dit_region_op *op = &writer->region->ops[i];
  const int arity = get_arity(writer, i), last = get_class(writer, op->args[arity - 1]);
  put(writer->out, "const %s v%d = %s(", get_type(writer, i), i,
      op->op == DIT_REGION_COPY ? "(" : get_rounding(op->dtype));
  if (op->op == DIT_REGION_CAST) {
    put(writer->out, "%sv%d", get_class(writer, i) == CLASS_BOOL ? "0 != " : "", op->args[0]);
  } else {
    put(writer->out, "op_%s_%s(", dit_region_op_get_name(op->op), tags[last]);
    for (int k = 0; k < arity; k++) {
      put(writer->out, "%sv%d", k ? ", " : "", op->args[k]);
    }
    put(writer->out, ")");
  }
  put(writer->out, "));\n");
}

/// The accumulator's type: sums of floats are kept in double.
static const char *get_fold_type(const struct writer *writer, int i) {
  const int klass = get_class(writer, i);
  if (writer->region->ops[i].op == DIT_REGION_SUM) {
    return klass == CLASS_I64 ? "uint64_t" : "double";
  }
  return types[klass];
}

static const char *get_fold_start(const struct writer *writer, int i) {
  const bool is_max = writer->region->ops[i].op == DIT_REGION_MAX;
  if (writer->region->ops[i].op == DIT_REGION_SUM) {
    return "0";
  }
  switch (get_class(writer, i)) {
    case CLASS_I64:
      return is_max ? "INT64_LEAST" : "INT64_MOST";
    case CLASS_BOOL:
      return is_max ? "0" : "1";
    default:
      return is_max ? "-REGION_INFINITY" : "REGION_INFINITY";
  }
}

static const char *get_fold(const struct writer *writer, int i) {
  const int op = writer->region->ops[i].op;
  return op == DIT_REGION_SUM ? "fold_sum" : op == DIT_REGION_MAX ? "fold_max" : "fold_min";
}

static void put_head(struct writer *writer) {
  const struct dit_region *region = writer->region;
  struct region_text *out = writer->out;
  put(out, "typedef %s place;\n", writer->plan->is_narrow ? "int32_t" : "int64_t");
  put(out, "struct call {\nchar *data[%d], *scratch;\nint64_t parts, sizes[%d];\n", region->noperands,
      region->ndim ? region->ndim : 1);
  put(out, "int64_t strides[%d];\nnumber numbers[%d];\n};\n", region->noperands * (region->ndim ? region->ndim : 1),
      writer->plan->nnumbers ? writer->plan->nnumbers : 1);
}

static void put_start(struct writer *writer) {
  const struct dit_region *region = writer->region;
  struct region_text *out = writer->out;
  put(out, "const place length = (place)p.sizes[%d];\n", region->ndim ? region->ndim - 1 : 0);
  for (int d = 0; d + 1 < region->ndim; d++) {
    put(out, "const place size%d = (place)p.sizes[%d];\n", d, d);
  }
  for (int n = 0; n < writer->plan->nnumbers; n++) {
    const int i = writer->plan->numbers[n], klass = get_class(writer, i);
    put(out, "const %s v%d = (%s)p.numbers[%d].%s;\n", types[klass], i, types[klass], n,
        klass == CLASS_F32 || klass == CLASS_F64 ? "real" : "integer");
  }
  put(out, "const place rows = 1");
  for (int d = 0; d + 1 < region->ndim; d++) {
    put(out, " * size%d", d);
  }
  put(out, ";\n");
}

/// Where the operands' rows begin: rows are counted through the outer dimensions.
static void put_row(struct writer *writer, const char *row) {
  const struct dit_region *region = writer->region;
  struct region_text *out = writer->out;
  const int ndim = region->ndim ? region->ndim : 1;
  char rest[16];
  for (int d = ndim - 2; d >= 1; d--) {
    put(out, "const place rest%d = %s / size%d, i%d = %s - rest%d * size%d;\n", d, row, d, d, row, d, d);
    snprintf(rest, sizeof rest, "rest%d", d);
    row = rest;
  }
  put(out, "const place i0 = %s;\n", row);
  for (int k = 0; k < region->noperands; k++) {
    const struct dit_region_operand *operand = &region->operands[k];
    const char *type = get_memory_type(operand->dtype), *qualifier = operand->stored < 0 ? "const " : "";
    put(out, "%s%s *const p%d = (%s%s *)p.data[%d]", qualifier, type, k, qualifier, type, k);
    for (int d = 0; d < ndim - 1; d++) {
      if (operand->strides[d] != 0) {
        put(out, " + i%d * (place)p.strides[%d]", d, k * ndim + d);
      }
    }
    put(out, ";\n");
    if (get_stride(writer, k) > 1) {
      put(out, "const place s%d = (place)p.strides[%d];\n", k, k * ndim + ndim - 1);
    } else {
      put(out, "const place s%d = %d;\n(void)s%d;\n", k, (int)get_stride(writer, k), k);
    }
  }
  for (int i = 0; i < region->nops; i++) {
    if (is_of_row(writer, i)) {
      put(out, "const %s v%d = %s(p%d[0]);\n", get_type(writer, i), i, get_load(region->ops[i].dtype),
          region->ops[i].operand);
    }
  }
}

static bool loads_in(const struct writer *writer, int i, int phase) {
  return writer->is_needed[i] && writer->region->ops[i].op == DIT_REGION_LOAD &&
         !(writer->is_kept[i] && writer->home[i] < phase);
}

/// What happens to the V elements from `first` on.
static void put_elements(struct writer *writer, int phase) {
  const struct dit_region *region = writer->region;
  const struct region_plan *plan = writer->plan;
  struct region_text *out = writer->out;
  const bool stores = phase == writer->nphases - 1;
  for (int i = 0; i < region->nops; i++) {
    const int k = region->ops[i].operand;
    if (!loads_in(writer, i, phase)) {
      continue;
    }
    put(out, "pack<%s, V> q%d;\n", get_memory_type(region->ops[i].dtype), i);
    if (plan->is_vector[k]) {
      put(out, "load_pack<V>(q%d, p%d + first);\n", i, k);
    } else {
      put(out, "#pragma unroll\nfor (int k = 0; k < V; k++) {\nq%d.value[k] = p%d[(first + k) * s%d];\n}\n", i, k, k);
    }
  }
  for (int k = 0; k < region->noperands && stores; k++) {
    if (stores_element(writer, k)) {
      put(out, "pack<%s, V> o%d;\n", get_memory_type(region->operands[k].dtype), k);
    }
  }
  put(out, "#pragma unroll\nfor (int k = 0; k < V; k++) {\n");
  for (int i = 0; i < region->nops; i++) {
    if (writer->is_needed[i]) {
      if (writer->is_kept[i] && writer->home[i] < phase) {
        put(out, "const %s v%d = r%d[turn * V + k];\n", get_type(writer, i), i, i);
      } else if (region->ops[i].op == DIT_REGION_LOAD) {
        put(out, "const %s v%d = %s(q%d.value[k]);\n", get_type(writer, i), i, get_load(region->ops[i].dtype), i);
      } else {
        put_operation(writer, i);
      }
      if (writer->is_kept[i] && writer->home[i] == phase) {
        put(out, "r%d[turn * V + k] = v%d;\n", i, i);
      }
    }
    if (folds_in(writer, i, phase)) {
      put(out, "a%d = %s::join(a%d, (%s)v%d);\n", i, get_fold(writer, i), i, get_fold_type(writer, i),
          region->ops[i].args[0]);
    }
  }
  for (int k = 0; k < region->noperands && stores; k++) {
    if (stores_element(writer, k)) {
      put(out, "o%d.value[k] = (%s)%s(v%d);\n", k, get_memory_type(region->operands[k].dtype),
          get_store(region->operands[k].dtype), region->operands[k].stored);
    }
  }
  put(out, "}\n");
  for (int k = 0; k < region->noperands && stores; k++) {
    if (!stores_element(writer, k)) {
      continue;
    }
    if (plan->is_vector[k]) {
      put(out, "store_pack<V>(p%d + first, o%d);\n", k, k);
    } else {
      put(out, "#pragma unroll\nfor (int k = 0; k < V; k++) {\np%d[(first + k) * s%d] = o%d.value[k];\n}\n", k, k, k);
    }
  }
}

static void put_accumulators(struct writer *writer, int phase) {
  for (int i = 0; i < writer->region->nops; i++) {
    if (folds_in(writer, i, phase)) {
      put(writer->out, "%s a%d = %s;\n", get_fold_type(writer, i), i, get_fold_start(writer, i));
    }
  }
}

/// A fold over `count` threads, or warps, as the value that the region has.
static void put_fold_value(struct writer *writer, int i, const char *function, int count) {
  put(writer->out, "const %s v%d = %s((%s)%s<%d, %s>(a%d)));\n", get_type(writer, i), i,
      get_rounding(writer->region->ops[i].dtype), get_type(writer, i), function, count, get_fold(writer, i), i);
}

/// What rows have one of, once the folds of the loop before are known.
static void put_row_values(struct writer *writer, int phase) {
  const struct dit_region *region = writer->region;
  for (int i = 0; i < region->nops; i++) {
    const struct dit_region_op *op = &region->ops[i];
    if (op->level == DIT_LEVEL_ROW && get_arity(writer, i) > 0 && !region_is_fold(op->op) &&
        writer->phase[i] == phase) {
      put_operation(writer, i);
    } else if (region_is_fold(op->op) && writer->phase[i] == phase) {
      put_fold_value(writer, i, "fold_row", writer->plan->threads);
    }
  }
}

static void put_row_stores(struct writer *writer) {
  const struct dit_region *region = writer->region;
  put(writer->out, "if (lane == 0) {\n");
  for (int k = 0; k < region->noperands; k++) {
    const int stored = region->operands[k].stored;
    if (stored >= 0 && !is_element(writer, stored)) {
      put(writer->out, "p%d[0] = (%s)%s(v%d);\n", k, get_memory_type(region->operands[k].dtype),
          get_store(region->operands[k].dtype), stored);
    }
  }
  put(writer->out, "}\n");
}

static void put_points(struct writer *writer) {
  const bool has_rows = writer->region->ndim > 1;
  put(writer->out, "const place chunks = length / V, total = chunks * rows;\n");
  put(writer->out, "for (place at = (place)blockIdx.x * %d + threadIdx.x; at < total; at += (place)gridDim.x * %d) {\n",
      REGION_POINT_THREADS, REGION_POINT_THREADS);
  put(writer->out, "const place row = %s, first = (at - row * chunks) * V;\n", has_rows ? "at / chunks" : "0");
  put_row(writer, "row");
  find_needed(writer, 0);
  put_elements(writer, 0);
  put(writer->out, "}\n}\n");
}

static int count_folds(const struct writer *writer) {
  int folds = 0;
  for (int i = 0; i < writer->region->nops; i++) {
    folds += region_is_fold(writer->region->ops[i].op);
  }
  return folds;
}

/// Where the folds of a part lie in scratch memory, 8 bytes each: `step` apart from `slot` on.
static void put_slot(struct writer *writer, const char *part) {
  const int folds = count_folds(writer);
  if (writer->region->kind == DIT_REGION_ROWS) {
    put(writer->out, "const int64_t slot = ((int64_t)row * p.parts + %s) * %d, step = 1;\n", part, folds);
  } else {
    put(writer->out, "const int64_t slot = (int64_t)%s * %d * length + first, step = length;\n", part, folds);
  }
}

static void put_partials(struct writer *writer, const char *condition) {
  put_slot(writer, "blockIdx.y");
  for (int i = 0, fold = 0; i < writer->region->nops; i++) {
    if (!region_is_fold(writer->region->ops[i].op)) {
      continue;
    }
    const char *type = get_fold_type(writer, i);
    if (writer->region->kind == DIT_REGION_ROWS) {
      put(writer->out, "const %s w%d = fold_row<%d, %s>(a%d);\n", type, i, writer->plan->threads, get_fold(writer, i),
          i);
    } else {
      put(writer->out, "const %s w%d = a%d;\n", type, i, i);
    }
    put(writer->out, "if (%s) {\n*(%s *)(p.scratch + 8 * (slot + %d * step)) = w%d;\n}\n", condition, type, fold++, i);
  }
}

static void put_partial_joins(struct writer *writer) {
  put_slot(writer, "part");
  for (int i = 0, fold = 0; i < writer->region->nops; i++) {
    if (region_is_fold(writer->region->ops[i].op)) {
      put(writer->out, "a%d = %s::join(a%d, *(const %s *)(p.scratch + 8 * (slot + %d * step)));\n", i,
          get_fold(writer, i), i, get_fold_type(writer, i), fold++);
    }
  }
}

static void put_rows(struct writer *writer) {
  const struct dit_region *region = writer->region;
  const struct region_plan *plan = writer->plan;
  struct region_text *out = writer->out;
  const int lines = plan->block / plan->threads;
  put(out, "const int lane = threadIdx.x %% %d;\n", plan->threads);
  put(out, "for (place row = (place)blockIdx.x * %d + threadIdx.x / %d; row < rows; row += (place)gridDim.x * %d) {\n",
      lines, plan->threads, lines);
  put_row(writer, "row");
  if (!plan->each) {
    put(out, "const place share = (length / V + p.parts - 1) / p.parts * V, begin = share * blockIdx.y;\n");
    put(out, "const place end = begin + share < length ? begin + share : length;\n");
  }
  for (int i = 0; i < region->nops; i++) {
    if (writer->is_kept[i]) {
      put(out, "%s r%d[%d];\n", get_type(writer, i), i, plan->each);
    }
  }
  for (int phase = 0; phase < writer->nphases; phase++) {
    put_row_values(writer, phase);
    put_accumulators(writer, phase);
    find_needed(writer, phase);
    if (plan->each) {
      put(out, "#pragma unroll\nfor (int turn = 0; turn < %d / V; turn++) {\n", plan->each);
      put(out, "const place first = (place)(turn * %d + lane) * V;\nif (first < length) {\n", plan->threads);
    } else {
      put(out, "for (place first = begin + (place)lane * V; first < end; first += %d * V) {\n{\n", plan->threads);
    }
    put_elements(writer, phase);
    put(out, "}\n}\n");
  }
  if (plan->parts > 1) {
    put_partials(writer, "lane == 0");
  } else {
    put_row_values(writer, writer->nphases);
    put_row_stores(writer);
  }
  put(out, "}\n}\n");
}

/// A warp for each row.
static void put_row_join(struct writer *writer) {
  const struct dit_region *region = writer->region;
  struct region_text *out = writer->out;
  put(out, "const int lane = threadIdx.x;\nconst place row = blockIdx.x;\n");
  put_row(writer, "row");
  put_accumulators(writer, 0);
  put(out, "for (place part = lane; part < (place)p.parts; part += 32) {\n");
  put_partial_joins(writer);
  put(out, "}\n");
  for (int i = 0; i < region->nops; i++) {
    if (region_is_fold(region->ops[i].op)) {
      put_fold_value(writer, i, "fold_row", REGION_WARP);
    }
  }
  put_row_stores(writer);
  put(out, "}\n");
}

/// Where the columns' folds go: `p` begins at the first column.
static void put_column_stores(struct writer *writer, const char *condition) {
  const struct dit_region *region = writer->region;
  put(writer->out, "if (%s) {\n", condition);
  for (int k = 0; k < region->noperands; k++) {
    const int stored = region->operands[k].stored, ndim = region->ndim;
    if (stored >= 0 && region_is_fold(region->ops[stored].op)) {
      const char *type = get_memory_type(region->operands[k].dtype);
      put(writer->out, "((%s *)p.data[%d])[first * (place)p.strides[%d]] = (%s)%s(v%d);\n", type, k,
          k * ndim + ndim - 1, type, get_store(region->operands[k].dtype), stored);
    }
  }
  put(writer->out, "}\n");
}

static void put_columns(struct writer *writer) {
  const struct dit_region *region = writer->region;
  struct region_text *out = writer->out;
  put(out, "const int lane = threadIdx.x %% 32, line = threadIdx.x / 32;\n");
  put(out, "for (place begin = (place)blockIdx.x * 32; begin < length; begin += (place)gridDim.x * 32) {\n");
  put(out, "const place first = begin + lane;\n");
  put_accumulators(writer, 0);
  put(out, "const place share = (rows + p.parts - 1) / p.parts, top = share * blockIdx.y;\n");
  put(out, "const place bottom = first >= length ? top : top + share < rows ? top + share : rows;\n");
  put(out, "for (place row = top + line; row < bottom; row += %d) {\n", REGION_COLUMN_LINES);
  put_row(writer, "row");
  find_needed(writer, 0);
  put_elements(writer, 0);
  put(out, "}\n");
  for (int i = 0; i < region->nops; i++) {
    if (region_is_fold(region->ops[i].op) && writer->plan->parts > 1) {
      put(out, "a%d = fold_column<%d, %s>(a%d);\n", i, REGION_COLUMN_LINES, get_fold(writer, i), i);
    } else if (region_is_fold(region->ops[i].op)) {
      put_fold_value(writer, i, "fold_column", REGION_COLUMN_LINES);
    }
  }
  if (writer->plan->parts > 1) {
    put_partials(writer, "line == 0 && first < length");
  } else {
    put_column_stores(writer, "line == 0 && first < length");
  }
  put(out, "}\n}\n");
}

/// A thread for each column.
static void put_column_join(struct writer *writer) {
  const struct dit_region *region = writer->region;
  struct region_text *out = writer->out;
  put(out, "const place first = (place)blockIdx.x * 32 + threadIdx.x;\nif (first >= length) {\nreturn;\n}\n");
  put_accumulators(writer, 0);
  put(out, "for (place part = 0; part < (place)p.parts; part++) {\n");
  put_partial_joins(writer);
  put(out, "}\n");
  for (int i = 0; i < region->nops; i++) {
    if (region_is_fold(region->ops[i].op)) {
      put(out, "const %s v%d = %s((%s)a%d));\n", get_type(writer, i), i, get_rounding(region->ops[i].dtype),
          get_type(writer, i), i);
    }
  }
  put_column_stores(writer, "true");
  put(out, "}\n");
}

/// The beginning of a kernel: all that it does follows.
static void put_kernel(struct writer *writer, const char *name, int threads) {
  put(writer->out, "extern \"C\" __global__ void __launch_bounds__(%d) %s(const __grid_constant__ call p) {\n", threads,
      name);
  put_start(writer);
}

static void put_main(struct writer *writer, const char *name) {
  const struct region_plan *plan = writer->plan;
  put_kernel(writer, name, plan->block);
  put(writer->out, "constexpr int V = %d;\n", plan->lanes);
  if (plan->region->kind == DIT_REGION_POINTWISE) {
    put_points(writer);
  } else if (plan->region->kind == DIT_REGION_ROWS) {
    put_rows(writer);
  } else {
    put_columns(writer);
  }
}

/// The same for any address, and quick to compile: nothing is kept between loops.
static void put_scalar(struct writer *writer) {
  const struct region_plan *plan = writer->plan;
  struct region_plan scalar = *plan;
  scalar.lanes = 1;
  scalar.each = 0;
  memset(scalar.is_vector, 0, sizeof scalar.is_vector);
  memset(writer->is_kept, 0, sizeof writer->is_kept);
  writer->plan = &scalar;
  put_main(writer, "region_scalar");
  writer->plan = plan;
}

void region_write_source(const struct region_plan *plan, struct region_text *out) {
  struct writer *writer = dit_calloc(1, sizeof *writer);
  if (!writer) {
    out->failed = true;
    return;
  }
  writer->plan = plan;
  writer->region = plan->region;
  writer->out = out;
  find_phases(writer);
  find_kept(writer);
  put_head(writer);
  put_main(writer, "region");
  if (plan->lanes > 1) {
    put_scalar(writer);
  }
  if (plan->parts > 1) {
    put_kernel(writer, "region_join", REGION_WARP);
    if (plan->region->kind == DIT_REGION_ROWS) {
      put_row_join(writer);
    } else {
      put_column_join(writer);
    }
  }
  dit_free(writer);
}
