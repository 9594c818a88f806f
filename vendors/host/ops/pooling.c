/// The pooling operators in one, two and three dimensions; the work is in pool.c.
///
/// MaxPool: the largest element of each window (a NaN wins), with WithIndices its position in the plane. AvgPool: the
/// sum over the window divided by its size, with count_include_pad by the size with padding, with divisor_override by
/// that number. Adaptive: windows that cut the input into output_size pieces. Pool: the same by `mode` ("max", "avg").
/// Backward: grad_output added to the element that won (by indices), or spread over the window.
#include <string.h>

#include "pool.h"

/// The tensors of a call; those that it does not have are NULL.
struct pool_handles {
  diopiTensorHandle_t out, indices_out, grad_input;
  diopiConstTensorHandle_t input, grad_output, indices;
};

static diopiError_t run_forward(const char *function, diopiContextHandle_t ctx, int ndim, bool max, bool with_indices,
                                const struct pool_handles *handles, const struct pool_lists *lists) {
  struct frame frame;
  struct pool_call call = {.frame = &frame, .ndim = ndim};
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TRY(frame_take(&frame, "out", handles->out, &call.pooled));
  FRAME_TRY(frame_take(&frame, "input", handles->input, &call.x));
  if (with_indices) {
    FRAME_TRY(frame_take(&frame, "indices", handles->indices_out, &call.indices));
  }
  // adaptive maxima exist for floating types alone in PyTorch
  FRAME_TRY(pool_check(&call, "out", lists, lists->adaptive ? DTYPES_FLOAT : max ? POOL_MAX_DTYPES : POOL_MEAN_DTYPES));
  return max ? pool_run_max(&call) : pool_run_mean(&call);
}

static diopiError_t run_backward(const char *function, diopiContextHandle_t ctx, int ndim, bool max,
                                 const struct pool_handles *handles, const struct pool_lists *lists) {
  struct frame frame;
  struct pool_call call = {.frame = &frame, .ndim = ndim};
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TRY(frame_take(&frame, "grad_input", handles->grad_input, &call.grad_x));
  FRAME_TRY(frame_take(&frame, "grad_output", handles->grad_output, &call.pooled));
  FRAME_TRY(frame_take(&frame, "input", handles->input, &call.x));
  if (max) {
    FRAME_TRY(frame_take(&frame, "indices", handles->indices, &call.indices));
  }
  FRAME_TRY(pool_check(&call, "grad_output", lists, DTYPES_FLOAT));
  return max ? pool_run_max_backward(&call) : pool_run_mean_backward(&call);
}

#define WINDOW_LISTS \
  {.kernel = kernel_size, .stride = stride, .padding = padding, .dilation = dilation, .ceil_mode = ceil_mode}
#define AVERAGE_LISTS(number)          \
  {.kernel = kernel_size,              \
   .stride = stride,                   \
   .padding = padding,                 \
   .ceil_mode = ceil_mode,             \
   .count_padding = count_include_pad, \
   .divisor = number}

#define DEFINE_MAX(ndim)                                                                                               \
  diopiError_t diopiMaxPool##ndim##d(diopiContextHandle_t ctx, diopiTensorHandle_t out,                                \
                                     diopiConstTensorHandle_t input, diopiSize_t kernel_size, diopiSize_t stride,      \
                                     diopiSize_t padding, diopiSize_t dilation, bool ceil_mode) {                      \
    const struct pool_lists lists = WINDOW_LISTS;                                                                      \
    const struct pool_handles handles = {.out = out, .input = input};                                                  \
    return run_forward(__func__, ctx, ndim, true, false, &handles, &lists);                                            \
  }                                                                                                                    \
  diopiError_t diopiMaxPool##ndim##dWithIndices(                                                                       \
      diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t indices, diopiConstTensorHandle_t input,  \
      diopiSize_t kernel_size, diopiSize_t stride, diopiSize_t padding, diopiSize_t dilation, bool ceil_mode) {        \
    const struct pool_lists lists = WINDOW_LISTS;                                                                      \
    const struct pool_handles handles = {.out = out, .indices_out = indices, .input = input};                          \
    return run_forward(__func__, ctx, ndim, true, true, &handles, &lists);                                             \
  }                                                                                                                    \
  diopiError_t diopiMaxPool##ndim##dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,                 \
                                             diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,     \
                                             diopiSize_t kernel_size, diopiSize_t stride, diopiSize_t padding,         \
                                             diopiSize_t dilation, bool ceil_mode, diopiConstTensorHandle_t indices) { \
    const struct pool_lists lists = WINDOW_LISTS;                                                                      \
    const struct pool_handles handles = {                                                                              \
        .grad_input = grad_input, .grad_output = grad_output, .input = input, .indices = indices};                     \
    return run_backward(__func__, ctx, ndim, true, &handles, &lists);                                                  \
  }
