// The collectives of ProcessGroupNccl: what is checked, and what gloo is asked to do.
#include "ProcessGroupNccl.h"
#include "ProcessGroupReduce.h"

namespace ditorch {
namespace {

Tensors flatten(const Lists &lists) {
  Tensors all;
  for (const Tensors &list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

void checkSame(const at::Tensor &a, const at::Tensor &b, const char *what) {
  TORCH_CHECK_TYPE(a.scalar_type() == b.scalar_type(), what, ": tensors must have one dtype, not ", a.scalar_type(),
                   " and ", b.scalar_type());
}

void gatherList(Gloo &gloo, std::vector<Buffer> &outputs, Buffer &input, int rank) {
  Tensors bytes;
  bool even = true;
  for (Buffer &output : outputs) {
    output.discard();
    bytes.push_back(output.bytes());
    even = even && output.nbytes() == input.nbytes();
  }
  if (even) {
    gloo.allGather(bytes, input.bytes());
  } else {
    for (size_t i = 0; i < bytes.size(); i++) {
      if (static_cast<int>(i) == rank) {
        bytes[i].copy_(input.bytes());
      }
      gloo.broadcast(bytes[i], static_cast<int>(i));
    }
  }
  for (Buffer &output : outputs) {
    output.store();
  }
}

// One part per rank is exchanged, then each rank adds up its own: half of the traffic of an all_reduce.
void reduceParts(Gloo &gloo, const Reduction &reduction, const at::Tensor &input, const at::Tensor &output, int size) {
  const int64_t numel = output.numel();
  if (numel == 0) {
    return;
  }
  const at::Tensor received = at::empty_like(input);
  const auto part = static_cast<int64_t>(numel * output.element_size());
  const std::vector<int64_t> counts(size, part);
  gloo.allToAll(viewFlat(received, at::kByte, 0, part * size), viewFlat(input, at::kByte, 0, part * size), counts,
                counts);
  at::Tensor total = reduction.prepare(viewFlat(received, received.scalar_type(), 0, numel), /*keep=*/false);
  for (int rank = 1; rank < size; rank++) {
    reduction.combine(
        total, reduction.prepare(viewFlat(received, received.scalar_type(), rank * part, numel), /*keep=*/false));
  }
  reduction.conclude(total, output);
}

// Bytes that go to, or come from, each rank. Without splits all get the same number of rows.
std::vector<int64_t> countBytes(const at::Tensor &tensor, const std::vector<int64_t> &splits, int size,
                                const char *which) {
  const int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
  const int64_t row = rows == 0 ? 0 : static_cast<int64_t>(tensor.nbytes()) / rows;
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, "all_to_all_single: the ", which, " has ", rows, " rows, which the group's ",
                      size, " ranks do not divide; give split sizes");
    return std::vector<int64_t>(size, rows / size * row);
  }
  TORCH_CHECK_VALUE(static_cast<int>(splits.size()) == size, "all_to_all_single: ", splits.size(),
                    " split sizes of the ", which, " for ", size, " ranks");
  std::vector<int64_t> counts;
  int64_t sum = 0;
  for (const int64_t split : splits) {
    TORCH_CHECK_VALUE(split >= 0, "all_to_all_single: split size ", split, " of the ", which, " is negative");
    sum += split;
    counts.push_back(split * row);
  }
  TORCH_CHECK_VALUE(sum == rows, "all_to_all_single: the split sizes of the ", which, " add up to ", sum,
                    ", but it has ", rows, " rows");
  return counts;
}

}  // namespace

WorkPtr ProcessGroupNccl::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) {
  const at::Tensor &tensor = getOnly(tensors, "broadcast");
  Buffer::checkContiguous(tensor, "broadcast");
  return launch(OpType::BROADCAST, "broadcast", "broadcast", tensors, tensors, options.timeout,
                [buffer = Buffer(tensor), root = options.rootRank, vendor = vendor_](Gloo gloo) mutable {
                  if (!vendor || !vendor->broadcast(gloo, buffer, static_cast<int>(root))) {
                    gloo.broadcast(buffer.bytes(), static_cast<int>(root));
                    buffer.store();
                  }
                });
}

