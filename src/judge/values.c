/// Packed copies of tensors (contract in values.h), through the walks of src/numerics.
#include "judge/values.h"

#include <string.h>

#include "dit/alloc.h"
#include "numerics/stage.h"
#include "numerics/walk.h"

struct reading {
  int dtype;
  int parts;  ///< numbers per element
  double *out;
};

static void reading_take(void *context, const char *const *data, int64_t begin, int64_t count) {
  const struct reading *reading = context;
  double room[2 * WALK_CHUNK];
  int64_t numbers = count * reading->parts;
  const double *staged = stage_double(reading->dtype, data[0], room, numbers);
  memcpy(reading->out + begin * reading->parts, staged, (size_t)numbers * sizeof *staged);
}

enum dit_status values_read(const struct dit_tensor_view *view, struct values *values, struct dit_error *err) {
  *values = (struct values){0};
  DIT_RETURN_IF_NOT_OK(stage_check(view->dtype, "a value", err));
  DIT_RETURN_IF_NOT_OK(walk_check(view, "a value", err));
  struct reading reading = {view->dtype, stage_is_complex(view->dtype) ? 2 : 1, NULL};
  values->count = view->numel * reading.parts;
  values->is_complex = reading.parts == 2;
  values->data = reading.out = dit_malloc((size_t)(values->count > 0 ? values->count : 1) * sizeof *values->data);
  if (!values->data) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for %lld numbers", (long long)values->count);
  }
  if (view->numel > 0) {
    const struct dit_tensor_view *views[1] = {view};
    struct walk walk;
    walk_init(&walk, 1, views, WALK_ROW_MAJOR);
    walk_range(&walk, 0, view->numel, reading_take, &reading);
  }
  values->view = *view;
  if (view->ndim > 0) {
    memcpy(values->sizes, view->sizes, (size_t)view->ndim * sizeof *values->sizes);
  }
  dit_shape_set_contiguous(view->ndim, values->sizes, values->strides);
  values->view.data = values->data;
  values->view.sizes = values->sizes;
  values->view.strides = values->strides;
  values->view.dtype = values->is_complex ? DIT_DTYPE_C128 : DIT_DTYPE_F64;
  values->view.flags = DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE;
  return DIT_OK;
}

void values_reset(struct values *values) {
  dit_free(values->data);
  *values = (struct values){0};
}

bool views_agree(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  return a->ndim == b->ndim && (a->ndim == 0 || memcmp(a->sizes, b->sizes, (size_t)a->ndim * sizeof *a->sizes) == 0);
}
