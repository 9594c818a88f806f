// See observe_stats.h. Numbers by src/numerics in place, closed memory by a copy, other devices through torch.
#include "tools/observe_stats.h"

#include <math.h>
#include <string.h>

#include "dit/numerics.h"
#include "tools/closed.h"
#include "tools/device.h"

#define BIG_NUMEL (1 << 18)  // from here on the GIL is dropped while a tensor is read

static void view_read(const struct dit_tensor_view *view, struct dit_tensor_stats *one, struct dit_hash *hash,
                      bool *known, bool *hashed) {
  *known = dit_tensor_get_stats(view, one, NULL) == DIT_OK;
  *hashed = dit_tensor_get_hash(view, hash, NULL) == DIT_OK;
}

static double number_get(PyObject *dict, const char *name) {
  PyObject *value = PyDict_GetItemString(dict, name);
  double number = value ? PyFloat_AsDouble(value) : NAN;
  py_error_drop();
  return number;
}

static bool torch_read(PyObject *py_torch, const struct engine_tensor *tensor, struct dit_tensor_stats *one) {
  PyObject *py_stats = py_torch ? PyObject_CallOneArg(py_torch, tensor->py_tensor) : NULL;
  bool done = py_stats && PyDict_Check(py_stats);
  if (done) {
    *one = (struct dit_tensor_stats){.numel = tensor->numel,
                                     .nan = (int64_t)number_get(py_stats, "nan"),
                                     .pos_inf = (int64_t)number_get(py_stats, "pos_inf"),
                                     .neg_inf = (int64_t)number_get(py_stats, "neg_inf"),
                                     .min = number_get(py_stats, "min"),
                                     .max = number_get(py_stats, "max"),
                                     .finite_mean = number_get(py_stats, "mean"),
                                     .finite_norm = number_get(py_stats, "norm")};
    one->finite = one->numel - one->nan - one->pos_inf - one->neg_inf;
  }
  Py_XDECREF(py_stats);
  py_error_drop();
  return done;
}

static void sum_up(struct observe_stats *stats, const struct dit_tensor_stats *one) {
  stats->numel += one->numel;
  stats->nan += one->nan;
  stats->inf += one->pos_inf + one->neg_inf;
  if (one->finite > 0) {
    stats->finite += one->finite;
    stats->sum += one->finite_mean * (double)one->finite;
    stats->squares += one->finite_norm * one->finite_norm;
  }
  stats->min = stats->tensors == 0 || isnan(stats->min) ? one->min : fmin(stats->min, one->min);
  stats->max = stats->tensors == 0 || isnan(stats->max) ? one->max : fmax(stats->max, one->max);
}

void observe_stats_add(struct observe_stats *stats, const struct engine_tensor *tensor, PyObject *py_torch) {
  struct dit_tensor_view view;
  struct dit_tensor_stats one;
  struct dit_hash hash = {0, 0};
  bool known = false, hashed = false;
  void *memory = NULL;
  if (tensor->numel == 0 || tensor->place == ENGINE_PLACE_NONE) {
    return;
  }
  if ((tensor->place <= ENGINE_PLACE_HOST && engine_tensor_get_view(tensor, &view)) ||
      tools_closed_fetch(tensor, &view, &memory)) {
    if (view.numel >= BIG_NUMEL) {
      Py_BEGIN_ALLOW_THREADS;
      view_read(&view, &one, &hash, &known, &hashed);
      Py_END_ALLOW_THREADS;
    } else {
      view_read(&view, &one, &hash, &known, &hashed);
    }
    if (memory) {
      tools_closed_release(memory);
    }
  } else {
    known = torch_read(py_torch, tensor, &one);
  }
  if (!known) {
    return;
  }
  sum_up(stats, &one);
  stats->hash = (stats->hash << 7 | stats->hash >> 57) * UINT64_C(0x9E3779B97F4A7C15) + hash.low;
  stats->unhashed |= !hashed;
  stats->dtype = stats->tensors++ == 0 ? tensor->dtype : stats->dtype;
}

static bool is_result(const struct engine_call *call, int input) {
  for (int i = 0; i < call->out.tensor_count && i < 64; i++) {
    if (call->same[i] == input) {
      return true;
    }
  }
  return false;
}

void observe_stats_of_call(struct observe_stats *stats, const struct engine_call *call, PyObject *py_torch) {
  if (call->error || call->op->flags & ENGINE_OP_UNINITIALISED) {
    return;
  }
  struct tools_site site;
  tools_site_find(call->out.tensor_count ? &call->out : &call->in, &site);
  tools_site_settle(&site);
  for (int i = 0; i < call->out.tensor_count; i++) {
    observe_stats_add(stats, &call->out.tensor[i], py_torch);
  }
  bool all = engine_op_is_fused_optimizer(call->op);
  for (int i = 0; i < call->in.tensor_count; i++) {
    bool changed = i < 64 && call->changed >> i & 1;
    if ((all || changed) && !is_result(call, i)) {
      observe_stats_add(stats, &call->in.tensor[i], py_torch);
    }
  }
}

void observe_stats_of_backward(struct observe_stats *stats, const struct engine_backward *backward,
                               PyObject *py_torch) {
  struct tools_site site;
  tools_site_find_among(backward->grad_inputs, backward->grad_input_count, &site);
  tools_site_settle(&site);
  for (int i = 0; i < backward->grad_input_count; i++) {
    PyObject *gradient = backward->grad_inputs[i];
    if (gradient && gradient != Py_None && engine_is_tensor(gradient)) {
      struct engine_tensor tensor;
      engine_tensor_read(gradient, &tensor);
      observe_stats_add(stats, &tensor, py_torch);
      engine_tensor_reset(&tensor);
    }
  }
}

static uint32_t key_get(uint32_t *key, const char *text) {
  if (!*key && dit_record_intern(text, strlen(text), key, NULL) != DIT_OK) {
    *key = 0;
  }
  return *key;
}

void observe_stats_write(const struct observe_stats *stats, struct dit_record_builder *builder) {
  static uint32_t numel, nan, inf, norm, mean, min, max, hash, dtype;
  if (stats->tensors == 0) {
    return;
  }
  dit_record_field_i64(builder, key_get(&numel, "stats.numel"), stats->numel);
  if (!stats->unhashed) {
    dit_record_field_u64(builder, key_get(&hash, "stats.hash"), stats->hash);
  }
  dit_record_field_f64(builder, key_get(&norm, "stats.norm"), sqrt(stats->squares));
  dit_record_field_f64(builder, key_get(&mean, "stats.mean"), stats->finite ? stats->sum / (double)stats->finite : NAN);
  dit_record_field_f64(builder, key_get(&min, "stats.min"), stats->min);
  dit_record_field_f64(builder, key_get(&max, "stats.max"), stats->max);
  if (stats->nan) {
    dit_record_field_i64(builder, key_get(&nan, "stats.nan"), stats->nan);
  }
  if (stats->inf) {
    dit_record_field_i64(builder, key_get(&inf, "stats.inf"), stats->inf);
  }
  const char *name = dit_dtype_is_valid(stats->dtype) ? dit_dtype_get_name(stats->dtype) : "?";
  dit_record_field_string(builder, key_get(&dtype, "stats.dtype"), name, strlen(name));
}
