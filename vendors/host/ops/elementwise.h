/// The common part of elementwise operators: taking operands, broadcasting, promotion, checks, the way to the engine.
///
///   struct elementwise e;
///   FRAME_TRY(elementwise_begin(&e, __func__, ctx));
///   FRAME_TRY(elementwise_add_output(&e, "out", out));
///   FRAME_TRY(elementwise_add_input(&e, "input", input));
///   FRAME_TRY(elementwise_add_scalar(&e, "other", other));
///   FRAME_TRY(elementwise_check(&e));
///   FRAME_TRY(elementwise_set_type(&e, elementwise_promote(&e), loops));
///   return elementwise_launch(&e);
///
/// out has the shape that the inputs broadcast to. The computation happens in the inputs' common dtype (half types in
/// float); the result is converted to out's dtype where PyTorch allows that.
#ifndef DIT_HOST_OPS_ELEMENTWISE_H
#define DIT_HOST_OPS_ELEMENTWISE_H

#include "engine/pointwise_loops.h"
#include "frame.h"

struct elementwise {
  struct frame frame;
  int outputs, inputs, numbers;
  const char *names[POINTWISE_OPERANDS];
  struct dit_tensor_view views[POINTWISE_OPERANDS];  ///< as given; numbers have handle NULL
  struct dit_scalar scalars[POINTWISE_OPERANDS];     ///< of the numbers, by operand
  struct dit_tensor_view expanded[POINTWISE_OPERANDS];
  int64_t strides[POINTWISE_OPERANDS][DIT_MAX_DIMS];
  struct pointwise run;
};

diopiError_t elementwise_begin(struct elementwise *e, const char *function, diopiContextHandle_t context);
/// Outputs first, then inputs, in the order of the loop's operands.
diopiError_t elementwise_add_output(struct elementwise *e, const char *name, diopiTensorHandle_t handle);
diopiError_t elementwise_add_input(struct elementwise *e, const char *name, diopiConstTensorHandle_t handle);
/// An input that is a number; promotes weakly.
diopiError_t elementwise_add_scalar(struct elementwise *e, const char *name, const diopiScalar_t *scalar);
/// Shapes broadcast to the output's, which is exactly that; no forbidden overlap.
diopiError_t elementwise_check(struct elementwise *e);

/// torch.result_type of the inputs (tensors, 0-d tensors, numbers); -1 where PyTorch has none. A floating type that
/// only a number asks for is the output's, else float32.
int elementwise_promote(const struct elementwise *e);
/// Of the inputs from number `first` on.
int elementwise_promote_from(const struct elementwise *e, int first);
/// The floating type that an integer `compute` becomes (division, exp ...); floating and complex ones stay.
int elementwise_to_float(const struct elementwise *e, int compute);
/// PyTorch's can_cast: not from complex to real, floating to integer, or anything else to bool.
bool elementwise_can_cast(int from, int to);
/// float for half types, else the dtype itself; so the type of the numbers of bfloat16's own loops.
static inline int elementwise_get_work(int compute) {
  return compute == DIT_DTYPE_F16 || compute == DIT_DTYPE_BF16 ? DIT_DTYPE_F32 : compute;
}

/// Everything in the compute type: sets the loop and all work types, stores the numbers among the inputs.
/// diopiDtypeNotSupported when there is no loop or the output cannot take the result.
diopiError_t elementwise_set_type(struct elementwise *e, int compute, loop_table loops);
/// The same with another work type of the output (comparisons: bool).
diopiError_t elementwise_set_types(struct elementwise *e, int result, int compute, loop_table loops);
/// Store a number as the k-th parameter, in `dtype`. Numbers among the inputs take the first ones.
void elementwise_set_number(struct elementwise *e, int index, struct dit_scalar scalar, int dtype);
/// PyTorch keeps numbers in float beside half tensors in some operators and rounds them first in others: these.
void elementwise_set_rounded(struct elementwise *e, int index, struct dit_scalar scalar, int compute, int work);
void elementwise_round_numbers(struct elementwise *e, int compute);
/// All operands that are left are bfloat16 tensors, which were to be computed in float: this loop takes them as they
/// are. Its numbers stay where they are, in float. Nothing happens where the operands are others, or
/// without a loop.
void elementwise_use_bf16(struct elementwise *e, pointwise_loop *loop);
/// The last input, a divisor of integers, has no zero; waits for the stream to look at it.
diopiError_t elementwise_check_divisor(struct elementwise *e);
diopiError_t elementwise_launch(struct elementwise *e);

/// One input, one output: `result` -1: the compute type. In-place when out is input.
diopiError_t elementwise_unary(struct elementwise *e, const char *function, diopiContextHandle_t context,
                               diopiTensorHandle_t out, diopiConstTensorHandle_t input);

#endif
