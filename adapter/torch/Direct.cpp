// Hot operators without boxing.
//
// A boxed call copies every tensor into an IValue. While Python holds the tensor, each copy's first and last reference
// take the interpreter's lock (c10::TensorImpl::incref_pyobject), which costs a small operator a fifth of its time and
// a list of tensors more. A typed kernel fills struct dit_call from references. Whenever something unusual is on
// (faults, controls), or C does not take the call, the arguments are boxed and go through the door.
#include "Direct.h"

#include <ATen/Operators.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/boxing/impl/boxing.h>

#include <unordered_map>

#include "Call.h"
#include "Controls.h"
#include "dit/fault.h"

namespace ditorch {
namespace {

// Arguments

void putNone(dit_value &out) {
  out.tag = DIT_VALUE_NONE;
}

bool put(dit_value &out, const at::Tensor &tensor, CallState &) {
  if (!tensor.defined()) {
    putNone(out);
    return true;
  }
  out.tag = DIT_VALUE_TENSOR;
  fillView(out.v.tensor, tensor);
  return C10_LIKELY(isPlain(tensor));
}

bool put(dit_value &out, int64_t value, CallState &) {
  out.tag = DIT_VALUE_INT;
  out.v.i = value;
  return true;
}

bool put(dit_value &out, double value, CallState &) {
  out.tag = DIT_VALUE_DOUBLE;
  out.v.d = value;
  return true;
}

bool put(dit_value &out, bool value, CallState &) {
  out.tag = DIT_VALUE_BOOL;
  out.v.i = value;
  return true;
}

bool put(dit_value &out, c10::ScalarType value, CallState &state) {
  return put(out, static_cast<int64_t>(value), state);
}

bool put(dit_value &out, const at::Scalar &value, CallState &state) {
  if (value.isFloatingPoint()) {
    return put(out, value.toDouble(), state);
  }
  if (value.isBoolean()) {
    return put(out, value.toBool(), state);
  }
  if (value.isComplex()) {
    const auto number = value.toComplexDouble();
    out.tag = DIT_VALUE_COMPLEX;
    out.v.complex = {number.real(), number.imag()};
    return true;
  }
  return !value.isSymbolic() && value.isIntegral(false) && put(out, value.toLong(), state);
}

bool put(dit_value &out, c10::IntArrayRef list, CallState &) {
  out.tag = DIT_VALUE_INTS;
  out.v.ints = {list.data(), static_cast<int64_t>(list.size())};
  return true;
}

bool put(dit_value &out, c10::SymIntArrayRef list, CallState &state) {
  const auto ints = c10::asIntArrayRefSlowOpt(list);
  return ints.has_value() && put(out, *ints, state);
}

bool put(dit_value &out, const c10::SymInt &value, CallState &state) {
  const auto number = value.maybe_as_int();
  return number.has_value() && put(out, *number, state);
}

bool put(dit_value &out, at::OptionalIntArrayRef list, CallState &state) {
  if (list.has_value()) {
    return put(out, *list, state);
  }
  putNone(out);
  return true;
}

template <size_t kCount>
bool put(dit_value &out, const std::array<bool, kCount> &flags, CallState &state) {
  return put(out, c10::IntArrayRef(state.int_lists.emplace_back(flags.begin(), flags.end())), state);
}

// C wants the end marked; one text per call is all that hot operators have.
bool put(dit_value &out, c10::string_view text, CallState &state) {
  if (!state.text.empty()) {
    return false;
  }
  state.text.assign(text.data(), text.size());
  out.tag = DIT_VALUE_STRING;
  out.v.string = state.text.c_str();
  return true;
}

template <typename List>
bool putTensors(dit_value &out, const List &list, CallState &state) {
  auto &views = state.tensor_lists.emplace_back(list.size());
  size_t i = 0;
  for (const at::Tensor &tensor : list) {
    dit_tensor_view &view = views[i++];
    if (!tensor.defined()) {
      continue;  // the views are zeroed: no handle
    }
    if (C10_UNLIKELY(!isPlain(tensor))) {
      return false;
    }
    fillView(view, tensor);
  }
  out.tag = DIT_VALUE_TENSORS;
  out.v.tensors = {views.data(), static_cast<int64_t>(views.size())};
  return true;
}
bool put(dit_value &out, at::TensorList list, CallState &state) {
  return putTensors(out, list, state);
}
bool put(dit_value &out, const at::ITensorListRef &list, CallState &state) {
  return putTensors(out, list, state);
}

template <typename T>
bool put(dit_value &out, const std::optional<T> &value, CallState &state) {
  if (value.has_value()) {
    return put(out, *value, state);
  }
  putNone(out);
  return true;
}

// Results

template <typename Result>
struct Take;

template <>
struct Take<at::Tensor> {
  template <typename... Arguments>
  static at::Tensor get(const dit_value *rets, CallState &state, Arguments &...) {
    return takeTensor(rets[0], state);
  }
};

// The argument that the operator writes to.
inline at::Tensor *findWritten() {
  return nullptr;
}
template <typename First, typename... Others>
at::Tensor *findWritten(First &first, Others &...others) {
  if constexpr (std::is_same_v<First, at::Tensor>) {
    return &first;
  } else {
    return findWritten(others...);
  }
}
template <>
struct Take<at::Tensor &> {
  template <typename... Arguments>
  static at::Tensor &get(const dit_value *, CallState &, Arguments &...arguments) {
    return *findWritten(arguments...);
  }
};

template <typename... Results>
struct Take<std::tuple<Results...>> {
  template <typename... Arguments>
  static std::tuple<Results...> get(const dit_value *rets, CallState &state, Arguments &...) {
    return collect(rets, state, std::index_sequence_for<Results...>());
  }
  template <size_t... kIndices>
  static std::tuple<Results...> collect(const dit_value *rets, CallState &state, std::index_sequence<kIndices...>) {
    return std::tuple<Results...>(takeTensor(rets[kIndices], state)...);
  }
};

template <>
struct Take<std::vector<at::Tensor>> {
  template <typename... Arguments>
  static std::vector<at::Tensor> get(const dit_value *rets, CallState &, Arguments &...) {
    return takeTensors(rets[0]);
  }
};

template <>
struct Take<void> {
  template <typename... Arguments>
  static void get(const dit_value *, CallState &, Arguments &...) {}
};

template <>
struct Take<bool> {
  template <typename... Arguments>
  static bool get(const dit_value *rets, CallState &, Arguments &...) {
    return rets[0].v.i != 0;
  }
};

// The kernel

template <typename T>
void countVersions(const T &) {}
inline void countVersions(const at::TensorList &list) {
  for (const at::Tensor &tensor : list) {
    countVersion(tensor);
  }
}

template <typename Schema>
class Direct;

template <typename Result, typename... Arguments>
class Direct<Result(Arguments...)> final : public c10::OperatorKernel {
 public:
  Direct(const c10::OperatorHandle &handle, c10::BoxedKernel whole, c10::BoxedKernel rest)
      : op_(handle), handle_(handle), whole_(std::move(whole)), rest_(std::move(rest)) {}

