#include "Widen.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fft_fft2_native.h>
#include <ATen/ops/fft_fft_native.h>
#include <ATen/ops/fft_fftn_native.h>
#include <ATen/ops/fft_hfft2_native.h>
#include <ATen/ops/fft_hfft_native.h>
#include <ATen/ops/fft_hfftn_native.h>
#include <ATen/ops/fft_ifft2_native.h>
#include <ATen/ops/fft_ifft_native.h>
#include <ATen/ops/fft_ifftn_native.h>
#include <ATen/ops/fft_ihfft2_native.h>
#include <ATen/ops/fft_ihfft_native.h>
#include <ATen/ops/fft_ihfftn_native.h>
#include <ATen/ops/fft_irfft2_native.h>
#include <ATen/ops/fft_irfft_native.h>
#include <ATen/ops/fft_irfftn_native.h>
#include <ATen/ops/fft_rfft2_native.h>
#include <ATen/ops/fft_rfft_native.h>
#include <ATen/ops/fft_rfftn_native.h>
#include <torch/library.h>

namespace ditorch {
namespace {

using c10::IValue;
using torch::jit::Stack;

bool isHalf(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 || type == at::kComplexHalf;
}

bool isHalfTensor(const at::Tensor &tensor) {
  return tensor.defined() && tensor.device().type() == kDevice && isHalf(tensor.scalar_type());
}

at::Tensor narrow(const at::Tensor &tensor, at::ScalarType half) {
  if (tensor.scalar_type() == at::kComplexFloat && half != at::kBFloat16) {
    return tensor.to(at::kComplexHalf);
  }
  const at::ScalarType real = half == at::kComplexHalf ? at::kHalf : half;
  return tensor.scalar_type() == at::kFloat ? tensor.to(real) : tensor;
}

// The tensors of one call: those of half types and their float32 copies.
class Copies {
 public:
  at::Tensor widen(const at::Tensor &tensor) {
    if (!isHalfTensor(tensor)) {
      return tensor;
    }
    for (const auto &[half, wide] : pairs_) {
      if (half.is_same(tensor)) {
        return wide;
      }
    }
    if (pairs_.empty()) {
      type_ = tensor.scalar_type();
    }
    pairs_.emplace_back(tensor, tensor.to(tensor.is_complex() ? at::kComplexFloat : at::kFloat));
    return pairs_.back().second;
  }

  // What the operator wrote into a copy goes into the argument.
  void writeBack(const at::Tensor &tensor) const {
    for (const auto &[half, wide] : pairs_) {
      if (half.is_same(tensor)) {
        if (half.sizes() != wide.sizes()) {
          half.resize_(wide.sizes());
        }
        half.copy_(wide);
      }
    }
  }

  at::Tensor takeBack(const at::Tensor &result, bool rounds) const {
    for (const auto &[half, wide] : pairs_) {
      if (wide.is_same(result)) {
        return half;
      }
    }
    return rounds && result.defined() ? narrow(result, type_) : result;
  }

