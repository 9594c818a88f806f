/// What the bindings of the device helpers share: a question about tensors that C can read.
#ifndef DIT_EXT_PY_HELPER_H
#define DIT_EXT_PY_HELPER_H

#include <stdbool.h>

#include "dit/helper.h"
#include "dit/runtime.h"
#include "engine/internal.h"

enum number_kind { NUMBER_NONFINITE, NUMBER_STATS, NUMBER_HASH, NUMBER_COMPARE };

/// One question about one or two tensors that C can read.
struct question {
  enum number_kind kind;
  const struct dit_helper_vtable *helper;
  struct dit_tensor_view views[2];
  int64_t sizes[2][DIT_MAX_DIMS], strides[2][DIT_MAX_DIMS];  ///< of the views
  struct dit_compare_options options;
  int device;
  void *stream;
  bool settle;  ///< wait for a side stream of the embedded device first
};

/// 0, or -1 with a TypeError; loads what the engine knows of torch.
DIT_NODISCARD int question_check_tensor(PyObject *object, const char *what);
/// Views, helper, device and current stream of one or two tensors. 1: ready for C; 0: one for torch's operators.
/// `forced`: the only helper that will do, or NULL. The guard must be up.
DIT_NODISCARD int question_prepare(struct question *q, PyObject *const *tensors, int count, const char *forced);

#endif
