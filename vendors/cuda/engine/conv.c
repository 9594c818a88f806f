/// Convolution on CUDA (vendors/host/ops/conv.h): by cuDNN where it is installed, else which product of
/// kernels/conv.cuh, in which tiles, in how many parts.
#include "ops/conv.h"

#include "cudnn.h"
#include "engine/reduce.h"
#include "image.h"
#include "kernels/conv.h"
#include "kinds.h"
#include "ops/fail.h"
#include "packed.h"
#include "plan.h"

#define MODES(X, size, tag, module)       \
  X(conv_forward_##size##_##tag, module); \
  X(conv_input_##size##_##tag, module);   \
  X(conv_weight_##size##_##tag, module);
MODES(KERNEL_REFERENCE, small, f32, conv)
MODES(KERNEL_REFERENCE, large, f32, conv)
MODES(KERNEL_REFERENCE, small, f64, conv)
MODES(KERNEL_REFERENCE, small, f16, conv_half)
MODES(KERNEL_REFERENCE, large, f16, conv_half)
MODES(KERNEL_REFERENCE, small, bf16, conv_half)
MODES(KERNEL_REFERENCE, large, bf16, conv_half)
KERNEL_REFERENCE(conv_join_f32, conv);
KERNEL_REFERENCE(conv_join_f64, conv);
KERNEL_REFERENCE(conv_join_f16, conv_half);
KERNEL_REFERENCE(conv_join_bf16, conv_half);
#define DIRECT(tag)                                         \
  KERNEL_REFERENCE(conv_direct_forward_##tag, conv_direct); \
  KERNEL_REFERENCE(conv_direct_input_##tag, conv_direct);   \
  KERNEL_REFERENCE(conv_direct_weight_##tag, conv_direct);
DIRECT(f32)
DIRECT(f64)
DIRECT(f16)
DIRECT(bf16)

#define CHOOSE_LARGE(name, dtype) \
  ((dtype) == DIT_DTYPE_F32 ? &name##_f32 : (dtype) == DIT_DTYPE_F16 ? &name##_f16 : &name##_bf16)

#define FEW_CHANNELS 4                     // of a group: direct kernels
#define MOST_REACH (INT64_C(1) << 28)      // of positions, so that sums of two fit 32 bits
#define LEAST_PART 256                     // of a split depth
#define MOST_PARTIALS ((int64_t)64 << 20)  // elements

/// The operands of one product.
struct conv_operands {
  const struct dit_tensor_view *a, *b, *c;
  const void *bias;
};

static struct kernel *get_tiles(int mode, bool large, int dtype) {
  if (mode == CONV_KERNEL_FORWARD) {
    return large ? CHOOSE_LARGE(conv_forward_large, dtype) : KIND_OF_FLOAT(conv_forward_small, dtype);
  }
  if (mode == CONV_KERNEL_INPUT) {
    return large ? CHOOSE_LARGE(conv_input_large, dtype) : KIND_OF_FLOAT(conv_input_small, dtype);
  }
  return large ? CHOOSE_LARGE(conv_weight_large, dtype) : KIND_OF_FLOAT(conv_weight_small, dtype);
}

static struct kernel *get_direct(int mode, int dtype) {
  return mode == CONV_KERNEL_FORWARD ? KIND_OF_FLOAT(conv_direct_forward, dtype)
         : mode == CONV_KERNEL_INPUT ? KIND_OF_FLOAT(conv_direct_input, dtype)
                                     : KIND_OF_FLOAT(conv_direct_weight, dtype);
}

static int64_t count_positions(const int64_t sizes[3]) {
  return sizes[0] * sizes[1] * sizes[2];
}

/// Sizes of the product; false where they do not fit the kernels' numbers.
static bool set_shape(struct conv_kernel *kernel, const struct conv_shape *s, int mode) {
  const int64_t *walked = mode == CONV_KERNEL_INPUT ? s->in : s->out;
  const int64_t in = s->in_channels / s->groups, out = s->out_channels / s->groups;
  const int64_t taps = count_positions(s->kernel), positions = s->batch * count_positions(walked);
  if (s->groups > INT32_MAX || s->in_channels > INT32_MAX || s->out_channels > INT32_MAX) {
    return false;
  }
  kernel->mode = mode;
  kernel->groups = (int32_t)s->groups;
  kernel->in_channels = (int32_t)in;
  kernel->out_channels = (int32_t)out;
  kernel->batch = s->batch;
  kernel->rows = mode == CONV_KERNEL_INPUT ? in : out;
  kernel->columns = mode == CONV_KERNEL_WEIGHT ? in * taps : positions;
  kernel->depth = mode == CONV_KERNEL_WEIGHT ? positions : (mode == CONV_KERNEL_INPUT ? out : in) * taps;
  kernel->is_wide = kernel->columns > INT32_MAX || kernel->depth > INT32_MAX;
  for (int i = 0; i < 3; i++) {
    const int64_t most = s->in[i] > s->out[i] ? s->in[i] : s->out[i];
    if (most > MOST_REACH || s->stride[i] > MOST_REACH || s->dilation[i] > MOST_REACH ||
        most * s->stride[i] + s->padding[i] + s->kernel[i] * s->dilation[i] > MOST_REACH) {
      return false;
    }
    kernel->in[i] = (int32_t)s->in[i];
    kernel->out[i] = (int32_t)s->out[i];
    kernel->kernel[i] = (int32_t)s->kernel[i];
    kernel->stride[i] = (int32_t)s->stride[i];
    kernel->padding[i] = (int32_t)s->padding[i];
    kernel->dilation[i] = (int32_t)s->dilation[i];
    kernel->has_stride = kernel->has_stride || s->stride[i] > 1;
    kernel->positions[i] = plan_get_divisor(walked[i] > 0 ? walked[i] : 1);
    kernel->taps[i] = plan_get_divisor(s->kernel[i]);
  }
  return true;
}

/// Enough blocks to fill the device where tiles are few and the depth is long.
static void set_parts(struct conv_kernel *kernel, int64_t tiles) {
  const int64_t wanted = (int64_t)kernel_get_multiprocessors() * 2 / (tiles > 0 ? tiles : 1);
  const int64_t results = kernel->groups * kernel->rows * kernel->columns;
  int64_t splits = kernel->depth / LEAST_PART;
  splits = splits < wanted ? splits : wanted;
  splits = splits * results > MOST_PARTIALS ? MOST_PARTIALS / results : splits;
  splits = splits < 1 ? 1 : splits;
  kernel->part = (kernel->depth + splits - 1) / splits;
  kernel->part = (kernel->part + 31) / 32 * 32;
  kernel->part = kernel->part > 0 ? kernel->part : 32;
  kernel->splits = (int32_t)((kernel->depth + kernel->part - 1) / kernel->part);
  kernel->splits = kernel->splits < 1 ? 1 : kernel->splits;
}

static diopiError_t launch_tiles(struct frame *frame, struct conv_kernel *kernel, int dtype) {
  struct dit_error err = {.message = ""};
  const bool large = dtype != DIT_DTYPE_F64 && kernel->rows > 64 && kernel->columns > 64;
  const int64_t tile = large ? 128 : 64;
  const int64_t down = (kernel->rows + tile - 1) / tile, across = (kernel->columns + tile - 1) / tile;
  if (down > 65535 || across > INT32_MAX) {
    return frame_get_code(frame, DIT_ERR_UNSUPPORTED, &err);
  }
  set_parts(kernel, down * across * kernel->groups);
  if (kernel->splits > 1) {
    const size_t count = (size_t)kernel->splits * (size_t)(kernel->groups * kernel->rows * kernel->columns);
    kernel->partials = scratch_take(frame->context, count * (dtype == DIT_DTYPE_F64 ? 8 : 4));
    if (!kernel->partials) {
      return frame_fail_device(frame, "no device memory for parts of sums");
    }
  }
  const int64_t deep = (int64_t)kernel->groups * kernel->splits;
  const struct kernel_grid grid = {.x = (unsigned)across,
                                   .y = (unsigned)down,
                                   .z = (unsigned)(deep < 65535 ? deep : 65535),
                                   .threads = CONV_KERNEL_THREADS};
  FRAME_TRY(frame_get_code(
      frame, kernel_launch(get_tiles(kernel->mode, large, dtype), frame->stream, grid, kernel, &err), &err));
  if (kernel->splits == 1) {
    return diopiSuccess;
  }
  const struct kernel_grid line = {
      .x = kernel_get_blocks(kernel->groups * kernel->rows * kernel->columns, CONV_KERNEL_THREADS),
      .threads = CONV_KERNEL_THREADS};
  return frame_get_code(frame, kernel_launch(KIND_OF_FLOAT(conv_join, dtype), frame->stream, line, kernel, &err), &err);
}

static diopiError_t launch_product(struct conv_call *call, int mode, const struct conv_operands *operands) {
  struct frame *frame = call->frame;
  struct dit_error err = {.message = ""};
  struct conv_kernel kernel = {.bias = operands->bias};
  const int ndim = call->weight.ndim - 2, dtype = call->x.dtype;
  if (operands->c->numel == 0) {
    return diopiSuccess;
  }
  if (!set_shape(&kernel, &call->shape, mode) || !image_set_data(&kernel.a, operands->a, ndim) ||
      !image_set_data(&kernel.b, operands->b, ndim) || !image_set_data(&kernel.c, operands->c, ndim)) {
    return frame_get_code(frame, DIT_ERR_UNSUPPORTED, &err);
  }
  if (kernel.groups == 1 || kernel.in_channels > FEW_CHANNELS || kernel.out_channels > FEW_CHANNELS) {
    return conv_cudnn(call, mode, operands->a, operands->b, operands->c, operands->bias)
               ? diopiSuccess
               : launch_tiles(frame, &kernel, dtype);
  }
  image_set_walk(&kernel.walk, operands->c, ndim);
  struct kernel_grid grid = image_get_grid(&kernel.walk);
  if (mode == CONV_KERNEL_WEIGHT) {
    grid.x = kernel_get_blocks(kernel.walk.numel, 1);
  }
  return frame_get_code(frame, kernel_launch(get_direct(mode, dtype), frame->stream, grid, &kernel, &err), &err);
}

diopiError_t conv_run_forward(struct conv_call *call) {
  struct packed bias;
  FRAME_TRY(packed_read(&bias, call->frame, &call->bias));
  const struct conv_operands operands = {&call->weight, &call->x, &call->out, bias.view.data};
  return launch_product(call, call->transposed ? CONV_KERNEL_INPUT : CONV_KERNEL_FORWARD, &operands);
}

/// The sum over everything but the channels.
static diopiError_t sum_channels(struct conv_call *call) {
  struct dit_error err = {.message = ""};
  struct dit_tensor_view sums = call->grad_bias;
  const int channels = call->out.ndim - (call->weight.ndim - 2) - 1;
  const uint32_t mask = ((1u << call->out.ndim) - 1) & ~(1u << channels);
  int64_t sizes[DIT_MAX_DIMS], strides[DIT_MAX_DIMS];
  for (int dim = 0; dim < call->out.ndim; dim++) {
    sizes[dim] = dim == channels ? call->grad_bias.sizes[0] : 1;
    strides[dim] = dim == channels ? call->grad_bias.strides[0] : 0;
  }
  sums.ndim = call->out.ndim;
  sums.sizes = sizes;
  sums.strides = strides;
  const enum dit_status status = reduce_launch(call->frame->stream, REDUCE_SUM, 0, &sums, &call->out, mask, &err);
  return frame_get_code(call->frame, status, &err);
}

diopiError_t conv_run_backward(struct conv_call *call) {
  if (call->grad_x.handle) {
    const struct conv_operands operands = {&call->weight, &call->out, &call->grad_x, NULL};
    FRAME_TRY(launch_product(call, call->transposed ? CONV_KERNEL_FORWARD : CONV_KERNEL_INPUT, &operands));
  }
  if (call->grad_weight.handle) {
    const struct conv_operands plain = {&call->out, &call->x, &call->grad_weight, NULL};
    const struct conv_operands transposed = {&call->x, &call->out, &call->grad_weight, NULL};
    FRAME_TRY(launch_product(call, CONV_KERNEL_WEIGHT, call->transposed ? &transposed : &plain));
  }
  return call->grad_bias.handle ? sum_channels(call) : diopiSuccess;
}