 private:
  at::ScalarType type_ = at::kHalf;
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 4> pairs_;
};

void widenArgument(Copies &copies, IValue &value) {
  if (value.isTensor()) {
    value = copies.widen(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor &tensor : value.toTensorVector()) {
      list.push_back(copies.widen(tensor));
    }
    value = std::move(list);
  }
}

// A result's dtype that the caller asked for stays.
bool asksForDtype(const c10::OperatorHandle &handle, const std::vector<IValue> &args) {
  const auto &schema = handle.schema().arguments();
  for (size_t i = 0; i < schema.size(); i++) {
    if (schema[i].name() == "dtype" && !args[i].isNone()) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool hasHalf(const Operator &op, const IValue *args) {
  for (size_t i = 0; i < op.nargs; i++) {
    if (args[i].isTensor() && isHalfTensor(args[i].toTensor())) {
      return true;
    }
    if (args[i].isTensorList()) {
      for (const IValue &element : args[i].toListRef()) {
        if (isHalfTensor(element.toTensor())) {
          return true;
        }
      }
    }
  }
  return false;
}

bool isRoughInHalf(const Operator &op) {
  for (const char *family : {"aten::grid_sampler_", "aten::_fft_"}) {
    if (op.name.rfind(family, 0) == 0) {
      return true;
    }
  }
  return false;
}

void runWidened(const Operator &op, const c10::OperatorHandle &handle, Stack *stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  IValue *args = stack->data() + (stack->size() - op.nargs);
  const std::vector<IValue> given(args, args + op.nargs);
  Copies copies;
  for (size_t i = 0; i < op.nargs; i++) {
    widenArgument(copies, args[i]);
  }
  handle.redispatchBoxed(kDeviceKeys, stack);
  for (size_t i = 0; i < op.nargs; i++) {
    if (op.isWritten(i) && given[i].isTensor()) {
      copies.writeBack(given[i].toTensor());
    }
  }
  const bool rounds = !asksForDtype(handle, given);
  IValue *rets = stack->data() + (stack->size() - op.nrets);
  for (size_t i = 0; i < op.nrets; i++) {
    if (rets[i].isTensor()) {
      rets[i] = copies.takeBack(rets[i].toTensor(), rounds);
    } else if (rets[i].isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor &tensor : rets[i].toTensorVector()) {
        list.push_back(copies.takeBack(tensor, rounds));
      }
      rets[i] = std::move(list);
    }
  }
}

// torch.fft of float16: PyTorch's composite functions refuse it on all devices but CUDA

namespace {

template <auto kNative>
struct Fourier;

template <typename... Arguments, at::Tensor (*kNative)(const at::Tensor &, Arguments...)>
struct Fourier<kNative> {
  static at::Tensor run(const at::Tensor &self, Arguments... arguments) {
    if (self.scalar_type() != at::kHalf) {
      return kNative(self, arguments...);
    }
    return narrow(kNative(self.to(at::kFloat), arguments...), at::kHalf);
  }
};

// The forms with out=: PyTorch's function says what it takes by a wide stand-in for `out`.
template <auto kNative>
struct FourierOut;

template <typename Out, typename... Arguments, Out (*kNative)(const at::Tensor &, Arguments...)>
struct FourierOut<kNative> {
  static Out run(const at::Tensor &self, Arguments... arguments) {
    Out out = std::get<sizeof...(Arguments) - 1>(std::forward_as_tuple(arguments...));
    if (self.scalar_type() != at::kHalf) {
      return kNative(self, arguments...);
    }
    return runWide(self, out, std::forward_as_tuple(arguments...),
                   std::make_index_sequence<sizeof...(Arguments) - 1>());
  }

  template <typename Given, size_t... kIndex>
  static Out runWide(const at::Tensor &self, Out out, const Given &given, std::index_sequence<kIndex...>) {
    const bool is_half = isHalf(out.scalar_type());
    const auto type = !is_half ? out.scalar_type() : out.is_complex() ? at::kComplexFloat : at::kFloat;
    at::Tensor wide = at::empty({0}, out.options().dtype(type));
    kNative(self.to(at::kFloat), std::get<kIndex>(given)..., wide);
    at::native::resize_output(out, wide.sizes());
    out.copy_(wide);
    return out;
  }
};

// clang-format off
#define DIT_FOURIER(X)                                                                             \
  X(fft_fft) X(fft_ifft) X(fft_rfft) X(fft_irfft) X(fft_hfft) X(fft_ihfft)                         \
  X(fft_fft2) X(fft_ifft2) X(fft_rfft2) X(fft_irfft2) X(fft_hfft2) X(fft_ihfft2)                   \
  X(fft_fftn) X(fft_ifftn) X(fft_rfftn) X(fft_irfftn) X(fft_hfftn) X(fft_ihfftn)
// clang-format on
#define DIT_IMPL(name) m.impl(#name, &Fourier<&at::native::name##_symint>::run);
#define DIT_IMPL_OUT(name) m.impl(#name ".out", &FourierOut<&at::native::name##_symint_out>::run);

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  DIT_FOURIER(DIT_IMPL);
  DIT_FOURIER(DIT_IMPL_OUT);
}
// Both conversions are differentiable, so the whole is.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  DIT_FOURIER(DIT_IMPL);
  DIT_FOURIER(DIT_IMPL_OUT);
}

}  // namespace
}  // namespace ditorch