WorkPtr ProcessGroupNccl::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) {
  getOnly(tensors, "all_reduce");
  c10d::AllreduceCoalescedOptions same;
  static_cast<c10d::AllreduceOptions &>(same) = options;
  return allreduce_coalesced(tensors, same);
}

WorkPtr ProcessGroupNccl::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options) {
  std::vector<Reduction> reductions;
  for (const at::Tensor &tensor : tensors) {
    Buffer::checkContiguous(tensor, "all_reduce");
    reductions.emplace_back(options.reduceOp, tensor.scalar_type(), getSize(), "all_reduce");
  }
  return launch(OpType::ALLREDUCE, "all_reduce", "all_reduce", tensors, tensors, options.timeout,
                [buffers = makeBuffers(tensors), reductions = std::move(reductions), op = options.reduceOp,
                 vendor = vendor_](Gloo gloo) mutable {
                  for (size_t i = 0; i < buffers.size(); i++) {
                    if (vendor && vendor->allReduce(gloo, buffers[i], op)) {
                      continue;
                    }
                    const at::Tensor elements = buffers[i].elements();
                    const at::Tensor total = reductions[i].prepare(elements, /*keep=*/false);
                    gloo.allReduce(total, reductions[i].inner());
                    reductions[i].conclude(total, elements);
                    buffers[i].store();
                  }
                });
}

WorkPtr ProcessGroupNccl::reduce(Tensors &tensors, const c10d::ReduceOptions &options) {
  const at::Tensor &tensor = getOnly(tensors, "reduce");
  Buffer::checkContiguous(tensor, "reduce");
  const Reduction reduction(options.reduceOp, tensor.scalar_type(), getSize(), "reduce");
  const bool is_root = options.rootRank == getRank();
  return launch(OpType::REDUCE, "reduce", "reduce", tensors, tensors, options.timeout,
                [buffer = Buffer(tensor), reduction, is_root, root = options.rootRank, op = options.reduceOp,
                 vendor = vendor_](Gloo gloo) mutable {
                  if (vendor && vendor->reduce(gloo, buffer, op, static_cast<int>(root))) {
                    return;
                  }
                  const at::Tensor elements = buffer.elements();
                  const at::Tensor total = reduction.prepare(elements, /*keep=*/!is_root);
                  gloo.reduce(total, reduction.inner(), static_cast<int>(root));
                  if (is_root) {
                    reduction.conclude(total, elements);
                    buffer.store();
                  }
                });
}

WorkPtr ProcessGroupNccl::allgather(Lists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options) {
  getOnly(inputs, "all_gather");
  return allgather_coalesced(outputs, inputs, options);
}

WorkPtr ProcessGroupNccl::allgather_coalesced(Lists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options) {
  constexpr const char *kName = "all_gather";
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), kName, ": ", inputs.size(), " inputs, but ", outputs.size(),
                    " lists of outputs");
  std::vector<std::vector<Buffer>> lists;
  for (size_t i = 0; i < inputs.size(); i++) {
    Buffer::checkContiguous(inputs[i], kName);
    TORCH_CHECK_VALUE(static_cast<int>(outputs[i].size()) == getSize(), kName, ": the list of outputs has ",
                      outputs[i].size(), " tensors, but the group has ", getSize(), " ranks");
    for (const at::Tensor &output : outputs[i]) {
      Buffer::checkDevice(output, kName);
      checkSame(inputs[i], output, kName);
    }
    TORCH_CHECK_VALUE(outputs[i][getRank()].numel() == inputs[i].numel(), kName, ": output ", getRank(), " has ",
                      outputs[i][getRank()].numel(), " elements, but this rank's input has ", inputs[i].numel());
    lists.push_back(makeBuffers(outputs[i]));
  }
  return launch(OpType::ALLGATHER, kName, "all_gather", inputs, flatten(outputs), options.timeout,
                [lists = std::move(lists), sources = makeBuffers(inputs), rank = getRank()](Gloo gloo) mutable {
                  for (size_t i = 0; i < sources.size(); i++) {
                    gatherList(gloo, lists[i], sources[i], rank);
                  }
                });
}

