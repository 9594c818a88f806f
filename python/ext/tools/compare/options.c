// Options of OpAutoCompare, and what follows from them for one operator: its legacy dtypes and tolerances.
//
// Python has resolved and checked the texts (src/core/option_list.h); here they become tables, once per start.
// Variables of one operator are found by the last part of its name in upper case; an in-place operator also finds those
// of the plain one (MUL for mul_). Depends on compare/state.h, option.h and the operator table.
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dit/dtype.h"
#include "dit/operator.h"
#include "tools/compare/state.h"
#include "tools/option.h"

// Reading

static char *text_copy(const char *text) {
  size_t size = strlen(text) + 1;
  char *copy = PyMem_Malloc(size);
  if (!copy) {
    PyErr_NoMemory();
    return NULL;
  }
  return memcpy(copy, text, size);
}

static int text_read(PyObject *options, const char *name, const char *otherwise, char **text) {
  PyObject *value = option_get(options, name);
  const char *found = otherwise;
  if (value && py_optional_text(value, name, &found) < 0) {
    return -1;
  }
  *text = text_copy(found);
  return *text ? 0 : -1;
}

static int dtype_read(const char *name) {
  int dtype = dit_dtype_find(name);
  if (dtype < 0) {
    PyErr_Format(PyExc_ValueError, "OpAutoCompare: '%s' is no dtype; valid: torch.float16, torch.float32 ...", name);
  }
  return dtype;
}

// [(key, from, to), ...]
static int casts_read(struct compare_state *state, PyObject *list) {
  Py_ssize_t count = list ? PyList_Size(list) : 0;
  if (count <= 0) {
    return PyErr_Occurred() ? -1 : 0;
  }
  state->casts = PyMem_Calloc((size_t)count, sizeof *state->casts);
  if (!state->casts) {
    (void)PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    const char *key, *from, *to;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "sss:casts", &key, &from, &to)) {
      return -1;
    }
    int from_dtype = dtype_read(from), to_dtype = from_dtype < 0 ? -1 : dtype_read(to);
    struct compare_cast *cast = &state->casts[state->cast_count];
    if (to_dtype < 0 || !(cast->key = text_copy(key))) {
      return -1;
    }
    cast->from = (int16_t)from_dtype;
    cast->to = (int16_t)to_dtype;
    state->cast_count++;
  }
  return 0;
}

static int kind_of_dtype(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F16:
      return 0;
    case DIT_DTYPE_BF16:
      return 1;
    case DIT_DTYPE_F32:
      return 2;
    case DIT_DTYPE_F64:
      return 3;
    default:
      return COMPARE_FLOATS - 1;
  }
}

// [(key, dtype or "", atol, rtol), ...]
static int tolerances_read(struct compare_state *state, PyObject *list) {
  Py_ssize_t count = list ? PyList_Size(list) : 0;
  if (count <= 0) {
    return PyErr_Occurred() ? -1 : 0;
  }
  state->tolerances = PyMem_Calloc((size_t)count, sizeof *state->tolerances);
  if (!state->tolerances) {
    (void)PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    const char *key, *dtype;
    struct compare_tolerance *tolerance = &state->tolerances[state->tolerance_count];
    if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "ssdd:tolerances", &key, &dtype, &tolerance->atol,
                          &tolerance->rtol)) {
      return -1;
    }
    int number = *dtype ? dtype_read(dtype) : 0;
    if (number < 0 || !(tolerance->key = text_copy(key))) {
      return -1;
    }
    tolerance->kind = *dtype ? kind_of_dtype(number) : -1;
    state->tolerance_count++;
  }
  return 0;
}

