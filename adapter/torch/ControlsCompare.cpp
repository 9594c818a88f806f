// One call of the device compared with the CPU's kernel on copies of its arguments.
//
// Compared are all results, and all arguments after the call: an operator that writes to an input it must not write to
// is found. What is right is decided by the judge of dit/verdict.h, which most often needs the one CPU run that is made
// anyway; for suspicious values it asks for further ones (ControlsArguments.cpp). Whatever goes wrong here is a reason
// why the verdict is unknown, never an error of the program.
#include "ControlsCompare.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <cstring>
#include <sstream>

#include "Common.h"
#include "ControlsText.h"
#include "dit/random.h"
#include "dit/runtime.h"

namespace ditorch::controls {
namespace {

using c10::IValue;

constexpr int64_t kShown = 10;  // values of a tensor in a block

// One memory of yardsticks for the process; null when there is no memory for it.
dit_verdict_memory *getMemory() {
  static dit_verdict_memory *const memory = [] {
    dit_verdict_memory *made = nullptr;
    return dit_verdict_memory_create(&made, nullptr) == DIT_OK ? made : nullptr;
  }();
  return memory;
}

// The embedded device takes its inputs as they are and sums in float32 at least.
bool isCareful(const at::Tensor &device) {
  dit_device_properties properties;
  const int index = device.device().type() == kDevice ? device.device().index() : 0;
  return dit_device_get_properties(index, &properties, nullptr) == DIT_OK &&
         std::strcmp(properties.vendor, "host") == 0;
}

// To which other devices round float32 inputs of products on purpose.
double getInputRoundoff(const std::string &name) {
  try {
    const auto &context = at::globalContext();
    const bool reduced = name.find("conv") != std::string::npos ? context.allowTF32CuDNN() : context.allowTF32CuBLAS();
    return reduced ? 0x1p-11 : 0;
  } catch (const std::exception &) {
    return 0;  // the program uses the newer settings
  }
}

uint64_t makeKey(uint64_t key, dit_verdict_what what, int index, const at::Tensor &tensor) {
  key = dit_random_mix(key, static_cast<uint64_t>(what) << 40 | static_cast<uint64_t>(index) << 8 |
                                static_cast<uint64_t>(tensor.scalar_type()));
  for (const int64_t extent : tensor.sizes()) {
    key = dit_random_mix(key, static_cast<uint64_t>(extent));
  }
  return key | 1;
}

// Torch explains at length: the first line will do.
std::string getFirstLine(const std::exception &error) {
  const auto *known = dynamic_cast<const c10::Error *>(&error);
  const std::string text = known != nullptr ? known->what_without_backtrace() : error.what();
  return text.substr(0, std::min(text.find('\n'), static_cast<size_t>(160)));
}

// The place of a row-major index, "[0, 3]".
std::string showPlace(int64_t index, c10::IntArrayRef sizes) {
  std::vector<int64_t> place(sizes.size());
  for (size_t i = sizes.size(); i-- > 0;) {
    place[i] = index % sizes[i];
    index /= sizes[i];
  }
  std::ostringstream text;
  text << c10::IntArrayRef(place);
  return text.str();
}

std::string showWrong(const dit_verdict_result &result, c10::IntArrayRef sizes) {
  std::ostringstream text;
  text << "not_close";
  if (result.index >= 0) {
    text << ", " << result.wrong << " of " << result.numel << " values, error: " << result.error
         << ", allowed: " << result.allowed;
    if (!std::isnan(result.cpu_error)) {
      text << ", the CPU's own error: " << result.cpu_error;
    }
    text << ", index: " << showPlace(result.index, sizes) << ", " << result.value << " instead of " << result.reference;
  } else {
    text << ", " << result.reason;
  }
  return text.str();
}

void resolveAll(std::vector<at::Tensor> &tensors) {
  for (at::Tensor &tensor : tensors) {
    if (tensor.defined()) {
      tensor = tensor.resolve_conj().resolve_neg();
    }
  }
}

bool canRead(const at::Tensor &tensor) {
  return tensor.layout() == c10::kStrided && tensor.has_storage() && !tensor.is_quantized();
}

// Numbers and flags among the results: item(), equal().
bool areDifferent(const IValue &device, const IValue &cpu) {
  if (device.isDouble() && cpu.isDouble() && std::isnan(device.toDouble()) && std::isnan(cpu.toDouble())) {
    return false;
  }
  const bool simple = device.isBool() || device.isInt() || device.isDouble();
  return simple && (device.tagKind() != cpu.tagKind() || !(device == cpu));
}

}  // namespace

const char *findExclusion(const Operator &op) {
  if (op.isForSparse()) {
    return "with sparse tensors it is the CPU's own kernel";
  }
  const uint64_t traits = dit_operator_get_traits(op.name.c_str());
  if (op.generator_arg >= 0 || op.hidden_randomness || (traits & DIT_OPERATOR_RANDOM)) {
    return "it draws random numbers";
  }
  if (traits & DIT_OPERATOR_UNINITIALISED) {
    return "it hands out uninitialised memory";
  }
  return traits & DIT_OPERATOR_SCRATCH ? "it works on bytes that only its own kernels understand" : nullptr;
}

Comparison::Comparison(const Operator &op, const c10::OperatorHandle &handle, const IValue *args)
    : op_(op), handle_(handle), device_args_(args, args + op.nargs), arguments_(op, handle.schema(), args) {}

// What the judge asks for

// Running sums as other devices keep them, one step after the other (python/ditorch/other_ways.py has the same).
static at::Tensor scan(const at::Tensor &x, int64_t dim, bool multiplies) {
  if (x.dim() == 0 || x.size(dim) == 0) {
    return x.clone();
  }
  std::vector<at::Tensor> rows = x.unbind(dim);
  for (size_t i = 1; i < rows.size(); i++) {
    rows[i] = multiplies ? rows[i - 1].mul(rows[i]) : rows[i - 1].add(rows[i]);
  }
  return at::stack(rows, dim);
}

// What the CPU makes of the call in another way: cumsum(self, dim, dtype) and cumprod.
void Comparison::runOtherWay(Run &run, const std::vector<IValue> &args) const {
  const std::string word = dit_operator_find(op_.name.c_str())->name;
  if ((word != "cumsum" && word != "cumprod") || handle_.schema().is_mutable() || args.size() != 3) {
    run.refusal = "the CPU has no other way";
    return;
  }
  const at::Tensor self = args[2].isNone() ? args[0].toTensor() : args[0].toTensor().to(args[2].toScalarType());
  run.results.push_back(scan(self, args[1].toInt(), word == "cumprod"));
}

const Comparison::Run &Comparison::getRun(const dit_verdict_request &request) {
  Run &run = runs_[request.kind];
  const bool same =
      request.kind == DIT_RUN_WIDE || request.kind == DIT_RUN_NATIVE || request.kind == DIT_RUN_OTHER ||
      (run.request.seed == request.seed && run.request.narrow == request.narrow && run.request.size == request.size);
  if (run.tried && same) {
    return run;
  }
  run = Run();
  run.tried = true;
  run.request = request;
  try {
    if (request.kind == DIT_RUN_OTHER) {
      runOtherWay(run, arguments_.make(dit_verdict_request{DIT_RUN_NATIVE, 0, false, 0}));
      return run;
    }
    std::vector<IValue> args = arguments_.make(request), stack = args;
    handle_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    for (const IValue &value : stack) {
      listTensors(value, run.results);
    }
    for (const IValue &value : args) {
      listTensors(value, run.arguments);
    }
    resolveAll(run.results);
    resolveAll(run.arguments);
    if (request.kind == DIT_RUN_NATIVE) {
      native_rets_ = std::move(stack);
    }
  } catch (const std::exception &error) {
    run.refusal = getFirstLine(error);
  }
  return run;
}

dit_status Comparison::giveValue(const dit_verdict_request &request, dit_verdict_what what, int index,
                                 dit_tensor_view *value, dit_error *err) {
  if (request.kind == DIT_RUN_OTHER && !dit_operator_has(op_.name.c_str(), DIT_OPERATOR_SCAN)) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "the CPU has no other way");
  }
  const Run &run = getRun(request);
  if (!run.refusal.empty()) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "%.200s", run.refusal.c_str());
  }
  const auto &tensors = what == DIT_VERDICT_INPUT ? run.arguments : run.results;
  const auto place = static_cast<size_t>(index);
  if (place >= tensors.size() || !tensors[place].defined() || !canRead(tensors[place])) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "the run gave no such tensor");
  }
  fillView(*value, tensors[place]);
  return DIT_OK;
}

