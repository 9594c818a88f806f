// Reading one tensor at once: flags for a check, numbers for a finding.
//
// Host memory by src/numerics, in place and without a copy; ditorch's own device whose memory is closed by a copy of
// it; devices without a helper by torch's own operators, through the Python functions of the options. The caller has
// settled the stream. Nothing here raises.
#include <math.h>

#include "tools/closed.h"
#include "tools/overflow/overflow.h"

#define BIG_NUMEL (1 << 18)  // from here on the GIL is dropped while a tensor is read

// Reading host memory

static uint8_t view_scan(const struct dit_tensor_view *view) {
  bool nan = false, inf = false;
  enum dit_status status;
  if (view->numel >= BIG_NUMEL) {
    Py_BEGIN_ALLOW_THREADS;
    status = dit_tensor_get_nonfinite(view, &nan, &inf, NULL);
    Py_END_ALLOW_THREADS;
  } else {
    status = dit_tensor_get_nonfinite(view, &nan, &inf, NULL);
  }
  return status != DIT_OK ? OVERFLOW_UNKNOWN : (uint8_t)((nan ? DIT_NONFINITE_NAN : 0) | (inf ? DIT_NONFINITE_INF : 0));
}

// Devices without a helper: torch's own operators, through Python.
static uint8_t torch_scan(struct overflow_state *state, PyObject *tensor) {
  if (!state->py_flags) {
    return OVERFLOW_UNKNOWN;
  }
  PyObject *py_flags = PyObject_CallOneArg(state->py_flags, tensor);
  long flags = py_flags ? PyLong_AsLong(py_flags) : -1;
  Py_XDECREF(py_flags);
  py_error_drop();
  return flags < 0 ? OVERFLOW_UNKNOWN : (uint8_t)(flags & OVERFLOW_BAD);
}

uint8_t overflow_tensor_scan(struct overflow_state *state, const struct engine_tensor *tensor) {
  struct dit_tensor_view view;
  if (!overflow_can_be_bad(tensor)) {
    return 0;
  }
  struct engine_tensor plain = *tensor;  // conjugation and sign do not touch finiteness
  plain.flags &= (uint8_t) ~(ENGINE_TENSOR_CONJ | ENGINE_TENSOR_NEG);
  uint8_t flags = OVERFLOW_UNKNOWN;
  void *memory = NULL;
  if (tensor->place <= ENGINE_PLACE_HOST && engine_tensor_get_view(&plain, &view)) {
    flags = view_scan(&view);
  } else if (tools_closed_fetch(&plain, &view, &memory)) {
    flags = view_scan(&view);
    tools_closed_release(memory);
  } else if (tensor->place == ENGINE_PLACE_CUDA || tensor->place == ENGINE_PLACE_OTHER) {
    flags = torch_scan(state, tensor->py_tensor);
  }
  state->unchecked += flags == OVERFLOW_UNKNOWN;
  return flags;
}

void overflow_event_add(struct overflow_event *event, bool output, uint8_t flags, uint8_t coverage) {
  if (coverage == OVERFLOW_UNREAD) {
    return;
  }
  bool junk = coverage == OVERFLOW_UNWRITTEN;
  event->junk_flags |= junk ? flags & OVERFLOW_BAD : 0;
  event->partly_junk |= coverage == OVERFLOW_PARTLY && flags & OVERFLOW_BAD;
  event->out_flags |= output ? flags : 0;
  event->in_flags |= output || junk ? 0 : flags;
}

// Statistics for a finding

static double dict_get(PyObject *dict, const char *name) {
  PyObject *value = PyDict_GetItemString(dict, name);
  double number = value ? PyFloat_AsDouble(value) : NAN;
  py_error_drop();
  return number;
}

static bool torch_stats(struct overflow_state *state, PyObject *tensor, struct dit_tensor_stats *stats) {
  PyObject *py_stats = state->py_stats ? PyObject_CallOneArg(state->py_stats, tensor) : NULL;
  bool done = py_stats && PyDict_Check(py_stats);
  if (done) {
    *stats = (struct dit_tensor_stats){.nan = (int64_t)dict_get(py_stats, "nan"),
                                       .pos_inf = (int64_t)dict_get(py_stats, "pos_inf"),
                                       .neg_inf = (int64_t)dict_get(py_stats, "neg_inf"),
                                       .zero = (int64_t)dict_get(py_stats, "zero"),
                                       .min = dict_get(py_stats, "min"),
                                       .max = dict_get(py_stats, "max"),
                                       .mean = dict_get(py_stats, "mean"),
                                       .std_sample = dict_get(py_stats, "std"),
                                       .norm = dict_get(py_stats, "norm")};
  }
  Py_XDECREF(py_stats);
  py_error_drop();
  return done;
}

void overflow_tensor_fill(struct overflow_state *state, struct overflow_tensor *out, const struct engine_tensor *tensor,
                          enum overflow_role role, int index) {
  struct dit_tensor_view view;
  void *memory = NULL;
  overflow_meta_set(&out->meta, tensor, role, index);
  if (role == OVERFLOW_IN_BEFORE || !overflow_can_be_bad(tensor) || !state->stats) {
    return;
  }
  if (tensor->place <= ENGINE_PLACE_HOST && engine_tensor_get_view(tensor, &view)) {
    out->has_stats = dit_tensor_get_stats(&view, &out->stats, NULL) == DIT_OK;
  } else if (tools_closed_fetch(tensor, &view, &memory)) {
    out->has_stats = dit_tensor_get_stats(&view, &out->stats, NULL) == DIT_OK;
    tools_closed_release(memory);
  } else if (tensor->place != ENGINE_PLACE_NONE) {
    out->has_stats = torch_stats(state, tensor->py_tensor, &out->stats);
  }
  if (out->has_stats) {
    out->meta.flags = (uint8_t)((out->stats.nan ? DIT_NONFINITE_NAN : 0) |
                                (out->stats.pos_inf || out->stats.neg_inf ? DIT_NONFINITE_INF : 0));
  }
}
