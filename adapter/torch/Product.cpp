// Matrix products whose result is wider than their arguments: mm, bmm, addmm and baddbmm with out_dtype.
//
// PyTorch has them for CUDA alone, so neither a CPU kernel nor a composition exists to fall back to. float16 and
// bfloat16 matrices may be multiplied into float32: they are widened, which loses nothing, and multiplied there.
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

#include "Common.h"

namespace ditorch {
namespace {

using at::Scalar;
using at::ScalarType;
using at::Tensor;

// The rules of CUDA, in its words.
void checkDtypes(const Tensor &a, const Tensor &b, ScalarType out_dtype) {
  const ScalarType dtype = a.scalar_type();
  TORCH_CHECK(dtype == b.scalar_type(), "input dtypes must be the same");
  TORCH_CHECK(out_dtype == dtype ||
                  (out_dtype == ScalarType::Float && (dtype == ScalarType::Half || dtype == ScalarType::BFloat16)),
              "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
}

void checkSum(const Tensor &self, ScalarType out_dtype) {
  TORCH_CHECK(self.scalar_type() == out_dtype, "self dtype must match out_dtype");
}

void checkOut(const Tensor &out, ScalarType out_dtype) {
  TORCH_CHECK(out.scalar_type() == out_dtype, "out_dtype must be the same as the dtype of the provided out tensor");
}

Tensor &multiplyOut(const Tensor &self, const Tensor &mat2, ScalarType out_dtype, Tensor &out) {
  checkDtypes(self, mat2, out_dtype);
  checkOut(out, out_dtype);
  return at::mm_out(out, self.to(out_dtype), mat2.to(out_dtype));
}

Tensor multiply(const Tensor &self, const Tensor &mat2, ScalarType out_dtype) {
  checkDtypes(self, mat2, out_dtype);
  return at::mm(self.to(out_dtype), mat2.to(out_dtype));
}

Tensor &multiplyBatchOut(const Tensor &self, const Tensor &mat2, ScalarType out_dtype, Tensor &out) {
  checkDtypes(self, mat2, out_dtype);
  checkOut(out, out_dtype);
  return at::bmm_out(out, self.to(out_dtype), mat2.to(out_dtype));
}

Tensor multiplyBatch(const Tensor &self, const Tensor &mat2, ScalarType out_dtype) {
  checkDtypes(self, mat2, out_dtype);
  return at::bmm(self.to(out_dtype), mat2.to(out_dtype));
}

Tensor &addProductOut(const Tensor &self, const Tensor &mat1, const Tensor &mat2, ScalarType out_dtype,
                      const Scalar &beta, const Scalar &alpha, Tensor &out) {
  checkDtypes(mat1, mat2, out_dtype);
  checkSum(self, out_dtype);
  checkOut(out, out_dtype);
  return at::addmm_out(out, self, mat1.to(out_dtype), mat2.to(out_dtype), beta, alpha);
}

Tensor addProduct(const Tensor &self, const Tensor &mat1, const Tensor &mat2, ScalarType out_dtype, const Scalar &beta,
                  const Scalar &alpha) {
  checkDtypes(mat1, mat2, out_dtype);
  checkSum(self, out_dtype);
  return at::addmm(self, mat1.to(out_dtype), mat2.to(out_dtype), beta, alpha);
}

Tensor &addBatchProductOut(const Tensor &self, const Tensor &batch1, const Tensor &batch2, ScalarType out_dtype,
                           const Scalar &beta, const Scalar &alpha, Tensor &out) {
  checkDtypes(batch1, batch2, out_dtype);
  checkSum(self, out_dtype);
  checkOut(out, out_dtype);
  return at::baddbmm_out(out, self, batch1.to(out_dtype), batch2.to(out_dtype), beta, alpha);
}

Tensor addBatchProduct(const Tensor &self, const Tensor &batch1, const Tensor &batch2, ScalarType out_dtype,
                       const Scalar &beta, const Scalar &alpha) {
  checkDtypes(batch1, batch2, out_dtype);
  checkSum(self, out_dtype);
  return at::baddbmm(self, batch1.to(out_dtype), batch2.to(out_dtype), beta, alpha);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mm.dtype", &multiply);
  m.impl("mm.dtype_out", &multiplyOut);
  m.impl("bmm.dtype", &multiplyBatch);
  m.impl("bmm.dtype_out", &multiplyBatchOut);
  m.impl("addmm.dtype", &addProduct);
  m.impl("addmm.dtype_out", &addProductOut);
  m.impl("baddbmm.dtype", &addBatchProduct);
  m.impl("baddbmm.dtype_out", &addBatchProductOut);
}

}  // namespace
}  // namespace ditorch