void Comparison::giveArguments(dit_verdict_arguments *arguments) {
  const auto &schema = handle_.schema().arguments();
  const dit_operator *row = dit_operator_find(op_.name.c_str());
  inputs_.clear();
  input_tensors_.clear();
  for (size_t i = 0; i < schema.size(); i++) {
    const IValue &value = arguments_.saved()[i];
    if (schema[i].name() == "dim" && value.isInt()) {
      arguments->has_dim = true;
      arguments->dim = value.toInt();
    }
    if (row != nullptr && row->sorted >= 0 && schema[i].name() == "sorted" && value.isBool()) {
      arguments->is_unsorted = !value.toBool();
    }
    if (row != nullptr && row->unless != nullptr && schema[i].name() == row->unless && !value.isNone()) {
      arguments->is_inexact = !schema[i].default_value() || *schema[i].default_value() != value;
    }
    if (schema[i].name() == "index" && value.isTensor()) {
      arguments->index = static_cast<int>(input_tensors_.size());
    }
    std::vector<at::Tensor> tensors;
    listTensors(value, tensors);
    for (const at::Tensor &tensor : tensors) {
      if (tensor.defined() && canRead(tensor)) {
        input_tensors_.push_back(tensor.resolve_conj().resolve_neg());
      }
    }
  }
  for (const at::Tensor &tensor : input_tensors_) {
    fillView(inputs_.emplace_back(), tensor);
  }
  arguments->inputs = inputs_.data();
  arguments->input_count = static_cast<int>(inputs_.size());
  if (dit_operator_has(op_.name.c_str(), DIT_OPERATOR_CONTRACTION)) {
    arguments->input_roundoff = getInputRoundoff(op_.name);
  }
}

