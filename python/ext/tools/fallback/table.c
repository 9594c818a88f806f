// What the fallback tool knows of operators by name, and its ledger: one row per operator.
//
// All of it comes from the operator table (dit/operator.h), also what torch's autocast does otherwise on devices than
// on the CPU (aten/src/ATen/autocast_mode.h; tests/python/test_op_fallback.py compares it with the device's own
// behaviour).
#include <string.h>

#include "dit/operator.h"
#include "tools/fallback/fallback.h"

static enum fallback_reason reason_find(const struct engine_op *op, uint64_t traits) {
  if (op->flags & ENGINE_OP_COLLECTIVE) {
    return FALLBACK_COLLECTIVE;
  }
  if (op->flags & ENGINE_OP_TRANSFER) {
    return FALLBACK_TRANSFER;
  }
  if (op->flags & ENGINE_OP_VIEW) {
    return FALLBACK_VIEW;
  }
  if (op->flags & ENGINE_OP_UNINITIALISED) {
    return FALLBACK_UNINITIALISED;
  }
  return traits & DIT_OPERATOR_BOOKKEEPING ? FALLBACK_BOOKKEEPING : FALLBACK_APPLIES;
}

static unsigned autocast_find(const char *name, uint64_t traits) {
  if (traits & DIT_OPERATOR_AUTOCAST_FLOAT) {
    return FALLBACK_FLOAT;
  }
  if (traits & DIT_OPERATOR_AUTOCAST_WIDEST) {
    return FALLBACK_WIDEST;
  }
  if (traits & DIT_OPERATOR_AUTOCAST_LOWER) {
    return FALLBACK_LOWER;
  }
  // All of torch.linalg and torch.fft are on the CPU's lists alone, but for those that the table excepts.
  bool library = strncmp(name, "torch.linalg.", 13) == 0 || strncmp(name, "torch.fft.", 10) == 0;
  library = library && !(traits & DIT_OPERATOR_AUTOCAST_ALIKE);
  return library || traits & DIT_OPERATOR_AUTOCAST_PLAIN ? FALLBACK_PLAIN : 0;
}

static unsigned traits_find(const struct engine_op *op, uint64_t known) {
  unsigned traits = known & (DIT_OPERATOR_RANDOM | DIT_OPERATOR_MAY_DRAW) ? FALLBACK_RANDOM : 0;
  traits |= known & DIT_OPERATOR_INDEXING ? FALLBACK_INDEXING : 0;
  traits |= known & DIT_OPERATOR_COPIES ? FALLBACK_COPIES : 0;
  traits |= known & DIT_OPERATOR_DRAWS ? FALLBACK_DRAWS : 0;
  traits |= known & DIT_OPERATOR_STATISTICS ? FALLBACK_STATISTICS : 0;
  traits |= known & DIT_OPERATOR_LENGTHS ? FALLBACK_LENGTHS : 0;
  return traits | autocast_find(op->name, known);
}

// Rows

static size_t slot_find(struct fallback_row *const *rows, size_t capacity, const struct engine_op *op) {
  size_t at = (((uintptr_t)op >> 4) * 0x9E3779B97F4A7C15u) >> 20 & (capacity - 1);
  while (rows[at] && rows[at]->op != op) {
    at = (at + 1) & (capacity - 1);
  }
  return at;
}

static int rows_grow(struct fallback_state *state) {
  size_t capacity = state->capacity ? state->capacity * 2 : 256;
  struct fallback_row **rows = PyMem_Calloc(capacity, sizeof *rows);
  if (!rows) {
    PyErr_NoMemory();
    return -1;
  }
  for (size_t i = 0; i < state->capacity; i++) {
    if (state->rows[i]) {
      rows[slot_find(rows, capacity, state->rows[i]->op)] = state->rows[i];
    }
  }
  PyMem_Free(state->rows);
  state->rows = rows;
  state->capacity = capacity;
  return 0;
}

struct fallback_row *fallback_row_find(struct fallback_state *state, struct engine_op *op) {
  size_t at = state->capacity ? slot_find(state->rows, state->capacity, op) : 0;
  if (state->capacity && state->rows[at]) {
    return state->rows[at];
  }
  if (state->count * 2 >= state->capacity) {
    if (rows_grow(state) < 0) {
      return NULL;
    }
    at = slot_find(state->rows, state->capacity, op);
  }
  struct fallback_row *row = PyMem_Calloc(1, sizeof *row);
  if (!row) {
    PyErr_NoMemory();
    return NULL;
  }
  uint64_t traits = dit_operator_get_traits(op->name);
  row->op = op;
  row->reason = reason_find(op, traits);
  row->traits = traits_find(op, traits);
  state->rows[at] = row;
  state->count++;
  return row;
}

void fallback_rows_reset(struct fallback_state *state) {
  for (size_t i = 0; i < state->capacity; i++) {
    if (state->rows[i]) {
      Py_XDECREF(state->rows[i]->py_writes);
      PyMem_Free(state->rows[i]);
    }
  }
  PyMem_Free(state->rows);
  *state = (struct fallback_state){0};
}

// For Python

static PyObject *exempt_describe(const struct fallback_row *row) {
  static const char *const texts[] = {"",
#define FALLBACK_REASON_TEXT(suffix, text) text,
                                      FALLBACK_REASON_LIST(FALLBACK_REASON_TEXT)
#undef FALLBACK_REASON_TEXT
  };
  PyObject *py_exempt = PyDict_New();
  for (int i = 1; py_exempt && i < FALLBACK_REASONS; i++) {
    if (row->exempt[i] && py_dict_take(py_exempt, texts[i], PyLong_FromUnsignedLongLong(row->exempt[i])) < 0) {
      Py_CLEAR(py_exempt);
    }
  }
  return py_exempt;
}

static PyObject *row_describe(const struct fallback_row *row) {
  return Py_BuildValue("{s:O,s:K,s:K,s:K,s:L,s:L,s:L,s:L,s:L,s:N}", "name", row->op->py_name, "count",
                       (unsigned long long)row->count, "retries", (unsigned long long)row->retries, "failed",
                       (unsigned long long)row->failed, "down", (long long)row->down, "up", (long long)row->up,
                       "down_ns", (long long)row->down_ns, "cpu_ns", (long long)row->cpu_ns, "up_ns",
                       (long long)row->up_ns, "exempt", exempt_describe(row));
}

PyObject *fallback_describe(struct engine_tool *tool) {
  const struct fallback_state *state = tool->state;
  PyObject *py_rows = PyList_New(0);
  for (size_t i = 0; py_rows && i < state->capacity; i++) {
    if (state->rows[i]) {
      PyObject *py_row = row_describe(state->rows[i]);
      if (!py_row || PyList_Append(py_rows, py_row) < 0) {
        Py_CLEAR(py_rows);
      }
      Py_XDECREF(py_row);
    }
  }
  return py_rows ? Py_BuildValue("{s:N}", "rows", py_rows) : NULL;
}