DEFINE_MAX(1)
DEFINE_MAX(2)
DEFINE_MAX(3)

#define DEFINE_AVERAGE(ndim, number, ...)                                                                          \
  diopiError_t diopiAvgPool##ndim##d(diopiContextHandle_t ctx, diopiTensorHandle_t out,                            \
                                     diopiConstTensorHandle_t input, diopiSize_t kernel_size, diopiSize_t stride,  \
                                     diopiSize_t padding, bool ceil_mode, bool count_include_pad __VA_ARGS__) {    \
    const struct pool_lists lists = AVERAGE_LISTS(number);                                                         \
    const struct pool_handles handles = {.out = out, .input = input};                                              \
    return run_forward(__func__, ctx, ndim, false, false, &handles, &lists);                                       \
  }                                                                                                                \
  diopiError_t diopiAvgPool##ndim##dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,             \
                                             diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input, \
                                             diopiSize_t kernel_size, diopiSize_t stride, diopiSize_t padding,     \
                                             bool ceil_mode, bool count_include_pad __VA_ARGS__) {                 \
    const struct pool_lists lists = AVERAGE_LISTS(number);                                                         \
    const struct pool_handles handles = {.grad_input = grad_input, .grad_output = grad_output, .input = input};    \
    return run_backward(__func__, ctx, ndim, false, &handles, &lists);                                             \
  }
#define COMMA ,
DEFINE_AVERAGE(1, NULL, )
DEFINE_AVERAGE(2, divisor_override, COMMA const int64_t *divisor_override)
DEFINE_AVERAGE(3, divisor_override, COMMA const int64_t *divisor_override)

#define DEFINE_ADAPTIVE(ndim)                                                                                        \
  diopiError_t diopiAdaptiveAvgPool##ndim##d(diopiContextHandle_t ctx, diopiTensorHandle_t out,                      \
                                             diopiConstTensorHandle_t input, diopiSize_t output_size) {              \
    const struct pool_lists lists = {.output_size = output_size, .adaptive = true};                                  \
    const struct pool_handles handles = {.out = out, .input = input};                                                \
    return run_forward(__func__, ctx, ndim, false, false, &handles, &lists);                                         \
  }                                                                                                                  \
  diopiError_t diopiAdaptiveAvgPool##ndim##dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,       \
                                                     diopiConstTensorHandle_t grad_output,                           \
                                                     diopiConstTensorHandle_t input) {                               \
    const struct pool_lists lists = {.adaptive = true};                                                              \
    const struct pool_handles handles = {.grad_input = grad_input, .grad_output = grad_output, .input = input};      \
    return run_backward(__func__, ctx, ndim, false, &handles, &lists);                                               \
  }                                                                                                                  \
  diopiError_t diopiAdaptiveMaxPool##ndim##d(diopiContextHandle_t ctx, diopiTensorHandle_t out,                      \
                                             diopiConstTensorHandle_t input, diopiSize_t output_size) {              \
    const struct pool_lists lists = {.output_size = output_size, .adaptive = true};                                  \
    const struct pool_handles handles = {.out = out, .input = input};                                                \
    return run_forward(__func__, ctx, ndim, true, false, &handles, &lists);                                          \
  }                                                                                                                  \
  diopiError_t diopiAdaptiveMaxPool##ndim##dWithIndices(diopiContextHandle_t ctx, diopiTensorHandle_t out,           \
                                                        diopiTensorHandle_t indices, diopiConstTensorHandle_t input, \
                                                        diopiSize_t output_size) {                                   \
    const struct pool_lists lists = {.output_size = output_size, .adaptive = true};                                  \
    const struct pool_handles handles = {.out = out, .indices_out = indices, .input = input};                        \
    return run_forward(__func__, ctx, ndim, true, true, &handles, &lists);                                           \
  }                                                                                                                  \
  diopiError_t diopiAdaptiveMaxPool##ndim##dBackward(                                                                \
      diopiContextHandle_t ctx, diopiTensorHandle_t grad_input, diopiConstTensorHandle_t grad_output,                \
      diopiConstTensorHandle_t input, diopiConstTensorHandle_t indices) {                                            \
    const struct pool_lists lists = {.adaptive = true};                                                              \
    const struct pool_handles handles = {                                                                            \
        .grad_input = grad_input, .grad_output = grad_output, .input = input, .indices = indices};                   \
    return run_backward(__func__, ctx, ndim, true, &handles, &lists);                                                \
  }