// Judgement

void Comparison::judgeTensors(Value &value, dit_verdict_what what, int index) {
  Source context{this, what};
  const dit_verdict_source source = {
      &context,
      [](void *from, const dit_verdict_request *request, int place, dit_tensor_view *out, dit_error *err) {
        const auto *asked = static_cast<Source *>(from);
        return asked->comparison->giveValue(*request, asked->what, place, out, err);
      },
      [](void *from, dit_verdict_arguments *arguments, dit_error *err) {
        try {
          static_cast<Source *>(from)->comparison->giveArguments(arguments);
          return DIT_OK;
        } catch (const std::exception &error) {
          return dit_error_set(err, DIT_ERR_INTERNAL, "%.200s", error.what());
        }
      }};
  dit_verdict_case judged{};
  judged.op = dit_operator_find(op_.name.c_str());
  judged.traits = dit_operator_get_traits(op_.name.c_str());
  judged.what = what;
  judged.index = index;
  judged.is_careful = isCareful(value.device);
  judged.memory = getMemory();
  judged.key = makeKey(dit_random_mix(arguments_.hash(), std::hash<std::string>()(op_.name)), what, index, value.mine);
  const at::Tensor mine = value.mine.resolve_conj().resolve_neg(), wanted = value.wanted.resolve_conj().resolve_neg();
  dit_tensor_view a{}, b{};
  fillView(a, mine);
  fillView(b, wanted);
  dit_verdict_result result;
  dit_error err{};
  const dit_status status = dit_verdict_judge(&judged, &source, &a, &b, &result, &err);
  if (status != DIT_OK) {
    value.verdict = DIT_VERDICT_UNKNOWN;
    value.text = std::string("unknown, ") + err.message;
    return;
  }
  value.verdict = result.verdict;
  value.text = result.verdict == DIT_VERDICT_RIGHT   ? "allclose"
               : result.verdict == DIT_VERDICT_WRONG ? showWrong(result, mine.sizes())
                                                     : std::string("unknown, ") + result.reason;
}

void Comparison::judge(Value &value, dit_verdict_what what, int index) {
  value.verdict = DIT_VERDICT_WRONG;
  if (!value.device.defined() || !value.wanted.defined()) {
    value.text = value.device.defined() ? "not_close, the CPU gives none" : "not_close, the device gives none";
    return;
  }
  if (!canRead(value.mine) || !canRead(value.wanted)) {
    value.verdict = DIT_VERDICT_UNKNOWN;
    value.text = "unknown, no dense tensor";
    return;
  }
  if (value.mine.scalar_type() != value.wanted.scalar_type()) {
    value.text = "not_close, the dtype is not the CPU's";
    return;
  }
  judgeTensors(value, what, index);
  if (value.mine.sizes() == value.wanted.sizes() && value.mine.strides() != value.wanted.strides()) {
    value.text += ", strides differ";
  }
}

