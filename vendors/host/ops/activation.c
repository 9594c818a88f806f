/// Activations and their gradients.
///
/// out[i] = f(input[i]); the gradients are grad_output[i] * f'(input[i]), or written in f's result where the parameter
/// is called output. Shapes are equal; the dtype is input's, half types compute in float. Out may be an input.
///
///   relu max(x, 0)                     hardtanh  clamp(x, min, max)       leaky relu  x > 0 ? x : slope * x
///   threshold  x > t ? x : value       hardswish x * clamp(x + 3, 0, 6) / 6      silu x * sigmoid(x)
///   gelu 0.5 x (1 + erf(x / sqrt 2)), or 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
#include <complex.h>
#include <math.h>
#include <string.h>

#include "elementwise.h"

// after the macros that it is written in
#include "activation_expressions.h"

/// Numbers that the loops find at the first parameters, in the work type.
struct numbers {
  const char *names[2];
  const diopiScalar_t *scalars[2];
  int count;
};
static const struct numbers no_numbers;
#define ONE_NUMBER(a) (&(struct numbers){{#a}, {a}, 1})
#define TWO_NUMBERS(a, b) (&(struct numbers){{#a, #b}, {a, b}, 2})

static diopiError_t set_numbers(struct elementwise *e, const struct numbers *numbers) {
  for (int i = 0; i < numbers->count; i++) {
    struct dit_scalar scalar;
    FRAME_TRY(frame_get_scalar(&e->frame, numbers->names[i], numbers->scalars[i], &scalar));
    elementwise_set_number(e, i, scalar, elementwise_get_work(e->run.work[0]));
  }
  return diopiSuccess;
}

enum result { RESULT_SAME, RESULT_FLOAT };
static diopiError_t run_forward(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                diopiConstTensorHandle_t input, enum result kind, const struct numbers *numbers,
                                loop_table loops) {
  struct elementwise e;
  FRAME_TRY(elementwise_unary(&e, function, ctx, out, input));
  const int dtype = e.views[1].dtype;
  FRAME_TRY(elementwise_set_type(&e, kind == RESULT_FLOAT ? elementwise_to_float(&e, dtype) : dtype, loops));
  FRAME_TRY(set_numbers(&e, numbers));
  return elementwise_launch(&e);
}

static diopiError_t run_backward(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                 diopiConstTensorHandle_t grad_output, const char *name, diopiConstTensorHandle_t saved,
                                 const struct numbers *numbers, loop_table loops) {
  struct elementwise e;
  FRAME_TRY(elementwise_begin(&e, function, ctx));
  FRAME_TRY(elementwise_add_output(&e, "grad_input", grad_input));
  FRAME_TRY(elementwise_add_input(&e, "grad_output", grad_output));
  FRAME_TRY(elementwise_add_input(&e, name, saved));
  FRAME_TRY(elementwise_check(&e));
  FRAME_TRY(elementwise_set_type(&e, elementwise_promote(&e), loops));
  FRAME_TRY(set_numbers(&e, numbers));
  return elementwise_launch(&e);
}

static loop_table relu_loops = {ROWS_INT(relu_loop), ROWS_FLOAT(relu_loop), [DIT_DTYPE_BF16] = relu_loop_bf16};
static loop_table hardtanh_loops = {ROWS_INT(hardtanh), ROWS_FLOAT(hardtanh), [DIT_DTYPE_BF16] = hardtanh_bf16};
static loop_table hardtanh_grad_loops = {ROWS_FLOAT(hardtanh_grad)};
static loop_table hardswish_loops = {ROWS_FLOAT(hardswish)};
static loop_table hardswish_grad_loops = {ROWS_FLOAT(hardswish_grad)};
static loop_table threshold_loops = {ROWS_INT(threshold), ROWS_FLOAT(threshold)};
static loop_table threshold_grad_loops = {ROWS_INT(threshold_grad), ROWS_FLOAT(threshold_grad)};
static loop_table gelu_loops[2] = {{ROWS_FLOAT(gelu_loop), [DIT_DTYPE_BF16] = gelu_loop_bf16},
                                   {ROWS_FLOAT(gelu_tanh_loop), [DIT_DTYPE_BF16] = gelu_tanh_loop_bf16}};
static loop_table gelu_grad_loops[2] = {{ROWS_FLOAT(gelu_grad)}, {ROWS_FLOAT(gelu_tanh_grad)}};
static loop_table leaky_loops = {ROWS_FLOAT(leaky), [DIT_DTYPE_BF16] = leaky_bf16};
static loop_table leaky_grad_loops = {ROWS_FLOAT(leaky_grad)};
static loop_table tanh_loops = {ROWS_FLOAT(tanh_loop), ROWS_COMPLEX(tanh_loop), [DIT_DTYPE_BF16] = tanh_loop_bf16};
static loop_table tanh_grad_loops = {ROWS_FLOAT(tanh_grad), ROWS_COMPLEX(tanh_grad)};
static loop_table sigmoid_loops = {ROWS_FLOAT(sigmoid_loop),
                                   ROWS_COMPLEX(sigmoid_loop), [DIT_DTYPE_BF16] = sigmoid_loop_bf16};
static loop_table sigmoid_grad_loops = {ROWS_FLOAT(sigmoid_grad), ROWS_COMPLEX(sigmoid_grad)};
static loop_table silu_loops = {ROWS_FLOAT(silu), ROWS_COMPLEX(silu), [DIT_DTYPE_BF16] = silu_bf16};
static loop_table silu_grad_loops = {ROWS_FLOAT(silu_grad), ROWS_COMPLEX(silu_grad)};