  Result operator()(Arguments... arguments) {
    bool tried = false;
    if (C10_LIKELY(!dit_fault_is_active() && !controls::isActive())) {
      dit_value args[sizeof...(Arguments)];
      dit_value rets[DIT_MAX_RETS];
      CallState state;
      size_t next = 0;
      tried = (put(args[next++], arguments, state) && ...);
      if (C10_LIKELY(tried && callC(op_, args, rets, state))) {
        if (C10_UNLIKELY(op_.written_list >= 0)) {
          int index = 0;
          ((index++ == op_.written_list ? countVersions(arguments) : void()), ...);
        }
        return Take<Result>::get(rets, state, arguments...);
      }
    }
    return c10::impl::BoxedKernelWrapper<Result(Arguments...)>::call(tried ? rest_ : whole_, handle_, kDeviceKeys,
                                                                     std::forward<Arguments>(arguments)...);
  }

 private:
  Operator op_;
  c10::OperatorHandle handle_;
  c10::BoxedKernel whole_, rest_;
};

template <typename Schema>
c10::KernelFunction makeKernel(const c10::OperatorHandle &handle, const c10::BoxedKernel &whole,
                               const c10::BoxedKernel &rest) {
  return c10::KernelFunction::makeFromUnboxedFunctor<false, Direct<Schema>>(
      std::make_unique<Direct<Schema>>(handle, whole, rest));
}

struct Hot {
  c10::KernelFunction (*make)(const c10::OperatorHandle &, const c10::BoxedKernel &, const c10::BoxedKernel &);
  c10::impl::CppSignature signature;
};

template <typename Op>
std::pair<const std::string, Hot> describe() {
  const std::string overload = Op::overload_name;
  return {overload.empty() ? std::string(Op::name) : Op::name + ("." + overload),
          {&makeKernel<typename Op::schema>, c10::impl::CppSignature::make<typename Op::schema>()}};
}

const std::unordered_map<std::string, Hot> &hotOperators() {
#define HOT(op) describe<at::_ops::op>(),
  static const auto *table = new std::unordered_map<std::string, Hot>{
#include "hot_operators.inc"
  };
#undef HOT
  return *table;
}

}  // namespace

bool isDirect(const std::string &name) {
  return hotOperators().count(name) != 0;
}

void registerDirect(const c10::OperatorHandle &handle, const std::string &name, const c10::BoxedKernel &whole,
                    const c10::BoxedKernel &rest) {
  static auto *handles = new std::vector<c10::RegistrationHandleRAII>;
  const Hot &hot = hotOperators().at(name);
  handles->push_back(c10::Dispatcher::singleton().registerImpl(handle.operator_name(), c10::DispatchKey::PrivateUse1,
                                                               hot.make(handle, whole, rest), hot.signature, nullptr,
                                                               "ditorch"));
}

}  // namespace ditorch
