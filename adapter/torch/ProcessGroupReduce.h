// The arithmetic of all_reduce, reduce and reduce_scatter.
//
// Gloo reduces a few dtypes with a few operations. Everything else is brought into its reach: half precisions and
// float8 are summed in float32 and rounded once, narrow integers in wider ones, complex numbers as pairs, booleans as
// bytes; AVG divides the sum (integers towards zero), PREMUL_SUM multiplies first. Ranks that reduce the same tensors
// get the same bits.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "ProcessGroupBuffer.h"

namespace ditorch {

class Reduction {
 public:
  // Throws for what NCCL refuses too: AVG of booleans, MIN, MAX, PRODUCT and bit operations on complex numbers, bit
  // operations on floating point.
  Reduction(const c10d::ReduceOp &op, at::ScalarType dtype, int size, const char *what);

  // One contribution, ready to be reduced. It is the memory of `elements` itself where nothing has to change; with
  // `keep`, never.
  at::Tensor prepare(const at::Tensor &elements, bool keep) const;
  // The operation that gloo, or combine(), performs on prepared contributions.
  c10d::ReduceOp::RedOpType inner() const { return inner_; }
  void combine(at::Tensor &total, const at::Tensor &other) const;
  // Finish the total of all ranks and write it to `elements` (which may be the memory it is in).
  void conclude(at::Tensor total, const at::Tensor &elements) const;

 private:
  double getFactor() const;

  c10d::ReduceOp::RedOpType op_;
  c10d::ReduceOp::RedOpType inner_;
  at::ScalarType element_;  // of the elements as seen here: real numbers for complex tensors, bytes for booleans
  at::ScalarType wide_;     // of prepared contributions
  int size_;
  int per_element_ = 1;     // numbers per element of the tensor
  bool flip_sign_ = false;  // order of uint64 in int64
  double factor_ = 1;
  Buffer tensor_factor_;
};

}  // namespace ditorch