int compare_options_read(struct compare_state *state, PyObject *options) {
  int verdict = 0, rows = 0, reference = 0;
  state->save = state->backward = state->log = true;
  state->max_cache = 100;
  if (option_read_choice(options, "OpAutoCompare", "reference", (const char *const[]){"cpu", "device", NULL},
                         &reference) < 0) {
    return -1;
  }
  if (option_read_choice(options, "OpAutoCompare", "verdict", (const char *const[]){"auto", "legacy", NULL}, &verdict) <
          0 ||
      option_read_choice(options, "OpAutoCompare", "rows", (const char *const[]){"all", "wrong", "none", NULL}, &rows) <
          0 ||
      option_read_flag(options, "save", &state->save) < 0 || option_read_flag(options, "stop", &state->stop) < 0 ||
      option_read_flag(options, "backward", &state->backward) < 0 ||
      option_read_flag(options, "log", &state->log) < 0 ||
      option_read_number(options, "OpAutoCompare", "share", 0, &state->share) < 0 ||
      option_read_number(options, "OpAutoCompare", "max_bytes", 0, &state->max_bytes) < 0 ||
      option_read_number(options, "OpAutoCompare", "max_cache_size", 0, &state->max_cache) < 0 ||
      option_read_number(options, "OpAutoCompare", "cap_bytes", 0, &state->cap_bytes) < 0 ||
      option_read_number(options, "OpAutoCompare", "cap_calls", 0, &state->cap_calls) < 0 ||
      text_read(options, "results", "op_tools_results", &state->results) < 0 ||
      casts_read(state, option_get(options, "casts")) < 0 ||
      tolerances_read(state, option_get(options, "tolerances")) < 0) {
    return -1;
  }
  state->legacy = verdict == 1;
  state->on_site = reference == 1;
  state->rows_mode = rows == 0 ? COMPARE_ROWS_ALL : rows == 1 ? COMPARE_ROWS_WRONG : COMPARE_ROWS_NONE;
  state->py_report = Py_XNewRef(option_get(options, "report"));
  state->py_unable = Py_XNewRef(option_get(options, "unable"));
  state->py_no_helper = Py_XNewRef(option_get(options, "no_helper"));
  state->py_rows = Py_XNewRef(option_get(options, "written"));
  state->py_other_way = Py_XNewRef(option_get(options, "other_way"));
  state->py_instead = Py_XNewRef(option_get(options, "instead"));
  state->py_shake = Py_XNewRef(option_get(options, "shake"));
  state->py_under_autocast = Py_XNewRef(option_get(options, "under_autocast"));
  return 0;
}

void compare_options_reset(struct compare_state *state) {
  for (int i = 0; i < state->cast_count; i++) {
    PyMem_Free(state->casts[i].key);
  }
  for (int i = 0; i < state->tolerance_count; i++) {
    PyMem_Free(state->tolerances[i].key);
  }
  PyMem_Free(state->casts);
  PyMem_Free(state->tolerances);
  PyMem_Free(state->results);
  Py_CLEAR(state->py_report);
  Py_CLEAR(state->py_unable);
  Py_CLEAR(state->py_no_helper);
  Py_CLEAR(state->py_rows);
  Py_CLEAR(state->py_under_autocast);
  Py_CLEAR(state->py_shake);
  Py_CLEAR(state->py_instead);
  Py_CLEAR(state->py_other_way);
}

// One operator

static bool key_is(const char *key, const char *name, size_t size) {
  if (strlen(key) != size) {
    return false;
  }
  for (size_t i = 0; i < size; i++) {
    if (key[i] != (char)toupper((unsigned char)name[i])) {
      return false;
    }
  }
  return true;
}

// 2: the operator's own; 1: of the plain form of an in-place operator; 0: for all; -1: of another one.
static int key_rank(const char *key, const char *last) {
  size_t size = strlen(last);
  if (!*key) {
    return 0;
  }
  if (key_is(key, last, size)) {
    return 2;
  }
  bool inplace = size > 1 && last[size - 1] == '_' && last[size - 2] != '_';
  return inplace && key_is(key, last, size - 1) ? 1 : -1;
}

// The map of the operator's own variable replaces that of all operators as a whole.
static void casts_fill(const struct compare_state *state, struct compare_op *info, const char *last) {
  int best = 0;
  for (int i = 0; i < state->cast_count; i++) {
    int rank = key_rank(state->casts[i].key, last);
    best = rank > best ? rank : best;
  }
  for (int dtype = 0; dtype < DIT_DTYPE_COUNT; dtype++) {
    info->cast[dtype] = (int16_t)dtype;
  }
  for (int i = 0; i < state->cast_count; i++) {
    if (key_rank(state->casts[i].key, last) == best) {
      info->cast[state->casts[i].from] = state->casts[i].to;
    }
  }
}

