// One call compared with the CPU: see ControlsCompare.cpp.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "ControlsArguments.h"
#include "Operator.h"
#include "dit/verdict.h"

namespace ditorch::controls {

// Why calls of this operator cannot be compared; null when they can.
const char *findExclusion(const Operator &op);

// Copies the arguments to the CPU before the call; runs the CPU's kernel on them after it, and judges.
class Comparison {
 public:
  Comparison(const Operator &op, const c10::OperatorHandle &handle, const c10::IValue *args);
  // Results and arguments after the call. Throws nothing.
  void finish(const c10::IValue *rets);

  // Of the whole call: wrong when anything is wrong, else unknown when anything is.
  dit_verdict verdict() const { return verdict_; }
  // Of the first value that has this verdict.
  const std::string &reason() const { return reason_; }
  // Every value with its verdict, metadata and first elements, as DIPU prints them.
  std::string show() const;

 private:
  struct Value {
    std::string name;
    at::Tensor device;        // undefined: none
    at::Tensor mine, wanted;  // of the CPU: the device's one copied, and the CPU's own
    dit_verdict verdict;
    std::string text;
  };
  struct Run {
    bool tried = false;
    dit_verdict_request request{};
    std::vector<at::Tensor> results, arguments;
    std::string refusal;  // why there is none
  };
  struct Source {
    Comparison *comparison;
    dit_verdict_what what;
  };

  void runOtherWay(Run &run, const std::vector<c10::IValue> &args) const;
  const Run &getRun(const dit_verdict_request &request);
  dit_status giveValue(const dit_verdict_request &request, dit_verdict_what what, int index, dit_tensor_view *value,
                       dit_error *err);
  void giveArguments(dit_verdict_arguments *arguments);
  void judgeAll(const c10::IValue *rets);
  void judgeList(const c10::IValue &device, const std::vector<at::Tensor> &wanted, size_t &next, dit_verdict_what what,
                 const std::string &name, Copier &copier);
  void judge(Value &value, dit_verdict_what what, int index);
  void judgeTensors(Value &value, dit_verdict_what what, int index);
  const Value *findSame(const Value &value) const;
  void conclude(dit_verdict verdict, const std::string &reason);

  const Operator &op_;
  const c10::OperatorHandle &handle_;
  std::vector<c10::IValue> device_args_;
  Arguments arguments_;
  Run runs_[DIT_RUN_OTHER + 1];  // by enum dit_verdict_run
  std::vector<c10::IValue> native_rets_;
  std::vector<dit_tensor_view> inputs_;
  std::vector<at::Tensor> input_tensors_;
  std::vector<Value> values_;
  std::string refusal_;
  dit_verdict verdict_ = DIT_VERDICT_RIGHT;
  std::string reason_;
};

}  // namespace ditorch::controls
