/// Embedding tables: rows by number, the gradient of the table, and the bound on the norm of rows.
///
/// out[..., :] = weight[indices[...], :]; out has the shape of indices and one dimension more. Every dtype.
/// Backward: grad_weight[r] = sum of grad[i] over all i with indices[i] = r, in the order of i, except r = padding_idx,
/// which stays zero; with scale_grad_byfreq divided by how often r occurs. Half types are summed in float and rounded
/// once. Positions are grouped by row first (a counting sort), then each row is written once, by one thread.
/// EmbeddingRenorm_: rows that are named by indices and whose norm is above max_norm are scaled to max_norm; in place.
/// Numbers are int32 or int64, 0 to rows - 1; any other is an error before anything is written. A negative padding_idx
/// counts as absent. `sparse` is a wish that a table of dense gradients ignores.
#include "embedding.h"

#include <string.h>

#include "engine/index.h"

// Forward

static diopiError_t run_embedding(void *argument) {
  struct embedding_task *task = argument;
  struct index_walk walk;
  FRAME_TRY(layout_check_index(task->frame, "indices", &task->indices, task->table.sizes[0], false));
  const struct dit_tensor_view *columns[2] = {&task->indices, NULL};
  if (task->out.numel == 0) {
    return diopiSuccess;
  }
  index_walk_init(&walk, &task->table, columns, &task->out, 0);
  walk.strict = true;
  struct dit_error err = {.message = ""};
  return frame_get_code(task->frame, index_walk_run(task->frame->context, task->frame->stream, &walk, INDEX_TAKE, &err),
                        &err);
}

/// `whole` has the shape of indices and then `width`.
static diopiError_t check_rows(struct frame *frame, const char *name, const struct dit_tensor_view *whole,
                               const struct dit_tensor_view *indices, int64_t width) {
  int64_t sizes[DIT_MAX_DIMS + 1];
  FRAME_CHECK(frame, indices->ndim < DIT_MAX_DIMS, "'indices' has %d dimensions; valid: 0 to %d", indices->ndim,
              DIT_MAX_DIMS - 1);
  if (indices->ndim > 0) {
    memcpy(sizes, indices->sizes, sizeof(int64_t) * (size_t)indices->ndim);
  }
  sizes[indices->ndim] = width;
  return layout_check_sizes(frame, name, whole, indices->ndim + 1, sizes);
}

diopiError_t diopiEmbedding(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t weight,
                            diopiConstTensorHandle_t indices, int64_t padding_idx, bool scale_grad_byfreq,
                            bool sparse) {
  struct frame frame;
  struct embedding_task task = {.frame = &frame};
  (void)padding_idx;
  (void)scale_grad_byfreq;
  (void)sparse;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &task.out);
  FRAME_TAKE(&frame, weight, &task.table);
  FRAME_TAKE(&frame, indices, &task.indices);
  FRAME_CHECK(&frame, task.table.ndim == 2, "'weight' has %d dimensions; it must have 2", task.table.ndim);
  FRAME_TRY(check_rows(&frame, "out", &task.out, &task.indices, task.table.sizes[1]));
  FRAME_TRY(layout_check_dtype(&frame, "out", &task.out, "weight", &task.table));
  const struct dit_tensor_view *inputs[] = {&task.table, &task.indices};
  FRAME_TRY(frame_check_output(&frame, "out", &task.out, inputs, 2, false));
  return frame_run(&frame, run_embedding, &task);
}

// Backward

diopiError_t diopiEmbeddingBackward(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t grad,
                                    diopiConstTensorHandle_t indices, int64_t num_weights, int64_t padding_idx,
                                    bool scale_grad_byfreq, bool sparse) {
  struct frame frame;
  struct embedding_task task = {.frame = &frame, .padding = padding_idx, .scaled = scale_grad_byfreq};
  (void)sparse;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &task.out);
  FRAME_TAKE(&frame, grad, &task.table);
  FRAME_TAKE(&frame, indices, &task.indices);
  FRAME_CHECK(&frame, task.out.ndim == 2 && task.out.sizes[0] == num_weights,
              "'out' has shape %s; it must have 2 dimensions and %lld rows ('num_weights')",
              layout_print(task.out.ndim, task.out.sizes), (long long)num_weights);
  FRAME_TRY(check_rows(&frame, "grad", &task.table, &task.indices, task.out.sizes[1]));
  FRAME_TRY(layout_check_dtype(&frame, "out", &task.out, "grad", &task.table));
  if (!frame_has_dtype(DTYPES_REAL, task.out.dtype)) {
    return frame_fail_dtype(&frame, "grad", task.out.dtype);
  }
  FRAME_CHECK(&frame, !scale_grad_byfreq || frame_has_dtype(DTYPES_FLOAT, task.out.dtype),
              "'scale_grad_byfreq' is true; it needs a floating type, 'grad' is %s",
              dit_dtype_get_name(task.out.dtype));
  const struct dit_tensor_view *inputs[] = {&task.table, &task.indices};
  FRAME_TRY(frame_check_output(&frame, "out", &task.out, inputs, 2, false));
  return embedding_backward(&task);
}

// Renorm

diopiError_t diopiEmbeddingRenorm_(diopiContextHandle_t ctx, diopiTensorHandle_t inout,
                                   diopiConstTensorHandle_t indices, double max_norm, double norm_type) {
  struct frame frame;
  struct renorm_task task = {.frame = &frame, .max_norm = max_norm, .norm_type = norm_type};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, inout, &task.table);
  FRAME_TAKE(&frame, indices, &task.indices);
  FRAME_CHECK(&frame, task.table.ndim == 2, "'inout' has %d dimensions; it must have 2", task.table.ndim);
  if (!frame_has_dtype(DTYPES_FLOAT, task.table.dtype)) {
    return frame_fail_dtype(&frame, "inout", task.table.dtype);
  }
  const struct dit_tensor_view *inputs[] = {&task.indices};
  FRAME_TRY(frame_check_output(&frame, "inout", &task.table, inputs, 1, false));
  return embedding_renorm(&task);
}
