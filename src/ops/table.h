/// The one list of operators written in C: X(torch name, overload, function). Order is the order of dit_op_get_table.
#ifndef DIT_OPS_TABLE_H
#define DIT_OPS_TABLE_H

#include "dit/op.h"

#define OP_LIST(X)                                                  \
  X("aten::add", "Tensor", op_add_tensor)                           \
  X("aten::add", "Scalar", op_add_scalar)                           \
  X("aten::add", "out", op_add_out)                                 \
  X("aten::add_", "Tensor", op_add_tensor_inplace)                  \
  X("aten::add_", "Scalar", op_add_scalar_inplace)                  \
  X("aten::sub", "Tensor", op_sub_tensor)                           \
  X("aten::sub", "Scalar", op_sub_scalar)                           \
  X("aten::sub", "out", op_sub_out)                                 \
  X("aten::sub_", "Tensor", op_sub_tensor_inplace)                  \
  X("aten::sub_", "Scalar", op_sub_scalar_inplace)                  \
  X("aten::mul", "Tensor", op_mul_tensor)                           \
  X("aten::mul", "Scalar", op_mul_scalar)                           \
  X("aten::mul", "out", op_mul_out)                                 \
  X("aten::mul_", "Tensor", op_mul_tensor_inplace)                  \
  X("aten::mul_", "Scalar", op_mul_scalar_inplace)                  \
  X("aten::div", "Tensor", op_div_tensor)                           \
  X("aten::div", "Scalar", op_div_scalar)                           \
  X("aten::div", "out", op_div_out)                                 \
  X("aten::div_", "Tensor", op_div_tensor_inplace)                  \
  X("aten::div_", "Scalar", op_div_scalar_inplace)                  \
  X("aten::fill_", "Scalar", op_fill_scalar)                        \
  X("aten::fill_", "Tensor", op_fill_tensor)                        \
  X("aten::zero_", "", op_zero)

#define OP_DECLARE(name, overload, function) enum dit_status function(struct dit_call *call);
OP_LIST(OP_DECLARE)
#undef OP_DECLARE

#endif