DEFINE_ADAPTIVE(1)
DEFINE_ADAPTIVE(2)
DEFINE_ADAPTIVE(3)

// By mode

/// "max" or "avg"; an argument error otherwise.
static diopiError_t read_mode(const char *function, const char *mode, bool *max) {
  struct frame frame = {.function = function};
  FRAME_CHECK(&frame, mode && (strcmp(mode, "max") == 0 || strcmp(mode, "avg") == 0),
              "'mode' is %s%s%s; valid: \"max\", \"avg\"", mode ? "\"" : "", mode ? mode : "NULL", mode ? "\"" : "");
  *max = mode[0] == 'm';
  return diopiSuccess;
}

/// A list that only the other kind of windows has does not count.
#define MODE_LISTS                                \
  {.kernel = ksize,                               \
   .stride = stride,                              \
   .padding = padding,                            \
   .dilation = max ? dilation : (diopiSize_t){0}, \
   .ceil_mode = ceil_mode,                        \
   .count_padding = !max && !exclusive,           \
   .adaptive = adaptive}

#define DEFINE_MODE(ndim)                                                                                            \
  diopiError_t diopiPool##ndim##d(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input, \
                                  const char *mode, diopiSize_t ksize, diopiSize_t stride, diopiSize_t padding,      \
                                  diopiSize_t dilation, const bool ceil_mode, const bool exclusive,                  \
                                  const bool adaptive, diopiSize_t output_size) {                                    \
    bool max = false;                                                                                                \
    FRAME_TRY(read_mode(__func__, mode, &max));                                                                      \
    struct pool_lists lists = MODE_LISTS;                                                                            \
    const struct pool_handles handles = {.out = out, .input = input};                                                \
    lists.output_size = output_size;                                                                                 \
    return run_forward(__func__, ctx, ndim, max, false, &handles, &lists);                                           \
  }                                                                                                                  \
  diopiError_t diopiPool##ndim##dBackward(                                                                           \
      diopiContextHandle_t ctx, diopiTensorHandle_t grad_input, diopiConstTensorHandle_t grad_output,                \
      diopiConstTensorHandle_t input, const char *mode, diopiSize_t ksize, diopiSize_t stride, diopiSize_t padding,  \
      diopiSize_t dilation, const bool ceil_mode, const bool exclusive, const bool adaptive,                         \
      diopiConstTensorHandle_t indices) {                                                                            \
    bool max = false;                                                                                                \
    FRAME_TRY(read_mode(__func__, mode, &max));                                                                      \
    const struct pool_lists lists = MODE_LISTS;                                                                      \
    const struct pool_handles handles = {                                                                            \
        .grad_input = grad_input, .grad_output = grad_output, .input = input, .indices = indices};                   \
    return run_backward(__func__, ctx, ndim, max, &handles, &lists);                                                 \
  }
DEFINE_MODE(1)
DEFINE_MODE(2)
DEFINE_MODE(3)
