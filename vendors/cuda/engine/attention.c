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
#define FLASH(tag)                                                            \
  KERNEL_REFERENCE(attention_flash_##tag, attention_flash);                   \
  KERNEL_REFERENCE(attention_flash_prepare_##tag, attention_flash_gradient);  \
  KERNEL_REFERENCE(attention_flash_gradient_##tag, attention_flash_gradient); \
  KERNEL_REFERENCE(attention_flash_finish_##tag, attention_flash_gradient);
FLASH(f16_64)
FLASH(f16_128)
FLASH(bf16_64)
FLASH(bf16_128)
KERNEL_REFERENCE(attention_delta_f32, attention);
KERNEL_REFERENCE(attention_delta_f64, attention);
KERNEL_REFERENCE(attention_delta_f16, attention);
KERNEL_REFERENCE(attention_delta_bf16, attention);

/// Tiles of one dtype and width, as the kernel files have them.
struct variant {
  int dtype, width;
  int rows, columns, gradient_columns, parts, stages;
  struct kernel *forward, *gradient_q, *gradient_kv;
  struct kernel *flash, *flash_prepare, *flash_gradient, *flash_finish;  ///< the common form, or NULL
};
#define FLASH_KERNELS(tag) \
  &attention_flash_##tag, &attention_flash_prepare_##tag, &attention_flash_gradient_##tag, &attention_flash_finish_##tag
#define NO_FLASH NULL, NULL, NULL, NULL
#define KERNELS(tag) &attention_forward_##tag, &attention_gradient_q_##tag, &attention_gradient_kv_##tag
static const struct variant variants[] = {
    {DIT_DTYPE_F32, 64, 64, 32, 32, 1, 1, KERNELS(f32_64), NO_FLASH},
    {DIT_DTYPE_F32, 128, 64, 32, 32, 1, 1, KERNELS(f32_128), NO_FLASH},
    {DIT_DTYPE_F32, 256, 32, 32, 32, 1, 1, KERNELS(f32_256), NO_FLASH},
    {DIT_DTYPE_F64, 64, 32, 32, 32, 1, 1, KERNELS(f64_64), NO_FLASH},
    {DIT_DTYPE_F64, 256, 16, 16, 16, 1, 1, KERNELS(f64_256), NO_FLASH},
    {DIT_DTYPE_F16, 64, 64, 64, 32, 1, 2, KERNELS(f16_64), FLASH_KERNELS(f16_64)},
    {DIT_DTYPE_F16, 128, 64, 64, 32, 1, 2, KERNELS(f16_128), FLASH_KERNELS(f16_128)},
    {DIT_DTYPE_F16, 256, 64, 64, 32, 2, 2, KERNELS(f16_256), NO_FLASH},
    {DIT_DTYPE_BF16, 64, 64, 64, 32, 1, 2, KERNELS(bf16_64), FLASH_KERNELS(bf16_64)},
    {DIT_DTYPE_BF16, 128, 64, 64, 32, 1, 2, KERNELS(bf16_128), FLASH_KERNELS(bf16_128)},
    {DIT_DTYPE_BF16, 256, 64, 64, 32, 2, 2, KERNELS(bf16_256), NO_FLASH},
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

/// A window wider than any sequence is none: kernels count in 32 bits.
static int64_t limit_window(int64_t rows) {
  return rows > INT32_MAX / 4 ? -1 : rows;
}

static diopiError_t begin(struct attention_call *call, struct attention_room *room, bool draw) {
  const struct attention_shape *s = &call->shape;
  for (size_t i = 0; i < sizeof variants / sizeof variants[0] && !room->variant; i++) {
    const bool fits = variants[i].dtype == call->q.dtype && s->width <= variants[i].width;
    room->variant = fits ? &variants[i] : NULL;
  }
  if (!room->variant || s->queries > INT32_MAX / 4 || s->keys > INT32_MAX / 4) {
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
                                      .left = limit_window(s->left),
                                      .right = limit_window(s->right),
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

/// Is this the common form, for which half types have kernels of their own?
static bool is_common(const struct attention_room *room) {
  const struct attention_kernel *k = &room->kernel;
  return room->variant->flash && !k->has_dropout && !k->slopes && k->scale > 0 && k->width % 8 == 0 &&
         k->q.is_aligned && k->k.is_aligned && k->v.is_aligned && k->out.is_aligned &&
         k->sequences * k->heads <= INT32_MAX;
}

static diopiError_t launch_blocks(struct attention_call *call, struct attention_room *room, struct kernel *function,
                                  int64_t blocks, unsigned threads, size_t shared) {
  struct dit_error err = {.message = ""};
  const struct kernel_grid grid = {.x = (unsigned)blocks, .threads = threads, .shared = shared};
  if (blocks == 0) {
    return diopiSuccess;
  }
  return frame_get_code(call->frame,
                        blocks > INT32_MAX ? DIT_ERR_UNSUPPORTED
                                           : kernel_launch(function, call->frame->stream, grid, &room->kernel, &err),
                        &err);
}

static int64_t divide_up(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

static diopiError_t run_flash(struct attention_call *call, struct attention_room *room) {
  const struct attention_shape *s = &call->shape;
  room->kernel.tiles = divide_up(s->queries, ATTENTION_FLASH_ROWS);
  const size_t rows = ATTENTION_FLASH_ROWS + 4 * ATTENTION_FLASH_COLUMNS;  // two tiles each of keys and values
  return launch_blocks(call, room, room->variant->flash, room->kernel.tiles * s->sequences * s->heads,
                       ATTENTION_MATRIX_THREADS, rows * (size_t)(room->variant->width + 8) * 2);
}

diopiError_t attention_run_forward(struct attention_call *call) {
  struct attention_room room = {.count = 0};
  const struct attention_shape *s = &call->shape;
  FRAME_TRY(begin(call, &room, true));
  FRAME_TRY(open_tensor(call, &room, &call->out, true, &room.kernel.out));
  if (is_common(&room)) {
    FRAME_TRY(run_flash(call, &room));
  } else {
    FRAME_TRY(
        launch(call, &room, room.variant->forward, s->queries, s->sequences * s->heads, 1, room.variant->columns));
  }
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

/// Can blocks add to float sums of the queries' gradient? Sequences of very different lengths would need too many.
static bool is_common_gradient(const struct attention_call *call, const struct attention_room *room) {
  const struct attention_kernel *k = &room->kernel;
  const int64_t size = ATTENTION_GRADIENT_QUERIES(room->variant->width);
  const int64_t rows = k->sequences * divide_up(k->queries, size) * size;
  return is_common(room) && k->grad.is_aligned && k->grad_q.is_aligned && k->grad_k.is_aligned &&
         k->grad_v.is_aligned && k->queries > 0 && k->keys > 0 && rows * k->heads <= INT32_MAX &&
         (!call->packed || rows <= 4 * call->q.sizes[0] + 4096);
}

static diopiError_t run_flash_gradient(struct attention_call *call, struct attention_room *room) {
  const struct variant *variant = room->variant;
  struct attention_kernel *k = &room->kernel;
  const int64_t queries = ATTENTION_GRADIENT_QUERIES(variant->width), keys = ATTENTION_GRADIENT_KEYS;
  k->query_tiles = divide_up(k->queries, queries);
  const int64_t tiles = k->sequences * k->heads * k->query_tiles, rows = tiles * queries;
  k->delta = scratch_take(call->frame->context, (size_t)rows * 8);
  k->sums = scratch_take(call->frame->context, (size_t)(rows * variant->width) * sizeof k->sums[0]);
  k->turns = scratch_take(call->frame->context, (size_t)(tiles + 1) * sizeof k->turns[0]);
  if (!k->delta || !k->sums || !k->turns) {
    return frame_fail_device(call->frame, "no device memory for the sums of the queries' gradient");
  }
  // shared memory: keys and values, two stages of queries, grads and states, the gradients of scores
  const int64_t shared =
      2 * (2 * keys + 4 * queries) * (variant->width + 8) + 2 * queries * 8 + 2 * keys * (queries + 8);
  const int64_t blocks = divide_up(k->keys, keys) * k->sequences * k->key_heads;
  FRAME_TRY(launch_blocks(call, room, variant->flash_prepare, divide_up(rows, ATTENTION_DELTA_THREADS / 8),
                          ATTENTION_DELTA_THREADS, 0));
  FRAME_TRY(launch_blocks(call, room, variant->flash_gradient, blocks, ATTENTION_GRADIENT_THREADS(variant->width),
                          (size_t)shared));
  return launch_blocks(call, room, variant->flash_finish, divide_up(rows / 16, ATTENTION_DELTA_THREADS / 32),
                       ATTENTION_DELTA_THREADS, 0);
}

static diopiError_t run_gradient(struct attention_call *call, struct attention_room *room) {
  const struct attention_shape *s = &call->shape;
  const int columns = room->variant->gradient_columns;
  FRAME_TRY(launch_delta(call, room));
  FRAME_TRY(launch(call, room, room->variant->gradient_q, s->queries, s->sequences * s->heads, 2, columns));
  room->kernel.parts = room->variant->parts;
  return launch(call, room, room->variant->gradient_kv, s->keys, s->sequences * s->key_heads, 2, columns);
}

diopiError_t attention_run_backward(struct attention_call *call) {
  struct attention_room room = {.count = 0};
  struct attention_kernel *kernel = &room.kernel;
  FRAME_TRY(begin(call, &room, false));
  FRAME_TRY(open_tensor(call, &room, &call->out, false, &kernel->out));
  FRAME_TRY(open_tensor(call, &room, &call->grad, false, &kernel->grad));
  const int inputs = room.count;
  FRAME_TRY(open_tensor(call, &room, &call->grad_q, true, &kernel->grad_q));
  FRAME_TRY(open_tensor(call, &room, &call->grad_k, true, &kernel->grad_k));
  FRAME_TRY(open_tensor(call, &room, &call->grad_v, true, &kernel->grad_v));
  FRAME_TRY(is_common_gradient(call, &room) ? run_flash_gradient(call, &room) : run_gradient(call, &room));
  const struct dit_tensor_view *gradients[] = {&call->grad_q, &call->grad_k, &call->grad_v};
  for (int i = 0; i < 3; i++) {
    FRAME_TRY(packed_store(&room.packed[inputs + i], call->frame, gradients[i]));
  }
  return diopiSuccess;
}
