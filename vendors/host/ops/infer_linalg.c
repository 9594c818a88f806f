/// Rules of diopiExtInferOutputs for matrices in batches, and for shapes that are put together of single sizes.
#include <stdlib.h>
#include <string.h>

#include "infer.h"
#include "matrix_batch.h"

/// Adds the sizes of a list "rois.0 input.-1 pooled_height": dimension of a tensor, or an integer parameter.
static diopiError_t add_sizes(struct infer *infer, const char *list, struct infer_shape *shape) {
  char name[64];
  while (*list) {
    const size_t length = strcspn(list, " ");
    FRAME_CHECK(&infer->frame, length < sizeof name, "the rule '%s' has a name that is too long", list);
    memcpy(name, list, length);
    name[length] = 0;
    list += length + (list[length] == ' ');
    char *dot = strchr(name, '.');
    int64_t size = 0;
    if (dot) {
      struct dit_tensor_view view;
      int dim;
      *dot = 0;
      FRAME_TRY(infer_take(infer, name, &view));
      FRAME_TRY(frame_wrap_dim(&infer->frame, name, atoi(dot + 1), view.ndim, &dim));
      FRAME_CHECK(&infer->frame, view.ndim > 0, "'%s' has no dimensions", name);
      size = view.sizes[dim];
    } else {
      FRAME_TRY(infer_get_integer(infer, name, &size));
    }
    FRAME_TRY(infer_add_size(infer, shape, size));
  }
  return diopiSuccess;
}

/// The dtype of argument 0, the sizes of the list 1.
diopiError_t infer_dims(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view view;
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  struct infer_shape shape = {.ndim = 0, .dtype = view.dtype};
  FRAME_TRY(add_sizes(infer, item->names[1], &shape));
  return infer_emit(infer, &shape, item->as);
}

/// The leading dimensions of argument 0.
diopiError_t infer_batch(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view view;
  struct infer_shape shape;
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  FRAME_CHECK(&infer->frame, view.ndim >= 2, "'%s' has %d dimensions; valid: at least 2", item->names[0],
              (int)view.ndim);
  infer_start(&shape, &view);
  shape.ndim -= 2;
  return infer_emit(infer, &shape, item->as);
}

/// The leading dimensions of arguments 0 and 1 broadcast, then the sizes of the list 2; the dtype of argument 0.
diopiError_t infer_matrices(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view a, b;
  struct infer_shape shape = {.ndim = 0};
  FRAME_TRY(infer_take(infer, item->names[0], &a));
  FRAME_TRY(infer_take(infer, item->names[1], &b));
  FRAME_CHECK(&infer->frame, a.ndim >= 2 && b.ndim >= 2, "'%s' has %d and '%s' %d dimensions; valid: at least 2",
              item->names[0], (int)a.ndim, item->names[1], (int)b.ndim);
  FRAME_CHECK(&infer->frame, matrix_broadcast(&a, &b, &shape.ndim, shape.sizes),
              "the leading dimensions of '%s' and '%s' do not broadcast", item->names[0], item->names[1]);
  shape.dtype = a.dtype;
  FRAME_TRY(add_sizes(infer, item->names[2], &shape));
  return infer_emit(infer, &shape, item->as);
}

/// Of argument 0 (..., M, N): item->number 0 Q, 1 R; argument 1 is the mode.
diopiError_t infer_qr(struct infer *infer, const struct infer_item *item) {
  const diopiExtArgument_t *mode = infer_find(infer, item->names[1]);
  struct dit_tensor_view view;
  struct infer_shape shape;
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  FRAME_CHECK(&infer->frame, view.ndim >= 2, "'%s' has %d dimensions; valid: at least 2", item->names[0],
              (int)view.ndim);
  FRAME_CHECK(&infer->frame, mode && mode->string, "'%s' is NULL; valid: \"reduced\", \"complete\", \"r\"",
              item->names[1]);
  infer_start(&shape, &view);
  const int64_t m = matrix_get_rows(&view), n = matrix_get_columns(&view);
  const int64_t rows = mode->string[0] == 'c' || m < n ? m : n;
  if (item->number == 0 && strcmp(mode->string, "r") == 0) {
    shape = (struct infer_shape){.ndim = 1, .dtype = view.dtype, .sizes = {0}};
  } else {
    shape.sizes[shape.ndim - 2] = item->number == 0 ? m : rows;
    shape.sizes[shape.ndim - 1] = item->number == 0 ? rows : n;
  }
  return infer_emit(infer, &shape, item->as);
}