WorkPtr ProcessGroupNccl::launchAllGather(OpType type, const char *name, const char *title, const Tensors &outputs,
                                          const Tensors &inputs, const c10d::AllgatherOptions &options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), name, ": ", inputs.size(), " inputs, but ", outputs.size(),
                    " outputs");
  for (size_t i = 0; i < inputs.size(); i++) {
    Buffer::checkContiguous(inputs[i], name);
    Buffer::checkContiguous(outputs[i], name);
    checkSame(inputs[i], outputs[i], name);
    TORCH_CHECK_VALUE(outputs[i].numel() == inputs[i].numel() * getSize(), name, ": the output has ",
                      outputs[i].numel(), " elements, but must have world_size (", getSize(), ") times the input's ",
                      inputs[i].numel());
  }
  return launch(type, name, title, inputs, outputs, options.timeout,
                [targets = makeBuffers(outputs), sources = makeBuffers(inputs), size = getSize(),
                 vendor = vendor_](Gloo gloo) mutable {
                  for (size_t i = 0; i < sources.size(); i++) {
                    if (vendor && vendor->allGather(gloo, targets[i], sources[i])) {
                      continue;
                    }
                    const int64_t part = sources[i].nbytes();
                    Tensors parts;
                    for (int rank = 0; rank < size; rank++) {
                      parts.push_back(viewFlat(targets[i].bytes(), at::kByte, rank * part, part));
                    }
                    gloo.allGather(parts, sources[i].bytes());
                    targets[i].store();
                  }
                });
}

WorkPtr ProcessGroupNccl::_allgather_base(at::Tensor &output, at::Tensor &input,
                                          const c10d::AllgatherOptions &options) {
  return launchAllGather(OpType::_ALLGATHER_BASE, "all_gather_into_tensor", "_all_gather_base", {output}, {input},
                         options);
}

WorkPtr ProcessGroupNccl::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                          const c10d::AllgatherOptions &options) {
  return launchAllGather(OpType::COALESCED, "all_gather_into_tensor (coalesced)", "all_gather_into_tensor_coalesced",
                         outputs, inputs, options);
}

WorkPtr ProcessGroupNccl::gather(Lists &outputs, Tensors &inputs, const c10d::GatherOptions &options) {
  const at::Tensor &input = getOnly(inputs, "gather");
  Buffer::checkContiguous(input, "gather");
  const bool is_root = options.rootRank == getRank();
  const Tensors targets = flatten(outputs);
  TORCH_CHECK_VALUE(static_cast<int>(targets.size()) == (is_root ? getSize() : 0), "gather: rank ", getRank(), " gave ",
                    targets.size(), " outputs, but must give ", is_root ? getSize() : 0, " (the root is rank ",
                    options.rootRank, ")");
  for (const at::Tensor &target : targets) {
    Buffer::checkDevice(target, "gather");
    checkSame(input, target, "gather");
    TORCH_CHECK_VALUE(target.numel() == input.numel(), "gather: an output has ", target.numel(),
                      " elements, but the input has ", input.numel());
  }
  return launch(OpType::GATHER, "gather", "gather", inputs, targets, options.timeout,
                [list = makeBuffers(targets), source = Buffer(input), root = options.rootRank](Gloo gloo) mutable {
                  Tensors bytes;
                  for (Buffer &target : list) {
                    target.discard();
                    bytes.push_back(target.bytes());
                  }
                  gloo.gather(bytes, source.bytes(), static_cast<int>(root));
                  for (Buffer &target : list) {
                    target.store();
                  }
                });
}

