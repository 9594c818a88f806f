/// The lists of operators written in C. Operators with a function of their own stand here, X(torch name, overload,
/// function); those that map to DIOPI functions in the rows_*.inc files, OP(torch name, overload, function that runs
/// it, DIOPI function without its prefix, target), of which one function runs many. An operator that PyTorch composes
/// itself (CompositeImplicitAutograd) gets no row: a kernel of the device would take its derivative away.
#ifndef DIT_OPS_TABLE_H
#define DIT_OPS_TABLE_H

#include "diopi_call.h"
#include "dit/op.h"

#define OP_LIST(X)                                                          \
  X("aten::add", "Tensor", op_add_tensor)                                   \
  X("aten::add", "Scalar", op_add_scalar)                                   \
  X("aten::add", "out", op_add_out)                                         \
  X("aten::add_", "Tensor", op_add_tensor_inplace)                          \
  X("aten::add_", "Scalar", op_add_scalar_inplace)                          \
  X("aten::sub", "Tensor", op_sub_tensor)                                   \
  X("aten::sub", "Scalar", op_sub_scalar)                                   \
  X("aten::sub", "out", op_sub_out)                                         \
  X("aten::sub_", "Tensor", op_sub_tensor_inplace)                          \
  X("aten::sub_", "Scalar", op_sub_scalar_inplace)                          \
  X("aten::mul", "Tensor", op_mul_tensor)                                   \
  X("aten::mul", "Scalar", op_mul_scalar)                                   \
  X("aten::mul", "out", op_mul_out)                                         \
  X("aten::mul_", "Tensor", op_mul_tensor_inplace)                          \
  X("aten::mul_", "Scalar", op_mul_scalar_inplace)                          \
  X("aten::div", "Tensor", op_div_tensor)                                   \
  X("aten::div", "Scalar", op_div_scalar)                                   \
  X("aten::div", "out", op_div_out)                                         \
  X("aten::div_", "Tensor", op_div_tensor_inplace)                          \
  X("aten::div_", "Scalar", op_div_scalar_inplace)                          \
  X("aten::histc", "", op_histc)                                            \
  X("aten::histc", "out", op_histc_out)                                     \
  X("aten::_thnn_fused_lstm_cell", "", op_lstm_cell)                        \
  X("aten::_thnn_fused_lstm_cell_backward_impl", "", op_lstm_cell_backward) \
  X("aten::_thnn_fused_gru_cell", "", op_gru_cell)                          \
  X("aten::_thnn_fused_gru_cell_backward", "", op_gru_cell_backward)

#define OP_DECLARE(name, overload, function) enum dit_status function(struct dit_call *call);
OP_LIST(OP_DECLARE)
#undef OP_DECLARE

// Every row's function is declared here; several rows may have the same one.
#define OP(name, overload, run, function, target) enum dit_status run(struct dit_call *call);
#include "rows_index.inc"
#include "rows_network.inc"
#include "rows_pointwise.inc"
#include "rows_reduce.inc"
#undef OP

#endif
