/// Gradients and norms of embedding tables on CUDA (vendors/host/ops/embedding.h).
#include "ops/embedding.h"

#include "index_task.h"
#include "kinds.h"

#define REFERENCES(tag) KERNEL_REFERENCE(index_renorm_##tag, index_sum);
FLOAT_KINDS(REFERENCES)

diopiError_t embedding_backward(struct embedding_task *task) {
  struct frame *frame = task->frame;
  const struct dit_tensor_view *columns[2] = {&task->indices, NULL};
  struct index_walk walk;
  struct index_kernel kernel;
  struct dit_error err = {.message = ""};
  FRAME_TRY(layout_check_index(frame, "indices", &task->indices, task->out.sizes[0], false));
  index_walk_init(&walk, &task->out, columns, &task->table, 0);
  walk.strict = true;
  if (!index_task_set(&kernel, &walk, INDEX_ADD) || !index_can_add(task->out.dtype)) {
    return frame_get_code(frame, DIT_ERR_UNSUPPORTED, &err);
  }
  kernel.skipped = task->padding >= 0 ? task->padding : -1;
  kernel.is_mean = task->scaled;
  FRAME_TRY(layout_zero(frame, &task->out));
  return frame_get_code(frame, index_task_sum(&kernel, frame->context, frame->stream, task->out.dtype, &err), &err);
}

static struct kernel *find_renorm(int dtype) {
  return dtype == DIT_DTYPE_F32   ? &index_renorm_f32
         : dtype == DIT_DTYPE_F64 ? &index_renorm_f64
         : dtype == DIT_DTYPE_F16 ? &index_renorm_f16
                                  : &index_renorm_bf16;
}

diopiError_t embedding_renorm(struct renorm_task *task) {
  struct frame *frame = task->frame;
  const struct dit_tensor_view *table = &task->table;
  const int64_t width = (int64_t)dit_dtype_get_size(table->dtype);
  struct layout row;
  struct index_walk walk;
  struct index_kernel kernel;
  struct dit_error err = {.message = ""};
  FRAME_TRY(layout_check_index(frame, "indices", &task->indices, table->sizes[0], false));
  if (task->indices.numel == 0 || table->numel == 0) {
    return diopiSuccess;
  }
  // positions alone: a table of one column
  layout_init(&row, table);
  layout_select(&row, 1, 0);
  const struct dit_tensor_view *columns[1] = {&task->indices};
  index_walk_init(&walk, &row.view, columns, &task->indices, 0);
  walk.strict = true;
  if (!index_task_set(&kernel, &walk, INDEX_ADD)) {
    return frame_get_code(frame, DIT_ERR_UNSUPPORTED, &err);
  }
  FRAME_TRY(frame_get_code(frame, index_task_sort(&kernel, frame->context, frame->stream, &err), &err));
  const struct index_renorm renorm = {.table = table->data,
                                      .rows = table->sizes[0],
                                      .columns = table->sizes[1],
                                      .row_step = table->strides[0] * width,
                                      .column_step = table->strides[1] * width,
                                      .keys = kernel.keys,
                                      .count = kernel.count,
                                      .max_norm = task->max_norm,
                                      .norm_type = task->norm_type};
  const struct kernel_grid grid = {.x = kernel_get_blocks(renorm.count, 1), .threads = INDEX_KERNEL_THREADS};
  return frame_get_code(frame, kernel_launch(find_renorm(table->dtype), frame->stream, grid, &renorm, &err), &err);
}