WorkPtr ProcessGroupNccl::scatter(Tensors &outputs, Lists &inputs, const c10d::ScatterOptions &options) {
  const at::Tensor &output = getOnly(outputs, "scatter");
  Buffer::checkContiguous(output, "scatter");
  const bool is_root = options.rootRank == getRank();
  const Tensors sources = flatten(inputs);
  TORCH_CHECK_VALUE(static_cast<int>(sources.size()) == (is_root ? getSize() : 0), "scatter: rank ", getRank(),
                    " gave ", sources.size(), " inputs, but must give ", is_root ? getSize() : 0, " (the root is rank ",
                    options.rootRank, ")");
  for (const at::Tensor &source : sources) {
    Buffer::checkDevice(source, "scatter");
    checkSame(output, source, "scatter");
    TORCH_CHECK_VALUE(source.numel() == output.numel(), "scatter: an input has ", source.numel(),
                      " elements, but the output has ", output.numel());
  }
  return launch(OpType::SCATTER, "scatter", "scatter", is_root ? sources : outputs, outputs, options.timeout,
                [list = makeBuffers(sources), target = Buffer(output), root = options.rootRank](Gloo gloo) mutable {
                  Tensors bytes;
                  for (Buffer &source : list) {
                    bytes.push_back(source.bytes());
                  }
                  gloo.scatter(target.bytes(), bytes, static_cast<int>(root));
                  target.store();
                });
}

WorkPtr ProcessGroupNccl::reduce_scatter(Tensors &outputs, Lists &inputs, const c10d::ReduceScatterOptions &options) {
  constexpr const char *kName = "reduce_scatter";
  const at::Tensor &output = getOnly(outputs, kName);
  Buffer::checkContiguous(output, kName);
  TORCH_CHECK_VALUE(inputs.size() == 1 && static_cast<int>(inputs[0].size()) == getSize(), kName,
                    ": the list of inputs must have one tensor for each of the ", getSize(), " ranks");
  bool even = true;
  for (const at::Tensor &input : inputs[0]) {
    Buffer::checkDevice(input, kName);
    checkSame(output, input, kName);
    even = even && input.numel() == output.numel();
  }
  TORCH_CHECK_VALUE(inputs[0][getRank()].numel() == output.numel(), kName, ": input ", getRank(), " has ",
                    inputs[0][getRank()].numel(), " elements, but this rank's output has ", output.numel());
  const Reduction reduction(options.reduceOp, output.scalar_type(), getSize(), kName);
  return launch(OpType::REDUCE_SCATTER, kName, "reduce_scatter", inputs[0], outputs, options.timeout,
                [list = makeBuffers(inputs[0]), target = Buffer(output), reduction, even, rank = getRank(),
                 size = getSize()](Gloo gloo) mutable {
                  if (even) {
                    Tensors parts;
                    for (Buffer &source : list) {
                      parts.push_back(source.elements());
                    }
                    reduceParts(gloo, reduction, at::cat(parts), target.elements(), size);
                    target.store();
                    return;
                  }
                  for (int root = 0; root < size; root++) {  // as NCCL: one reduction per part
                    const at::Tensor total = reduction.prepare(list[root].elements(), /*keep=*/true);
                    gloo.reduce(total, reduction.inner(), root);
                    if (root == rank) {
                      reduction.conclude(total, target.elements());
                      target.store();
                    }
                  }
                });
}