static void tolerances_fill(const struct compare_state *state, struct compare_op *info, const char *last) {
  static const double standard[COMPARE_FLOATS] = {1e-4, 1e-3, 1e-5, 1e-8, 1e-3};
  for (int kind = 0; kind < COMPARE_FLOATS; kind++) {
    int best = -1;
    info->atol[kind] = info->rtol[kind] = standard[kind];
    for (int i = 0; i < state->tolerance_count; i++) {
      const struct compare_tolerance *tolerance = &state->tolerances[i];
      int rank = key_rank(tolerance->key, last);
      if (rank < 0 || (tolerance->kind >= 0 && tolerance->kind != kind)) {
        continue;
      }
      rank = 2 * rank + (tolerance->kind >= 0);  // of this dtype beats of all dtypes
      if (rank > best) {
        best = rank;
        info->tolerance_is_set[kind] = true;
        info->atol[kind] = tolerance->atol;
        info->rtol[kind] = tolerance->rtol;
      }
    }
  }
}

static bool name_is_torch(const char *name) {
  return strncmp(name, "torch.", 6) == 0 || strncmp(name, "aten::", 6) == 0 || strncmp(name, "prims::", 7) == 0;
}

static void op_fill(const struct compare_state *state, struct compare_op *info, struct engine_op *op) {
  const char *last = engine_name_get_last(op->name);
  uint64_t traits = dit_operator_get_traits(op->name);
  info->op = op;
  info->mixes[0] = info->mixes[1] = info->writes = -1;
  // Marks of the profiler compute nothing.
  info->is_metadata = traits & DIT_OPERATOR_METADATA || strncmp(op->name, "profiler.", 9) == 0;
  info->may_draw = traits & (DIT_OPERATOR_RANDOM | DIT_OPERATOR_MAY_DRAW) || !name_is_torch(op->name);
  // To a device of its own: the CPU's tensor is the result that is expected.
  info->moves = traits & DIT_OPERATOR_MOVES;
  info->is_exact = op->flags & (ENGINE_OP_VIEW | ENGINE_OP_TRANSFER);
  casts_fill(state, info, last);
  tolerances_fill(state, info, last);
}

static size_t op_hash(const struct engine_op *op) {
  return ((uintptr_t)op >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 56;
}

struct compare_op *compare_op_find(struct compare_state *state, struct engine_op *op) {
  struct compare_op **bucket = &state->ops[op_hash(op)];
  for (struct compare_op *info = *bucket; info; info = info->next) {
    if (info->op == op) {
      return info;
    }
  }
  struct compare_op *info = PyMem_Calloc(1, sizeof *info);
  if (info) {
    op_fill(state, info, op);
    info->next = *bucket;
    *bucket = info;
  }
  return info;
}

void compare_ops_reset(struct compare_state *state) {
  for (size_t i = 0; i < sizeof state->ops / sizeof *state->ops; i++) {
    while (state->ops[i]) {
      struct compare_op *info = state->ops[i];
      state->ops[i] = info->next;
      PyMem_Free(info);
    }
  }
}

// For the judge

int compare_dtype_get(const struct compare_case *c, int dtype) {
  const struct compare_op *info = compare_op_find(c->tool->state, c->op);
  bool known = info && !info->is_exact && dtype >= 0 && dtype < DIT_DTYPE_COUNT;
  return known ? info->cast[dtype] : dtype;
}

int compare_tolerance_get(struct compare_case *c, int dtype, double *atol, double *rtol) {
  const struct compare_op *info = compare_op_find(c->tool->state, c->op);
  if (!info) {
    (void)PyErr_NoMemory();
    return -1;
  }
  int kind = kind_of_dtype(dtype);
  *atol = info->atol[kind];
  *rtol = info->rtol[kind];
  return 0;
}

bool compare_tolerance_decides(const struct compare_case *c, int dtype) {
  const struct compare_state *state = c->tool->state;
  const struct compare_op *info = compare_op_find(c->tool->state, c->op);
  return state->legacy || (info && dtype >= 0 && info->tolerance_is_set[kind_of_dtype(dtype)]);
}