// The destination of an operator is one of its results: judged already.
const Comparison::Value *Comparison::findSame(const Value &value) const {
  for (const Value &other : values_) {
    if (other.device.defined() && other.device.is_same(value.device) && other.wanted.is_same(value.wanted)) {
      return &other;
    }
  }
  return nullptr;
}

void Comparison::conclude(dit_verdict verdict, const std::string &reason) {
  const auto rank = [](dit_verdict of) { return of == DIT_VERDICT_WRONG ? 2 : of == DIT_VERDICT_UNKNOWN ? 1 : 0; };
  if (rank(verdict) > rank(verdict_)) {
    verdict_ = verdict;
    reason_ = reason;
  }
}

void Comparison::judgeList(const IValue &device, const std::vector<at::Tensor> &wanted, size_t &next,
                           dit_verdict_what what, const std::string &name, Copier &copier) {
  std::vector<at::Tensor> mine;
  listTensors(device, mine);
  for (size_t i = 0; i < mine.size(); i++, next++) {
    Value value{device.isTensor() ? name : name + "[" + std::to_string(i) + "]",
                mine[i],
                copier.copy(mine[i]),
                next < wanted.size() ? wanted[next] : at::Tensor(),
                DIT_VERDICT_RIGHT,
                ""};
    if (!value.device.defined() && !value.wanted.defined()) {
      continue;
    }
    if (const Value *same = findSame(value)) {
      value.verdict = same->verdict;
      value.text = same->text;
    } else {
      judge(value, what, static_cast<int>(next));
    }
    conclude(value.verdict, value.name + ": " + value.text);
    values_.push_back(std::move(value));
  }
}

void Comparison::judgeAll(const IValue *rets) {
  const Run &native = getRun(dit_verdict_request{DIT_RUN_NATIVE, 0, false, 0});
  if (!native.refusal.empty()) {
    refusal_ = native.refusal;
    conclude(DIT_VERDICT_UNKNOWN, "the CPU refuses what the device did: " + refusal_);
    return;
  }
  Copier copier;
  size_t next = 0;
  for (size_t i = 0; i < op_.nrets; i++) {
    const std::string name = "result " + std::to_string(i);
    judgeList(rets[i], native.results, next, DIT_VERDICT_OUTPUT, name, copier);
    if (areDifferent(rets[i], native_rets_[i])) {
      std::ostringstream text;
      text << "not_close, " << rets[i] << " instead of " << native_rets_[i];
      conclude(DIT_VERDICT_WRONG, name + ": " + text.str());
      values_.push_back({name, {}, {}, {}, DIT_VERDICT_WRONG, text.str()});
    }
  }
  next = 0;
  for (size_t i = 0; i < op_.nargs; i++) {
    judgeList(device_args_[i], native.arguments, next, DIT_VERDICT_INPUT, handle_.schema().arguments()[i].name(),
              copier);
  }
}

void Comparison::finish(const IValue *rets) {
  try {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::NoGradGuard no_grad;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    judgeAll(rets);
  } catch (const std::exception &error) {
    refusal_ = getFirstLine(error);
    conclude(DIT_VERDICT_UNKNOWN, refusal_);
  }
}

std::string Comparison::show() const {
  std::string text = "autocompare:" + op_.name + "\n";
  if (!refusal_.empty()) {
    text += "\tunknown, the CPU refuses what the device did: " + refusal_ + "\n";
  }
  for (const Value &value : values_) {
    text += "autocompare:" + op_.name + " " + value.name + ": " + value.text + "\n";
    if (value.device.defined()) {
      text += "\tdevice: " + showMetadata(value.device) + "\n";
      text += canRead(value.mine) ? "\t\t" + showValues(value.mine, kShown) + "\n" : "";
    }
    if (value.wanted.defined()) {
      text += "\tcpu: " + showMetadata(value.wanted) + "\n";
      text += canRead(value.wanted) ? "\t\t" + showValues(value.wanted, kShown) + "\n" : "";
    }
  }
  return text;
}

}  // namespace ditorch::controls