WorkPtr ProcessGroupNccl::launchReduceScatter(OpType type, const char *name, const char *title, const Tensors &outputs,
                                              const Tensors &inputs, const c10d::ReduceScatterOptions &options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), name, ": ", inputs.size(), " inputs, but ", outputs.size(),
                    " outputs");
  std::vector<Reduction> reductions;
  for (size_t i = 0; i < inputs.size(); i++) {
    Buffer::checkContiguous(inputs[i], name);
    Buffer::checkContiguous(outputs[i], name);
    checkSame(inputs[i], outputs[i], name);
    TORCH_CHECK_VALUE(inputs[i].numel() == outputs[i].numel() * getSize(), name, ": the input has ", inputs[i].numel(),
                      " elements, but must have world_size (", getSize(), ") times the output's ", outputs[i].numel());
    reductions.emplace_back(options.reduceOp, inputs[i].scalar_type(), getSize(), name);
  }
  return launch(type, name, title, inputs, outputs, options.timeout,
                [targets = makeBuffers(outputs), sources = makeBuffers(inputs), reductions = std::move(reductions),
                 size = getSize(), op = options.reduceOp, vendor = vendor_](Gloo gloo) mutable {
                  for (size_t i = 0; i < sources.size(); i++) {
                    if (vendor && vendor->reduceScatter(gloo, targets[i], sources[i], op)) {
                      continue;
                    }
                    reduceParts(gloo, reductions[i], sources[i].elements(), targets[i].elements(), size);
                    targets[i].store();
                  }
                });
}

WorkPtr ProcessGroupNccl::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                               const c10d::ReduceScatterOptions &options) {
  return launchReduceScatter(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", "_reduce_scatter_base", {output},
                             {input}, options);
}

WorkPtr ProcessGroupNccl::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                          const c10d::ReduceScatterOptions &options) {
  return launchReduceScatter(OpType::COALESCED, "reduce_scatter_tensor (coalesced)", "reduce_scatter_tensor_coalesced",
                             outputs, inputs, options);
}

WorkPtr ProcessGroupNccl::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                                        std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options) {
  constexpr const char *kName = "all_to_all_single";
  Buffer::checkContiguous(input, kName);
  Buffer::checkContiguous(output, kName);
  checkSame(input, output, kName);
  return launch(
      OpType::ALLTOALL_BASE, kName, "all_to_all", {input}, {output}, options.timeout,
      [target = Buffer(output), source = Buffer(input),
       output_counts = countBytes(output, output_splits, getSize(), "output"),
       input_counts = countBytes(input, input_splits, getSize(), "input"), vendor = vendor_](Gloo gloo) mutable {
        if (!vendor || !vendor->allToAll(gloo, target, source, output_counts, input_counts)) {
          gloo.allToAll(target.bytes(), source.bytes(), output_counts, input_counts);
          target.store();
        }
      });
}

WorkPtr ProcessGroupNccl::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) {
  constexpr const char *kName = "all_to_all";
  TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == getSize() && static_cast<int>(inputs.size()) == getSize(),
                    kName, ": both lists must have one tensor for each of the ", getSize(), " ranks, not ",
                    outputs.size(), " outputs and ", inputs.size(), " inputs");
  std::vector<int64_t> output_counts, input_counts;
  int64_t total = 0;
  for (int rank = 0; rank < getSize(); rank++) {
    Buffer::checkContiguous(outputs[rank], kName);
    Buffer::checkContiguous(inputs[rank], kName);
    checkSame(inputs[rank], outputs[rank], kName);
    output_counts.push_back(static_cast<int64_t>(outputs[rank].nbytes()));
    input_counts.push_back(static_cast<int64_t>(inputs[rank].nbytes()));
    total += output_counts.back();
  }
  return launch(OpType::ALLTOALL, kName, "all_to_all", inputs, outputs, options.timeout,
                [targets = makeBuffers(outputs), sources = makeBuffers(inputs), output_counts, input_counts,
                 total](Gloo gloo) mutable {
                  Tensors parts;
                  for (Buffer &source : sources) {
                    parts.push_back(source.bytes());
                  }
                  const at::Tensor received = at::empty({total}, at::kByte);
                  gloo.allToAll(received, at::cat(parts), output_counts, input_counts);
                  int64_t at = 0;
                  for (size_t i = 0; i < targets.size(); at += output_counts[i], i++) {
                    targets[i].bytes().copy_(viewFlat(received, at::kByte, at, output_counts[i]));
                    targets[i].store();
                  }
                });
}

}  // namespace ditorch
