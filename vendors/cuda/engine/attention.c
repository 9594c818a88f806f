/// Flash attention and its gradients on CUDA (vendors/host/ops/attention_work.h): the launches.
///
/// Sequence ends (VarLen) are read by the kernels, so nothing waits: ends that do not grow, or lie beyond the tensors,
/// are not reported; what they name outside of the tensors is not touched.
#include "kernels/attention.h"

#include "launch.h"
#include "ops/attention_work.h"
#include "ops/fail.h"
#include "packed.h"

#define WIDTHS(X, module, tag) X(module, tag##_64) X(module, tag##_128) X(module, tag##_256)
#define FORWARD(module, tag) KERNEL_REFERENCE(attention_forward_##tag, module);
#define GRADIENTS(module, tag)                          \
  KERNEL_REFERENCE(attention_gradient_q_##tag, module); \
  KERNEL_REFERENCE(attention_gradient_kv_##tag, module);
WIDTHS(FORWARD, attention, f32)
WIDTHS(GRADIENTS, attention, f32)
FORWARD(attention, f64_64)
FORWARD(attention, f64_256)
GRADIENTS(attention, f64_64)
GRADIENTS(attention, f64_256)
WIDTHS(FORWARD, attention_half, f16)
WIDTHS(FORWARD, attention_half, bf16)
WIDTHS(GRADIENTS, attention_half_gradient, f16)
WIDTHS(GRADIENTS, attention_half_gradient, bf16)
KERNEL_REFERENCE(attention_delta_f32, attention);
KERNEL_REFERENCE(attention_delta_f64, attention);
KERNEL_REFERENCE(attention_delta_f16, attention);
KERNEL_REFERENCE(attention_delta_bf16, attention);

/// Tiles of one dtype and width, as the kernel files have them.
struct variant {
  int dtype, width;
  int rows, columns, gradient_columns, parts, stages;
  struct kernel *forward, *gradient_q, *gradient_kv;
};
#define KERNELS(tag) &attention_forward_##tag, &attention_gradient_q_##tag, &attention_gradient_kv_##tag
static const struct variant variants[] = {
    {DIT_DTYPE_F32, 64, 64, 32, 32, 1, 1, KERNELS(f32_64)},
    {DIT_DTYPE_F32, 128, 64, 32, 32, 1, 1, KERNELS(f32_128)},
    {DIT_DTYPE_F32, 256, 32, 32, 32, 1, 1, KERNELS(f32_256)},
    {DIT_DTYPE_F64, 64, 32, 32, 32, 1, 1, KERNELS(f64_64)},
    {DIT_DTYPE_F64, 256, 16, 16, 16, 1, 1, KERNELS(f64_256)},
    {DIT_DTYPE_F16, 64, 64, 64, 32, 1, 2, KERNELS(f16_64)},
    {DIT_DTYPE_F16, 128, 64, 64, 32, 1, 2, KERNELS(f16_128)},
    {DIT_DTYPE_F16, 256, 64, 64, 32, 2, 2, KERNELS(f16_256)},
    {DIT_DTYPE_BF16, 64, 64, 64, 32, 1, 2, KERNELS(bf16_64)},
    {DIT_DTYPE_BF16, 128, 64, 64, 32, 1, 2, KERNELS(bf16_128)},
    {DIT_DTYPE_BF16, 256, 64, 64, 32, 2, 2, KERNELS(bf16_256)},
};

struct attention_room {
  struct attention_kernel kernel;
  const struct variant *variant;
  struct packed packed[8];
  int count;
};

/// A tensor in place where its rows have neighbouring elements, else as a copy.
static diopiError_t open_tensor(struct attention_call *call, struct attention_room *room,
                                const struct dit_tensor_view *view, bool write, struct attention_operand *out) {
  const int lead = call->packed ? 0 : 1;
  const int64_t size = (int64_t)dit_dtype_get_size(view->dtype);
  struct packed *packed = &room->packed[room->count++];
  *packed = (struct packed){.view = *view};
  if (view->strides[lead + 2] != 1 && view->sizes[lead + 2] > 1) {
    FRAME_TRY(write ? packed_reserve(packed, call->frame, view) : packed_read(packed, call->frame, view));
  }
  const int64_t *strides = packed->view.strides;
  *out = (struct attention_operand){packed->view.data, lead ? strides[0] : 0, strides[lead], strides[lead + 1], 0, 0};
  out->is_aligned = (uintptr_t)out->data % 16 == 0 && out->sequence * size % 16 == 0 && out->row * size % 16 == 0 &&
                    out->head * size % 16 == 0;
  return diopiSuccess;
}

static void set_ends(struct attention_ends *ends, const struct dit_tensor_view *view, int64_t rows) {
  *ends = (struct attention_ends){view->data, view->strides[0], rows, view->dtype, 0};
}

static diopiError_t begin(struct attention_call *call, struct attention_room *room, bool draw) {
  const struct attention_shape *s = &call->shape;
  for (size_t i = 0; i < sizeof variants / sizeof variants[0] && !room->variant; i++) {
    const bool fits = variants[i].dtype == call->q.dtype && s->width <= variants[i].width;
    room->variant = fits ? &variants[i] : NULL;
  }
  if (!room->variant || s->queries > INT32_MAX / 2 || s->keys > INT32_MAX / 2) {
    return frame_fail(call->frame, diopiForceFallbackToCPU, "heads of %lld elements; valid here: up to %d",
                      (long long)s->width, ATTENTION_WIDTH);
  }
  FRAME_TRY(attention_read_generator(call, draw));
  struct attention_kernel *kernel = &room->kernel;
  *kernel = (struct attention_kernel){.lse = call->lse.data,
                                      .lse_strides = {call->lse.strides[0], call->lse.strides[1], call->lse.strides[2]},
                                      .slopes = s->slopes,
                                      .slope_sequence = s->slope_sequence,
                                      .slope_head = s->slope_head,
                                      .sequences = s->sequences,
                                      .heads = s->heads,
                                      .key_heads = s->key_heads,
                                      .queries = s->queries,
                                      .keys = s->keys,
                                      .left = s->left,
                                      .right = s->right,
                                      .scale = s->scale,
                                      .keep = 1 / (1 - s->dropout),
                                      .keep_limit = (uint64_t)((1 - s->dropout) * 4294967296.0),
                                      .seed = s->seed,
                                      .offset = s->offset,
                                      .width = (int32_t)s->width,
                                      .lse_dtype = call->lse.dtype,
                                      .has_dropout = s->dropout > 0,
                                      .parts = 1};
  if (call->packed) {
    set_ends(&kernel->query_ends, &call->cum_q, call->q.sizes[0]);
    set_ends(&kernel->key_ends, &call->cum_k, call->k.sizes[0]);
  }
  FRAME_TRY(open_tensor(call, room, &call->q, false, &kernel->q));
  FRAME_TRY(open_tensor(call, room, &call->k, false, &kernel->k));
  return open_tensor(call, room, &call->v, false, &kernel->v);
}

/// Blocks for `rows` rows of each of `lines` heads; `tiles`: how many of `row_tiles` and `column_tiles` wait in shared
/// memory.
static diopiError_t launch(struct attention_call *call, struct attention_room *room, struct kernel *function,
                           int64_t rows, int64_t lines, int row_tiles, int columns) {
  const struct variant *variant = room->variant;
  const size_t size = dit_dtype_get_size(call->q.dtype), vector = 16 / size;
  const size_t tiles = (size_t)(row_tiles * variant->rows + 2 * variant->stages * columns);
  const bool scalar = variant->stages == 1;
  struct dit_error err = {.message = ""};
  room->kernel.tiles = (rows + variant->rows - 1) / variant->rows;
  const int64_t blocks = room->kernel.tiles * lines * room->kernel.parts;
  if (blocks == 0) {
    return diopiSuccess;
  }
  const struct kernel_grid grid = {
      .x = (unsigned)blocks,
      .threads = scalar ? ATTENTION_SCALAR_THREADS : ATTENTION_MATRIX_THREADS,
      .shared = size * (tiles * ((size_t)variant->width + vector) +
                        (scalar ? (size_t)variant->rows * ((size_t)columns + vector) : 0))};
  return frame_get_code(call->frame,
                        blocks > INT32_MAX ? DIT_ERR_UNSUPPORTED
                                           : kernel_launch(function, call->frame->stream, grid, &room->kernel, &err),
                        &err);
}

diopiError_t attention_run_forward(struct attention_call *call) {
  struct attention_room room = {.count = 0};
  const struct attention_shape *s = &call->shape;
  FRAME_TRY(begin(call, &room, true));
  FRAME_TRY(open_tensor(call, &room, &call->out, true, &room.kernel.out));
  FRAME_TRY(launch(call, &room, room.variant->forward, s->queries, s->sequences * s->heads, 1, room.variant->columns));
  return packed_store(&room.packed[room.count - 1], call->frame, &call->out);
}

static diopiError_t launch_delta(struct attention_call *call, struct attention_room *room) {
  const struct attention_shape *s = &call->shape;
  const int64_t count = s->sequences * s->heads * s->queries;
  struct kernel *kernel = call->q.dtype == DIT_DTYPE_F32   ? &attention_delta_f32
                          : call->q.dtype == DIT_DTYPE_F64 ? &attention_delta_f64
                          : call->q.dtype == DIT_DTYPE_F16 ? &attention_delta_f16
                                                           : &attention_delta_bf16;
  struct dit_error err = {.message = ""};
  room->kernel.delta = scratch_take(call->frame->context, (size_t)count * dit_dtype_get_size(call->work));
  if (!room->kernel.delta) {
    return frame_fail_device(call->frame, "no device memory for a number per query");
  }
  const struct kernel_grid grid = {.x = kernel_get_blocks(count, ATTENTION_DELTA_THREADS / 32),
                                   .threads = ATTENTION_DELTA_THREADS};
  return count == 0
             ? diopiSuccess
             : frame_get_code(call->frame, kernel_launch(kernel, call->frame->stream, grid, &room->kernel, &err), &err);
}

diopiError_t attention_run_backward(struct attention_call *call) {
  struct attention_room room = {.count = 0};
  const struct attention_shape *s = &call->shape;
  struct attention_kernel *kernel = &room.kernel;
  FRAME_TRY(begin(call, &room, false));
  FRAME_TRY(open_tensor(call, &room, &call->out, false, &kernel->out));
  FRAME_TRY(open_tensor(call, &room, &call->grad, false, &kernel->grad));
  const int inputs = room.count;
  FRAME_TRY(open_tensor(call, &room, &call->grad_q, true, &kernel->grad_q));
  FRAME_TRY(open_tensor(call, &room, &call->grad_k, true, &kernel->grad_k));
  FRAME_TRY(open_tensor(call, &room, &call->grad_v, true, &kernel->grad_v));
  FRAME_TRY(launch_delta(call, &room));
  const int columns = room.variant->gradient_columns;
  FRAME_TRY(launch(call, &room, room.variant->gradient_q, s->queries, s->sequences * s->heads, 2, columns));
  kernel->parts = room.variant->parts;
  FRAME_TRY(launch(call, &room, room.variant->gradient_kv, s->keys, s->sequences * s->key_heads, 2, columns));
  const struct dit_tensor_view *gradients[] = {&call->grad_q, &call->grad_k, &call->grad_v};
  for (int i = 0; i < 3; i++) {
    FRAME_TRY(packed_store(&room.packed[inputs + i], call->frame, gradients[i]));
  }
  return diopiSuccess;
}