#define DEFINE(Name, kind, loops)                                                                               \
  diopiError_t diopi##Name(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input) { \
    return run_forward(__func__, ctx, out, input, kind, &no_numbers, loops);                                    \
  }                                                                                                             \
  diopiError_t diopi##Name##Inp(diopiContextHandle_t ctx, diopiTensorHandle_t input) {                          \
    return run_forward(__func__, ctx, input, input, kind, &no_numbers, loops);                                  \
  }
#define DEFINE_BACKWARD(Name, saved, loops)                                                                  \
  diopiError_t diopi##Name##Backward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,               \
                                     diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t saved) { \
    return run_backward(__func__, ctx, grad_input, grad_output, #saved, saved, &no_numbers, loops);          \
  }
DEFINE(Relu, RESULT_SAME, relu_loops)
DEFINE(Hardswish, RESULT_SAME, hardswish_loops)
DEFINE_BACKWARD(Hardswish, input, hardswish_grad_loops)
DEFINE(Tanh, RESULT_FLOAT, tanh_loops)
DEFINE_BACKWARD(Tanh, output, tanh_grad_loops)
DEFINE(Sigmoid, RESULT_FLOAT, sigmoid_loops)
DEFINE_BACKWARD(Sigmoid, output, sigmoid_grad_loops)
DEFINE(Silu, RESULT_SAME, silu_loops)
DEFINE_BACKWARD(Silu, input, silu_grad_loops)

diopiError_t diopiHardtanh(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                           const diopiScalar_t *min_val, const diopiScalar_t *max_val) {
  return run_forward(__func__, ctx, out, input, RESULT_SAME, TWO_NUMBERS(min_val, max_val), hardtanh_loops);
}
diopiError_t diopiHardtanhInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, const diopiScalar_t *min_val,
                              const diopiScalar_t *max_val) {
  return run_forward(__func__, ctx, input, input, RESULT_SAME, TWO_NUMBERS(min_val, max_val), hardtanh_loops);
}
diopiError_t diopiHardtanhBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                   diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                   const diopiScalar_t *min_val, const diopiScalar_t *max_val) {
  return run_backward(__func__, ctx, grad_input, grad_output, "input", input, TWO_NUMBERS(min_val, max_val),
                      hardtanh_grad_loops);
}

diopiError_t diopiThreshold(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                            const diopiScalar_t *threshold, const diopiScalar_t *value) {
  return run_forward(__func__, ctx, out, input, RESULT_SAME, TWO_NUMBERS(threshold, value), threshold_loops);
}
diopiError_t diopiThresholdInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, const diopiScalar_t *threshold,
                               const diopiScalar_t *value) {
  return run_forward(__func__, ctx, input, input, RESULT_SAME, TWO_NUMBERS(threshold, value), threshold_loops);
}
diopiError_t diopiThresholdBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                    diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                    const diopiScalar_t *threshold) {
  return run_backward(__func__, ctx, grad_input, grad_output, "input", input, ONE_NUMBER(threshold),
                      threshold_grad_loops);
}

diopiError_t diopiLeakyRelu(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                            const diopiScalar_t *negative_slope) {
  return run_forward(__func__, ctx, out, input, RESULT_SAME, ONE_NUMBER(negative_slope), leaky_loops);
}
diopiError_t diopiLeakyReluInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                               const diopiScalar_t *negative_slope) {
  return run_forward(__func__, ctx, input, input, RESULT_SAME, ONE_NUMBER(negative_slope), leaky_loops);
}
diopiError_t diopiLeakyReluBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                    diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                    const diopiScalar_t *negative_slope, bool input_is_result) {
  struct frame frame;
  struct dit_scalar slope;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TRY(frame_get_scalar(&frame, "negative_slope", negative_slope, &slope));
  FRAME_CHECK(&frame, !input_is_result || frame_scalar_to_double(slope) >= 0,
              "'negative_slope' is %g with input_is_result; a negative one cannot be undone",
              frame_scalar_to_double(slope));
  return run_backward(__func__, ctx, grad_input, grad_output, "input", input, ONE_NUMBER(negative_slope),
                      leaky_grad_loops);
}

/// 0 for "none", 1 for "tanh"; -1 for anything else. NULL is "none".
static int find_approximation(const char *approximate) {
  return !approximate || strcmp(approximate, "none") == 0 ? 0 : strcmp(approximate, "tanh") == 0 ? 1 : -1;
}

diopiError_t diopiGelu(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                       const char *approximate) {
  struct frame frame;
  const int kind = find_approximation(approximate);
  FRAME_BEGIN(&frame, ctx);
  FRAME_CHECK(&frame, kind >= 0, "'approximate' is \"%.32s\"; valid: \"none\", \"tanh\"", approximate);
  return run_forward(__func__, ctx, out, input, RESULT_SAME, &no_numbers, gelu_loops[kind]);
}
diopiError_t diopiGeluBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                               diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                               const char *approximate) {
  struct frame frame;
  const int kind = find_approximation(approximate);
  FRAME_BEGIN(&frame, ctx);
  FRAME_CHECK(&frame, kind >= 0, "'approximate' is \"%.32s\"; valid: \"none\", \"tanh\"", approximate);
  return run_backward(__func__, ctx, grad_input, grad_output, "input", input, &no_numbers, gelu_grad_loops[kind]);
}
